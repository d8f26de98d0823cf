// SPDX-License-Identifier: MIT OR Apache-2.0

//! Comparison of `include/uapi/nrs.h` with the structures of this crate, which the module shares. A
//! C program prints the header's values.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use nrs_client::wire;

/// Structure: name in C, size in bytes, fields.
type Structure = (&'static str, usize, &'static [(&'static str, usize, usize)]);

/// Structures of the crate, with their names in C.
macro_rules! structures {
    ($($c:literal $name:ident;)+) => {
        const STRUCTURES: &[Structure] =
            &[$(($c, wire::$name::SIZE, wire::$name::FIELDS)),+];
    };
}

structures! {
    "nrs_header" Header;
    "nrs_request" Request;
    "nrs_completion" Completion;
    "nrs_promotion" Promotion;
    "nrs_released" Released;
    "nrs_early" Early;
    "nrs_recovered" Recovered;
    "nrs_busy" Busy;
    "nrs_reconnect" Reconnect;
    "nrs_attach" Attach;
    "nrs_stats" Stats;
    "nrs_accounts" Accounts;
    "nrs_account" Account;
    "nrs_factor" Factor;
}

/// Numbers of the crate, named `NRS_NAME` in C.
macro_rules! numbers {
    ($($name:ident)+) => {
        const NUMBERS: &[(&str, u64)] =
            &[$((concat!("NRS_", stringify!($name)), wire::$name as u64)),+];
    };
}

numbers! {
    VERSION BATCH CHARGE_MAX LEASE_MAX ID_ABSENT ATTACH_QUEUE_ALL IOC_ATTACH IOC_STATS TYPE_REQUEST
    TYPE_COMPLETION TYPE_RELEASED TYPE_PROMOTE TYPE_EARLY TYPE_RECOVERED TYPE_BUSY TYPE_RECONNECT
    REQUEST_HIGH REQUEST_CHARGE RELEASED_PASSED RELEASED_FORCED RELEASED_EXPIRED EARLY_AT_ONCE
    EARLY_BUSY ACCOUNT_LEAF ACCOUNT_ACTIVE ACCOUNT_WAITING ACCOUNT_GONE FACTOR_ONE FACTORS_MAX
    FACTORS_LEASE_MAX NET_NONE NET_TCP NET_O2IB NET_LO NET_GNI NET_GIP NET_PTLF NET_KFI
}

/// Returns expressions of C and their values in this crate.
fn facts() -> Vec<(String, u64)> {
    let mut all = Vec::new();
    for (name, size, fields) in STRUCTURES {
        all.push((format!("sizeof(struct {name})"), *size as u64));
        for (field, offset, size) in *fields {
            all.push((format!("offsetof(struct {name}, {field})"), *offset as u64));
            let expression = format!("sizeof(((struct {name} *)0)->{field})");
            all.push((expression, *size as u64));
        }
    }
    let numbers = NUMBERS.iter();
    all.extend(numbers.map(|(name, value)| ((*name).to_owned(), *value)));
    all
}

#[test]
fn c_header_has_the_same_layout() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../include/uapi");
    let (source, binary) = (dir.join("header.c"), dir.join("header"));
    let facts = facts();
    let line = |(text, _): &(String, u64)| {
        format!("printf(\"{text} %llu\\n\", (unsigned long long)({text}));\n")
    };
    let program = format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include \"nrs.h\"\n\
         int main(void)\n{{\n{}return 0;\n}}\n",
        facts.iter().map(line).collect::<String>()
    );
    fs::write(&source, program).unwrap();
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
    let printed = Command::new(&binary).output().unwrap().stdout;
    let wanted = facts
        .iter()
        .map(|(text, value)| format!("{text} {value}\n"));
    assert_eq!(
        String::from_utf8(printed).unwrap(),
        wanted.collect::<String>()
    );
}

/// Compares the number of fields in the header with that in this crate.
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
