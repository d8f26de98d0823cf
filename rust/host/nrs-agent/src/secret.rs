// SPDX-License-Identifier: GPL-2.0-only

//! Secret of a realm, with which names are hashed to ids.
//!
//! Servers exchange ids in place of names. Servers with the same secret compute the same ids.
//! Without the secret an id cannot be attributed to a user or job. The hash is SipHash-2-4 with a
//! key of 128 bits.

use std::{fs::File, hash::Hasher as _, io::Read as _, os::unix::fs::MetadataExt as _, path::Path};

use siphasher::sip::SipHasher24;

/// Number of hexadecimal digits of a secret.
const DIGITS: usize = 32;

/// Secret of a realm.
#[derive(Clone)]
pub struct Secret([u8; DIGITS / 2]);

impl Secret {
    /// Reads the secret from the file `path`.
    ///
    /// # Errors
    ///
    /// The reason, in one line: the file cannot be read, is accessible to other users, or contains
    /// no secret.
    pub fn read(path: &Path) -> Result<Self, String> {
        let mut file = File::open(path).map_err(|error| error.to_string())?;
        let metadata = file.metadata().map_err(|error| error.to_string())?;
        check_mode(metadata.mode())?;
        let mut text = String::new();
        let most = DIGITS as u64 + 2;
        let read = (&mut file).take(most).read_to_string(&mut text);
        read.map_err(|error| error.to_string())?;
        Self::parse(text.trim_end())
    }

    /// Parses `text`.
    ///
    /// # Errors
    ///
    /// The reason: `text` is not 32 hexadecimal digits.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("expected {DIGITS} hexadecimal digits; create them with: openssl rand -hex 16")
        };
        if text.len() != DIGITS || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let number = u128::from_str_radix(text, 16).map_err(|_| wrong())?;
        Ok(Self(number.to_be_bytes()))
    }

    /// Returns the hash of `parts` of the kind `kind`; neither 0 nor 2^64 - 1.
    pub fn hash(&self, kind: &str, parts: &[&[u8]]) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        for part in [&[kind.as_bytes()], parts].concat() {
            hasher.write(&(part.len() as u64).to_le_bytes());
            hasher.write(part);
        }
        hasher.finish().clamp(1, u64::MAX - 1)
    }

    /// Returns the number of the server `name`.
    pub fn server(&self, name: &str) -> u64 {
        self.hash("server", &[name.as_bytes()])
    }

    /// Returns the number of the realm `name` for services of `group` with the terms `terms` of the
    /// module.
    pub fn realm(&self, name: &str, group: &str, terms: u64) -> u64 {
        let parts = [name.as_bytes(), group.as_bytes(), &terms.to_le_bytes()];
        self.hash("realm", &parts)
    }

    /// Returns the id of the node `key` of `level` below the node with the id `parent`; 0 is the
    /// root.
    pub fn node(&self, parent: u64, level: &str, key: &str) -> u64 {
        let parts = [&parent.to_le_bytes(), level.as_bytes(), key.as_bytes()];
        self.hash("node", &parts)
    }
}

/// Checks that the mode of a file grants access only to the owner.
///
/// # Errors
///
/// The reason for which the mode is refused.
pub fn check_mode(mode: u32) -> Result<(), String> {
    match mode & 0o077 {
        0 => Ok(()),
        _ => Err(format!(
            "file accessible to group or others (mode {:04o}): chmod 0600",
            mode & 0o7777
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt as _};

    #[test]
    fn ids_depend_on_all_of_what_is_named() {
        let one = Secret::parse("000102030405060708090a0b0c0d0e0f").unwrap();
        let other = Secret::parse("000102030405060708090a0b0c0d0e10").unwrap();
        let ids = [
            one.node(0, "uid", "uid:1"),
            other.node(0, "uid", "uid:1"),
            one.node(1, "uid", "uid:1"),
            one.node(0, "ui", "duid:1"),
            one.node(0, "uid", "uid:2"),
            one.server("uid:1"),
            one.realm("a", "b", 1),
            one.realm("a", "b", 2),
            one.realm("ab", "", 1),
        ];
        let all: std::collections::BTreeSet<u64> = ids.into_iter().collect();
        assert_eq!(all.len(), ids.len());
        assert_eq!(one.node(0, "uid", "uid:1"), ids[0]);
    }

    #[test]
    fn only_a_file_of_the_owner_alone_is_taken() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("secret");
        let reason = || Secret::read(&path).err().unwrap_or_default();
        assert!(reason().contains("No such file"), "{}", reason());
        for (text, mode, want) in [
            ("000102030405060708090a0b0c0d0e0f\n", 0o600, ""),
            ("000102030405060708090A0B0C0D0E0F", 0o400, ""),
            ("000102030405060708090a0b0c0d0e0f\n", 0o640, "mode 0640"),
            ("000102030405060708090a0b0c0d0e0f\n", 0o604, "mode 0604"),
            (
                "000102030405060708090a0b0c0d0e0\n",
                0o600,
                "expected 32 hex",
            ),
            (
                "+00102030405060708090a0b0c0d0e0f\n",
                0o600,
                "expected 32 hex",
            ),
            (
                "000102030405060708090a0b0c0d0e0f00",
                0o600,
                "expected 32 hex",
            ),
            ("", 0o600, "expected 32 hex"),
        ] {
            let _ = fs::remove_file(&path);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert!(reason().contains(want), "{text}: {}", reason());
            assert_eq!(reason().is_empty(), want.is_empty(), "{text}");
        }
    }
}
