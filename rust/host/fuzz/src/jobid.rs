// SPDX-License-Identifier: GPL-2.0-only

//! Job identifiers: formats and the sizes in names. The first line is a format, the others are
//! names.

use nrs_sched::{
    jobid::{JobId, Source, Template, FORMAT_MAX, JOBID_MAX},
    policy::fairshare::job_size::{suffix, SIZE_MAX},
};

/// Returns the number after the last `#`, if a name precedes it.
fn size(name: &[u8]) -> Option<u128> {
    let text: String = name.iter().map(|&byte| char::from(byte)).collect();
    let (before, number) = text.rsplit_once('#')?;
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let number: u128 = number.parse().ok().filter(|_| digits)?;
    (!before.is_empty() && number > 0).then_some(number)
}

/// Checks the format `text` with tasks called `names`.
fn format(text: &str, names: &[&[u8]]) {
    let template = match Template::parse(text) {
        Ok(template) => template,
        Err(error) => {
            crate::check_reason(&error);
            return;
        }
    };
    assert!((1..=FORMAT_MAX).contains(&text.len()));
    let shown = template.to_string();
    assert_eq!(shown, text);
    let name = |at: usize| names.get(at).copied().unwrap_or_default();
    let known = Source {
        comm: name(0),
        uid: Some(name(0).len() as u32),
        gid: None,
        pid: 4_000_000_000,
        host: name(1),
        cgroup: names.get(2).copied(),
    };
    let unknown = Source {
        comm: b"",
        uid: None,
        gid: None,
        pid: 0,
        host: b"\0x",
        cgroup: None,
    };
    for source in [known, unknown] {
        let id = template.expand(&source);
        assert!(id.as_bytes().len() <= JOBID_MAX);
        assert!(id.as_bytes().iter().all(u8::is_ascii_graphic));
        assert_eq!(id.to_string().as_bytes(), id.as_bytes());
        if !template.uses_pid() {
            let other = template.expand(&Source { pid: 1, ..source });
            assert_eq!(other, id);
        }
        if !template.uses_host() {
            let host = &b"other"[..];
            assert_eq!(template.expand(&Source { host, ..source }), id);
        }
        if !template.uses_cgroup() {
            let cgroup = Some(&b"other"[..]);
            assert_eq!(template.expand(&Source { cgroup, ..source }), id);
        }
    }
}

/// Checks a format and names.
pub fn run(data: &[u8]) {
    let mut lines = data.split(|&byte| byte == b'\n');
    let first = lines.next().unwrap_or_default();
    let names: Vec<&[u8]> = lines.take(16).collect();
    if let Ok(text) = core::str::from_utf8(first) {
        format(text, &names);
    }
    for name in names.iter().chain(&[first]) {
        let id = JobId::new(name);
        let end = name.iter().position(|&byte| byte == 0);
        let want = &name[..end.unwrap_or(name.len()).min(JOBID_MAX)];
        assert_eq!(id.as_bytes(), want);
        assert_eq!(JobId::new(id.as_bytes()), id);
        assert!(id.to_string().len() == want.len() && usize::from(id.len()) == want.len());
        let told = size(want).map(|size| size.min(SIZE_MAX.into()) as u32);
        assert_eq!(suffix(want), told, "{want:?}");
    }
}
