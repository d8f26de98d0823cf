// SPDX-License-Identifier: GPL-2.0-only

//! Plans that are rejected.

use super::*;

/// Rows LINE|ERRNO|PART OF THE REASON|TEXT; `\n` and other escapes stand for one character.
const WRONG: &str = r"
1|EINVAL|expected by, tune|nonsense
3|EINVAL|expected by, tune|\n\ngroups a capacity=1MB
1|EINVAL|expected by, tune|BY nid
2|EINVAL|print|# fine\nby\0nid
2|EINVAL|print|by nid\ngroup a capacity=1MB \x07
1|EINVAL|nid, jobid, uid or device|by
1|EINVAL|nid, jobid, uid or device|by gid
1|EINVAL|end of the line|by nid uid
2|EINVAL|duplicate line by|by nid\nby nid
2|EINVAL|precede all clients|client 0@lo class=fc min=1MB\nby nid
1|EINVAL|tune has no parameters|tune
1|EINVAL|NAME=VALUE|tune period
1|EINVAL|no value|tune period=
1|EINVAL|unknown parameter|tune speed=40ms
1|EINVAL|period|tune period=0ms
1|EINVAL|period|tune period=1001ms
1|EINVAL|fast|tune fast=99ms
1|EINVAL|slow|tune slow=999ms
1|EINVAL|idle|tune idle=3601s
1|EINVAL|floor|tune floor=1023
1|EINVAL|floor|tune floor=2GiB/s
1|EINVAL|grant|tune grant=5%
1|EINVAL|sleep|tune sleep=0%
1|EINVAL|high|tune high=101%
1|EINVAL|low|tune low=100%
1|EINVAL|raise|tune raise=0%
1|EINVAL|lower|tune lower=91%
1|EINVAL|headroom|tune headroom=51%
1|EINVAL|low is not below high|tune high=60%
1|EINVAL|low is above high|tune lower=50%
1|EINVAL|low is above high|tune low=78%
2|EINVAL|fast is shorter|tune fast=100ms\ntune period=200ms\n
1|EINVAL|slow is shorter|tune slow=10s fast=11s
2|EINVAL|duplicate|tune high=90%\ntune high=91%
1|EINVAL|default has no settings|default
1|EINVAL|NAME=VALUE|default fast
1|EINVAL|expected class=|default capacity=1MB
1|EINVAL|class is not|default class=fastest
1|EINVAL|below the floor|default min=1MB max=1KB
1|EINVAL|min is above max|default min=2MB max=1MB
2|EINVAL|duplicate line default|default min=1MB\ndefault max=1MB
1|EINVAL|duplicate|default class=fc class=fs
1|EINVAL|below the floor|default min=1KB
1|EINVAL|above the capacity|default min=20MB\ngroup a capacity=10MB
1|EINVAL|name is missing|group
1|EINVAL|name is missing|group capacity=5MB
1|EINVAL|capacity is missing|group a
2|EINVAL|capacity is missing|by uid\ngroup a target=8:0
1|EINVAL|group name|group a/b capacity=1MB
1|EINVAL|group name|group .. capacity=1MB
1|EINVAL|NAME=VALUE|group a capacity
1|EINVAL|no value|group a capacity=
1|EINVAL|capacity is not a size|group a capacity=fast
1|EINVAL|capacity is not a size|group a capacity=2TiB
1|EINVAL|capacity is not a size|group a capacity=50%
1|EINVAL|capacity is below the floor|group a capacity=32767
2|EINVAL|below the floor|tune floor=1MiB\ngroup a capacity=1MB
1|EINVAL|duplicate|group a capacity=1MB capacity=1MB
1|EINVAL|expected capacity=|group a capacity=1MB size=1
1|EINVAL|target is not|group a capacity=1MB target=sda
1|EINVAL|target is not|group a capacity=1MB target=8:
1|EINVAL|target is not|group a capacity=1MB target=4096:0
1|EINVAL|target is not|group a capacity=1MB target=8:1048576
1|EINVAL|target is not|group a capacity=1MB target=4294967296
1|EINVAL|strategy is not|group a capacity=1MB strategy=fast
1|EINVAL|class is not|group a capacity=1MB class=best
1|EINVAL|min is not|group a capacity=1MB min=x
1|EINVAL|max is not|group a capacity=1MB max=101%
1|EINVAL|max is above the capacity|group a capacity=1MB max=2MB
1|EINVAL|min is above the capacity|group a capacity=1MB min=2MB
1|EINVAL|min is above max|group a capacity=1MB min=60% max=500KB
1|EINVAL|min is below the floor|group a capacity=1MB min=1%
1|EINVAL|reserve is not|group a capacity=1MB reserve_first_come=x
1|EINVAL|expected capacity=|group a capacity=1MB reserve_best=1
1|EINVAL|sum of the reserves|group a capacity=1MB reserve_mover=60% reserve_low_share=401KB
2|EEXIST|of this name|group a capacity=1MB\ngroup a capacity=1MB target=5
2|EEXIST|without target=|group a capacity=1MB\ngroup b capacity=1MB
2|EEXIST|this target|group a capacity=1MB target=8:1\ngroup b capacity=1MB target=8388609
1|EINVAL|listed clients only|group a capacity=1MB strategy=mover class=mover
1|EINVAL|listed clients only|group a capacity=1MB strategy=mover min=1MB
1|EINVAL|takes no reserves|group a capacity=1MB strategy=mover reserve_mover=1
1|EINVAL|name is missing|client
1|EINVAL|name is missing|client group=a class=fc min=1MB
1|EINVAL|class is missing|client 0@lo
1|EINVAL|class is missing|client 0@lo min=1MB
1|EINVAL|min is missing|client 0@lo class=fc
1|EINVAL|expected class=|client 0@lo class=fc min=1MB capacity=5MB
1|EINVAL|NAME=VALUE|client 0@lo class=fc min=1MB fast
1|EINVAL|duplicate|client 0@lo class=fc min=1MB min=1MB
1|EINVAL|below the floor|client 0@lo class=fc min=0
1|EINVAL|below the floor|client 0@lo class=fc min=1MB max=1KB
1|EINVAL|min is above max|client 0@lo class=fc min=2MB max=1MB
1|ENOENT|this group|client 0@lo class=fc min=1MB group=
1|ENOENT|this group|client 0@lo class=fc min=1MB group=a
1|EINVAL|not a NID|client host class=fc min=1MB
1|EINVAL|not a NID|client * class=fc min=1MB
1|EINVAL|not a NID|client 5@tcp class=fc min=1MB
2|EINVAL|not a uid|by uid\nclient root class=fc min=1MB
2|EINVAL|not a uid|by uid\nclient 4294967296 class=fc min=1MB
3|EEXIST|a line for|by uid\nclient 5 class=fc min=1MB\nclient 5 class=fs min=2MB
3|EEXIST|a line for|by uid\nclient 5 class=fc min=1MB\nclient 05 class=fs min=2MB
2|EEXIST|a line for|client 10.0.0.1@tcp class=fc min=1MB\nclient 10.0.0.1@tcp0 class=fc min=1MB
3|EEXIST|a line for|client *@tcp class=fc min=1MB\n\nclient *@tcp class=fc min=1MB
2|EINVAL|capacity is missing|by nid; group a
4|EINVAL|expected by|by nid;;;nonsense\n
2|EINVAL|duplicate|by nid;\nby nid; nonsense
";

/// Rows of the same form; [`TWO`] precedes the text.
const WRONG_FOR_TWO: &str = r"
3|EINVAL|min is above the capacity|client 0@lo class=fc min=20MB
3|EINVAL|max is above the capacity|client 0@lo class=fc min=1MB max=20MB
3|EINVAL|max is above|client 0@lo class=fc min=1MB max=101MB group=a
3|EINVAL|min is above max|client 0@lo class=fc min=50% max=1MB
3|EINVAL|min is below the floor|client 0@lo class=fc min=0%
3|ENOENT|this group|client 0@lo class=fc min=1MB group=c
3|EINVAL|duplicate|client 0@lo class=fc min=1MB group=a group=b
4|EEXIST|a line for|client 0@lo class=fc min=1MB group=a\nclient 0@lo class=fs min=1MB group=a
4|EINVAL|=mover|group c capacity=1MB target=5 strategy=mover\nclient 0@lo class=fs min=100KB
4|EINVAL|=mover|group c capacity=1MB target=5 strategy=mover\nclient 0@lo class=fc min=100KB group=c
3|EINVAL|max is above the capacity|default max=50MB
";

/// Replaces the escapes in the text of a row.
fn unescape(text: &str) -> String {
    let text = text.replace(r"\n", "\n").replace(r"\0", "\0");
    text.replace(r"\x07", "\x07").replace(r"\u{e9}", "\u{e9}")
}

fn errno(code: Code) -> &'static str {
    match code {
        Code::Invalid => "EINVAL",
        Code::Exists => "EEXIST",
        Code::NoEntry => "ENOENT",
        Code::NameTooLong => "ENAMETOOLONG",
        _ => "another one",
    }
}

fn check(row: &str, before: &str) {
    let mut fields = row.splitn(4, '|');
    let mut field = || fields.next().expect("four fields");
    let (line, code, words, text) = (field(), field(), field(), field());
    let text = before.to_owned() + &unescape(text);
    let error = refused(&text);
    assert_eq!(
        (error.line().to_string().as_str(), errno(error.code)),
        (line, code),
        "{text:?}: {error}"
    );
    assert!(error.reason.contains(words), "{text:?}: {error}");
    let column = match error.column() {
        0 => String::new(),
        column => format!("column {column}: "),
    };
    let shown = format!("line {line}: {column}{}", error.reason);
    assert_eq!(error.to_string(), shown);
}

#[test]
fn wrong_texts() {
    let rows = |table: &'static str| table.lines().filter(|row| !row.is_empty());
    rows(WRONG).for_each(|row| check(row, ""));
    rows(WRONG_FOR_TWO).for_each(|row| check(row, TWO));
    for (text, words) in [
        (format!("group {} capacity=1MB", "g".repeat(64)), "63"),
        (
            format!("by device;client {} class=fc min=1MB", "d".repeat(256)),
            "255",
        ),
    ] {
        let error = refused(&text);
        assert_eq!(error.code, Code::NameTooLong);
        assert!(error.reason.contains(words), "{error}");
    }
    let error = refused(&format!(
        "by jobid;client {} class=fc min=1MB",
        "j".repeat(32)
    ));
    assert_eq!((error.line(), error.code), (2, Code::Invalid));
    assert!(error.reason.contains("31"), "{error}");
}

/// Verifies the columns of errors about a word: in the line, or in the statement if statements
/// count as lines.
#[test]
fn columns() {
    for (text, line, column) in [
        ("by gid", 1, 4),
        ("by nid\n  group a capacity=1MB size=1\n", 2, 24),
        ("by nid\ntune low=1%; nonsense\n", 2, 14),
        ("by nid; tune low=1% low=2%", 2, 14),
        ("client 10.0.0.1@tcpip class=fc min=1MB", 1, 17),
        ("by uid\nclient root class=fc min=1MB\n", 2, 8),
        ("client 0@lo class=fc min=1MB group=a", 1, 30),
        ("by nid \u{e9}", 1, 8),
        ("group a", 1, 0),
    ] {
        let error = refused(text);
        assert_eq!(
            (error.line(), error.column()),
            (line, column),
            "{text:?}: {error}"
        );
    }
}

#[test]
fn bounds() {
    let groups = |count: u32| -> String {
        let line = |i| format!("group g{i} capacity=1MB target={i}\n");
        (0..count).map(line).collect()
    };
    assert_eq!(plan(&groups(64)).groups().len(), 64);
    let error = refused(&groups(65));
    assert_eq!((error.line(), error.code), (65, Code::NoSpace));

    let clients = |count: u32| -> String {
        let line = |i| format!("client {i} class=fs min=1MB\n");
        "by uid\n".to_owned() + &(0..count).map(line).collect::<String>()
    };
    assert_eq!(plan(&clients(4096)).clients.as_slice().len(), 4096);
    let error = refused(&clients(4097));
    assert_eq!((error.line(), error.code), (4098, Code::NoSpace));

    let fits = format!("by uid {}", " ".repeat(TEXT_MAX - 7));
    assert_eq!(plan(&fits).by(), By::Uid);
    let error = refused(&(fits + " "));
    assert_eq!((error.line(), error.code), (0, Code::NoSpace));
    assert_eq!(error.to_string(), "plan is too long (limit: 262144 bytes)");

    // The limit also applies to the text as displayed, which is longer than the text parsed.
    let line = |i: u32| {
        format!(
            "client {} class=fc min=1T\n",
            "x".repeat(31 - 4) + &format!("{i:04}")
        )
    };
    let lines: String = (0..4_096).map(line).collect();
    assert!(lines.len() < TEXT_MAX);
    let error = refused(&format!("by jobid\n{lines}"));
    assert_eq!((error.line(), error.code), (0, Code::NoSpace));

    // More address ranges than a pattern can name, in a short text.
    let ranges = format!("[{}1]", "1,".repeat(40));
    let line = |i: u32| {
        format!(
            "client {}.{}.{ranges}.*@tcp class=fs min=1MB\n",
            i % 256,
            i / 256
        )
    };
    let error = refused(&(0..1_700).map(line).collect::<String>());
    assert_eq!(error.code, Code::NoSpace);
    assert!(
        error.reason.contains("65535") && error.line() > 1_400,
        "{error}"
    );
}
