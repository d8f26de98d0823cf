// SPDX-License-Identifier: GPL-2.0-only

//! Host: vectors and reference-counted values of the standard library. The bytes of vectors are
//! counted.

use super::NoMemory;
use core::{
    marker::PhantomData,
    ops::{Deref, DerefMut},
};
use std::{cell::Cell, sync::Arc};

pub(super) type Small<T> = Metered<T>;
pub(super) type Large<T> = Metered<T>;
pub(super) type Boxed<T> = Box<T>;
pub(super) type Vacant<T> = PhantomData<T>;
pub(super) type Counted<T> = Arc<T>;

thread_local! {
    /// See [`super::taken`]; another thread may free what one thread has allocated.
    pub(super) static TAKEN: Cell<usize> = const { Cell::new(0) };

    /// See [`super::fail_after`].
    pub(super) static FAILS: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Fails if [`super::fail_after`] selects this allocation.
fn try_allocate() -> Result<(), NoMemory> {
    match FAILS.take() {
        Some(0) => return Err(NoMemory),
        Some(left) => FAILS.set(Some(left.wrapping_sub(1))),
        None => {}
    }
    Ok(())
}

/// Vector whose bytes are counted.
pub(super) struct Metered<T>(Vec<T>);

impl<T> Metered<T> {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Reserves memory with `reserve`.
    fn grow<E>(
        &mut self,
        reserve: impl FnOnce(&mut Vec<T>) -> Result<(), E>,
    ) -> Result<(), NoMemory> {
        try_allocate()?;
        let before = self.bytes();
        let reserved = reserve(&mut self.0).map_err(|_| NoMemory);
        TAKEN.set(TAKEN.get().wrapping_add(self.bytes()).wrapping_sub(before));
        reserved
    }

    fn bytes(&self) -> usize {
        self.0.capacity().wrapping_mul(size_of::<T>())
    }
}

impl<T> Drop for Metered<T> {
    fn drop(&mut self) {
        TAKEN.set(TAKEN.get().wrapping_sub(self.bytes()));
    }
}

impl<T> Deref for Metered<T> {
    type Target = Vec<T>;

    #[inline]
    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T> DerefMut for Metered<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.0
    }
}

pub(super) fn small<T>(capacity: usize, _charged: bool) -> Result<Small<T>, NoMemory> {
    let mut vec = Metered::new();
    vec.grow(|vec| vec.try_reserve_exact(capacity))?;
    Ok(vec)
}

pub(super) fn vacant<T>() -> Result<Vacant<T>, NoMemory> {
    try_allocate().map(|()| PhantomData)
}

pub(super) fn fill<T>(_vacant: Vacant<T>, value: T) -> Boxed<T> {
    Box::new(value)
}

pub(super) fn counted<T>(value: T) -> Result<Counted<T>, NoMemory> {
    try_allocate()?;
    Ok(Arc::new(value))
}

pub(super) fn large<T>(capacity: usize, charged: bool) -> Result<Large<T>, NoMemory> {
    small(capacity, charged)
}

pub(super) fn reserve_large<T>(vec: &mut Large<T>, more: usize) -> Result<(), NoMemory> {
    vec.grow(|vec| vec.try_reserve(more))
}

pub(super) fn push_small<T>(vec: &mut Small<T>, value: T) -> Result<(), T> {
    if vec.len() == vec.capacity() {
        return Err(value);
    }
    vec.push(value);
    Ok(())
}

pub(super) fn push_large<T>(vec: &mut Large<T>, value: T) -> Result<(), T> {
    push_small(vec, value)
}
