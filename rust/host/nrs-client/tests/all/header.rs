// SPDX-License-Identifier: GPL-2.0-only

//! `include/uapi/nrs.h` and the structures of this crate and of the module are the same: a C program
//! prints the header's view of them.

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use nrs_client::wire;

/// Structures: name in C, bytes, fields.
type Structure = (&'static str, usize, &'static [(&'static str, usize, usize)]);

const STRUCTURES: [Structure; 11] = [
    ("nrs_header", wire::Header::SIZE, wire::Header::FIELDS),
    ("nrs_request", wire::Request::SIZE, wire::Request::FIELDS),
    (
        "nrs_completion",
        wire::Completion::SIZE,
        wire::Completion::FIELDS,
    ),
    (
        "nrs_promotion",
        wire::Promotion::SIZE,
        wire::Promotion::FIELDS,
    ),
    ("nrs_released", wire::Released::SIZE, wire::Released::FIELDS),
    ("nrs_early", wire::Early::SIZE, wire::Early::FIELDS),
    (
        "nrs_recovered",
        wire::Recovered::SIZE,
        wire::Recovered::FIELDS,
    ),
    ("nrs_busy", wire::Busy::SIZE, wire::Busy::FIELDS),
    (
        "nrs_reconnect",
        wire::Reconnect::SIZE,
        wire::Reconnect::FIELDS,
    ),
    ("nrs_attach", wire::Attach::SIZE, wire::Attach::FIELDS),
    ("nrs_stats", wire::Stats::SIZE, wire::Stats::FIELDS),
];

/// Numbers: name in C, value here.
fn numbers() -> Vec<(&'static str, u64)> {
    vec![
        ("NRS_VERSION", wire::VERSION.into()),
        ("NRS_BATCH", wire::BATCH as u64),
        ("NRS_CHARGE_MAX", wire::CHARGE_MAX),
        ("NRS_LEASE_MAX", wire::LEASE_MAX.into()),
        ("NRS_ID_ABSENT", wire::ID_ABSENT.into()),
        ("NRS_ATTACH_QUEUE_ALL", wire::ATTACH_QUEUE_ALL.into()),
        ("NRS_IOC_ATTACH", wire::IOC_ATTACH.into()),
        ("NRS_IOC_STATS", wire::IOC_STATS.into()),
        ("NRS_TYPE_REQUEST", wire::TYPE_REQUEST.into()),
        ("NRS_TYPE_COMPLETION", wire::TYPE_COMPLETION.into()),
        ("NRS_TYPE_RELEASED", wire::TYPE_RELEASED.into()),
        ("NRS_TYPE_PROMOTE", wire::TYPE_PROMOTE.into()),
        ("NRS_TYPE_EARLY", wire::TYPE_EARLY.into()),
        ("NRS_TYPE_RECOVERED", wire::TYPE_RECOVERED.into()),
        ("NRS_TYPE_BUSY", wire::TYPE_BUSY.into()),
        ("NRS_TYPE_RECONNECT", wire::TYPE_RECONNECT.into()),
        ("NRS_REQUEST_HIGH", wire::REQUEST_HIGH.into()),
        ("NRS_REQUEST_CHARGE", wire::REQUEST_CHARGE.into()),
        ("NRS_RELEASED_PASSED", wire::RELEASED_PASSED.into()),
        ("NRS_RELEASED_FORCED", wire::RELEASED_FORCED.into()),
        ("NRS_RELEASED_EXPIRED", wire::RELEASED_EXPIRED.into()),
        ("NRS_EARLY_AT_ONCE", wire::EARLY_AT_ONCE.into()),
        ("NRS_EARLY_BUSY", wire::EARLY_BUSY.into()),
        ("NRS_NET_NONE", wire::NET_NONE.into()),
        ("NRS_NET_TCP", wire::NET_TCP.into()),
        ("NRS_NET_O2IB", wire::NET_O2IB.into()),
        ("NRS_NET_LO", wire::NET_LO.into()),
        ("NRS_NET_GNI", wire::NET_GNI.into()),
        ("NRS_NET_GIP", wire::NET_GIP.into()),
        ("NRS_NET_PTLF", wire::NET_PTLF.into()),
        ("NRS_NET_KFI", wire::NET_KFI.into()),
    ]
}

fn program() -> String {
    let mut text = String::from(
        "#include <stddef.h>\n#include <stdio.h>\n#include \"nrs.h\"\nint main(void)\n{\n",
    );
    for (name, _, fields) in STRUCTURES {
        writeln!(text, "printf(\"{name} %zu\\n\", sizeof(struct {name}));").unwrap();
        for (field, _, _) in fields {
            writeln!(
                text,
                "printf(\"{name}.{field} %zu %zu\\n\", offsetof(struct {name}, {field}), sizeof(((struct {name} *)0)->{field}));"
            )
            .unwrap();
        }
    }
    for (name, _) in numbers() {
        writeln!(
            text,
            "printf(\"{name} %llu\\n\", (unsigned long long)({name}));"
        )
        .unwrap();
    }
    text + "return 0;\n}\n"
}

fn wanted() -> String {
    let mut text = String::new();
    for (name, size, fields) in STRUCTURES {
        writeln!(text, "{name} {size}").unwrap();
        for (field, offset, size) in fields {
            writeln!(text, "{name}.{field} {offset} {size}").unwrap();
        }
    }
    for (name, value) in numbers() {
        writeln!(text, "{name} {value}").unwrap();
    }
    text
}

#[test]
fn the_header_says_the_same() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../include/uapi");
    let (source, binary) = (dir.join("header.c"), dir.join("header"));
    fs::write(&source, program()).unwrap();
    let compiled = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Wpadded", "-Werror", "-I"])
        .arg(include)
        .arg("-o")
        .args([&binary, &source])
        .stdin(Stdio::null())
        .output()
        .expect("a C compiler, cc");
    let said = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{said}");
    let printed = Command::new(&binary).output().unwrap();
    assert_eq!(String::from_utf8(printed.stdout).unwrap(), wanted());
}

/// Each field that the header names is one that this crate knows.
#[test]
fn nothing_is_left_out() {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../include/uapi/nrs.h");
    let header = fs::read_to_string(header).unwrap();
    let fields = header
        .lines()
        .filter(|line| line.starts_with('\t') && line.contains(';'))
        .count();
    let known: usize = STRUCTURES.iter().map(|(_, _, fields)| fields.len()).sum();
    assert_eq!(fields, known);
}
