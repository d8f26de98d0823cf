// SPDX-License-Identifier: GPL-2.0-only

//! Operations that servers often have, by the numbers of Lustre's wire protocol.

/// Names and numbers. A server may use any other number too.
pub const KNOWN: [(&str, u32); 20] = [
    ("ost_getattr", 1),
    ("ost_setattr", 2),
    ("ost_read", 3),
    ("ost_write", 4),
    ("ost_create", 5),
    ("ost_destroy", 6),
    ("ost_punch", 10),
    ("ost_statfs", 13),
    ("ost_sync", 16),
    ("mds_getattr", 33),
    ("mds_getattr_lock", 34),
    ("mds_close", 35),
    ("mds_reint", 36),
    ("mds_readpage", 37),
    ("mds_statfs", 41),
    ("mds_sync", 44),
    ("mds_getxattr", 49),
    ("ldlm_enqueue", 101),
    ("ldlm_cancel", 103),
    ("obd_ping", 400),
];

/// Read of an object's data.
pub const OST_READ: u32 = 3;

/// Write of an object's data.
pub const OST_WRITE: u32 = 4;

/// The operation called `text`: one of [`KNOWN`], or a number.
pub fn parse(text: &str) -> Option<u32> {
    KNOWN
        .iter()
        .find(|(name, _)| *name == text)
        .map(|(_, number)| *number)
        .or_else(|| text.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        for (text, number) in [
            ("ost_read", Some(3)),
            ("36", Some(36)),
            ("ost", None),
            ("-1", None),
        ] {
            assert_eq!(parse(text), number, "{text}");
        }
    }
}
