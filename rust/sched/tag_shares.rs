// SPDX-License-Identifier: GPL-2.0-only

//! Shares of the tags of a disk.
//!
//! A request has a tag before a scheduler sees it, and the block layer gives tags in order of
//! arrival. So a submitter with many queued requests must leave tags to others.
//!
//! # Terms
//!
//! - *Owner* of a request: a user in a cgroup. Kernel threads without a user have one owner for
//!   each cgroup.
//! - *User*: all owners with the same user id. Owners of root and of no user are users of their
//!   own, because root has the containers of a server.
//! - *Deferred* request: a request that got no tag, or gave it back, and is submitted later.
//! - *Room* of an owner: the number of further requests it may have queued.
//!
//! # Rule
//!
//! A user may have as many requests queued as there are free tags, and if only n users have queued
//! requests, m / n times as many, where m is [`few`]. So one part in the larger of n + 1 and m + 1
//! stays free, and the users have equal parts of the rest: dynamic thresholds (Choudhury and Hahne,
//! 1998). In the same way the owners of a user share what the user may still queue. A user with
//! nothing queued may always queue one.
//!
//! Requests are only deferred while a quarter of the tags is used by queued requests.
//!
//! # Why no deferred request is forgotten
//!
//! A request is deferred only while others of its user are queued. When one of these leaves, the
//! caller has to submit deferred requests if the user or the owner may double its queue, which
//! holds at the latest when its last one leaves.

use crate::sched::{
    key::{Hashed, Hasher},
    mem::{Need, NoMemory},
    slab::{Linked, Links, SlabList, NONE},
    table::Table,
};

/// Maximum number of owners and users that are distinguished; more owners share one room.
const ROWS_MAX: usize = 1024;

/// Returns the number of users up to which together they leave as many of `tags` tags free: one
/// part in nine of many tags, and about ten of fewer.
fn few(tags: u32) -> u32 {
    (tags / 16).clamp(1, 8)
}

/// Owner of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// User id; `None` for a kernel thread that works for no user.
    pub uid: Option<u32>,
    /// Cgroup; `None` if the request is charged to none.
    pub cgroup: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ShareKey {
    Owner(Owner),
    User(u32),
    /// All owners for which there is no row.
    Others,
}

impl Hashed for ShareKey {
    fn mix(&self, hasher: &Hasher) -> u64 {
        let known = |value: Option<u64>| u64::from(value.is_some());
        match self {
            Self::Owner(Owner { uid, cgroup }) => {
                let uid = uid.map(u64::from);
                let kind = known(uid) | (known(*cgroup) << 1) | 4;
                let state = hasher.mix(hasher.word(kind), uid.unwrap_or(0));
                hasher.mix(state, cgroup.unwrap_or(0))
            }
            Self::User(uid) => hasher.mix(hasher.word(1), (*uid).into()),
            Self::Others => hasher.word(0),
        }
    }
}

/// Requests of an owner, or of all owners of a user.
struct Share<L> {
    queued: u32,
    deferred: u32,
    /// Index of the user; that of this row for a user.
    user: u32,
    /// Number of owners of the user that have queued requests, but the user itself.
    owners: u32,
    links: Links,
    requests: L,
}

impl<L> Linked for Share<L> {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

/// Shares of the tags of a disk.
///
/// # Invariants
///
/// A row exists while it has requests, but that of the others, which always exists. The counts of a
/// user are the sums of its owners. `waiting` has the owners with deferred requests.
pub struct TagShares<L> {
    rows: Table<ShareKey, Share<L>>,
    waiting: SlabList,
    others: u32,
    queued: u32,
    deferred: u32,
    /// Number of users with queued requests.
    users: u32,
    /// Owner of the newest queued request, if it still has a row, and the index of that row.
    newest: Option<(Owner, u32)>,
}

impl<L: Default> TagShares<L> {
    /// Creates the shares of a disk without requests; sleeps. `seed` is secret and random.
    pub fn new(seed: u64) -> Result<Self, NoMemory> {
        let mut rows = Table::new(ROWS_MAX, seed)?;
        let spare = rows.wants(ROWS_MAX).allocate()?;
        rows.grow(spare);
        let mut shares = Self {
            rows,
            waiting: SlabList::new(),
            others: 0,
            queued: 0,
            deferred: 0,
            users: 0,
            newest: None,
        };
        shares.others = shares.insert(ShareKey::Others, None).ok_or(NoMemory)?;
        Ok(shares)
    }

    /// Returns the number of queued requests.
    pub fn queued(&self) -> u32 {
        self.queued
    }

    /// Returns the number of deferred requests.
    pub fn deferred(&self) -> u32 {
        self.deferred
    }

    /// Returns true if a request of `owner` has to be deferred with `tags` tags: the owner has no
    /// room, or deferred requests, which must not wait behind newer ones.
    pub fn is_over(&self, owner: Owner, tags: u32) -> bool {
        if self.queued < tags / 4 {
            return false;
        }
        let idx = self.find(owner);
        let has_deferred = self.rows.at(idx).is_some_and(|share| share.deferred != 0);
        has_deferred || !self.has_room_at(idx, owner, tags)
    }

    /// Returns true if `owner` has room with `tags` tags.
    pub fn has_room(&self, owner: Owner, tags: u32) -> bool {
        self.queued < tags / 4 || self.has_room_at(self.find(owner), owner, tags)
    }

    /// Returns true if `owner` at `idx`, or [`NONE`], has room with `tags` tags.
    fn has_room_at(&self, idx: u32, owner: Owner, tags: u32) -> bool {
        let user = || self.rows.find(&ShareKey::User(user_of(owner)?), |_| true);
        let idx = if idx == NONE { user() } else { Some(idx) };
        idx.is_none_or(|idx| self.room(idx, tags) != 0)
    }

    /// Returns the index of the row in which a request of `owner` is counted; [`NONE`] if that row
    /// does not exist yet.
    fn find(&self, owner: Owner) -> u32 {
        if let Some((_, idx)) = self.newest.filter(|(newest, _)| *newest == owner) {
            return idx;
        }
        match self.rows.find(&ShareKey::Owner(owner), |_| true) {
            Some(idx) => idx,
            None if self.is_full() => self.others,
            None => NONE,
        }
    }

    /// Counts a queued request of `owner`; returns its index for [`Self::leave`].
    #[inline]
    pub fn enter(&mut self, owner: Owner) -> u32 {
        let idx = match self.newest {
            Some((newest, idx)) if newest == owner => idx,
            _ => {
                let idx = self.row(owner);
                self.newest = Some((owner, idx));
                idx
            }
        };
        self.count_queued(idx, 1);
        idx
    }

    /// Removes a queued request of the owner at `idx`. Returns true if deferred requests are to be
    /// submitted; `tags` returns the number of tags.
    #[inline]
    pub fn leave(&mut self, idx: u32, tags: impl FnOnce() -> u32) -> bool {
        let owner_queued = self.count_queued(idx, u32::MAX);
        let starts = self.deferred != 0 && self.may_submit(idx, tags());
        if owner_queued == 0 {
            self.remove_idle(idx);
        }
        starts
    }

    /// Returns true if the owner at `idx`, or its user, has deferred requests and may double its
    /// queue.
    #[cold]
    fn may_submit(&self, idx: u32, tags: u32) -> bool {
        let is_low = |idx| {
            self.rows.at(idx).is_some_and(|share| {
                share.deferred != 0 && self.room(idx, tags) >= share.queued.max(1)
            })
        };
        is_low(idx) || self.rows.at(idx).is_some_and(|share| is_low(share.user))
    }

    /// Defers a request of `owner`, which `put` adds to the requests of the owner.
    pub fn defer(&mut self, owner: Owner, put: impl FnOnce(&mut L)) {
        let idx = self.row(owner);
        let Some(share) = self.rows.at_mut(idx) else {
            return;
        };
        put(&mut share.requests);
        if share.deferred == 0 {
            self.rows.push(&mut self.waiting, idx);
        }
        self.count_deferred(idx, 1);
    }

    /// Removes the next deferred request by `take`, of the owners with room in turn, or of any
    /// owner if `tags` is `None`. `take` also returns of how many deferred requests it is made.
    /// With `tags` the request is counted as by [`Self::enter`].
    pub fn next<R>(
        &mut self,
        tags: Option<u32>,
        take: impl FnOnce(&mut L) -> (R, u32),
    ) -> Option<(u32, R)> {
        let last = self.waiting.last()?;
        loop {
            let idx = self.waiting.first()?;
            self.rows.unlist(&mut self.waiting, idx);
            if tags.is_none_or(|tags| self.queued < tags / 4 || self.room(idx, tags) != 0) {
                let share = self.rows.at_mut(idx)?;
                let (taken, count) = take(&mut share.requests);
                if share.deferred > count {
                    self.rows.push(&mut self.waiting, idx);
                }
                if tags.is_some() {
                    self.count_queued(idx, 1);
                }
                self.count_deferred(idx, count.wrapping_neg());
                self.remove_idle(idx);
                return Some((idx, taken));
            }
            self.rows.push(&mut self.waiting, idx);
            if idx == last {
                return None;
            }
        }
    }

    /// Returns the number of further requests that the owner or user at `idx` may queue.
    fn room(&self, idx: u32, tags: u32) -> u32 {
        let free = tags.saturating_sub(self.queued);
        let Some(share) = self.rows.at(idx) else {
            return 0;
        };
        let user = self.rows.at(share.user);
        let (queued, owners) = user.map_or((0, 0), |user| (user.queued, user.owners));
        let room = match queued {
            0 => free.max(1),
            queued => part(free, self.users, tags).saturating_sub(queued),
        };
        if share.user == idx {
            room
        } else {
            part(room, owners, tags).saturating_sub(share.queued)
        }
    }

    /// Returns the index of the row of `owner`, which is created if there is none.
    fn row(&mut self, owner: Owner) -> u32 {
        match self.find(owner) {
            NONE => {}
            idx => return idx,
        }
        let user = user_of(owner).and_then(|uid| {
            let key = ShareKey::User(uid);
            let found = self.rows.find(&key, |_| true);
            found.or_else(|| self.insert(key, None))
        });
        self.insert(ShareKey::Owner(owner), user)
            .unwrap_or(self.others)
    }

    /// Returns true if there is no room for an owner and its user.
    fn is_full(&self) -> bool {
        self.rows.len() as usize > ROWS_MAX - 2
    }

    /// Creates a row of `user`, or of a user.
    fn insert(&mut self, key: ShareKey, user: Option<u32>) -> Option<u32> {
        let share = Share {
            queued: 0,
            deferred: 0,
            user: 0,
            owners: 0,
            links: Links::new(),
            requests: L::default(),
        };
        let idx = self.rows.insert(key, share).ok()?.idx();
        self.rows.at_mut(idx)?.user = user.unwrap_or(idx);
        Some(idx)
    }

    /// Adds `difference`, wrapping, to the queued requests of the owner at `idx`, of its user, and
    /// of all. Returns those of the owner.
    #[inline]
    fn count_queued(&mut self, idx: u32, difference: u32) -> u32 {
        self.queued = self.queued.wrapping_add(difference);
        let queued = self.count(idx, |share| &mut share.queued, difference);
        if queued <= 1 {
            self.count_busy(idx, queued, difference);
        }
        queued
    }

    /// Counts the owner at `idx`, and its user, as they get their first queued request or lose
    /// their last: `queued` is left of the owner after the `difference`.
    fn count_busy(&mut self, idx: u32, queued: u32, difference: u32) {
        let changes = |queued: u32| queued == u32::from(difference == 1);
        let Some(user_idx) = self.rows.at(idx).map(|share| share.user) else {
            return;
        };
        let Some(user) = self.rows.at_mut(user_idx) else {
            return;
        };
        if user_idx != idx && changes(queued) {
            user.owners = user.owners.wrapping_add(difference);
        }
        if changes(user.queued) {
            self.users = self.users.wrapping_add(difference);
        }
    }

    /// Adds `difference`, wrapping, to the deferred requests of the owner at `idx`, of its user,
    /// and of all.
    fn count_deferred(&mut self, idx: u32, difference: u32) {
        self.deferred = self.deferred.wrapping_add(difference);
        self.count(idx, |share| &mut share.deferred, difference);
    }

    /// Adds `difference`, wrapping, to a count of the owner at `idx` and of its user; returns that
    /// of the owner.
    #[inline]
    fn count(
        &mut self,
        idx: u32,
        field: impl Fn(&mut Share<L>) -> &mut u32,
        difference: u32,
    ) -> u32 {
        let mut add = |idx| {
            let Some(share) = self.rows.at_mut(idx) else {
                bug!();
                return (0, idx);
            };
            let count = field(share);
            *count = count.wrapping_add(difference);
            (*count, share.user)
        };
        let (count, user) = add(idx);
        if user != idx {
            add(user);
        }
        count
    }

    /// Removes the row at `idx`, and then its user, if they have no requests.
    fn remove_idle(&mut self, idx: u32) {
        let Some(share) = self.rows.at(idx) else {
            return;
        };
        let user = share.user;
        if share.queued == 0 && share.deferred == 0 && idx != self.others {
            self.newest = None;
            self.rows.remove(idx);
            if user != idx {
                self.remove_idle(user);
            }
        }
    }
}

/// Returns what each of `count` sharers may have while `free` of `tags` tags are free.
fn part(free: u32, count: u32, tags: u32) -> u32 {
    let all = free.saturating_mul(few(tags).max(count));
    all.checked_div(count).unwrap_or(all)
}

/// Returns the user id of the user of `owner`, unless the owner is a user of its own.
fn user_of(owner: Owner) -> Option<u32> {
    owner.uid.filter(|uid| *uid != 0)
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, VecDeque};

    use super::*;
    use crate::sched::rng::Rng;

    type Shares = TagShares<VecDeque<u64>>;

    fn owner(uid: u32, cgroup: u64) -> Owner {
        Owner {
            uid: Some(uid),
            cgroup: Some(cgroup),
        }
    }

    /// Queues requests of `owner` until it has no room; returns their number.
    fn fill(shares: &mut Shares, owner: Owner, tags: u32) -> u32 {
        fill_all(shares, &[owner], tags)[0]
    }

    /// Queues requests of these owners, one of each in turn, until none has room; returns the
    /// number of each.
    fn fill_all(shares: &mut Shares, owners: &[Owner], tags: u32) -> Vec<u32> {
        let mut counts = vec![0; owners.len()];
        loop {
            let before = shares.queued();
            for (owner, count) in owners.iter().zip(&mut counts) {
                if !shares.is_over(*owner, tags) {
                    shares.enter(*owner);
                    *count += 1;
                }
            }
            if shares.queued() == before {
                return counts;
            }
        }
    }

    #[test]
    fn one_part_in_nine_stays_free_or_that_of_one_more_user() {
        for users in [1, 2, 3, 8, 9, 20, 60] {
            let mut shares = Shares::new(1).unwrap();
            // Owners of root are users of their own.
            let owners: Vec<_> = (0..users).map(|cgroup| owner(0, cgroup)).collect();
            let counts = fill_all(&mut shares, &owners, 2700);
            let parts = users.max(8) + 1;
            let free = 2700 - u64::from(shares.queued());
            assert!(free.abs_diff(2700 / parts) <= 1, "{users}: {free}");
            let (least, most) = (counts.iter().min(), counts.iter().max());
            assert!(least.unwrap() + 1 >= *most.unwrap(), "{users}: {counts:?}");
            assert!(!shares.is_over(owner(1, 3), 2700));
        }
        for tags in [16, 32, 64, 128, 256] {
            let mut shares = Shares::new(1).unwrap();
            let free = tags - fill(&mut shares, owner(0, 1), tags);
            assert!((8..=28).contains(&free), "{free} of {tags}");
        }
        // What one cgroup of a user leaves to others is less than that.
        let mut shares = Shares::new(1).unwrap();
        assert_eq!(fill(&mut shares, owner(7, 1), 730), 640);
        // A user that comes later has a part as soon as others have left it.
        let mut taken = fill(&mut shares, owner(8, 1), 730);
        assert!(taken >= 30, "{taken}");
        let idx = shares.find(owner(7, 1));
        for _ in 0..400 {
            shares.leave(idx, || 730);
        }
        taken += fill(&mut shares, owner(8, 1), 730);
        assert!(taken > 300, "{taken}");
    }

    #[test]
    fn users_and_owners_are_counted_while_they_have_queued_requests() {
        let mut shares = Shares::new(1).unwrap();
        let mut rng = Rng::new(5);
        let mut queued: Vec<(u32, Owner)> = Vec::new();
        for step in 0..4000 {
            let grows = if step < 2000 { 2 } else { 0 };
            if rng.below(3) < grows || queued.is_empty() {
                let owner = owner(rng.below(4) as u32, rng.below(3));
                queued.push((shares.enter(owner), owner));
            } else {
                let (idx, _) = queued.swap_remove(rng.below(queued.len() as u64) as usize);
                shares.leave(idx, || 16);
            }
            let user = |owner: &Owner| user_of(*owner).map_or((1, owner.cgroup), |_| (0, None));
            let key = |(_, owner): &(u32, Owner)| (owner.uid, user(owner));
            let users: std::collections::HashSet<_> = queued.iter().map(key).collect();
            assert_eq!(shares.users as usize, users.len());
            for uid in 1..4 {
                let of_user = queued.iter().filter(|(_, owner)| owner.uid == Some(uid));
                let owners: std::collections::HashSet<_> =
                    of_user.map(|(_, owner)| owner.cgroup).collect();
                let row = shares.rows.find(&ShareKey::User(uid), |_| true);
                let counted = row.map_or(0, |idx| shares.rows.at(idx).unwrap().owners);
                assert_eq!(counted as usize, owners.len());
            }
        }
    }

    #[test]
    fn cgroups_of_a_user_share_the_room_of_the_user() {
        let mut shares = Shares::new(1).unwrap();
        let of_user: u32 = (0..320)
            .map(|cgroup| fill(&mut shares, owner(7, cgroup), 256))
            .sum();
        assert!(of_user <= 228, "{of_user} of 256");
        assert!(fill(&mut shares, owner(8, 1), 256) >= 8);
    }

    #[test]
    fn an_owner_with_nothing_queued_is_not_deferred() {
        let mut shares = Shares::new(1).unwrap();
        for uid in 1..400 {
            assert!(!shares.is_over(owner(uid, 1), 256), "{uid}");
            shares.enter(owner(uid, 1));
        }
    }

    #[test]
    fn owners_without_a_row_share_one() {
        let mut shares = Shares::new(1).unwrap();
        let entered: Vec<_> = (0..2000).map(|c| shares.enter(owner(0, c))).collect();
        assert!(shares.is_over(owner(0, 5000), 2048));
        assert!(!shares.is_over(owner(0, 5000), 1 << 20));
        for idx in entered {
            shares.leave(idx, || 2048);
        }
        assert_eq!(shares.queued(), 0);
        assert_eq!(shares.rows.len(), 1);
    }

    /// Runs submitters that submit the next request when the last one is dispatched.
    #[test]
    fn no_submitter_waits_behind_newer_requests_of_its_owner() {
        for (tags, uid) in [(64, 0), (256, 0), (64, 7)] {
            let mut shares = Shares::new(1).unwrap();
            let mut queued: VecDeque<(u32, u64)> = VecDeque::new();
            let mut served = [0; 400];
            let mut arrivals: VecDeque<u64> = (0..400).collect();
            for _ in 0..20_000 {
                while let Some(task) = arrivals.pop_front() {
                    if shares.is_over(owner(uid, 1), tags) {
                        shares.defer(owner(uid, 1), |list| list.push_back(task));
                    } else {
                        queued.push_back((shares.enter(owner(uid, 1)), task));
                    }
                }
                let (idx, task) = queued.pop_front().unwrap();
                served[task as usize] += 1;
                arrivals.push_back(task);
                if shares.leave(idx, || tags) {
                    while let Some((idx, task)) =
                        shares.next(Some(tags), |list| (list.pop_front(), 1))
                    {
                        queued.push_back((idx, task.unwrap()));
                    }
                }
            }
            let least = served.iter().min().unwrap();
            assert!(*least >= 40, "{tags} tags, user {uid}: {least} of 50");
        }
    }

    #[test]
    fn a_full_table_forgets_no_request() {
        let tags = 1 << 14;
        let mut shares = Shares::new(1).unwrap();
        let mut queued: Vec<u32> = (0..1010).map(|c| shares.enter(owner(0, c))).collect();
        queued.extend((0..8000).map(|_| shares.enter(owner(7, 1))));
        queued.extend((0..1010).map(|c| shares.enter(owner(0, 2000 + c))));
        for serial in 0..100 {
            let late = owner(7, 2 + serial);
            if shares.is_over(late, tags) {
                shares.defer(late, |list| list.push_back(serial));
            }
        }
        while let Some(idx) = queued.pop() {
            if shares.leave(idx, || tags) {
                while let Some((idx, _)) = shares.next(Some(tags), |list| (list.pop_front(), 1)) {
                    queued.insert(0, idx);
                }
            }
        }
        assert_eq!((shares.queued(), shares.deferred()), (0, 0));
    }

    /// Runs random owners against a reference that knows each request.
    #[test]
    fn random_requests_are_neither_lost_nor_forgotten() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut shares = Shares::new(seed).unwrap();
            let tags = [1, 4, 32, 256][rng.below(4) as usize];
            let mut queued: Vec<u32> = Vec::new();
            let mut deferred: HashMap<(u32, u64), VecDeque<u64>> = HashMap::new();
            let mut serial = 0;
            for step in 0..2000 {
                let key = (rng.below(3) as u32, rng.below(3));
                let mut submit = step > 1900;
                if step < 1900 && rng.below(3) != 0 {
                    let owner = owner(key.0, key.1);
                    if shares.is_over(owner, tags) {
                        serial += 1;
                        deferred.entry(key).or_default().push_back(serial);
                        shares.defer(owner, |list| list.push_back(serial));
                    } else {
                        queued.push(shares.enter(owner));
                    }
                } else if !queued.is_empty() {
                    let at = rng.below(queued.len() as u64) as usize;
                    submit |= shares.leave(queued.swap_remove(at), || tags);
                }
                // One request is made of up to three.
                let most = 1 + rng.below(3) as usize;
                while let Some((idx, taken)) = submit
                    .then(|| {
                        shares.next(Some(tags), |list: &mut VecDeque<u64>| {
                            let taken: Vec<u64> = list.drain(..most.min(list.len())).collect();
                            let count = taken.len() as u32;
                            (taken, count)
                        })
                    })
                    .flatten()
                {
                    queued.push(idx);
                    let list = deferred.values_mut().find(|list| list.contains(&taken[0]));
                    // In order of arrival.
                    let list = list.unwrap();
                    assert_eq!(list.drain(..taken.len()).collect::<Vec<_>>(), taken);
                }
                assert_eq!(shares.queued() as usize, queued.len());
                let waiting: usize = deferred.values().map(VecDeque::len).sum();
                assert_eq!(shares.deferred() as usize, waiting);
                assert!(waiting == 0 || !queued.is_empty(), "forgotten: {waiting}");
            }
            // Any tags: all deferred requests are returned, and every row goes.
            while shares.next(None, |list| (list.pop_front(), 1)).is_some() {}
            for idx in queued {
                shares.leave(idx, || tags);
            }
            assert_eq!((shares.queued(), shares.deferred()), (0, 0));
            assert_eq!(shares.rows.len(), 1);
        }
    }
}
