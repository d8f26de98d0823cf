// SPDX-License-Identifier: GPL-2.0-only

//! Operations, with the numbers and names of RPCs in Lustre's wire protocol.

use crate::sched::item::Direction;
use core::fmt;

/// Number of an operation.
///
/// Every number is valid, known or not; [`Opcode::NONE`] means "no operation known".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Opcode(u32);

/// Defines a constant for each operation, and the table of the names.
macro_rules! opcodes {
    ($($constant:ident = $number:literal, $name:literal;)+) => {
        impl Opcode {
            $(
                #[doc = concat!("`", $name, "`, number ", $number, ".")]
                pub const $constant: Self = Self($number);
            )+

            /// Operations that have a name, sorted by number.
            pub const KNOWN: &'static [(Self, &'static str)] = &[
                $((Self::$constant, $name),)+
            ];
        }
    };
}

opcodes! {
    OST_REPLY = 0, "ost_reply";
    OST_GETATTR = 1, "ost_getattr";
    OST_SETATTR = 2, "ost_setattr";
    OST_READ = 3, "ost_read";
    OST_WRITE = 4, "ost_write";
    OST_CREATE = 5, "ost_create";
    OST_DESTROY = 6, "ost_destroy";
    OST_GET_INFO = 7, "ost_get_info";
    OST_CONNECT = 8, "ost_connect";
    OST_DISCONNECT = 9, "ost_disconnect";
    OST_PUNCH = 10, "ost_punch";
    OST_OPEN = 11, "ost_open";
    OST_CLOSE = 12, "ost_close";
    OST_STATFS = 13, "ost_statfs";
    OST_SYNC = 16, "ost_sync";
    OST_SET_INFO = 17, "ost_set_info";
    OST_QUOTACHECK = 18, "ost_quotacheck";
    OST_QUOTACTL = 19, "ost_quotactl";
    OST_QUOTA_ADJUST_QUNIT = 20, "ost_quota_adjust_qunit";
    OST_LADVISE = 21, "ost_ladvise";
    OST_FALLOCATE = 22, "ost_fallocate";
    OST_SEEK = 23, "ost_seek";
    MDS_GETATTR = 33, "mds_getattr";
    MDS_GETATTR_LOCK = 34, "mds_getattr_lock";
    MDS_CLOSE = 35, "mds_close";
    MDS_REINT = 36, "mds_reint";
    MDS_READPAGE = 37, "mds_readpage";
    MDS_CONNECT = 38, "mds_connect";
    MDS_DISCONNECT = 39, "mds_disconnect";
    MDS_GET_ROOT = 40, "mds_get_root";
    MDS_STATFS = 41, "mds_statfs";
    MDS_PIN = 42, "mds_pin";
    MDS_UNPIN = 43, "mds_unpin";
    MDS_SYNC = 44, "mds_sync";
    MDS_DONE_WRITING = 45, "mds_done_writing";
    MDS_SET_INFO = 46, "mds_set_info";
    MDS_QUOTACHECK = 47, "mds_quotacheck";
    MDS_QUOTACTL = 48, "mds_quotactl";
    MDS_GETXATTR = 49, "mds_getxattr";
    MDS_SETXATTR = 50, "mds_setxattr";
    MDS_WRITEPAGE = 51, "mds_writepage";
    MDS_IS_SUBDIR = 52, "mds_is_subdir";
    MDS_GET_INFO = 53, "mds_get_info";
    MDS_HSM_STATE_GET = 54, "mds_hsm_state_get";
    MDS_HSM_STATE_SET = 55, "mds_hsm_state_set";
    MDS_HSM_ACTION = 56, "mds_hsm_action";
    MDS_HSM_PROGRESS = 57, "mds_hsm_progress";
    MDS_HSM_REQUEST = 58, "mds_hsm_request";
    MDS_HSM_CT_REGISTER = 59, "mds_hsm_ct_register";
    MDS_HSM_CT_UNREGISTER = 60, "mds_hsm_ct_unregister";
    MDS_SWAP_LAYOUTS = 61, "mds_swap_layouts";
    MDS_RMFID = 62, "mds_rmfid";
    MDS_BATCH = 63, "mds_batch";
    MDS_HSM_DATA_VERSION = 64, "mds_hsm_data_version";
    LDLM_ENQUEUE = 101, "ldlm_enqueue";
    LDLM_CONVERT = 102, "ldlm_convert";
    LDLM_CANCEL = 103, "ldlm_cancel";
    LDLM_BL_CALLBACK = 104, "ldlm_bl_callback";
    LDLM_CP_CALLBACK = 105, "ldlm_cp_callback";
    LDLM_GL_CALLBACK = 106, "ldlm_gl_callback";
    LDLM_SET_INFO = 107, "ldlm_set_info";
    MGS_CONNECT = 250, "mgs_connect";
    MGS_DISCONNECT = 251, "mgs_disconnect";
    MGS_EXCEPTION = 252, "mgs_exception";
    MGS_TARGET_REG = 253, "mgs_target_reg";
    MGS_TARGET_DEL = 254, "mgs_target_del";
    MGS_SET_INFO = 255, "mgs_set_info";
    MGS_CONFIG_READ = 256, "mgs_config_read";
    OBD_PING = 400, "obd_ping";
    OBD_LOG_CANCEL = 401, "llog_cancel";
    OBD_QC_CALLBACK = 402, "obd_quota_callback";
    OBD_IDX_READ = 403, "dt_index_read";
    LLOG_ORIGIN_HANDLE_CREATE = 501, "llog_origin_handle_open";
    LLOG_ORIGIN_HANDLE_NEXT_BLOCK = 502, "llog_origin_handle_next_block";
    LLOG_ORIGIN_HANDLE_READ_HEADER = 503, "llog_origin_handle_read_header";
    LLOG_ORIGIN_HANDLE_WRITE_REC = 504, "llog_origin_handle_write_rec";
    LLOG_ORIGIN_HANDLE_CLOSE = 505, "llog_origin_handle_close";
    LLOG_ORIGIN_CONNECT = 506, "llog_origin_connect";
    LLOG_CATINFO = 507, "llog_catinfo";
    LLOG_ORIGIN_HANDLE_PREV_BLOCK = 508, "llog_origin_handle_prev_block";
    LLOG_ORIGIN_HANDLE_DESTROY = 509, "llog_origin_handle_destroy";
    QUOTA_DQACQ = 601, "quota_acquire";
    QUOTA_DQREL = 602, "quota_release";
    SEQ_QUERY = 700, "seq_query";
    SEC_CTX_INIT = 801, "sec_ctx_init";
    SEC_CTX_INIT_CONT = 802, "sec_ctx_init_cont";
    SEC_CTX_FINI = 803, "sec_ctx_fini";
    FLD_QUERY = 900, "fld_query";
    FLD_READ = 901, "fld_read";
    OUT_UPDATE = 1000, "out_update";
    LFSCK_NOTIFY = 1101, "lfsck_notify";
    LFSCK_QUERY = 1102, "lfsck_query";
}

impl Opcode {
    /// No operation known; Lustre does not use number 0xffffffff.
    pub const NONE: Self = Self(u32::MAX);

    /// Returns the operation with `number`.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the number of the operation; 0xffffffff for [`Opcode::NONE`].
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Returns the direction of the operation's data.
    pub const fn direction(self) -> Direction {
        match self {
            Self::OST_READ | Self::MDS_READPAGE => Direction::Read,
            Self::OST_WRITE => Direction::Write,
            _ => Direction::Other,
        }
    }

    /// Returns the name of the operation, if it has one.
    pub fn name(self) -> Option<&'static str> {
        let at = Self::KNOWN
            .binary_search_by_key(&self, |&(opcode, _)| opcode)
            .ok()?;
        Self::KNOWN.get(at).map(|&(_, name)| name)
    }

    /// Parses the name of an operation, such as `ost_read`.
    pub fn parse(name: &str) -> Option<Self> {
        Self::KNOWN
            .iter()
            .find_map(|&(opcode, known)| (known == name).then_some(opcode))
    }
}

/// The name, else the number, else `none`.
impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name(), *self) {
            (Some(name), _) => f.write_str(name),
            (None, Self::NONE) => f.write_str("none"),
            (None, Self(number)) => write!(f, "{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        for pair in Opcode::KNOWN.windows(2) {
            assert!(pair[0].0 < pair[1].0, "{pair:?}");
        }
        for &(opcode, name) in Opcode::KNOWN {
            assert_eq!(opcode.name(), Some(name));
            assert_eq!(Opcode::parse(name), Some(opcode));
            assert_eq!(opcode.to_string(), name);
            assert!(name
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'));
        }
        for name in ["", "ost_", "OST_READ", "read", "ost_read ", "3", "none"] {
            assert_eq!(Opcode::parse(name), None, "{name}");
        }
    }

    /// Verifies that known numbers fit into 11 bits, because caches of front ends pack them.
    #[test]
    fn known_numbers_are_small() {
        assert!(Opcode::KNOWN
            .iter()
            .all(|(opcode, _)| opcode.number() < 2048));
    }

    #[test]
    fn unknown_numbers_are_preserved() {
        for number in [14, 15, 24, 100, 999, 1103, u32::MAX - 1] {
            let opcode = Opcode::new(number);
            assert_eq!((opcode.name(), opcode.number()), (None, number));
            assert_eq!(opcode.to_string(), number.to_string());
        }
        assert_eq!(Opcode::NONE.to_string(), "none");
        assert_eq!(Opcode::NONE.name(), None);
    }
}
