// SPDX-License-Identifier: GPL-2.0-only

//! Translation of user and group names to numbers and back; the module knows only numbers.
//!
//! The tool is linked statically, so `getpwnam` cannot load NSS modules. `getent` is run instead;
//! it covers LDAP and SSSD. Without `getent`, `/etc/passwd` and `/etc/group` are read.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use nrs_sched::items::{next_item, next_name};

use crate::failure::{Failure, FailureKind, Result};
use crate::stats::Entity;

/// Maximum number of keys for one run of `getent`.
const KEYS_MAX: usize = 1000;

/// Command that queries the databases; it ends if a directory server does not answer for 2 s.
const GETENT: &[&str] = &["timeout", "2", "getent"];

/// Exit status of `timeout` if the program exceeded its time.
const TIMED_OUT: i32 = 124;

/// A database that maps names to numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Database {
    /// Users.
    Passwd,
    /// Groups.
    Group,
}

impl Database {
    /// Returns the database of the values of `field`; `None` if they have no names.
    fn of(field: &str) -> Option<Self> {
        match field {
            "uid" => Some(Self::Passwd),
            "gid" => Some(Self::Group),
            _ => None,
        }
    }

    /// Returns the name of the database and the word for its entries.
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Passwd => ("passwd", "user"),
            Self::Group => ("group", "group"),
        }
    }
}

/// Source of the lines of the databases.
#[derive(Debug)]
enum Origin {
    /// This program with its arguments ([`GETENT`]); if it fails, the files in `/etc`.
    Getent(&'static [&'static str]),
    /// The files in this directory.
    Files(PathBuf),
}

/// A name and its number.
type NameEntry = (String, u32);

/// Users and groups of a system; each is looked up once.
#[derive(Debug)]
pub struct Accounts {
    origin: Origin,
    /// True if the program has timed out; it is then not run again.
    timed_out: Cell<bool>,
    /// Entry (name, number) by key, which is a name or a number.
    known: RefCell<BTreeMap<(Database, String), Option<NameEntry>>>,
}

/// No users and groups.
impl Default for Accounts {
    fn default() -> Self {
        Self::at(Path::new("/nowhere"))
    }
}

impl Accounts {
    /// Returns the users and groups of the system at `root`.
    pub fn at(root: &Path) -> Self {
        let origin = match root == Path::new("/") {
            true => Origin::Getent(GETENT),
            false => Origin::Files(root.join("etc")),
        };
        Self {
            origin,
            timed_out: Cell::default(),
            known: RefCell::default(),
        }
    }

    /// Returns the users and groups of the given lines of `passwd` and `group`, for tests.
    pub fn of(passwd: &str, group: &str) -> Self {
        let accounts = Self::default();
        for (database, text) in [(Database::Passwd, passwd), (Database::Group, group)] {
            for (name, id) in text.lines().filter_map(entry) {
                accounts.learn(database, &id.to_string(), Some((name, id)));
                accounts.learn(database, name, Some((name, id)));
            }
        }
        accounts
    }

    fn learn(&self, database: Database, key: &str, entry: Option<(&str, u32)>) {
        let entry = entry.map(|(name, id)| (name.to_owned(), id));
        let mut known = self.known.borrow_mut();
        known.insert((database, key.to_owned()), entry);
    }

    /// Looks up all unknown elements of `keys`, which are names or numbers.
    fn look_up(&self, database: Database, keys: impl Iterator<Item = String>) {
        let unknown = |key: &String| {
            let known = self.known.borrow();
            !known.contains_key(&(database, key.clone()))
        };
        let keys: Vec<String> = keys.filter(unknown).collect();
        for keys in keys.chunks(KEYS_MAX) {
            let (text, whole) = self.lines(database, keys);
            let entries: Vec<(&str, u32)> = text.lines().filter_map(entry).collect();
            for key in keys {
                let named = |entry: &&(&str, u32)| entry.0 == key || entry.1.to_string() == *key;
                // A directory may return a user under a longer name than the requested one.
                let only = entries.first().filter(|_| !whole && keys.len() == 1);
                let found = entries.iter().find(named).or(only);
                self.learn(database, key, found.copied());
            }
        }
    }

    /// Returns lines of `database`, which include the entries of `keys`, and true if they are a
    /// whole file.
    fn lines(&self, database: Database, keys: &[String]) -> (String, bool) {
        let (name, _) = database.words();
        let file = |directory: &Path| {
            let text = fs::read_to_string(directory.join(name)).unwrap_or_default();
            (text, true)
        };
        match &self.origin {
            Origin::Files(directory) => file(directory),
            Origin::Getent([program, arguments @ ..]) if !self.timed_out.get() => {
                let mut command = Command::new(program);
                let command = command.args(arguments).args(["--", name]).args(keys);
                match command.output() {
                    // 2: a key was not found.
                    Ok(done) if matches!(done.status.code(), Some(0 | 2)) => {
                        return (String::from_utf8_lossy(&done.stdout).into_owned(), false);
                    }
                    Ok(done) => self.timed_out.set(done.status.code() == Some(TIMED_OUT)),
                    Err(_) => {}
                }
                file(Path::new("/etc"))
            }
            Origin::Getent(_) => file(Path::new("/etc")),
        }
    }

    fn get(&self, database: Database, key: &str) -> Option<NameEntry> {
        let known = self.known.borrow();
        known.get(&(database, key.to_owned())).cloned().flatten()
    }

    /// Returns the number of the user or group `name`.
    ///
    /// # Errors
    ///
    /// [`FailureKind::NotFound`]: the name does not exist; [`FailureKind::Busy`]: a directory
    /// server did not answer.
    fn id(&self, database: Database, name: &str) -> Result<u32> {
        self.look_up(database, [name.to_owned()].into_iter());
        let found = self.get(database, name).filter(|(_, id)| *id != u32::MAX);
        let (table, what) = database.words();
        found.map(|(_, id)| id).ok_or_else(|| {
            let (kind, message) = match self.timed_out.get() {
                true => (
                    FailureKind::Busy,
                    format!("{what} '{name}': getent timed out"),
                ),
                false => (FailureKind::NotFound, format!("unknown {what} '{name}'")),
            };
            Failure::new(kind, message).hint(format!("see: getent {table}"))
        })
    }

    /// Returns the value `text` of `parameter` with user and group names replaced by numbers.
    ///
    /// # Errors
    ///
    /// [`FailureKind::NotFound`]: a name does not exist; [`FailureKind::Busy`]: a directory server
    /// did not answer.
    pub fn numbers<'a>(&self, parameter: &str, text: &'a str) -> Result<Cow<'a, str>> {
        let spans = spans(parameter, text).into_iter();
        let named = spans.filter(|(span, _)| is_name(&text[span.clone()]));
        let ids = named.map(|(span, database)| {
            let id = self.id(database, &text[span.clone()])?;
            Ok((span, id.to_string()))
        });
        Ok(replaced(text, ids.collect::<Result<Vec<_>>>()?))
    }

    /// Returns the value `text` of `parameter` with numbers of existing users and groups replaced
    /// by names.
    pub fn names<'a>(&self, parameter: &str, text: &'a str) -> Cow<'a, str> {
        self.prepare(parameter, [text].into_iter());
        let named = spans(parameter, text)
            .into_iter()
            .filter_map(|(span, database)| {
                let (name, _) = self.get(database, &text[span.clone()])?;
                Some((span, name))
            });
        replaced(text, named.collect())
    }

    /// Replaces the numbers of users and groups by names in the names of `entities`.
    pub fn name<'a>(&self, entities: impl Iterator<Item = &'a mut Entity>) {
        let mut entities: Vec<_> = entities.collect();
        let form = |entity: &Entity| {
            if entity.policy == "tbf" {
                CLASS
            } else {
                ENTITY
            }
        };
        for kind in [CLASS, ENTITY] {
            let of_kind = entities.iter().filter(|entity| form(entity) == kind);
            self.prepare(kind, of_kind.map(|entity| &entity.name[..]));
        }
        for entity in &mut entities {
            if let Cow::Owned(name) = self.names(form(entity), &entity.name) {
                entity.name = name;
            }
        }
    }

    /// Looks up the users and groups in values of `parameter`, with one query per database.
    fn prepare<'a>(&self, parameter: &str, texts: impl Iterator<Item = &'a str>) {
        let mut keys: BTreeMap<Database, BTreeSet<String>> = BTreeMap::new();
        for text in texts {
            for (span, database) in spans(parameter, text) {
                let keys = keys.entry(database).or_default();
                keys.insert(text[span].to_owned());
            }
        }
        for (database, keys) in keys {
            self.look_up(database, keys.into_iter());
        }
    }
}

/// Returns the name and number of a line of `passwd` or `group`.
fn entry(line: &str) -> Option<(&str, u32)> {
    let mut fields = line.split(':');
    let (name, id) = (fields.next()?, fields.nth(1)?);
    Some((name, id.parse().ok()?))
}

/// Returns true if a value of `uid` or `gid` is a name: not a number, without separators and
/// wildcards.
fn is_name(value: &str) -> bool {
    let number = match value.strip_prefix("0x").or(value.strip_prefix("0X")) {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => value.bytes().all(|byte| byte.is_ascii_digit()),
    };
    !number && !value.contains([',', '*', '?', '[', ']', '{', '}', '"', '='])
}

/// Position and database of a value of `uid` or `gid` in a text.
type Span = (Range<usize>, Database);

/// Replaces each span of `text` by its string; spans are in ascending order.
fn replaced(text: &str, spans: Vec<(Range<usize>, String)>) -> Cow<'_, str> {
    if spans.is_empty() {
        return text.into();
    }
    let (mut new, mut end) = (String::new(), 0);
    for (span, with) in spans {
        new += &text[end..span.start];
        new += &with;
        end = span.end;
    }
    (new + &text[end..]).into()
}

/// Pseudo-parameters for the names of entities of a tree, and of classes of `tbf`.
pub const ENTITY: &str = "/";
const CLASS: &str = " ";

/// Returns the values of `uid` and `gid` in a value of `parameter`.
fn spans(parameter: &str, text: &str) -> Vec<Span> {
    match parameter {
        "nrs_tbf_rule" => conditions(text),
        "nrs_fairshare_weights" | "nrs_fairshare_limits" => weights(text),
        "nrs_owners" => owners(text),
        "nrs_qbm_config" => clients(text),
        ENTITY | CLASS => entities(text, parameter),
        _ => Vec::new(),
    }
}

/// Returns the byte range of `part`, a slice of `text`, in `text`.
fn range_of(text: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr() as usize - text.as_ptr() as usize;
    start..start + part.len()
}

/// Returns the items of the lists `uid={…}` and `gid={…}` of a rule.
fn conditions(text: &str) -> Vec<Span> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices('{') {
        let field = text[..at].trim_end().strip_suffix('=').unwrap_or_default();
        let field = field.trim_end();
        let field = field.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let Some(database) = field.take(1).find_map(Database::of) else {
            continue;
        };
        let list = text[at + 1..].split('}').next().unwrap_or_default();
        let items = list.split([' ', '\t']).filter(|item| !item.is_empty());
        found.extend(items.map(|item| (range_of(text, item), database)));
    }
    found
}

/// Returns the values of `uid:VALUE:WEIGHT` and `-uid:VALUE`, and of `gid`, also of pairs.
fn weights(text: &str) -> Vec<Span> {
    let mut found = Vec::new();
    for item in items(text) {
        let (removes, item) = match item.strip_prefix('-') {
            Some(item) => (true, item),
            None => (false, item),
        };
        let mut names = Some(item);
        while let Some(name) = next_name(&mut names) {
            let Some((field, value)) = name.split_once(':') else {
                continue;
            };
            let value = match value.rsplit_once(':') {
                Some((value, _)) if !removes && names.is_none() => value,
                _ => value,
            };
            found.extend(Database::of(field).map(|database| (range_of(text, value), database)));
        }
    }
    found
}

/// Returns the users and groups of `PATH=USER:GROUP`.
fn owners(text: &str) -> Vec<Span> {
    let owners = items(text).filter(|item| !item.starts_with('-'));
    let ids = owners.filter_map(|item| item.rsplit_once('=')?.1.split_once(':'));
    let both = ids.flat_map(|(user, group)| {
        [(user, Database::Passwd), (group, Database::Group)]
            .map(|(name, database)| (range_of(text, name), database))
    });
    both.collect()
}

/// Returns the items of a list.
fn items(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || next_item(&mut text))
}

/// Returns the client names of a qbm configuration, if the clients are users or groups.
fn clients(text: &str) -> Vec<Span> {
    let mut found = Vec::new();
    let mut by = None;
    for statement in text.split(['\n', ';']) {
        let mut words = statement
            .split([' ', '\t', '\r'])
            .filter(|word| !word.is_empty());
        match (words.next(), words.next(), by) {
            (Some("by"), Some(field), _) => by = Database::of(field),
            (Some("client"), Some(name), Some(database)) => {
                found.push((range_of(text, name), database));
            }
            _ => {}
        }
    }
    found
}

/// Returns the numbers of users and groups in the name of an entity, such as `gid:5/uid:1000`.
/// Paths and jobs may contain `/uid:0`, so in a tree what is below them keeps its numbers.
fn entities(text: &str, separator: &str) -> Vec<Span> {
    let mut found = Vec::new();
    for part in text.split(separator) {
        let (field, value) = part.split_once(':').unwrap_or_default();
        if separator == ENTITY && matches!(field, "cgroup" | "jobid") {
            break;
        }
        let number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
        let database = Database::of(field).filter(|_| number);
        found.extend(database.map(|database| (range_of(text, value), database)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::failure;

    fn accounts() -> Accounts {
        Accounts::of(
            "alice:x:2001:5::/:/bin/sh\nbob:x:2002:5::/:/bin/sh\n",
            "staff:x:3001:alice,bob\n",
        )
    }

    /// Entities: policy, name with numbers, and name with names.
    const ENTITIES: &str = "
fairshare | gid:3001/uid:2001 | gid:staff/uid:alice
fairshare | uid:2001/cgroup:/uid:2001 | uid:alice/cgroup:/uid:2001
fairshare | cgroup:/a/uid:2001/b | cgroup:/a/uid:2001/b
fairshare | cgroup:/a uid:2001 | cgroup:/a uid:2001
fairshare | jobid:a uid:2001 | jobid:a uid:2001
fairshare | jobid:a/uid:2001 | jobid:a/uid:2001
tbf | uid:2001 gid:9 | uid:alice gid:9
tbf | cgroup:/uid:2001/x uid:2001 | cgroup:/uid:2001/x uid:alice
tbf | jobid:dd.2001 | jobid:dd.2001
qbm | uid:2001 | uid:alice
qbm | uid:absent | uid:absent
";

    #[test]
    fn names_and_numbers() {
        let accounts = accounts();
        for (parameter, names, numbers) in [
            (
                "nrs_tbf_rule",
                "hp start a uid={alice  7 bob}&gid = {staff},jobid={alice} rate=5",
                "hp start a uid={2001  7 2002}&gid = {3001},jobid={alice} rate=5",
            ),
            ("nrs_tbf_rule", "start uid {alice} 5", "start uid {alice} 5"),
            ("nrs_tbf_rule", "start a uid={1,2", "start a uid={1,2"),
            (
                "nrs_tbf_rule",
                "start a uid={0x7d1} 5",
                "start a uid={0x7d1} 5",
            ),
            (
                "nrs_fairshare_weights",
                "uid:alice:2,gid:staff:3 -uid:bob\njobid:\"a \\\" uid:bob:1\":4 nid:1.2.3.4@tcp:2",
                "uid:2001:2,gid:3001:3 -uid:2002\njobid:\"a \\\" uid:bob:1\":4 nid:1.2.3.4@tcp:2",
            ),
            (
                "nrs_qbm_config",
                "by uid; group g capacity=1MB\nclient alice min=1\nclient 7 min=1 # client bob",
                "by uid; group g capacity=1MB\nclient 2001 min=1\nclient 7 min=1 # client bob",
            ),
            (
                "nrs_qbm_config",
                "by jobid;client alice",
                "by jobid;client alice",
            ),
            ("slots", "uid={alice}", "uid={alice}"),
            (ENTITY, "gid:staff/uid:alice", "gid:staff/uid:alice"),
        ] {
            let translated = accounts.numbers(parameter, names).unwrap();
            assert_eq!(translated, numbers);
            // Translating back yields the original text, because no number in it has a name.
            let back = accounts.names(parameter, &translated);
            assert_eq!(back, names);
        }
        for line in ENTITIES.trim().lines() {
            let [policy, name, want] = line.split(" | ").collect::<Vec<_>>()[..] else {
                panic!("{line}");
            };
            let mut entity = Entity::new(policy, name.into());
            accounts.name([&mut entity].into_iter());
            assert_eq!(entity.name, want);
        }
    }

    #[test]
    fn names_that_do_not_exist() {
        let rule = ("nrs_tbf_rule", "start a gid={alice}");
        let weight = ("nrs_fairshare_weights", "uid:staff:2");
        for ((parameter, text), want) in [
            (rule, "unknown group 'alice'"),
            (weight, "unknown user 'staff'"),
        ] {
            let failure = accounts().numbers(parameter, text).unwrap_err();
            let found = (failure.kind, &*failure.message);
            assert_eq!(found, (FailureKind::NotFound, want));
        }
    }

    /// Verifies that without `getent` a number that is in no file stays a number.
    #[test]
    fn without_getent() {
        let mut accounts = Accounts::at(Path::new("/"));
        accounts.origin = Origin::Getent(&["no-such-program"]);
        let named = accounts.names("nrs_fairshare_weights", "uid:0:2,uid:4000000001:2");
        assert_eq!(named, "uid:root:2,uid:4000000001:2");
        let named = accounts.names("nrs_fairshare_weights", "uid:4000000002:2");
        assert_eq!(named, "uid:4000000002:2");
    }

    /// Verifies that all numbers of a text are looked up in one query, and that there is none after
    /// a timeout.
    #[test]
    fn a_server_that_does_not_answer() {
        let mut accounts = Accounts::at(Path::new("/"));
        // Prints one user for each number if both numbers are in one call.
        accounts.origin = Origin::Getent(&["sh", "-c", "[ $# = 3 ] && echo a:x:71; echo b:x:72"]);
        let named = accounts.names("nrs_fairshare_weights", "uid:71:2,uid:72:2");
        assert_eq!(named, "uid:a:2,uid:b:2");
        let script = &["timeout", "0.1", "sh", "-c", "exec sleep 3600"];
        accounts.origin = Origin::Getent(script);
        let named = accounts.names("nrs_fairshare_weights", "uid:0:2,uid:73:2");
        assert_eq!(named, "uid:root:2,uid:73:2");
        let late = failure!(Busy: "user 'zoe': getent timed out"; "see: getent passwd");
        let found = accounts.numbers("nrs_fairshare_weights", "uid:zoe:2");
        assert_eq!(found, Err(late));
        // A program that would answer is not run either.
        accounts.origin = Origin::Getent(&["echo", "c:x:74"]);
        let named = accounts.names("nrs_fairshare_weights", "uid:74:2");
        assert_eq!(named, "uid:74:2");
    }

    /// Reads the files of another system, and the databases of this system, which have root.
    #[test]
    fn files_and_getent() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("etc")).unwrap();
        fs::write(
            root.path().join("etc/passwd"),
            "wrong\nx:y:z\ncarol:x:9:9::/:/\n",
        )
        .unwrap();
        for (accounts, name, number) in [
            (Accounts::at(root.path()), "carol", "9"),
            (Accounts::at(Path::new("/")), "root", "0"),
        ] {
            let (names, numbers) = (format!("uid:{name}:2"), format!("uid:{number}:2"));
            let translated = accounts.numbers("nrs_fairshare_weights", &names).unwrap();
            assert_eq!(translated, numbers);
            assert_eq!(accounts.names("nrs_fairshare_weights", &numbers), names);
            let missing = accounts.numbers("nrs_fairshare_weights", "uid:-absent:2");
            assert_eq!(missing.unwrap_err().message, "unknown user '-absent'");
        }
    }
}
