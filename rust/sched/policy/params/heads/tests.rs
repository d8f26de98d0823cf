// SPDX-License-Identifier: GPL-2.0-only

//! Accepted forms and rejected texts.

use super::*;
use crate::sched::{
    error::Code,
    policy::params::{choice, number},
};

number! {
    /// A number.
    Number, "quantum": "", 1..=65_535 = 8
}

choice! {
    /// A word.
    Word, "supported":
    /// The first.
    #[default]
    Reads = "reads",
    /// A word of which another word is a prefix.
    Both = "reads_and_writes",
}

/// Returns the values 1 and 2 overridden by `text`, if the text is accepted.
fn numbers(text: &str) -> Option<(u32, u32)> {
    let before = PerHead {
        regular: Number::new(1).unwrap(),
        high: Number::new(2).unwrap(),
    };
    let after = before.with("quantum", text);
    if let Err(error) = after {
        assert_eq!(error.code, Code::Invalid, "{text:?}");
    }
    let after = after.ok()?;
    Some((after.regular.get(), after.high.get()))
}

#[test]
fn forms_of_numbers() {
    for (text, want) in [
        ("16", Some((16, 16))),
        ("16\n", Some((16, 16))),
        (" 16 ", Some((16, 16))),
        ("65535", Some((65_535, 65_535))),
        ("reg_quantum:16", Some((16, 2))),
        ("hp_quantum:16", Some((1, 16))),
        ("reg_quantum:16\n", Some((16, 2))),
        ("reg_quantum: 16", Some((16, 2))),
        ("hp_quantum:\t 16", Some((1, 16))),
        ("reg_quantum:16 hp_quantum:8", Some((16, 8))),
        ("hp_quantum:8 reg_quantum:16\n", Some((16, 8))),
        ("hp_quantum: 8   reg_quantum: 16", Some((16, 8))),
        ("reg_quantum:65535 hp_quantum:65535", Some((65_535, 65_535))),
        (
            "reg_quantum:65535 hp_quantum:65535\n",
            Some((65_535, 65_535)),
        ),
        ("reg_quantum:8    \nhp_quantum:8    ", Some((8, 8))),
        // One byte too many.
        ("reg_quantum:65535  hp_quantum:65535", None),
        ("00000000000000000000000000000000016", None),
        // No value is changed if one is invalid.
        ("reg_quantum:16 hp_quantum:0", None),
        ("reg_quantum:0 hp_quantum:8", None),
        ("reg_quantum:16 hp_quantum:", None),
        ("reg_quantum:16 hp_quantum", None),
        ("reg_quantum:16 8", None),
        ("8 reg_quantum:16", None),
        ("reg_quantum:16hp_quantum:8", None),
        ("reg_quantum:16,hp_quantum:8", None),
        ("reg_quantum:1 reg_quantum:2", None),
        ("hp_quantum:1 hp_quantum:1", None),
        ("", None),
        ("\n", None),
        (" ", None),
        ("16 8", None),
        (":16", None),
        ("quantum:16", None),
        ("reg_:16", None),
        ("reg_quantum16", None),
        ("reg_quantum :16", None),
        ("reg_quantum::16", None),
        ("REG_quantum:16", None),
        ("reg_quantumx:16", None),
        ("xreg_quantum:16", None),
        ("reg_hp_quantum:16", None),
        ("reg_offset_type:16", None),
        ("r\u{e9}g_quantum:16", None),
    ] {
        assert_eq!(numbers(text), want, "{text:?}");
    }
}

/// Rejects texts of which only a prefix is a valid word.
#[test]
fn forms_of_words() {
    let before = PerHead::<Word>::default();
    for (text, want) in [
        ("reads", Some((Word::Reads, Word::Reads))),
        ("reads_and_writes\n", Some((Word::Both, Word::Both))),
        (
            "hp_supported:reads_and_writes",
            Some((Word::Reads, Word::Both)),
        ),
        (
            "reg_supported:reads_and_writes hp_supported: reads",
            Some((Word::Both, Word::Reads)),
        ),
        ("readsfoo", None),
        ("read", None),
        ("Reads", None),
        ("reads reads", None),
        ("reg_supported:readsfoo", None),
        ("reg_supported:", None),
        ("reg_supported:reads hp_supported:8", None),
    ] {
        let after = before.with("supported", text).ok();
        let after = after.map(|after| (after.regular, after.high));
        assert_eq!(after, want, "{text:?}");
    }
}

#[test]
fn shown_as_taken() {
    let mut out = String::new();
    let heads = PerHead {
        regular: Number::new(16).unwrap(),
        high: Number::new(65_535).unwrap(),
    };
    heads.write("quantum", &mut out).unwrap();
    assert_eq!(out, "reg_quantum:16   \nhp_quantum:65535\n");
    assert_eq!(numbers(&out), Some((16, 65_535)));
    assert_eq!(heads.of(Priority::Regular).get(), 16);
    assert_eq!(heads.of(Priority::High).get(), 65_535);
    let mut out = String::new();
    let words = PerHead::both(Word::Both);
    words.write("supported", &mut out).unwrap();
    assert_eq!(
        out,
        "reg_supported:reads_and_writes\nhp_supported:reads_and_writes\n"
    );
    let back = PerHead::default().with("supported", &out);
    assert_eq!(back, Ok(words));
}
