// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use crate::sched::attr::cgroup::ReadPath;
use std::cell::Cell;

fn table(text: &str) -> Owners {
    Owners::new().apply(text).unwrap()
}

fn shown(owners: &Owners) -> String {
    let mut text = String::new();
    owners.write(&mut text).unwrap();
    text
}

/// Reads the path of a cgroup as the kernel has it.
fn read(path: &str) -> CgroupPath {
    let name = |level: i32, buf: &mut [u8]| {
        let part = path.split_terminator('/').nth(level as usize)?.as_bytes();
        buf[..part.len()].copy_from_slice(part);
        Some(part.len())
    };
    ReadPath::new(name).keep().0
}

#[test]
fn the_nearest_that_is_named() {
    let owners = table(
        "/s.slice/*.service=1:11 /s.slice=2:12 /s.slice/a.service=3:13 /s.slice/b*=4:14 /t/?=5:15",
    );
    for (path, wanted) in [
        ("/s.slice/a.service", Some(3)),
        ("/s.slice/a.service/x/y", Some(3)),
        ("/s.slice/b.service", Some(1)),
        ("/s.slice/b.scope/x", Some(4)),
        ("/s.slice/c/d.service", Some(2)),
        ("/s.slice", Some(2)),
        ("/t", None),
        ("/t/ab", None),
        ("/t/a/b", Some(5)),
        ("/u/s.slice/a.service", None),
        ("", None),
    ] {
        let wanted = wanted.map(|uid| (uid, uid + 10));
        assert_eq!(owners.of(read(path)).map(OwnerIds::get), wanted, "{path}");
    }
    assert_eq!(Owners::new().of(read("/s.slice")), None);
}

/// Verifies that a table has one text, in whichever order it was written, that the text makes an
/// equal table, and that a refused text changes nothing.
#[test]
fn one_text() {
    let owners = table("/b=1:2,/p*=3:4 \"/a \\\\b\"=0:4294967294\n/a/c=7:7 /o?=5:6 /b=2:2");
    let text = "\"/a \\\\b\"=0:4294967294\n/a/c=7:7\n/b=2:2\n/p*=3:4\n/o?=5:6\n";
    assert_eq!(shown(&owners), text);
    assert_eq!(shown(&table(text)), text);
    assert_eq!(shown(&table("/o?=1:1 /p*=3:4")), "/o?=1:1\n/p*=3:4\n");
    let less = owners.apply("-/p* -\"/a \\\\b\" -/b").unwrap();
    assert_eq!(shown(&less), "/a/c=7:7\n/o?=5:6\n");
    assert_eq!(shown(&less.apply("-/o? /x=1:1 -/a/c").unwrap()), "/x=1:1\n");
    assert!(owners.apply("clear").unwrap().is_empty());
    assert_eq!(shown(&owners), text);
    assert_eq!(shown(&table("/a=b=1:2 ")), "/a=b=1:2\n");
}

#[test]
fn refused() {
    for wrong in [
        "/a",
        "/a=1",
        "/a=1:",
        "/a=:1",
        "/a=1:2:3",
        "/a=-1:2",
        "/a=01:2",
        "/a=4294967295:1",
        "/a=1:4294967295",
        "a=1:2",
        "=1:2",
        "/=1:2",
        "/a/=1:2",
        "/a/../b=1:2",
        "\"/a=1:2",
        "\"/a\"1:2",
        "/a\"b=1:2",
        "-",
        "--/a",
        "-/",
        "-\"/a\"=1:2",
        "Clear",
    ] {
        let error = Owners::new().apply(wrong).err().map(|error| error.code);
        assert_eq!(error, Some(Code::Invalid), "{wrong}");
        assert!(check(wrong).is_err(), "{wrong}");
    }
    let gone = Owners::new().apply("-/a").err().map(|error| error.code);
    assert_eq!(gone, Some(Code::NoEntry));
    assert_eq!(check("-/a=1:2"), Ok(()));
    let long = format!("/{}=1:2", "x".repeat(383));
    assert!(Owners::new().apply(&long).is_err());
    let many = |count| {
        let items = (0..count).map(|i| format!("/{i}=1:2"));
        items.collect::<Vec<_>>().join(" ")
    };
    let full = table(&many(OWNERS_MAX));
    assert_eq!(full.len(), OWNERS_MAX);
    let more = full.apply("/more*=1:2").err().unwrap();
    let limit = "too many owners (limit: 256)";
    assert_eq!((more.code, more.reason), (Code::NoSpace, limit));
    assert!(full.apply("/0=5:5 -/1 /more*=1:2").is_ok());
}

/// Verifies that each cgroup is looked up once while the table is the same, and not kept if it
/// cannot be found.
#[test]
fn look_ups_are_cached() {
    let (cache, finds) = (OwnerCache::new(), Cell::new(0));
    let ids = |uid| OwnerIds::new(uid, u32::MAX - 1).unwrap();
    let of = |generation, id, found| {
        cache.of(generation, id, || {
            finds.set(finds.get() + 1);
            found
        })
    };
    assert_eq!(of(2, 7, None), None);
    assert_eq!(of(2, 7, Some(Some(ids(0)))), Some(ids(0)));
    assert_eq!(of(2, 7, Some(None)), Some(ids(0)));
    assert_eq!(finds.get(), 2);
    assert_eq!(of(4, 7, Some(None)), None);
    assert_eq!(of(4, 7, Some(Some(ids(0)))), None);
    assert_eq!(finds.get(), 3);
    for id in 0..1000 {
        assert_eq!(of(6, id, Some(Some(ids(id as u32)))), Some(ids(id as u32)));
    }
    assert_eq!(finds.get(), 1003);
}
