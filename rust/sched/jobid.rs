// SPDX-License-Identifier: GPL-2.0-only

//! Job identifiers, and the formats that define them.
//!
//! A job identifier ([`JobId`]) consists of at most 31 bytes that name the job of a request; empty
//! means absent. A [`Template`] is a format such as `%e.%u` with codes that start with `%`. A
//! [`Source`] holds the known properties of the submitting task, each of which may be absent.
//!
//! | code | expands to |
//! |---|---|
//! | `%e` | name of the executable |
//! | `%u`, `%g` | user id, group id |
//! | `%p` | process id |
//! | `%h` | host name |
//! | `%H` | host name up to the first dot |
//! | `%j` | name of the cgroup |
//! | `%%` | a percent sign |
//!
//! The codes have the same meaning as in Lustre's `jobid_name`, except for `%j`, which is the
//! cgroup here.

use crate::sched::error::{Error, Result};
use core::fmt::{self, Write};

/// Maximum length of a job identifier, bytes.
pub const JOBID_MAX: usize = 31;

/// Maximum length of a template, bytes.
pub const FORMAT_MAX: usize = 63;

/// Identifier of a job; empty means absent.
///
/// # Invariants
///
/// The first `len` bytes contain no NUL, all other bytes are 0, and `len` is at most [`JOBID_MAX`].
/// Thus equal identifiers have equal bytes, and the derived order is the order of the bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId {
    bytes: [u8; JOBID_MAX],
    len: u8,
}

impl JobId {
    /// Absent job identifier.
    pub const ABSENT: Self = Self {
        bytes: [0; JOBID_MAX],
        len: 0,
    };

    /// Creates the identifier `text`, which ends at the first NUL and is truncated to [`JOBID_MAX`]
    /// bytes.
    pub fn new(text: &[u8]) -> Self {
        let mut id = Self::ABSENT;
        for &byte in text.iter().take_while(|&&b| b != 0) {
            id.push(byte);
        }
        id
    }

    /// Appends a byte that is not NUL; returns false if the identifier is full.
    pub(crate) fn push(&mut self, byte: u8) -> bool {
        let place = self.bytes.get_mut(usize::from(self.len));
        let fits = place.is_some();
        if let Some(place) = place {
            *place = byte;
            self.len = self.len.wrapping_add(1);
        }
        fits
    }

    /// Returns the bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// Returns the length of the name, bytes.
    pub const fn len(&self) -> u8 {
        self.len
    }

    /// Returns true if the identifier is absent.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// The name; bytes other than printable ASCII, and blanks, are shown as `_`.
impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_clean(self.as_bytes(), f)
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobId({self})")
    }
}

/// Writes `bytes` with `_` in place of blanks and non-printable characters.
pub(crate) fn write_clean(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut chars = bytes.iter().map(|byte| char::from(clean(*byte)));
    chars.try_for_each(|char| f.write_char(char))
}

/// Returns `byte` if it is printable ASCII and not blank, else `_`.
const fn clean(byte: u8) -> u8 {
    if byte.is_ascii_graphic() {
        byte
    } else {
        b'_'
    }
}

/// Properties of a task for job identifiers. Names end at the first NUL; an empty name is absent.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Name of the executable.
    pub comm: &'a [u8],
    /// User id.
    pub uid: Option<u32>,
    /// Group id.
    pub gid: Option<u32>,
    /// Process id.
    pub pid: Option<u32>,
    /// Host name.
    pub host: &'a [u8],
    /// Name of the cgroup.
    pub cgroup: Option<&'a [u8]>,
}

/// Parsed format of job identifiers.
///
/// # Invariants
///
/// The first `len` bytes are printable ASCII or blanks, and each `%` starts a known code of two
/// bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Template {
    format: [u8; FORMAT_MAX],
    len: u8,
    cgroup: bool,
    host: bool,
    pid: bool,
}

impl Default for Template {
    /// Returns the template `%e.%u`.
    fn default() -> Self {
        let mut template = Self::EMPTY;
        // INVARIANT: Both codes are known and complete, and fit.
        for byte in *b"%e.%u" {
            bug!(template.push(byte).is_err());
        }
        template
    }
}

impl Template {
    /// Template that [`Self::push`] extends.
    const EMPTY: Self = Self {
        format: [0; FORMAT_MAX],
        len: 0,
        cgroup: false,
        host: false,
        pid: false,
    };

    /// Parses a format.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the format is empty, is longer than [`FORMAT_MAX`] bytes, or ends in a single
    ///   `%`.
    /// - `EINVAL`: the format contains a byte that is not printable ASCII, or an unknown code.
    pub fn parse(text: &str) -> Result<Self> {
        if text.is_empty() {
            return Err(Error::invalid("jobid format is empty"));
        }
        let mut template = Self::EMPTY;
        let mut bytes = text.bytes();
        while let Some(byte) = bytes.next() {
            if byte != b' ' && !byte.is_ascii_graphic() {
                return Err(Error::invalid("jobid format has an unprintable character"));
            }
            template.push(byte)?;
            if byte != b'%' {
                continue;
            }
            let Some(code) = bytes.next() else {
                return Err(Error::invalid(
                    "jobid format ends in '%' (write %% for a percent sign)",
                ));
            };
            match code {
                b'%' | b'e' | b'u' | b'g' => {}
                b'h' | b'H' => template.host = true,
                b'p' => template.pid = true,
                b'j' => template.cgroup = true,
                _ => return Err(unknown(code)),
            }
            template.push(code)?;
        }
        // INVARIANT: every byte was checked, every '%' was stored with its code.
        Ok(template)
    }

    fn push(&mut self, byte: u8) -> Result {
        match self.format.get_mut(usize::from(self.len)) {
            Some(place) => {
                *place = byte;
                self.len = self.len.wrapping_add(1);
                Ok(())
            }
            None => Err(Error::invalid("jobid format is too long (limit: 63 bytes)")),
        }
    }

    fn as_bytes(&self) -> &[u8] {
        self.format.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// Returns true if the format contains the cgroup, which needs a look-up.
    pub const fn uses_cgroup(&self) -> bool {
        self.cgroup
    }

    /// Returns true if the format contains the host name.
    pub const fn uses_host(&self) -> bool {
        self.host
    }

    /// Returns true if the format contains the process id, which makes each process a job.
    pub const fn uses_pid(&self) -> bool {
        self.pid
    }

    /// Returns the job identifier of a task.
    ///
    /// Absent properties expand to nothing. If the format has codes and all of them are absent, the
    /// result is absent. The result is truncated to [`JOBID_MAX`] bytes. Bytes other than printable
    /// ASCII, and blanks, become `_`, in names and in the format itself. Thus an identifier is one
    /// word in every file and rule.
    pub fn expand(&self, source: &Source<'_>) -> JobId {
        let mut id = JobId::ABSENT;
        let (mut codes, mut present) = (false, false);
        let mut bytes = self.as_bytes().iter();
        while let Some(&byte) = bytes.next() {
            if byte != b'%' {
                id.push(clean(byte));
                continue;
            }
            let part = match bytes.next() {
                Some(b'e') => push_name(&mut id, source.comm),
                Some(b'u') => push_number(&mut id, source.uid),
                Some(b'g') => push_number(&mut id, source.gid),
                Some(b'p') => push_number(&mut id, source.pid),
                Some(b'h') => push_name(&mut id, source.host),
                Some(b'H') => {
                    let short = source.host.split(|&b| b == b'.').next();
                    push_name(&mut id, short.unwrap_or_default())
                }
                Some(b'j') => push_name(&mut id, source.cgroup.unwrap_or_default()),
                _ => {
                    id.push(b'%');
                    continue;
                }
            };
            codes = true;
            present |= part;
        }
        if codes && !present {
            return JobId::ABSENT;
        }
        id
    }
}

/// The format as it was written.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &byte in self.as_bytes() {
            f.write_char(char::from(byte))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Template({self})")
    }
}

/// Appends a name; returns true if the name is present.
fn push_name(id: &mut JobId, name: &[u8]) -> bool {
    let mut present = false;
    for &byte in name.iter().take_while(|&&b| b != 0) {
        id.push(clean(byte));
        present = true;
    }
    present
}

/// Appends a decimal number; returns true if the number is present.
fn push_number(id: &mut JobId, number: Option<u32>) -> bool {
    let Some(mut rest) = number else {
        return false;
    };
    // Lowest digit first; u32 has at most 10 digits.
    let mut digits = [0u8; 10];
    let mut count = 0usize;
    for digit in &mut digits {
        *digit = b'0'.wrapping_add((rest % 10) as u8);
        rest /= 10;
        count = count.wrapping_add(1);
        if rest == 0 {
            break;
        }
    }
    for &digit in digits.iter().take(count).rev() {
        id.push(digit);
    }
    true
}

/// Returns an `EINVAL` error that suggests a similar code if there is one.
const fn unknown(code: u8) -> Error {
    Error::invalid(match code {
        b'E' => "jobid format has unknown code %E, did you mean %e",
        b'U' => "jobid format has unknown code %U, did you mean %u",
        b'G' => "jobid format has unknown code %G, did you mean %g",
        b'P' => "jobid format has unknown code %P, did you mean %p",
        b'J' => "jobid format has unknown code %J, did you mean %j",
        b's' => "jobid format has unknown code %s",
        b'd' => "jobid format has unknown code %d",
        b'i' => "jobid format has unknown code %i",
        b'c' => "jobid format has unknown code %c",
        b'n' => "jobid format has unknown code %n",
        _ => "jobid format has a code other than %e %u %g %p %h %H %j %%",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: Source<'static> = Source {
        comm: b"fio\0\0\0",
        uid: Some(1000),
        gid: Some(0),
        pid: Some(4_294_967_295),
        host: b"oss1.lab.example",
        cgroup: Some(b"job 42"),
    };
    const ANONYMOUS: Source<'static> = Source {
        comm: b"",
        uid: None,
        gid: None,
        pid: None,
        host: b"",
        cgroup: None,
    };

    #[test]
    fn display_is_safe() {
        let id = JobId::new(b"a b\n\x1b\xff\"c");
        assert_eq!(id.to_string(), "a_b___\"c");
        assert_eq!(format!("{id:?}"), "JobId(a_b___\"c)");
    }

    #[test]
    fn expands() {
        for (format, source, want) in [
            ("%e.%u", TASK, "fio.1000"),
            ("%e.%u.%g.%p", TASK, "fio.1000.0.4294967295"),
            ("%h", TASK, "oss1.lab.example"),
            ("%H:%e", TASK, "oss1:fio"),
            ("%j", TASK, "job_42"),
            ("100%% %e", TASK, "100%_fio"),
            ("fixed", TASK, "fixed"),
            ("fixed", ANONYMOUS, "fixed"),
            ("%%", ANONYMOUS, "%"),
            ("%e.%u", ANONYMOUS, ""),
            ("x%j%g%h%H", ANONYMOUS, ""),
            ("%e.%p", ANONYMOUS, ""),
            ("%h%h", TASK, "oss1.lab.exampleoss1.lab.exampl"),
        ] {
            let id = Template::parse(format).unwrap().expand(&source);
            assert_eq!(id.as_bytes(), want.as_bytes(), "{format}");
        }
    }

    #[test]
    fn hostile_names_become_one_word() {
        let source = Source {
            comm: b"a b\t\x80\xff\x7f{",
            cgroup: Some(b"\0hidden"),
            host: b".lab",
            ..ANONYMOUS
        };
        let expand = |f| Template::parse(f).unwrap().expand(&source);
        assert_eq!(expand("%e").as_bytes(), b"a_b____{");
        assert!(expand("%j").is_empty() && expand("%H").is_empty());
        assert_eq!(expand("%h").as_bytes(), b".lab");
    }

    #[test]
    fn display_and_uses() {
        assert!(Template::default() == Template::parse("%e.%u").unwrap());
        let full = "x".repeat(63);
        for (format, cgroup, host, pid) in [
            ("%e.%u", false, false, false),
            ("%j", true, false, false),
            ("%H", false, true, false),
            ("%%j%%p%%h", false, false, false),
            ("%p%j %H%h%g", true, true, true),
            (&full, false, false, false),
        ] {
            let template = Template::parse(format).unwrap();
            assert_eq!(template.to_string(), format);
            assert_eq!(template.uses_cgroup(), cgroup);
            assert_eq!(template.uses_host(), host);
            assert_eq!(template.uses_pid(), pid);
        }
    }

    #[test]
    fn refused() {
        let (long, split) = ("x".repeat(64), "x".repeat(62) + "%e");
        for (format, word) in [
            ("", "empty"),
            ("%", "ends"),
            ("%e%", "ends"),
            ("%%%", "ends"),
            ("%x", "other than"),
            ("%U", "%U"),
            ("%s", "%s"),
            ("% e", "other than"),
            ("%\u{e9}", "other than"),
            ("a\nb", "unprintable"),
            ("a\0", "unprintable"),
            ("\u{e9}", "unprintable"),
            (&long, "63"),
            (&split, "63"),
        ] {
            let reason = Template::parse(format).unwrap_err().reason;
            assert!(reason.contains(word), "{format:?}: {reason}");
        }
    }
}
