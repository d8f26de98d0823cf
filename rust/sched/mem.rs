// SPDX-License-Identifier: GPL-2.0-only

//! Memory; the only file that differs between the kernel and the host.
//!
//! # Growing an object under a lock
//!
//! ```text
//!  locked            unlocked, may sleep           locked              unlocked
//!  part.need() ──►   need.allocate() ──► Spare ──► part.grow(spare) ──► drop the returned memory
//! ```
//!
//! Only constructors, [`Need::allocate`] and [`GrowingList`] allocate memory. Methods of objects
//! under a lock do not free memory.

use backend::{Boxed, Counted, Large, Small};
use core::{
    marker::PhantomData,
    mem::swap,
    ops::{Deref, DerefMut},
};

/// Maximum size of a chunk, bytes. Large enough for some dozens of class records, and small enough
/// for the allocator when memory is fragmented.
pub const CHUNK_BYTES: usize = 16 << 10;

/// Maximum size of a [`Block`], bytes; larger than a chunk, because blocks are few and not
/// allocated in a hurry.
pub const BLOCK_BYTES: usize = 64 << 10;

/// Failed allocation. An operation that fails with this error has changed nothing, unless
/// documented otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory;

/// Memory requirement of a part, so that the part can continue without allocating.
pub trait Need {
    /// Memory that meets the requirement.
    type Spare;

    /// Returns true if no memory is required.
    fn is_empty(&self) -> bool;

    /// Allocates the memory, charged to the cgroup of the caller if `charged`; may sleep.
    fn take(&self, charged: bool) -> Result<Self::Spare, NoMemory>;

    /// Allocates the memory, charged to the cgroup of the caller; may sleep.
    fn allocate(&self) -> Result<Self::Spare, NoMemory> {
        self.take(true)
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

/// Requirement of a component that exists in some configurations only.
impl<N: Need> Need for Option<N> {
    type Spare = Option<N::Spare>;

    fn is_empty(&self) -> bool {
        self.as_ref().is_none_or(N::is_empty)
    }

    fn take(&self, charged: bool) -> Result<Self::Spare, NoMemory> {
        self.as_ref().map(|need| need.take(charged)).transpose()
    }
}

/// Memory for each entry of a table; grows with the table.
pub trait Grow {
    /// Memory requirement.
    type Need: Need<Spare = Self::Spare>;

    /// Memory that meets the requirement.
    type Spare;

    /// Returns the number of entries that there is memory for.
    fn capacity(&self) -> usize;

    /// Initialises the entry `idx`; new entries follow in ascending order, below the capacity.
    fn create(&mut self, idx: u32);

    /// Returns the memory that is missing for a total of `entries`.
    fn wants(&self, entries: usize) -> Self::Need;

    /// Adds memory; returns the memory that is not needed.
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

            fn create(&mut self, idx: u32) {
                $(self.$field.create(idx);)+
            }

            fn wants(&self, entries: usize) -> Self::Need {
                ($(self.$field.wants(entries),)+)
            }

            fn feed(&mut self, ($($field,)+): Self::Spare) -> Self::Spare {
                ($(self.$field.feed($field),)+)
            }
        }
    };
}
pub(crate) use grow;

/// Component that exists in some configurations only.
impl<G: Grow> Grow for Option<G> {
    type Need = Option<G::Need>;
    type Spare = Option<G::Spare>;

    fn capacity(&self) -> usize {
        self.as_ref().map_or(usize::MAX, G::capacity)
    }

    fn create(&mut self, idx: u32) {
        if let Some(grow) = self {
            grow.create(idx);
        }
    }

    fn wants(&self, entries: usize) -> Self::Need {
        self.as_ref().map(|grow| grow.wants(entries))
    }

    fn feed(&mut self, spare: Self::Spare) -> Self::Spare {
        match (self, spare) {
            (Some(grow), Some(spare)) => Some(grow.feed(spare)),
            (_, spare) => spare,
        }
    }
}

/// Number of chunks that a [`Bulk`] requires.
pub struct Chunks<T> {
    count: usize,
    element: PhantomData<fn() -> T>,
}

#[cfg(test)]
impl<T> Chunks<T> {
    /// Returns the number of chunks.
    pub const fn count(&self) -> usize {
        self.count
    }
}

impl<T> Need for Chunks<T> {
    type Spare = ChunkPile<T>;

    fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn take(&self, charged: bool) -> Result<ChunkPile<T>, NoMemory> {
        ChunkPile::with(self.count, charged)
    }
}

/// Chunks on the way from the allocator to a [`Bulk`].
pub struct ChunkPile<T> {
    chunks: Large<Small<T>>,
}

impl<T> ChunkPile<T> {
    /// Allocates `count` empty chunks of the size that [`Bulk`] uses; may sleep.
    #[cfg(not(MODULE))]
    pub fn allocate(count: usize) -> Result<Self, NoMemory> {
        Self::with(count, true)
    }

    fn with(count: usize, charged: bool) -> Result<Self, NoMemory> {
        let mut chunks = backend::large(count, charged)?;
        for _ in 0..count {
            let chunk = backend::small(Bulk::<T>::PER_CHUNK, charged)?;
            backend::push_large(&mut chunks, chunk).map_err(|_| NoMemory)?;
        }
        Ok(Self { chunks })
    }

    /// Returns the number of chunks.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.chunks.len()
    }
}

/// Vector of chunks with a fixed capacity of at most [`CHUNK_BYTES`] each; grows without moving
/// elements.
///
/// # Invariants
///
/// All chunks before the one of the last element are full; all chunks after it are empty.
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

    /// Number of elements of a chunk, a power of two.
    pub const PER_CHUNK: usize = 1 << Self::SHIFT;

    /// Creates an empty vector that accepts memory for up to `max` elements; may sleep.
    pub fn new(max: usize) -> Result<Self, NoMemory> {
        let top = max.div_ceil(Self::PER_CHUNK);
        Ok(Self {
            chunks: backend::large(top, true)?,
            len: 0,
            top,
        })
    }

    /// Creates a vector of `size` elements from `make`; may sleep.
    pub fn filled(size: usize, mut make: impl FnMut() -> T) -> Result<Self, NoMemory> {
        let mut bulk = Self::new(size)?;
        bulk.feed(bulk.wants(size).allocate()?);
        for _ in 0..size {
            bulk.push(make()).map_err(|_| NoMemory)?;
        }
        Ok(bulk)
    }

    /// Returns the number of elements.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of elements that there is memory for.
    pub fn capacity(&self) -> usize {
        self.chunks.len() << Self::SHIFT
    }

    /// Returns element `index`.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        let chunk = self.chunks.get(index >> Self::SHIFT)?;
        chunk.get(index & Self::MASK)
    }

    /// Returns element `index`, mutable.
    #[inline]
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        let chunk = self.chunks.get_mut(index >> Self::SHIFT)?;
        chunk.get_mut(index & Self::MASK)
    }

    /// Returns at most `count` contiguous elements from `index` on: those in the same chunk.
    #[inline]
    pub fn run(&self, index: usize, count: usize) -> &[T] {
        let Some(chunk) = self.chunks.get(index >> Self::SHIFT) else {
            return &[];
        };
        let from = index & Self::MASK;
        let to = from.saturating_add(count).min(chunk.len());
        chunk.get(from..to).unwrap_or_default()
    }

    /// Appends `value`; returns `value` if no memory is reserved for it.
    pub fn push(&mut self, value: T) -> Result<(), T> {
        match self.chunks.get_mut(self.len >> Self::SHIFT) {
            Some(chunk) => {
                backend::push_small(chunk, value)?;
                // INVARIANT: the chunk of the new last element had room, so the chunks after it are
                // empty.
                self.len = self.len.wrapping_add(1);
                Ok(())
            }
            None => Err(value),
        }
    }

    /// Removes the last element; the memory stays reserved.
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

    /// Adds chunks up to the limit given at creation; returns the rest.
    pub fn feed(&mut self, mut pile: ChunkPile<T>) -> ChunkPile<T> {
        while self.chunks.len() < self.top {
            let Some(chunk) = pile.chunks.pop() else {
                break;
            };
            if let Err(chunk) = backend::push_large(&mut self.chunks, chunk) {
                // The chunk's previous position in the pile is still available.
                let _ = backend::push_large(&mut pile.chunks, chunk);
                break;
            }
        }
        pile
    }
}

/// Value for each entry of a table; reset to the default when the entry is initialised again.
pub struct PerIndex<T> {
    values: Bulk<T>,
}

impl<T> PerIndex<T> {
    /// Creates an empty set that accepts memory for up to `max` values; may sleep.
    pub fn new(max: usize) -> Result<Self, NoMemory> {
        Ok(Self {
            values: Bulk::new(max)?,
        })
    }

    /// Returns the value of `idx`.
    #[inline]
    pub fn get(&self, idx: u32) -> Option<&T> {
        self.values.get(idx as usize)
    }

    /// Returns the mutable value of `idx`.
    #[inline]
    pub fn get_mut(&mut self, idx: u32) -> Option<&mut T> {
        self.values.get_mut(idx as usize)
    }
}

impl<T: Default> Grow for PerIndex<T> {
    type Need = Chunks<T>;
    type Spare = ChunkPile<T>;

    fn capacity(&self) -> usize {
        self.values.capacity()
    }

    fn create(&mut self, idx: u32) {
        if let Some(value) = self.get_mut(idx) {
            *value = T::default();
        }
        while self.values.len() <= idx as usize && self.values.push(T::default()).is_ok() {}
        bug!(self.values.len() <= idx as usize);
    }

    fn wants(&self, entries: usize) -> Chunks<T> {
        self.values.wants(entries.saturating_sub(self.values.len()))
    }

    fn feed(&mut self, spare: ChunkPile<T>) -> ChunkPile<T> {
        self.values.feed(spare)
    }
}

/// Boxed buffer of at most `N` elements.
pub struct Block<T, const N: usize> {
    vec: Small<T>,
}

impl<T, const N: usize> Block<T, N> {
    /// Creates an empty buffer; may sleep. Also fails if the size would be above [`BLOCK_BYTES`].
    pub fn new() -> Result<Self, NoMemory> {
        if N.saturating_mul(size_of::<T>()) > BLOCK_BYTES {
            return Err(NoMemory);
        }
        Ok(Self {
            vec: backend::small(N, true)?,
        })
    }

    /// Appends `value`; returns `value` if the buffer is full.
    pub fn push(&mut self, value: T) -> Result<(), T> {
        if self.is_full() {
            return Err(value);
        }
        backend::push_small(&mut self.vec, value)
    }

    /// Returns the elements.
    pub fn as_slice(&self) -> &[T] {
        &self.vec
    }

    /// Returns the elements in the order in which they were appended.
    pub fn iter(&self) -> core::slice::Iter<'_, T> {
        self.as_slice().iter()
    }

    /// Returns true if the buffer contains `N` elements.
    pub fn is_full(&self) -> bool {
        self.as_slice().len() >= N
    }

    /// Removes all elements.
    pub fn clear(&mut self) {
        self.vec.clear();
    }
}

/// Contiguous vector that grows automatically.
///
/// # Context
///
/// [`GrowingList::push`], [`GrowingList::with_capacity`] and dropping may sleep.
pub struct GrowingList<T> {
    vec: Large<T>,
}

impl<T> GrowingList<T> {
    /// Creates an empty list; does not allocate.
    pub const fn new() -> Self {
        Self { vec: Large::new() }
    }

    /// Creates an empty list with capacity for `capacity` elements; may sleep.
    pub fn with_capacity(capacity: usize) -> Result<Self, NoMemory> {
        Ok(Self {
            vec: backend::large(capacity, true)?,
        })
    }

    /// Appends `value` in amortised constant time; may sleep.
    pub fn push(&mut self, value: T) -> Result<(), NoMemory> {
        if self.vec.len() == self.vec.capacity() {
            let more = self.vec.len().max(16);
            backend::reserve_large(&mut self.vec, more)?;
        }
        backend::push_large(&mut self.vec, value).map_err(|_| NoMemory)
    }

    /// Inserts `value` at the index `at`; may sleep. The elements from there on move by one.
    pub fn insert(&mut self, at: usize, mut value: T) -> Result<(), NoMemory> {
        for place in self.as_mut_slice().iter_mut().skip(at) {
            swap(place, &mut value);
        }
        self.push(value)
    }

    /// Removes the element at the index `at`, if there is one.
    pub fn remove(&mut self, at: usize) {
        if let Some(rest) = self
            .as_mut_slice()
            .get_mut(at..)
            .filter(|rest| !rest.is_empty())
        {
            rest.rotate_left(1);
            self.truncate(self.as_slice().len().saturating_sub(1));
        }
    }

    /// Returns the elements.
    pub fn as_slice(&self) -> &[T] {
        &self.vec
    }

    /// Returns the elements, mutable.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        &mut self.vec
    }

    /// Keeps the first `len` elements.
    pub fn truncate(&mut self, len: usize) {
        self.vec.truncate(len);
    }
}

/// Reference-counted value.
///
/// # Context
///
/// [`Shared::new`] may sleep. Dropping may sleep if the drop of the value does. The other methods
/// do not.
pub struct Shared<T> {
    counted: Counted<T>,
}

impl<T> Shared<T> {
    /// Creates a value with one owner; may sleep.
    pub fn new(value: T) -> Result<Self, NoMemory> {
        Ok(Self {
            counted: backend::counted(value)?,
        })
    }

    /// Returns true if both refer to the same value, not only to equal values.
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

/// Boxed value; keeps objects on the kernel's small stacks small.
pub struct Owned<T> {
    boxed: Boxed<T>,
}

impl<T> Owned<T> {
    /// Creates a boxed value; may sleep.
    pub fn new(value: T) -> Result<Self, NoMemory> {
        Self::make(|| Ok(value))
    }

    /// Creates the boxed value that `make` returns; may sleep.
    #[inline]
    pub fn make(make: impl FnOnce() -> Result<T, NoMemory>) -> Result<Self, NoMemory> {
        let vacant = backend::vacant()?;
        Ok(Self {
            boxed: backend::fill(vacant, make()?),
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
    //! Kernel: kmalloc for chunks, owned and shared values; kvmalloc for arrays of chunks and
    //! lists.

    use super::NoMemory;
    use core::mem::MaybeUninit;
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
    pub(super) type Vacant<T> = KBox<MaybeUninit<T>>;
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

    pub(super) fn vacant<T>() -> Result<Vacant<T>, NoMemory> {
        KBox::new_uninit(flags(true)).map_err(|_| NoMemory)
    }

    #[inline]
    pub(super) fn fill<T>(vacant: Vacant<T>, value: T) -> Boxed<T> {
        KBox::write(vacant, value)
    }

    pub(super) fn counted<T>(value: T) -> Result<Counted<T>, NoMemory> {
        Arc::new(value, flags(true)).map_err(|_| NoMemory)
    }

    pub(super) fn large<T>(capacity: usize, charged: bool) -> Result<Large<T>, NoMemory> {
        KVVec::with_capacity(capacity, flags(charged)).map_err(|_| NoMemory)
    }

    pub(super) fn reserve_large<T>(vec: &mut Large<T>, more: usize) -> Result<(), NoMemory> {
        vec.reserve(more, flags(true)).map_err(|_| NoMemory)
    }

    pub(super) fn push_small<T>(vec: &mut Small<T>, value: T) -> Result<(), T> {
        vec.push_within_capacity(value).map_err(|full| full.0)
    }

    pub(super) fn push_large<T>(vec: &mut Large<T>, value: T) -> Result<(), T> {
        vec.push_within_capacity(value).map_err(|full| full.0)
    }
}

/// Returns the number of bytes that this thread has allocated for vectors and not freed.
#[cfg(not(MODULE))]
pub fn taken() -> usize {
    backend::TAKEN.get()
}

/// Makes one allocation of this thread fail: the next one after `count` successful ones.
#[cfg(not(MODULE))]
pub fn fail_after(count: u32) {
    backend::FAILS.set(Some(count));
}

#[cfg(not(MODULE))]
#[path = "mem/host.rs"]
mod backend;

#[cfg(test)]
mod tests;
