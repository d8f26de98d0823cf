// SPDX-License-Identifier: GPL-2.0-only

use super::{table::*, *};

/// Copies the names of `path`.
fn names_in(path: &str) -> impl FnMut(i32, &mut [u8]) -> Option<usize> + '_ {
    |level, buf| {
        let mut parts = path.split_terminator('/');
        let part = parts.nth(level as usize)?.as_bytes();
        buf[..part.len()].copy_from_slice(part);
        Some(part.len())
    }
}

fn read(path: &str) -> CgroupNames {
    ReadPath::new(names_in(path)).keep()
}

fn shown(path: CgroupPath) -> String {
    path.to_string()
}

fn parse(path: &str) -> CgroupPath {
    CgroupPath::parse(path.as_bytes()).unwrap()
}

#[test]
fn users_of_slices() {
    let user = |slice: &str| read(&format!("/user.slice/{slice}/session-1.scope")).1;
    for (slice, wanted) in [
        ("user-0.slice", 0),
        ("user-1000.slice", 1000),
        ("user-4294967294.slice", u32::MAX - 1),
    ] {
        assert_eq!(user(slice), Some(CgroupOwner::User(wanted)));
    }
    for (other, owner) in [
        ("user-.slice", "/session-1.scope"),
        ("user-01.slice", "/session-1.scope"),
        ("user-1", ""),
        ("user-1.slice.x", ""),
        ("user-+1.slice", "/session-1.scope"),
        ("user-1 .slice", "/session-1.scope"),
        ("user-4294967295.slice", "/session-1.scope"),
        ("user-4294967296.slice", "/session-1.scope"),
        ("user-99999999999999999999.slice", "/session-1.scope"),
        ("user.slice", "/session-1.scope"),
    ] {
        let owner = parse(&format!("/user.slice/{other}{owner}"));
        assert_eq!(user(other), Some(CgroupOwner::Cgroup(owner)), "{other}");
    }
    let slice = "/user.slice/user-4294967294.slice";
    assert_eq!(CgroupPath::user_slice(u32::MAX - 1), parse(slice));
    assert_eq!(shown(parse(slice)), slice);
    let container = "/machine.slice/user-1000.slice/x";
    let owner = CgroupOwner::Cgroup(parse(container));
    assert_eq!(read(container).1, Some(owner));
}

/// Verifies that cgroups which a service or a container makes belong to it.
#[test]
fn the_first_that_is_no_slice() {
    for (path, wanted) in [
        ("", None),
        ("/system.slice", Some("/system.slice")),
        ("/system.slice/a.service", Some("/system.slice/a.service")),
        (
            "/system.slice/a.service/b.slice/c",
            Some("/system.slice/a.service"),
        ),
        (
            "/machine.slice/machine-x.scope/payload/user.slice/user-5.slice",
            Some("/machine.slice/machine-x.scope"),
        ),
        (
            "/a.slice/a-b.slice/c.service/d",
            Some("/a.slice/a-b.slice/c.service"),
        ),
        ("/docker/0123/x", Some("/docker")),
    ] {
        let (_, owner) = read(path);
        assert_eq!(owner, wanted.map(|path| CgroupOwner::Cgroup(parse(path))));
        if let Some(CgroupOwner::Cgroup(owner)) = owner {
            assert_eq!(shown(owner), wanted.unwrap());
        }
    }
}

/// Verifies that a path has one digest, however it is read, and that its text is shown.
#[test]
fn a_path_has_one_digest() {
    for path in ["/", "/a", "/a/b", "/ab", "/system.slice/a\\x2db.service"] {
        let (read, _) = read(if path == "/" { "" } else { path });
        assert_eq!(read, parse(path));
        assert_eq!(shown(read), path);
        assert_eq!(CgroupPath::from_number(read.number()), read);
    }
    let long = "x".repeat(NAME_MAX);
    for wrong in ["", "a", "/a/", "//a", "/a//b", "/.", "/a/..", "/a/./b"] {
        assert_eq!(CgroupPath::parse(wrong.as_bytes()), None, "{wrong}");
    }
    assert_eq!(CgroupPath::parse(format!("/{long}x").as_bytes()), None);
    // A longer path has a digest, and no text.
    let deep = format!("/a/{long}/{long}");
    let (deep, known) = (parse(&deep), read(&deep).0);
    assert_eq!(known, deep);
    assert_eq!(shown(deep), format!("#{:016x}", deep.number()));
    let (deepest, owner) = read(&"/a.slice".repeat(99));
    assert_eq!(deepest, parse(&"/a.slice".repeat(32)));
    assert_eq!(owner, Some(CgroupOwner::Cgroup(deepest)));
    assert_eq!(CgroupPath::parse("/a".repeat(33).as_bytes()), None);
    assert_eq!(CgroupPath::ABSENT.get(), None);
}

#[test]
fn patterns_match_names() {
    for (pattern, path, wanted) in [
        ("/a/*", "/a/b", true),
        ("/a/*", "/a", false),
        ("/a/*", "/a/b/c", false),
        ("/*/b", "/a/b", true),
        ("/a/b-*.scope", "/a/b-1.scope", true),
        ("/a/b-*.scope", "/a/b-1/x.scope", false),
        ("/a?", "/ab", true),
        ("/a?b", "/a/b", false),
        ("/*", "/", false),
        ("/*", "", false),
    ] {
        assert_eq!(
            matches(pattern.as_bytes(), path.as_bytes()),
            wanted,
            "{pattern} {path}"
        );
    }
}

/// Verifies that requests of a cgroup belong to the nearest ancestor that is named, also if the
/// text of the cgroup itself is too long to be known.
#[test]
fn the_nearest_named_ancestor() {
    let long = format!("/t/b/c/{0}/{0}", "x".repeat(NAME_MAX));
    for (path, named, wanted) in [
        ("/t/b/c", "/t/b", "/t/b"),
        ("/t/b/c", "/t/*", "/t/b"),
        ("/t/b/c", "/t/b/c", "/t/b/c"),
        ("/t/b/c", "/t", "/t"),
        ("/t/b/c", "/x", "/t/b/c"),
        ("/t/b/c", "/", "/"),
        ("/", "/", "/"),
        (&long, "/t/b/c", "/t/b/c"),
        (&long, "/t/*", "/t/b"),
        (&long, &long, &long),
        (&long, "/x", &long),
    ] {
        let (path, _) = read(if path == "/" { "" } else { path });
        let exact = CgroupPath::parse(named.as_bytes()).unwrap();
        let found = path.nearest(|path, text| {
            path == exact || glob::is_pattern(named.as_bytes()) && matches(named.as_bytes(), text)
        });
        assert_eq!(found, parse(wanted), "{named}");
    }
}

/// Verifies that one owner displaces no text of others, and that further cgroups of the owner
/// count as their ancestors; and that texts go when they are not used.
#[test]
fn more_paths_than_rows() {
    let start = tables().clock.get();
    let others: Vec<String> = (0..64).map(|i| format!("/o.slice/{i}.service")).collect();
    let kept: Vec<CgroupNames> = others.iter().map(|path| read(path)).collect();
    let many: Vec<CgroupNames> = (0..8 * ROWS)
        .map(|i| read(&format!("/many.slice/x.service/{i}")))
        .collect();
    let unit = parse("/many.slice/x.service");
    let own = many.iter().filter(|(path, _)| *path != unit).count();
    assert!((ROWS / 4..=ROWS / 2).contains(&own), "{own}");
    assert!(many
        .iter()
        .all(|(_, owner)| *owner == Some(CgroupOwner::Cgroup(unit))));
    for (path, (digest, _)) in others.iter().zip(&kept) {
        assert_eq!(shown(*digest), *path);
    }
    tables().clock.set(start + KEPT_S + 1);
    for i in 0..8 * ROWS {
        read(&format!("/later.slice/{i}.service"));
    }
    let left = kept
        .iter()
        .filter(|(path, _)| !shown(*path).starts_with('#'));
    assert!(left.count() < 8);
}

/// Verifies that the names of a cgroup are read once, again after their text was displaced, and
/// never used if they are of several cgroups.
#[test]
fn known_cgroups_are_not_read_again() {
    for (id, path) in [
        (1, "/known.slice/a"),
        (2, "/user.slice/user-7.slice"),
        (3, ""),
    ] {
        let start = tables().clock.get() * NSEC_PER_SEC;
        let names = |now, is_same| names_of(id, now, names_in(path), || is_same);
        assert_eq!(names(start, false), None);
        let wanted = names(start, true);
        assert_eq!(wanted, Some(read(path)));
        // Nothing is read.
        let known = |now| names_of(id, now, |_, _| panic!("{path} is read"), || true);
        assert_eq!([known(start), known(start)], [wanted; 2]);
        let later = start + (KEPT_S + 2) * NSEC_PER_SEC;
        tables().clock.set(later / NSEC_PER_SEC);
        for i in 0..8 * ROWS {
            read(&format!("/displacing{id}.slice/{i}.service"));
        }
        let latest = later + (KEPT_S + 2) * NSEC_PER_SEC;
        let mut reads = 0;
        let mut name = names_in(path);
        let count = |level, buf: &mut [u8]| {
            reads += 1;
            name(level, buf)
        };
        assert_eq!(names_of(id, latest, count, || true), wanted);
        assert!(reads > 0, "{path}");
    }
}

/// Verifies that readers never see parts of two texts.
#[test]
fn texts_are_whole() {
    let row = Row::new();
    let text = |i: u64| i.to_string().repeat(60);
    std::thread::scope(|scope| {
        for start in 0..4 {
            let row = &row;
            scope.spawn(move || {
                for round in 0..2000 {
                    let digest = 1 + (start * 16 + round) % 64;
                    row.digest.set(0);
                    row.write(digest, 0, text(digest).as_bytes(), true);
                    for digest in 1..=64 {
                        let mut buf = [0; PATH_MAX + 1];
                        if let Some((len, _)) = row.read(digest, &mut buf) {
                            assert_eq!(buf[..len], *text(digest).as_bytes());
                        }
                    }
                }
            });
        }
    });
}
