// SPDX-License-Identifier: GPL-2.0-only

//! Execution of tasks in every order with at most a given number of interruptions.
//!
//! One task runs at a time. It may be interrupted at each [`point`]: before each operation on a
//! word and before each lock is taken. When the task ends, or waits for a lock, another task
//! continues, which is no interruption. Each choice between tasks is recorded. The next run repeats
//! all choices up to the last one with another option left.

use crate::touch::touch;
use std::{
    cell::{Cell, RefCell},
    panic::{catch_unwind, resume_unwind, AssertUnwindSafe},
    sync::{self, Arc, Condvar, PoisonError},
    thread,
};

/// Function that a task runs.
pub type Task<'a> = Box<dyn FnOnce() + Send + 'a>;

/// State of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Ready,
    /// Waiting for the lock at this address.
    Locked(usize),
    Ended,
}

/// A choice between tasks.
#[derive(Clone, Copy, Debug)]
struct Choice {
    taken: usize,
    of: usize,
}

#[derive(Default)]
struct State {
    tasks: Vec<Status>,
    running: usize,
    path: Vec<Choice>,
    /// Number of choices in this run.
    made: usize,
    /// Number of interruptions left.
    left: u32,
}

impl State {
    /// Chooses the task that continues; returns `None` if all have ended.
    fn choose(&mut self, from: Option<usize>) -> Option<usize> {
        let ready = |task: &usize| self.tasks[*task] == Status::Ready;
        let stays = from.filter(ready);
        let mut options: Vec<usize> = stays.into_iter().collect();
        if stays.is_none() || self.left > 0 {
            let others = (0..self.tasks.len()).filter(|task| Some(*task) != stays);
            options.extend(others.filter(ready));
        }
        if options.is_empty() {
            let ended = self.tasks.iter().all(|task| *task == Status::Ended);
            assert!(ended, "tasks wait for each other: {:?}", self.tasks);
            return None;
        }
        if self.made == self.path.len() {
            let of = options.len();
            self.path.push(Choice { taken: 0, of });
        }
        let Choice { taken, of } = self.path[self.made];
        assert_eq!(of, options.len(), "two runs with the same choices differ");
        self.made += 1;
        let next = options[taken];
        if stays.is_some_and(|task| task != next) {
            self.left -= 1;
        }
        self.running = next;
        Some(next)
    }

    /// Selects the choices of the next run; returns false if all are exhausted.
    fn advance(&mut self) -> bool {
        while let Some(last) = self.path.last_mut() {
            if last.taken + 1 < last.of {
                last.taken += 1;
                return true;
            }
            self.path.pop();
        }
        false
    }
}

/// State shared by the tasks of a run.
#[derive(Default)]
struct Control {
    state: sync::Mutex<State>,
    changed: Vec<Condvar>,
}

impl Control {
    /// Applies `change`, makes a choice, and blocks until `task` is chosen.
    fn switch(&self, task: usize, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        match state.choose(Some(task)) {
            Some(next) if next != task => self.changed[next].notify_one(),
            _ => {}
        }
        self.wait(task, state);
    }

    /// Blocks until `task` is chosen, unless it has ended.
    fn wait(&self, task: usize, mut state: sync::MutexGuard<'_, State>) {
        while state.running != task && state.tasks[task] != Status::Ended {
            let woken = self.changed[task].wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

thread_local! {
    static TASK: RefCell<Option<(Arc<Control>, usize)>> = const { RefCell::new(None) };
    static NUMBER: Cell<usize> = const { Cell::new(0) };
}

fn with_task(f: impl FnOnce(&Control, usize)) {
    TASK.with_borrow(|task| {
        if let Some((control, task)) = task {
            f(control, *task);
        }
    });
}

/// Returns the number of the current task, or the number set by [`on`]; else 0.
pub fn task() -> usize {
    let mut number = NUMBER.get();
    with_task(|_, task| number = task);
    number
}

/// Runs `f` as if in task `number`.
pub fn on<R>(number: usize, f: impl FnOnce() -> R) -> R {
    NUMBER.set(number);
    let done = f();
    NUMBER.set(0);
    done
}

/// Lets another task run first, if the caller is a task.
pub fn point() {
    with_task(|control, task| control.switch(task, |_| ()));
}

/// A lock that another task may take first.
pub struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Creates a lock around `value`.
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(&self.0).addr()
    }

    /// Runs `f` under the lock.
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        point();
        touch(&self.0, true);
        let mut value = loop {
            match self.0.try_lock() {
                Ok(value) => break value,
                Err(sync::TryLockError::Poisoned(value)) => break value.into_inner(),
                Err(sync::TryLockError::WouldBlock) => with_task(|control, task| {
                    let lock = Status::Locked(self.address());
                    control.switch(task, |state| state.tasks[task] = lock);
                }),
            }
        };
        let done = f(&mut value);
        drop(value);
        with_task(|control, _| {
            let mut state = control.state.lock().unwrap_or_else(PoisonError::into_inner);
            for task in &mut state.tasks {
                if *task == Status::Locked(self.address()) {
                    *task = Status::Ready;
                }
            }
        });
        done
    }
}

/// Runs `tasks` on the result of `make`, and `then`, which checks the outcome, for every order of
/// the tasks with at most `interruptions`. Returns the number of orders.
///
/// # Panics
///
/// A task or `then` panics; the choices that led to the panic are printed.
pub fn search<W: Sync>(
    interruptions: u32,
    make: impl Fn() -> W,
    tasks: impl for<'a> Fn(&'a W) -> Vec<Task<'a>>,
    then: impl Fn(&W),
) -> u64 {
    let mut path = Vec::new();
    for runs in 1.. {
        let world = make();
        let tasks = tasks(&world);
        let control = Arc::new(Control {
            changed: tasks.iter().map(|_| Condvar::new()).collect(),
            state: sync::Mutex::new(State {
                tasks: vec![Status::Ready; tasks.len()],
                path,
                left: interruptions,
                ..State::default()
            }),
        });
        let done = catch_unwind(AssertUnwindSafe(|| {
            run(&control, tasks);
            then(&world);
        }));
        let mut state = control.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(panic) = done {
            let choices: Vec<usize> = state.path.iter().map(|choice| choice.taken).collect();
            eprintln!("run {runs}, choices {choices:?}");
            resume_unwind(panic);
        }
        if !state.advance() {
            return runs;
        }
        path = std::mem::take(&mut state.path);
    }
    unreachable!("numbers end")
}

/// Runs `tasks` once.
fn run(control: &Arc<Control>, tasks: Vec<Task<'_>>) {
    let lock = || control.state.lock().unwrap_or_else(PoisonError::into_inner);
    lock().choose(None);
    let outcomes: Vec<_> = thread::scope(|scope| {
        let mut threads = Vec::new();
        for (number, task) in tasks.into_iter().enumerate() {
            let control = control.clone();
            threads.push(scope.spawn(move || {
                let state = control.state.lock();
                control.wait(number, state.unwrap_or_else(PoisonError::into_inner));
                TASK.set(Some((control.clone(), number)));
                let outcome = catch_unwind(AssertUnwindSafe(task));
                TASK.set(None);
                control.switch(number, |state| state.tasks[number] = Status::Ended);
                outcome
            }));
        }
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    for outcome in outcomes {
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(panic)) | Err(panic) => resume_unwind(panic),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::atomic::AtomicWord;

    /// Runs two tasks that each add 1 in two steps: one interruption loses an addition, none does
    /// not.
    fn sums(interruptions: u32) -> (u64, Vec<u64>) {
        let seen = sync::Mutex::new(Vec::new());
        let add = |word: &AtomicWord| {
            let value = word.get();
            word.set(value + 1);
        };
        let runs = search(
            interruptions,
            || AtomicWord::new(0),
            |word| vec![Box::new(move || add(word)), Box::new(move || add(word))],
            |word| seen.lock().unwrap().push(word.get()),
        );
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        seen.dedup();
        (runs, seen)
    }

    #[test]
    fn interruptions_are_found() {
        assert_eq!(sums(0), (2, vec![2]));
        assert_eq!(sums(1).1, [1, 2]);
    }

    /// Checks that a lock excludes other tasks, and that a task that waits for the lock continues.
    #[test]
    fn locks_hold() {
        let add = |lock: &Mutex<AtomicWord>| {
            lock.with(|word| {
                let value = word.get();
                word.set(value + 1);
            });
        };
        let runs = search(
            3,
            || Mutex::new(AtomicWord::new(0)),
            |lock| vec![Box::new(move || add(lock)), Box::new(move || add(lock))],
            |lock| assert_eq!(lock.with(|word| word.get()), 2),
        );
        assert!(runs > 10);
    }
}
