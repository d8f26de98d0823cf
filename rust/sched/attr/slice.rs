// SPDX-License-Identifier: GPL-2.0-only

//! Owners of cgroups, by their paths.
//!
//! Root makes the slices of systemd, and the cgroup in a slice that is none: of a service, a
//! container, or a machine. What is below may belong to a user, who may make as many cgroups as he
//! likes. So the owner is the first cgroup of a path that is no slice.

/// Owner of a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupOwner {
    /// The user of a slice that systemd makes for a user.
    User(u32),
    /// The cgroup at this level, 1 below the root.
    Level(i32),
}

/// Maximum length of a name in a path, bytes.
const NAME_MAX: usize = 255;

/// Maximum number of slices in each other that are distinguished.
const LEVELS_MAX: i32 = 32;

/// Returns the owner of a cgroup; `None` for the root. `name` copies the name of the component of
/// the path at a level, 1 below the root, and returns its length.
pub fn owner_of_path(mut name: impl FnMut(i32, &mut [u8]) -> Option<usize>) -> Option<CgroupOwner> {
    let mut owner = None;
    let mut is_user_slice = false;
    let mut buf = [0; NAME_MAX + 1];
    for level in 1..=LEVELS_MAX {
        let Some(part) = name(level, &mut buf).and_then(|len| buf.get(..len)) else {
            break;
        };
        if let Some(user) = slice_user(part).filter(|_| is_user_slice) {
            return Some(CgroupOwner::User(user));
        }
        owner = Some(CgroupOwner::Level(level));
        if !part.ends_with(b".slice") {
            break;
        }
        is_user_slice = level == 1 && part == b"user.slice";
    }
    owner
}

/// Returns the user of a slice with this name in `user.slice`, such as `user-1000.slice`.
fn slice_user(name: &[u8]) -> Option<u32> {
    let number = name.strip_prefix(b"user-")?.strip_suffix(b".slice")?;
    let is_canonical = matches!(number, [b'0'] | [b'1'..=b'9', ..]);
    number
        .iter()
        .try_fold(0_u32, |user, digit| {
            let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
            user.checked_mul(10)?.checked_add(digit.into())
        })
        .filter(|user| is_canonical && *user != u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(path: &str) -> Option<CgroupOwner> {
        let parts: Vec<&[u8]> = path.split_terminator('/').map(str::as_bytes).collect();
        owner_of_path(|level, buf| {
            let part = parts.get(level as usize)?;
            buf[..part.len()].copy_from_slice(part);
            Some(part.len())
        })
    }

    #[test]
    fn users_of_slices() {
        let user = |slice: &str| owner(&format!("/user.slice/{slice}/session-1.scope"));
        for (slice, wanted) in [
            ("user-0.slice", 0),
            ("user-1000.slice", 1000),
            ("user-4294967294.slice", u32::MAX - 1),
        ] {
            assert_eq!(user(slice), Some(CgroupOwner::User(wanted)));
        }
        for (other, level) in [
            ("user-.slice", 3),
            ("user-01.slice", 3),
            ("user-1", 2),
            ("user-1.slice.x", 2),
            ("user-+1.slice", 3),
            ("user-1 .slice", 3),
            ("user-4294967295.slice", 3),
            ("user-4294967296.slice", 3),
            ("user-99999999999999999999.slice", 3),
            ("user.slice", 3),
        ] {
            assert_eq!(user(other), Some(CgroupOwner::Level(level)), "{other}");
        }
        let container = owner("/machine.slice/user-1000.slice/x");
        assert_eq!(container, Some(CgroupOwner::Level(3)));
    }

    /// Verifies that cgroups which a service or a container makes belong to it.
    #[test]
    fn the_first_that_is_no_slice() {
        for (path, wanted) in [
            ("", None),
            ("/system.slice", Some(1)),
            ("/system.slice/a.service", Some(2)),
            ("/system.slice/a.service/b.slice/c", Some(2)),
            (
                "/machine.slice/machine-x.scope/payload/user.slice/user-5.slice",
                Some(2),
            ),
            ("/a.slice/a-b.slice/c.service/d", Some(3)),
            ("/docker/0123/x", Some(1)),
        ] {
            assert_eq!(owner(path), wanted.map(CgroupOwner::Level), "{path}");
        }
        let deep = "/a.slice".repeat(99);
        assert_eq!(owner(&deep), Some(CgroupOwner::Level(32)));
    }
}
