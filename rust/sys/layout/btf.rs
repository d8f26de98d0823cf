// SPDX-License-Identifier: GPL-2.0-only

//! Comparison of sizes, offsets and prototypes with the type information of a kernel.
//!
//! The kernel's `Documentation/bpf/btf.rst` describes the format, BTF. Numbers have the byte order
//! of the machine. No input makes the reader panic or loop; each search reads the types at most
//! once.

#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used,
    )
)]

use core::fmt;

/// A size or an offset for which code was compiled.
#[derive(Clone, Copy)]
pub(crate) struct LayoutRow<'a> {
    /// Name of the structure.
    pub(crate) structure: &'a str,
    /// Member of the offset; `None` for the size of the structure.
    pub(crate) member: Option<&'a str>,
    /// Size or offset, bytes.
    pub(crate) bytes: usize,
    /// Prototype of the function that the member points to, without a name:
    /// `int(struct file *, bool)`.
    pub(crate) prototype: Option<&'a str>,
}

/// Difference between a kernel and the compiled code.
#[derive(Debug, PartialEq)]
pub(crate) enum Difference<'a> {
    /// The type information is malformed, or contains an unknown kind of type.
    Format,
    /// The kernel has no structure of this name.
    NoStructure(&'a str),
    /// The structure has no such member; unnamed members and bit fields are ignored.
    NoMember(&'a str, &'a str),
    /// The size of the structure differs.
    Size {
        structure: &'a str,
        found: usize,
        built: usize,
    },
    /// The offset of a member differs.
    Offset {
        structure: &'a str,
        member: &'a str,
        found: usize,
        built: usize,
    },
    /// The member does not point to a function with this prototype.
    Prototype {
        structure: &'a str,
        member: &'a str,
        built: &'a str,
    },
}

impl fmt::Display for Difference<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Format => write!(f, "unknown BTF format"),
            Self::NoStructure(structure) => write!(f, "struct {structure} does not exist"),
            Self::NoMember(structure, member) => {
                write!(f, "struct {structure} has no member {member}")
            }
            Self::Size {
                structure,
                found,
                built,
            } => write!(f, "struct {structure}: size is {found}, built for {built}"),
            Self::Offset {
                structure,
                member,
                found,
                built,
            } => write!(
                f,
                "struct {structure}: offset of {member} is {found}, built for {built}"
            ),
            Self::Prototype {
                structure,
                member,
                built,
            } => write!(f, "struct {structure}: {member} is not {built}"),
        }
    }
}

/// Compares `rows` with the type information in `btf`, up to the first difference. Rows of one
/// structure should be adjacent, because each change of the structure causes a search.
pub(crate) fn compare<'a>(
    btf: &[u8],
    rows: impl Iterator<Item = LayoutRow<'a>>,
) -> Result<(), Difference<'a>> {
    let btf = Btf::new(btf).ok_or(Difference::Format)?;
    let mut last = None;
    for row in rows {
        let LayoutRow {
            structure,
            member,
            bytes: built,
            prototype,
        } = row;
        let found = match last {
            Some((name, found)) if name == structure => found,
            _ => btf.structure(structure)?,
        };
        last = Some((structure, found));
        let Some(member) = member else {
            if found.size != built {
                return Err(Difference::Size {
                    structure,
                    found: found.size,
                    built,
                });
            }
            continue;
        };
        let (found, points_to) = btf
            .member(&found, member)
            .ok_or(Difference::NoMember(structure, member))?;
        if found != built {
            return Err(Difference::Offset {
                structure,
                member,
                found,
                built,
            });
        }
        if let Some(built) = prototype {
            btf.takes(points_to, built).ok_or(Difference::Prototype {
                structure,
                member,
                built,
            })?;
        }
    }
    Ok(())
}

/// Kinds of types, with their numbers in the format.
mod kind {
    pub(super) const INT: usize = 1;
    pub(super) const PTR: usize = 2;
    pub(super) const ARRAY: usize = 3;
    pub(super) const STRUCT: usize = 4;
    pub(super) const UNION: usize = 5;
    pub(super) const ENUM: usize = 6;
    pub(super) const FWD: usize = 7;
    pub(super) const TYPEDEF: usize = 8;
    pub(super) const VOLATILE: usize = 9;
    pub(super) const CONST: usize = 10;
    pub(super) const RESTRICT: usize = 11;
    pub(super) const FUNC: usize = 12;
    pub(super) const FUNC_PROTO: usize = 13;
    pub(super) const VAR: usize = 14;
    pub(super) const DATASEC: usize = 15;
    pub(super) const FLOAT: usize = 16;
    pub(super) const DECL_TAG: usize = 17;
    pub(super) const TYPE_TAG: usize = 18;
    pub(super) const ENUM64: usize = 19;
}

const MAGIC: u16 = 0xeb9f;
const VERSION: u8 = 1;
/// Size of a type without its trailing data, bytes.
const TYPE: usize = 12;
/// Size of a member, bytes.
const MEMBER: usize = 12;
/// Size of a parameter, bytes.
const PARAMETER: usize = 8;
/// Distance, types, between two recorded positions; and number of positions, enough for several
/// times the types of a kernel.
const STRIDE: usize = 4096;
const PLACES: usize = 128;
/// Largest number of words of a type: `const struct file *const *` has five.
const WORDS_MAX: usize = 8;

/// Returns the 32-bit number at `at`.
fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let number = u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?);
    usize::try_from(number).ok()
}

/// Sections of the type information.
struct Btf<'b> {
    types: &'b [u8],
    strings: &'b [u8],
    /// Position of each [`STRIDE`]th type.
    places: [u32; PLACES],
}

/// A structure.
#[derive(Clone, Copy)]
struct Structure<'b> {
    size: usize,
    /// True if the upper 8 bits of member offsets are the size of a bit field.
    packed: bool,
    members: &'b [u8],
}

impl<'b> Btf<'b> {
    fn new(bytes: &'b [u8]) -> Option<Self> {
        let [first, second] = MAGIC.to_ne_bytes();
        // The last byte is for flags; no flags are defined.
        let body = bytes
            .starts_with(&[first, second, VERSION, 0])
            .then(|| bytes.get(number(bytes, 4)?..))??;
        let section = |at: usize| {
            body.get(number(bytes, at)?..)?
                .get(..number(bytes, at.checked_add(4)?)?)
        };
        let (types, strings) = (section(8)?, section(16)?);
        let (mut places, mut left) = ([u32::MAX; PLACES], types);
        for place in &mut places {
            *place = u32::try_from(types.len().saturating_sub(left.len())).ok()?;
            match (0..STRIDE).try_fold(left, |left, _| Some(split(left)?.3)) {
                Some(rest) => left = rest,
                // The end, or an unknown kind, which a search reports.
                None => break,
            }
        }
        Some(Self {
            types,
            strings,
            places,
        })
    }

    /// Returns the kind, the name and the structure view of the type with number `id`. Number 0 is
    /// `void`.
    fn by_number(&self, id: usize) -> Option<(usize, usize, Structure<'b>)> {
        let index = id.checked_sub(1)?;
        let place = usize::try_from(*self.places.get(index / STRIDE)?).ok()?;
        let start = self.types.get(place..)?;
        let left = (0..index % STRIDE).try_fold(start, |left, _| Some(split(left)?.3))?;
        let (kind, title, structure, _) = split(left)?;
        Some((kind, title, structure))
    }

    /// Returns `Some` if type `id` points to a function with this prototype.
    fn takes(&self, id: usize, prototype: &str) -> Option<()> {
        let (kind::PTR, _, pointer) = self.by_number(id)? else {
            return None;
        };
        // The word that is the size of a structure is the number of another type here.
        let (kind::FUNC_PROTO, _, function) = self.by_number(pointer.size)? else {
            return None;
        };
        let mut left = self.begins(prototype, function.size, WORDS_MAX)?;
        let parameters = function.members.chunks_exact(PARAMETER);
        for (index, parameter) in parameters.enumerate() {
            left = left.strip_prefix(if index == 0 { "(" } else { ", " })?;
            left = self.begins(left, number(parameter, 4)?, WORDS_MAX)?;
        }
        (left == ")").then_some(())
    }

    /// Returns the rest of `text` if it begins with the name of type `id`, which has at most
    /// `words` words.
    fn begins<'t>(&self, text: &'t str, id: usize, words: usize) -> Option<&'t str> {
        if id == 0 {
            return text.strip_prefix("void");
        }
        let words = words.checked_sub(1)?;
        let (kind, title, inner) = self.by_number(id)?;
        let of_kind = |prefix| self.named(text.strip_prefix(prefix)?, title);
        match kind {
            kind::INT | kind::FLOAT | kind::TYPEDEF => self.named(text, title),
            kind::STRUCT | kind::FWD => of_kind("struct "),
            kind::UNION => of_kind("union "),
            kind::ENUM | kind::ENUM64 => of_kind("enum "),
            kind::PTR => {
                let left = self.begins(text, inner.size, words)?;
                left.strip_prefix(" *").or_else(|| left.strip_prefix('*'))
            }
            kind::CONST => self.begins(text.strip_prefix("const ")?, inner.size, words),
            kind::VOLATILE | kind::RESTRICT | kind::TYPE_TAG => {
                self.begins(text, inner.size, words)
            }
            _ => None,
        }
    }

    /// Returns the rest of `text` if it begins with the string at `at`.
    fn named<'t>(&self, text: &'t str, at: usize) -> Option<&'t str> {
        let name = self.strings.get(at..)?.split(|byte| *byte == 0).next()?;
        text.strip_prefix(core::str::from_utf8(name).ok()?)
    }

    /// Returns the first structure of this name.
    fn structure<'a>(&self, name: &'a str) -> Result<Structure<'b>, Difference<'a>> {
        let mut types = self.types;
        while !types.is_empty() {
            let (kind, title, structure, rest) = split(types).ok_or(Difference::Format)?;
            if kind == kind::STRUCT && self.is(title, name) {
                return Ok(structure);
            }
            types = rest;
        }
        Err(Difference::NoStructure(name))
    }

    /// Returns the offset of the member of this name and the number of its type.
    fn member(&self, structure: &Structure<'_>, name: &str) -> Option<(usize, usize)> {
        structure.members.chunks_exact(MEMBER).find_map(|member| {
            let bits = number(member, 8)?;
            let field = structure.packed && bits >> 24 != 0;
            (!field && self.is(number(member, 0)?, name)).then_some((bits / 8, number(member, 4)?))
        })
    }

    /// Returns true if the string at `at` is `name`.
    fn is(&self, at: usize, name: &str) -> bool {
        self.strings
            .get(at..)
            .and_then(|text| text.strip_prefix(name.as_bytes()))
            .is_some_and(|rest| rest.first() == Some(&0))
    }
}

/// Splits off the first type: kind, name, structure view, remaining types.
fn split(types: &[u8]) -> Option<(usize, usize, Structure<'_>, &[u8])> {
    let (title, info, size) = (number(types, 0)?, number(types, 4)?, number(types, 8)?);
    let (kind, count) = ((info >> 24) & 0x7f, info & 0xff_ffff);
    let extra = match kind {
        kind::INT | kind::VAR | kind::DECL_TAG => 4,
        kind::ARRAY => 12,
        kind::STRUCT | kind::UNION => count.checked_mul(MEMBER)?,
        kind::DATASEC | kind::ENUM64 => count.checked_mul(12)?,
        kind::ENUM | kind::FUNC_PROTO => count.checked_mul(PARAMETER)?,
        kind::PTR | kind::FWD..=kind::FUNC | kind::FLOAT | kind::TYPE_TAG => 0,
        _ => return None,
    };
    let (members, rest) = types.get(TYPE..)?.split_at_checked(extra)?;
    let structure = Structure {
        size,
        packed: info >> 31 != 0,
        members,
    };
    Some((kind, title, structure, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Type information under construction.
    struct BtfBuilder {
        types: Vec<u8>,
        strings: Vec<u8>,
    }

    impl BtfBuilder {
        fn string(&mut self, text: &str) -> u32 {
            let at = self.strings.len();
            self.strings.extend(text.bytes().chain([0]));
            u32::try_from(at).unwrap()
        }

        fn words(&mut self, words: &[u32]) {
            self.types
                .extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        }

        /// Adds a type with `count` elements of `each` words, which the reader skips.
        fn other(&mut self, kind: usize, name: &str, count: u32, each: usize) {
            let title = self.string(name);
            let info = (u32::try_from(kind).unwrap() << 24) | count;
            self.words(&[title, info, 4]);
            self.words(&vec![u32::MAX; count as usize * each]);
        }

        /// Adds a structure with members given as name, offset in bits, and size of the bit field.
        fn structure(&mut self, name: &str, size: u32, members: &[(&str, u32, u32)]) {
            let title = self.string(name);
            let packed = u32::from(members.iter().any(|&(.., field)| field != 0));
            let count = u32::try_from(members.len()).unwrap();
            self.words(&[title, (packed << 31) | (4 << 24) | count, size]);
            for &(name, bits, field) in members {
                let title = self.string(name);
                self.words(&[title, 1, (field << 24) | bits]);
            }
        }

        /// Returns the complete type information with a header of `header` bytes.
        fn finish(&self, header: u32) -> Vec<u8> {
            let len = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap();
            let mut all = MAGIC.to_ne_bytes().to_vec();
            all.extend([VERSION, 0]);
            let (types, strings) = (len(&self.types), len(&self.strings));
            for word in [header, 0, types, types, strings] {
                all.extend(word.to_ne_bytes());
            }
            all.resize(header as usize, 0);
            all.extend(&self.types);
            all.extend(&self.strings);
            all
        }
    }

    /// Creates type information with every kind of type before the structures `queue` and `ops`.
    fn made() -> BtfBuilder {
        let mut made = BtfBuilder {
            types: vec![],
            strings: vec![0],
        };
        for (kind, count, each) in [
            (kind::INT, 0, 0),
            (kind::PTR, 0, 0),
            (kind::ARRAY, 0, 0),
            (kind::UNION, 2, 3),
            (kind::ENUM, 3, 2),
            (kind::FWD, 0, 0),
            (8, 0, 0),
            (9, 0, 0),
            (10, 0, 0),
            (11, 0, 0),
            (kind::FUNC, 1, 0),
            (kind::FUNC_PROTO, 2, 2),
            (kind::VAR, 0, 0),
            (kind::DATASEC, 2, 3),
            (kind::FLOAT, 0, 0),
            (kind::DECL_TAG, 0, 0),
            (kind::TYPE_TAG, 0, 0),
            (kind::ENUM64, 1, 3),
        ] {
            // A type that is not a structure may have the name of one.
            made.other(kind, "queue", count, each);
            match kind {
                kind::INT | kind::VAR | kind::DECL_TAG => made.words(&[u32::MAX]),
                kind::ARRAY => made.words(&[u32::MAX; 3]),
                _ => {}
            }
        }
        made.structure("queues", 1, &[("data", 8, 0)]);
        made.structure("queue", 24, &[("", 0, 0), ("type", 0, 0), ("data", 64, 0)]);
        made.structure(
            "ops",
            12,
            &[("flag", 3, 1), ("word", 32, 32), ("run", 64, 0)],
        );
        made.structure("ops", 99, &[]);
        made
    }

    const fn row(
        structure: &'static str,
        member: Option<&'static str>,
        bytes: usize,
    ) -> LayoutRow<'static> {
        LayoutRow {
            structure,
            member,
            bytes,
            prototype: None,
        }
    }

    const RIGHT: [LayoutRow<'static>; 6] = [
        row("queue", None, 24),
        row("queue", Some("type"), 0),
        row("queue", Some("data"), 8),
        row("ops", None, 12),
        row("ops", Some("run"), 8),
        row("queue", Some("data"), 8),
    ];

    /// Returns the text of the difference of `last`, compared after the rows `RIGHT`.
    fn difference_of(btf: &[u8], last: LayoutRow<'_>) -> Option<String> {
        let rows = RIGHT.into_iter().chain([last]);
        compare(btf, rows).err().map(|why| why.to_string())
    }

    #[test]
    fn each_difference_has_its_text() {
        // The header may be longer in later versions.
        for header in [24, 32, 64] {
            let btf = made().finish(header);
            for (last, want) in [
                (row("queue", None, 24), ""),
                (row("ops", None, 12), ""),
                (
                    row("queue", None, 32),
                    "struct queue: size is 24, built for 32",
                ),
                (
                    row("queue", Some("data"), 16),
                    "struct queue: offset of data is 8, built for 16",
                ),
                (
                    row("queue", Some("dat"), 8),
                    "struct queue has no member dat",
                ),
                (
                    row("queue", Some("data2"), 8),
                    "struct queue has no member data2",
                ),
                (
                    row("queue", Some("run"), 8),
                    "struct queue has no member run",
                ),
                (row("ops", Some("flag"), 0), "struct ops has no member flag"),
                (row("ops", Some("word"), 4), "struct ops has no member word"),
                (row("que", None, 24), "struct que does not exist"),
                (row("ueue", Some("data"), 8), "struct ueue does not exist"),
            ] {
                assert_eq!(difference_of(&btf, last).unwrap_or_default(), want);
            }
        }
    }

    #[test]
    fn other_formats_are_refused() {
        let right = made().finish(24);
        assert_eq!(compare(&right, RIGHT.into_iter()), Ok(()));
        for (at, byte) in [(0, 0), (1, 0), (2, 2), (3, 1)] {
            let mut btf = right.clone();
            btf[at] = byte;
            assert_eq!(compare(&btf, RIGHT.into_iter()), Err(Difference::Format));
        }
        for kind in [0, 20, 0x7f] {
            let mut made = made();
            made.other(kind, "", 0, 0);
            let found = compare(&made.finish(24), [row("absent", None, 0)].into_iter());
            assert_eq!(found, Err(Difference::Format), "kind {kind}");
        }
        // Truncated anywhere: within the types, or within the strings.
        for len in 0..right.len() {
            assert_eq!(
                compare(&right[..len], RIGHT.into_iter()),
                Err(Difference::Format)
            );
        }
    }

    /// Creates type information with a structure that points to a function with the prototype
    /// `int(struct queue *, const flags_t *, enum way, void **)`. The pointer is type 3 after
    /// `before` types.
    fn pointing(before: u32) -> BtfBuilder {
        let mut made = BtfBuilder {
            types: vec![],
            strings: vec![0],
        };
        for _ in 0..before {
            made.other(kind::INT, "int", 0, 0);
            made.words(&[u32::MAX]);
        }
        let at = |id: u32| before + id;
        let mut add = |kind: usize, name: &str, count: u32, inner: u32| {
            let title = made.string(name);
            made.words(&[title, (u32::try_from(kind).unwrap() << 24) | count, inner]);
        };
        add(kind::FWD, "queue", 0, 0);
        add(kind::PTR, "", 0, at(1));
        add(kind::PTR, "", 0, at(4));
        add(kind::FUNC_PROTO, "", 4, at(9));
        made.words(&[0, at(2), 0, at(7), 0, at(8), 0, at(11)]);
        let mut add = |kind: usize, name: &str, count: u32, inner: u32| {
            let title = made.string(name);
            made.words(&[title, (u32::try_from(kind).unwrap() << 24) | count, inner]);
        };
        add(kind::TYPEDEF, "flags_t", 0, at(9));
        add(kind::CONST, "", 0, at(5));
        add(kind::PTR, "", 0, at(6));
        add(kind::ENUM, "way", 0, 4);
        add(kind::INT, "int", 0, 4);
        made.words(&[u32::MAX]);
        let mut add = |inner: u32| made.words(&[0, 2 << 24, inner]);
        add(0);
        add(at(10));
        // A pointer to itself.
        add(at(12));
        let title = made.string("ops");
        made.words(&[title, (4 << 24) | 2, 16]);
        for (name, id, bits) in [("run", at(3), 0), ("loop", at(12), 64)] {
            let title = made.string(name);
            made.words(&[title, id, bits]);
        }
        made
    }

    #[test]
    fn prototypes_are_compared() {
        let stride = u32::try_from(STRIDE).unwrap();
        for before in [0, 1, stride - 4, stride, 2 * stride + 5] {
            let btf = pointing(before).finish(24);
            let said = |member: &'static str, prototype: &'static str| {
                let bytes = if member == "run" { 0 } else { 8 };
                let row = LayoutRow {
                    prototype: Some(prototype),
                    ..row("ops", Some(member), bytes)
                };
                compare(&btf, [row].into_iter()).err()
            };
            let right = "int(struct queue *, const flags_t *, enum way, void **)";
            assert_eq!(said("run", right), None, "after {before} types");
            for (member, other) in [
                (
                    "run",
                    "void(struct queue *, const flags_t *, enum way, void **)",
                ),
                ("run", "int(struct queue *, flags_t *, enum way, void **)"),
                (
                    "run",
                    "int(struct queue *, const flags_t *, enum way, void *)",
                ),
                ("run", "int(struct queue *, const flags_t *, enum way)"),
                (
                    "run",
                    "int(struct queue *, const flags_t *, enum way, void **, int)",
                ),
                (
                    "run",
                    "int(struct queues *, const flags_t *, enum way, void **)",
                ),
                (
                    "run",
                    "int(struct que *, const flags_t *, enum way, void **)",
                ),
                (
                    "run",
                    "int(struct queue *, enum way, const flags_t *, void **)",
                ),
                ("run", "int()"),
                ("run", "int"),
                ("run", ""),
                ("loop", right),
            ] {
                let why = said(member, other).map(|why| why.to_string());
                let want = format!("struct ops: {member} is not {other}");
                assert_eq!(why, Some(want), "after {before} types");
            }
        }
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let right = made().finish(24);
        let mut unlike = 0_usize;
        for at in 0..right.len() {
            for byte in 0..=u8::MAX {
                let mut btf = right.clone();
                btf[at] = byte;
                unlike += usize::from(compare(&btf, RIGHT.into_iter()).is_err());
            }
        }
        let pointing = pointing(0).finish(24);
        for at in 0..pointing.len() {
            for byte in 0..=u8::MAX {
                let mut btf = pointing.clone();
                btf[at] = byte;
                let row = LayoutRow {
                    prototype: Some("int(struct queue *, const flags_t *, enum way, void **)"),
                    ..row("ops", Some("run"), 0)
                };
                let _ = compare(&btf, [row].into_iter());
            }
        }
        // Changes of the header and of the sizes, offsets and names of compared structures are
        // detected.
        assert!(unlike > 255 * 24 + 255 * 4 * 6, "{unlike} differ");
        let mut rng = crate::sched::rng::Rng::new(1);
        for _ in 0..200_000 {
            let mut btf = right.clone();
            for _ in 0..=rng.below(4) {
                let at = rng.below(right.len() as u64) as usize;
                let value = [0, 1, 0x7f, 0x80, 0xff, rng.below(256) as u8][rng.below(6) as usize];
                btf[at] = value;
            }
            let _ = compare(&btf, RIGHT.into_iter());
        }
    }
}
