// SPDX-License-Identifier: GPL-2.0-only

//! Memory: the only file that differs between the kernel and the host.
//!
//! # Growing something that a lock protects
//!
//! ```text
//!  locked            unlocked, may sleep           locked              unlocked
//!  part.need() ──►   need.allocate() ──► Spare ──► part.grow(spare) ──► drop what came back
//! ```
//!
//! Nothing but creation, [`Need::allocate`] and [`List`] allocates, and nothing that is kept under a
//! lock is freed by its methods.

use backend::{Boxed, Counted, Large, Small};
use core::{
    marker::PhantomData,
    ops::{Deref, DerefMut},
};

/// Bytes of a chunk, at most.
///
/// Large enough for some dozens of class records and small enough that the allocator finds it when memory
/// is in fragments.
pub const CHUNK_BYTES: usize = 16 << 10;

/// Bytes of a [`Block`], at most; blocks are few, and do without being found in a hurry.
pub const BLOCK_BYTES: usize = 64 << 10;

/// The allocator had no memory; what fails so has changed nothing, unless its description says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory;

/// What a part wants so that it can go on without allocating.
pub trait Need {
    /// The memory that covers the need.
    type Spare;

    /// Whether nothing is wanted.
    fn is_empty(&self) -> bool;

    /// Allocates what is wanted, perhaps charged to the control group of the caller; sleeps.
    fn take(&self, charged: bool) -> Result<Self::Spare, NoMemory>;

    /// Allocates what is wanted; sleeps.
    fn allocate(&self) -> Result<Self::Spare, NoMemory> {
        self.take(false)
    }
}

/// Implements [`Need`] for tuples of needs.
macro_rules! needs {
    ($($name:ident),*) => {
        #[allow(non_snake_case, clippy::unused_unit, reason = "there may be no element")]
        impl<$($name: Need),*> Need for ($($name,)*) {
            type Spare = ($($name::Spare,)*);

            fn is_empty(&self) -> bool {
                let ($($name,)*) = self;
                true $(&& $name.is_empty())*
            }

            fn take(&self, _charged: bool) -> Result<Self::Spare, NoMemory> {
                let ($($name,)*) = self;
                Ok(($($name.take(_charged)?,)*))
            }
        }
    };
}

needs!();
needs!(A);
needs!(A, B);
needs!(A, B, C);
needs!(A, B, C, D);

/// What a part wants that exists in some configurations only.
impl<N: Need> Need for Option<N> {
    type Spare = Option<N::Spare>;

    fn is_empty(&self) -> bool {
        self.as_ref().is_none_or(N::is_empty)
    }

    fn take(&self, charged: bool) -> Result<Self::Spare, NoMemory> {
        self.as_ref().map(|need| need.take(charged)).transpose()
    }
}

/// Memory for each slot of a table, which grows with the table.
pub trait Grow {
    /// What memory it wants.
    type Need: Need<Spare = Self::Spare>;

    /// The memory.
    type Spare;

    /// Returns the number of slots that there is memory for.
    fn capacity(&self) -> usize;

    /// Makes `slot` known; slots become known one after the other, below the capacity.
    fn create(&mut self, slot: u32);

    /// Returns what is missing for `slots` slots in all.
    fn wants(&self, slots: usize) -> Self::Need;

    /// Takes memory and hands back what there is no use for.
    fn feed(&mut self, spare: Self::Spare) -> Self::Spare;
}

/// Implements [`Grow`] for a struct by the fields that implement it.
macro_rules! grow {
    ($Type:ty { $($field:ident: $Field:ty),+ $(,)? } $([$param:ident: $Bound:path])?) => {
        impl$(<$param: $Bound>)? $crate::sched::mem::Grow for $Type {
            type Need = ($(<$Field as $crate::sched::mem::Grow>::Need,)+);
            type Spare = ($(<$Field as $crate::sched::mem::Grow>::Spare,)+);

            fn capacity(&self) -> usize {
                usize::MAX$(.min(self.$field.capacity()))+
            }

            fn create(&mut self, slot: u32) {
                $(self.$field.create(slot);)+
            }

            fn wants(&self, slots: usize) -> Self::Need {
                ($(self.$field.wants(slots),)+)
            }

            fn feed(&mut self, ($($field,)+): Self::Spare) -> Self::Spare {
                ($(self.$field.feed($field),)+)
            }
        }
    };
}
pub(crate) use grow;

/// What exists in some configurations only.
impl<G: Grow> Grow for Option<G> {
    type Need = Option<G::Need>;
    type Spare = Option<G::Spare>;

    fn capacity(&self) -> usize {
        self.as_ref().map_or(usize::MAX, G::capacity)
    }

    fn create(&mut self, slot: u32) {
        if let Some(grow) = self {
            grow.create(slot);
        }
    }

    fn wants(&self, slots: usize) -> Self::Need {
        self.as_ref().map(|grow| grow.wants(slots))
    }

    fn feed(&mut self, spare: Self::Spare) -> Self::Spare {
        match (self, spare) {
            (Some(grow), Some(spare)) => Some(grow.feed(spare)),
            (_, spare) => spare,
        }
    }
}

/// Number of chunks that a [`Bulk`] wants.
pub struct Chunks<T> {
    count: usize,
    element: PhantomData<fn() -> T>,
}

impl<T> Chunks<T> {
    /// Returns the number.
    pub const fn count(&self) -> usize {
        self.count
    }
}

impl<T> Need for Chunks<T> {
    type Spare = Pile<T>;

    fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn take(&self, charged: bool) -> Result<Pile<T>, NoMemory> {
        Pile::with(self.count, charged)
    }
}

/// Chunks between the allocator and a [`Bulk`].
pub struct Pile<T> {
    chunks: Large<Small<T>>,
}

impl<T> Pile<T> {
    /// `count` empty chunks of the size that [`Bulk`] uses; sleeps.
    pub fn allocate(count: usize) -> Result<Self, NoMemory> {
        Self::with(count, false)
    }

    fn with(count: usize, charged: bool) -> Result<Self, NoMemory> {
        let mut chunks = backend::large(count, charged)?;
        for _ in 0..count {
            let chunk = backend::small(Bulk::<T>::PER_CHUNK, charged)?;
            backend::push_large(&mut chunks, chunk).map_err(|_| NoMemory)?;
        }
        Ok(Self { chunks })
    }

    /// Number of chunks.
    pub fn len(&self) -> usize {
        self.chunks.len()
    }
}

/// A vector made of chunks, each of a fixed capacity of at most [`CHUNK_BYTES`]; it grows without moving what it holds.
///
/// # Invariants
///
/// All chunks before that of the last element are full, all after it are empty.
pub struct Bulk<T> {
    chunks: Large<Small<T>>,
    len: usize,
    top: usize,
}

impl<T> Bulk<T> {
    const SHIFT: u32 = {
        let size = if size_of::<T>() == 0 {
            1
        } else {
            size_of::<T>()
        };
        let fits = CHUNK_BYTES / size;
        assert!(fits > 0, "an element is larger than a chunk");
        fits.ilog2()
    };
    const MASK: usize = Self::PER_CHUNK.wrapping_sub(1);

    /// Elements of a chunk, a power of two.
    pub const PER_CHUNK: usize = 1 << Self::SHIFT;

    /// An empty vector that can be fed for up to `max` elements; sleeps.
    pub fn new(max: usize) -> Result<Self, NoMemory> {
        Self::with(max, false)
    }

    /// As [`Self::new`]; `charged`: the array of chunks is charged to the control group of the caller.
    pub fn with(max: usize, charged: bool) -> Result<Self, NoMemory> {
        let top = max.div_ceil(Self::PER_CHUNK);
        Ok(Self {
            chunks: backend::large(top, charged)?,
            len: 0,
            top,
        })
    }

    /// A vector of `size` elements that `make` makes; sleeps.
    pub fn filled(size: usize, mut make: impl FnMut() -> T) -> Result<Self, NoMemory> {
        let mut bulk = Self::new(size)?;
        bulk.feed(bulk.wants(size).allocate()?);
        for _ in 0..size {
            bulk.push(make()).map_err(|_| NoMemory)?;
        }
        Ok(bulk)
    }

    /// Number of elements.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Number of elements there is memory for.
    pub fn capacity(&self) -> usize {
        self.chunks.len() << Self::SHIFT
    }

    /// Element `index`.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        let chunk = self.chunks.get(index >> Self::SHIFT)?;
        chunk.get(index & Self::MASK)
    }

    /// Element `index`, for writing.
    #[inline]
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        let chunk = self.chunks.get_mut(index >> Self::SHIFT)?;
        chunk.get_mut(index & Self::MASK)
    }

    /// At most `count` elements from `index` on: those of the same chunk, side by side.
    #[inline]
    pub fn run(&self, index: usize, count: usize) -> &[T] {
        let Some(chunk) = self.chunks.get(index >> Self::SHIFT) else {
            return &[];
        };
        let from = index & Self::MASK;
        let to = from.saturating_add(count).min(chunk.len());
        chunk.get(from..to).unwrap_or_default()
    }

    /// Appends `value`.
    /// Hands the value back if there is no memory reserved for it.
    pub fn push(&mut self, value: T) -> Result<(), T> {
        match self.chunks.get_mut(self.len >> Self::SHIFT) {
            Some(chunk) => {
                backend::push_small(chunk, value)?;
                // INVARIANT: the chunk of the new last element had room, so those after it are empty.
                self.len = self.len.wrapping_add(1);
                Ok(())
            }
            None => Err(value),
        }
    }

    /// Removes the last element; its memory stays reserved.
    pub fn pop(&mut self) -> Option<T> {
        let last = self.len.checked_sub(1)?;
        let value = self.chunks.get_mut(last >> Self::SHIFT)?.pop()?;
        self.len = last;
        Some(value)
    }

    /// Returns the chunks missing for `extra` more elements, within the limit given at creation.
    pub fn wants(&self, extra: usize) -> Chunks<T> {
        let want = self.len.saturating_add(extra).div_ceil(Self::PER_CHUNK);
        Chunks {
            count: want.min(self.top).saturating_sub(self.chunks.len()),
            element: PhantomData,
        }
    }

    /// Takes chunks up to the limit given at creation, and hands back the rest.
    pub fn feed(&mut self, mut pile: Pile<T>) -> Pile<T> {
        while self.chunks.len() < self.top {
            let Some(chunk) = pile.chunks.pop() else {
                break;
            };
            if let Err(chunk) = backend::push_large(&mut self.chunks, chunk) {
                // The slot that it came from is still there.
                let _ = backend::push_large(&mut pile.chunks, chunk);
                break;
            }
        }
        pile
    }
}

/// A value for each slot of a table, which starts anew when the slot is made known again.
pub struct PerSlot<T> {
    values: Bulk<T>,
}

impl<T> PerSlot<T> {
    /// No values; can be fed for up to `max` slots; sleeps.
    pub fn new(max: usize) -> Result<Self, NoMemory> {
        Ok(Self {
            values: Bulk::new(max)?,
        })
    }

    /// The value of `slot`.
    #[inline]
    pub fn get(&self, slot: u32) -> Option<&T> {
        self.values.get(slot as usize)
    }

    /// The value of `slot`, for writing.
    #[inline]
    pub fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.values.get_mut(slot as usize)
    }
}

impl<T: Default> Grow for PerSlot<T> {
    type Need = Chunks<T>;
    type Spare = Pile<T>;

    fn capacity(&self) -> usize {
        self.values.capacity()
    }

    fn create(&mut self, slot: u32) {
        if let Some(value) = self.get_mut(slot) {
            *value = T::default();
        }
        while self.values.len() <= slot as usize && self.values.push(T::default()).is_ok() {}
        bug!(self.values.len() <= slot as usize);
    }

    fn wants(&self, slots: usize) -> Chunks<T> {
        self.values.wants(slots.saturating_sub(self.values.len()))
    }

    fn feed(&mut self, spare: Pile<T>) -> Pile<T> {
        self.values.feed(spare)
    }
}

/// A boxed buffer of at most `N` elements.
pub struct Block<T, const N: usize> {
    vec: Small<T>,
}

impl<T, const N: usize> Block<T, N> {
    /// An empty buffer; sleeps.
    /// Fails, too, if it would be above [`BLOCK_BYTES`].
    pub fn new() -> Result<Self, NoMemory> {
        if N.saturating_mul(size_of::<T>()) > BLOCK_BYTES {
            return Err(NoMemory);
        }
        Ok(Self {
            vec: backend::small(N, false)?,
        })
    }

    /// Appends `value`.
    /// Hands the value back if `N` elements are there.
    pub fn push(&mut self, value: T) -> Result<(), T> {
        if self.is_full() {
            return Err(value);
        }
        backend::push_small(&mut self.vec, value)
    }

    /// The elements.
    pub fn as_slice(&self) -> &[T] {
        &self.vec
    }

    /// The elements in the order they were appended.
    pub fn iter(&self) -> core::slice::Iter<'_, T> {
        self.as_slice().iter()
    }

    /// Whether `N` elements are there.
    pub fn is_full(&self) -> bool {
        self.as_slice().len() >= N
    }

    /// Removes all elements.
    pub fn clear(&mut self) {
        self.vec.clear();
    }
}

/// A contiguous vector that grows by itself.
///
/// # Context
///
/// [`List::push`], [`List::with_capacity`] and dropping may sleep.
pub struct List<T> {
    vec: Large<T>,
}

impl<T> List<T> {
    /// An empty list; does not allocate.
    pub const fn new() -> Self {
        Self { vec: Large::new() }
    }

    /// An empty list with room for `capacity` elements; sleeps.
    pub fn with_capacity(capacity: usize) -> Result<Self, NoMemory> {
        Ok(Self {
            vec: backend::large(capacity, false)?,
        })
    }

    /// Appends `value`, at a constant cost on average; sleeps.
    pub fn push(&mut self, value: T) -> Result<(), NoMemory> {
        if self.vec.len() == self.vec.capacity() {
            let more = self.vec.len().max(16);
            backend::reserve_large(&mut self.vec, more)?;
        }
        backend::push_large(&mut self.vec, value).map_err(|_| NoMemory)
    }

    /// The elements.
    pub fn as_slice(&self) -> &[T] {
        &self.vec
    }

    /// The elements, for writing.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        &mut self.vec
    }

    /// Keeps the first `len` elements.
    pub fn truncate(&mut self, len: usize) {
        self.vec.truncate(len);
    }
}

/// A value with several owners, freed by the last one.
///
/// # Context
///
/// [`Shared::new`] sleeps; dropping may, if the value's own drop does. The other methods do not.
pub struct Shared<T> {
    counted: Counted<T>,
}

impl<T> Shared<T> {
    /// A value with one owner; sleeps.
    pub fn new(value: T) -> Result<Self, NoMemory> {
        Ok(Self {
            counted: backend::counted(value)?,
        })
    }

    /// Whether both are the same value, not only equal ones.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        Counted::ptr_eq(&self.counted, &other.counted)
    }
}

/// Adds an owner; does not copy the value.
impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self {
            counted: self.counted.clone(),
        }
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.counted
    }
}

/// A value of its own, so that what holds it stays small: the kernel's stacks are.
pub struct Owned<T> {
    boxed: Boxed<T>,
}

impl<T> Owned<T> {
    /// A value; sleeps.
    pub fn new(value: T) -> Result<Self, NoMemory> {
        Ok(Self {
            boxed: backend::boxed(value)?,
        })
    }
}

impl<T> Deref for Owned<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.boxed
    }
}

impl<T> DerefMut for Owned<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.boxed
    }
}

#[cfg(MODULE)]
mod backend {
    //! Kernel: kmalloc for chunks, owned and shared values, kvmalloc for arrays of chunks and lists.

    use super::NoMemory;
    use kernel::{
        alloc::{
            flags::{GFP_KERNEL, GFP_KERNEL_ACCOUNT, __GFP_NOWARN},
            Flags, KBox, KVVec, KVec,
        },
        sync::Arc,
    };

    pub(super) type Small<T> = KVec<T>;
    pub(super) type Large<T> = KVVec<T>;
    pub(super) type Boxed<T> = KBox<T>;
    pub(super) type Counted<T> = Arc<T>;

    fn flags(charged: bool) -> Flags {
        if charged {
            GFP_KERNEL_ACCOUNT | __GFP_NOWARN
        } else {
            GFP_KERNEL | __GFP_NOWARN
        }
    }

    pub(super) fn small<T>(capacity: usize, charged: bool) -> Result<Small<T>, NoMemory> {
        KVec::with_capacity(capacity, flags(charged)).map_err(|_| NoMemory)
    }

    pub(super) fn boxed<T>(value: T) -> Result<Boxed<T>, NoMemory> {
        KBox::new(value, flags(false)).map_err(|_| NoMemory)
    }

    pub(super) fn counted<T>(value: T) -> Result<Counted<T>, NoMemory> {
        Arc::new(value, flags(false)).map_err(|_| NoMemory)
    }

    pub(super) fn large<T>(capacity: usize, charged: bool) -> Result<Large<T>, NoMemory> {
        KVVec::with_capacity(capacity, flags(charged)).map_err(|_| NoMemory)
    }

    pub(super) fn reserve_large<T>(vec: &mut Large<T>, more: usize) -> Result<(), NoMemory> {
        vec.reserve(more, flags(false)).map_err(|_| NoMemory)
    }

    pub(super) fn push_small<T>(vec: &mut Small<T>, value: T) -> Result<(), T> {
        vec.push_within_capacity(value).map_err(|full| full.0)
    }

    pub(super) fn push_large<T>(vec: &mut Large<T>, value: T) -> Result<(), T> {
        vec.push_within_capacity(value).map_err(|full| full.0)
    }
}

/// Bytes that this thread has taken for vectors and not given back.
#[cfg(not(MODULE))]
pub fn taken() -> usize {
    backend::TAKEN.get()
}

/// Has one allocation of this thread fail: the next one after `count` others.
#[cfg(not(MODULE))]
pub fn fail_after(count: u32) {
    backend::FAILS.set(Some(count));
}

#[cfg(not(MODULE))]
#[path = "mem/host.rs"]
mod backend;

#[cfg(test)]
mod tests;
