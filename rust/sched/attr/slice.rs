// SPDX-License-Identifier: GPL-2.0-only

//! Users of the slices that systemd makes for them.

/// Returns the user of a slice from the first two components of the path of its cgroup, as in
/// `/user.slice/user-1000.slice`.
pub fn slice_user(top: &[u8], slice: &[u8]) -> Option<u32> {
    let number = slice
        .strip_prefix(b"user-")
        .and_then(|rest| rest.strip_suffix(b".slice"))
        .filter(|_| top == b"user.slice")?;
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

    #[test]
    fn slices_of_systemd() {
        let user = |slice: &str| slice_user(b"user.slice", slice.as_bytes());
        assert_eq!(user("user-0.slice"), Some(0));
        assert_eq!(user("user-1000.slice"), Some(1000));
        assert_eq!(user("user-4294967294.slice"), Some(u32::MAX - 1));
        for other in [
            "",
            "user-.slice",
            "user-01.slice",
            "user-1",
            "user-1.slice.x",
            "user-+1.slice",
            "user-1 .slice",
            "user-4294967295.slice",
            "user-4294967296.slice",
            "user-99999999999999999999.slice",
            "user.slice",
        ] {
            assert_eq!(user(other), None, "{other}");
        }
        assert_eq!(slice_user(b"machine.slice", b"user-1000.slice"), None);
        assert_eq!(slice_user(b"", b"user-1000.slice"), None);
    }
}
