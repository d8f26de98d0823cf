// SPDX-License-Identifier: GPL-2.0-only

//! Steps of the tasks of a model, and scenarios to run.

use crate::{
    search::{search, Task},
    world::{Kindred, Primary, World},
};
use nrs_sched::attr::Priority;

/// A step of a task.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A request arrives at a partition.
    Arrive(Kindred),
    /// The oldest request in flight ends, if there is one.
    Complete,
    /// The timer of a partition expires, if it is armed.
    Expire(u16),
    /// The progress guard runs, if it was called.
    Attend,
    /// The number of slots changes.
    Change(u32),
    /// The queued requests of a partition are dispatched.
    Drain(u16),
}

/// Returns a plain request for the partition `home`.
pub const fn plain(home: u16) -> Kindred {
    Kindred {
        home,
        priority: Priority::Regular,
        uid: 1,
        forced: false,
        may_pass: true,
        unlocked: false,
        block: None,
    }
}

/// Target and tasks of a scenario.
#[derive(Clone, Copy, Debug)]
pub struct Scenario<'a> {
    /// Number of partitions.
    pub partitions: u16,
    /// Number of slots.
    pub slots: u32,
    /// Policy of the heads.
    pub primary: Primary,
    /// Initial steps.
    pub before: &'a [Step],
    /// Steps of each task.
    pub tasks: &'a [&'a [Step]],
    /// True if the device pulls, on the CPU of each task after each of its steps.
    pub pulls: bool,
}

fn make(world: &World, homes: &[u16], steps: &[Step], first: usize) {
    let mut arrival = first;
    for step in steps {
        match *step {
            Step::Arrive(kindred) => {
                world.arrive(arrival, &kindred);
                arrival += 1;
            }
            Step::Complete => drop(world.complete(homes)),
            Step::Expire(index) => drop(world.expire(index)),
            Step::Attend => drop(world.attend()),
            Step::Change(slots) => world.change(slots),
            Step::Drain(index) => world.drain(index),
        }
        world.pull();
    }
}

impl Scenario<'_> {
    /// Runs the scenario in every order with at most `interruptions`; returns the number of orders.
    ///
    /// # Panics
    ///
    /// A request is stalled or lost.
    pub fn run(&self, interruptions: u32) -> u64 {
        let home = |step: &Step| match step {
            Step::Arrive(kindred) => Some(kindred.home),
            _ => None,
        };
        let lists = || std::iter::once(self.before).chain(self.tasks.iter().copied());
        let homes: Vec<u16> = lists().flatten().filter_map(home).collect();
        let counts = lists().map(|steps| steps.iter().filter_map(home).count());
        let firsts: Vec<usize> = counts
            .scan(0, |sum, count| {
                *sum += count;
                Some(*sum)
            })
            .collect();
        let cpus = self.tasks.len() as u32;
        // All CPUs have the same rows, so that each CPU finds the open rows of others.
        let unlocked = |step: &Step| matches!(step, Step::Arrive(kindred) if kindred.unlocked);
        let rows = lists().flatten().any(unlocked).then_some(1);
        search(
            interruptions,
            || {
                let world = World::new(
                    self.partitions,
                    self.slots,
                    cpus,
                    self.primary,
                    rows,
                    self.pulls,
                );
                make(&world, &homes, self.before, 0);
                world
            },
            |world| {
                let task = |(steps, first): (&&[Step], &usize)| {
                    let (homes, steps, first) = (homes.clone(), steps.to_vec(), *first);
                    let task: Task<'_> = Box::new(move || make(world, &homes, &steps, first));
                    task
                };
                self.tasks.iter().zip(&firsts).map(task).collect()
            },
            |world| world.finish(&homes),
        )
    }
}

#[cfg(test)]
mod tests;
