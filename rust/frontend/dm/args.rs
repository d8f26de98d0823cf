// SPDX-License-Identifier: GPL-2.0-only

//! Arguments of a table line.
//!
//! ```text
//! START LEN nrs DEVICE OFFSET SERVICE [COUNT [nid NID] [jobid JOBID] [jobid_name FORMAT]
//!                                            [size NODES] [opportunity on|off]
//!                                            [stream hint|cgroup|none] [on_timeout fail|wait]]
//! ```
//!
//! `COUNT` is the number of arguments after it, as in other device-mapper targets. `dmsetup table`
//! prints the same arguments, without START LEN nrs.

use core::fmt;

use kernel::{prelude::*, str::CString};

use crate::{
    engine::service::is_name,
    frontend::block::{template, ClientNaming},
    sched::{
        attr::{Stream, SIZE_MAX},
        jobid::JobId,
        nid::Nid,
    },
    sys::{
        bio::SECTOR,
        dm::{Args, TableRefusal, TargetPlan},
    },
};

/// Settings of a client from a table line.
pub(crate) struct TableLine {
    /// Name of the service.
    pub(crate) service: CString,
    /// Settings that identify the client's requests.
    pub(crate) naming: ClientNaming,
    /// True if requests that are not in flight fail while the client is lost; else they stay
    /// queued.
    pub(crate) fails: bool,
}

/// Parses a decimal number that consists of digits only.
fn number(word: &str) -> Option<u64> {
    if word.bytes().all(|byte| byte.is_ascii_digit()) {
        word.parse().ok()
    } else {
        None
    }
}

/// Parses a table line.
pub(crate) fn parse(args: &Args<'_>) -> Result<TargetPlan<TableLine>, TableRefusal> {
    let refuse = TableRefusal::invalid;
    let no_memory = |_| TableRefusal {
        error: ENOMEM,
        reason: c"Out of memory",
    };
    let (Some(device), Some(offset), Some(service)) = (args.get(0), args.get(1), args.get(2))
    else {
        return Err(refuse(c"Arguments missing: DEVICE OFFSET SERVICE"));
    };
    let offset = number(offset)
        .filter(|offset| *offset <= i64::MAX as u64 / SECTOR)
        .ok_or(refuse(c"OFFSET: not a decimal number of 512-byte sectors"))?;
    if !is_name(service) {
        return Err(refuse(
            c"SERVICE: 1 to 31 letters, digits and _ - . : not starting with a dot",
        ));
    }
    let mut config = TableLine {
        service: CString::try_from_fmt(kernel::prelude::fmt!("{service}")).map_err(|_| {
            TableRefusal {
                error: ENOMEM,
                reason: c"Out of memory",
            }
        })?,
        naming: ClientNaming::default(),
        fails: false,
    };

    if args.len() > 3 {
        let count = args
            .get(3)
            .and_then(number)
            .ok_or(refuse(c"COUNT: not a decimal number"))?;
        if count != args.len().saturating_sub(4) as u64 {
            return Err(refuse(
                c"COUNT: does not match the number of optional arguments",
            ));
        }
    }
    let mut seen = [false; 7];
    let mut once = |which: usize| {
        seen.get_mut(which)
            .is_some_and(|seen| !core::mem::replace(seen, true))
    };
    let mut index = 4;
    while index < args.len() {
        let name = args
            .get(index)
            .ok_or(refuse(c"Optional argument: not UTF-8"))?;
        let value = args.get(index.saturating_add(1));
        match name {
            "nid" => {
                let value = value.ok_or(refuse(c"nid: NID missing"))?;
                if !once(0) {
                    return Err(refuse(c"nid: duplicate argument"));
                }
                config.naming.nid = Some(
                    Nid::parse(value)
                        .map_err(|_| refuse(c"nid: not ADDRESS@NETWORK, as 10.0.0.1@tcp"))?,
                );
            }
            "jobid" => {
                let value = value.ok_or(refuse(c"jobid: JOBID missing"))?;
                if !once(1) {
                    return Err(refuse(c"jobid: duplicate argument"));
                }
                if value.len() > crate::sched::jobid::JOBID_MAX {
                    return Err(refuse(c"jobid: too long (limit: 31 bytes)"));
                }
                let jobid = JobId::new(value.as_bytes());
                if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_graphic()) {
                    return Err(refuse(c"jobid: not printable ASCII without blanks"));
                }
                config.naming.jobid = Some(jobid);
            }
            "jobid_name" => {
                let value = value.ok_or(refuse(c"jobid_name: FORMAT missing"))?;
                if !once(2) {
                    return Err(refuse(c"jobid_name: duplicate argument"));
                }
                config.naming.template = template(value).ok_or(refuse(
                    c"jobid_name: up to 63 bytes with %e %u %g %p %h %H %j %%, no blanks",
                ))?;
            }
            "size" => {
                if !once(4) {
                    return Err(refuse(c"size: duplicate argument"));
                }
                config.naming.size = value
                    .and_then(number)
                    .and_then(|size| u32::try_from(size).ok())
                    .filter(|size| (1..=SIZE_MAX).contains(size))
                    .ok_or(refuse(c"size: not a number of nodes from 1 to 4096"))?;
            }
            "opportunity" => {
                if !once(3) {
                    return Err(refuse(c"opportunity: duplicate argument"));
                }
                config.naming.opportunity = match value {
                    Some("on") => true,
                    Some("off") => false,
                    _ => return Err(refuse(c"opportunity: on or off")),
                };
            }
            "stream" => {
                if !once(5) {
                    return Err(refuse(c"stream: duplicate argument"));
                }
                config.naming.stream = value
                    .and_then(Stream::from_word)
                    .ok_or(refuse(c"stream: hint, cgroup or none"))?;
            }
            "on_timeout" => {
                if !once(6) {
                    return Err(refuse(c"on_timeout: duplicate argument"));
                }
                config.fails = match value {
                    Some("fail") => true,
                    Some("wait") => false,
                    _ => return Err(refuse(c"on_timeout: fail or wait")),
                };
            }
            _ => {
                return Err(refuse(
                    c"Unknown argument (known: nid jobid jobid_name size opportunity stream \
                      on_timeout)",
                ))
            }
        }
        index = index.saturating_add(2);
    }
    Ok(TargetPlan {
        device: CString::try_from_fmt(kernel::prelude::fmt!("{device}")).map_err(no_memory)?,
        offset,
        // On a lost device flushes are to end with a timeout.
        flushes_pass: !config.fails,
        config,
    })
}

/// Writes the arguments that [`parse`] reads, from SERVICE on.
pub(crate) fn write(config: &TableLine, out: &mut dyn fmt::Write) -> fmt::Result {
    write!(out, "{}", config.service.to_str().map_err(|_| fmt::Error)?)?;
    let count = 2usize.saturating_mul(
        [
            config.naming.nid.is_some(),
            config.naming.jobid.is_some(),
            true,
            config.naming.size != 0,
            !config.naming.opportunity,
            config.naming.stream != Stream::Hint,
            config.fails,
        ]
        .iter()
        .filter(|given| **given)
        .count(),
    );
    write!(out, " {count}")?;
    if let Some(nid) = &config.naming.nid {
        write!(out, " nid {nid}")?;
    }
    if let Some(jobid) = &config.naming.jobid {
        write!(out, " jobid {jobid}")?;
    }
    write!(out, " jobid_name {}", config.naming.template)?;
    if config.naming.size != 0 {
        write!(out, " size {}", config.naming.size)?;
    }
    if !config.naming.opportunity {
        write!(out, " opportunity off")?;
    }
    if config.naming.stream != Stream::Hint {
        write!(out, " stream {}", config.naming.stream.word())?;
    }
    if config.fails {
        write!(out, " on_timeout fail")?;
    }
    Ok(())
}
