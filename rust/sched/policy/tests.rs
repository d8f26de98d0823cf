// SPDX-License-Identifier: GPL-2.0-only

//! Tests of names, arguments and parameters of policies.

use super::*;
use fairshare::{
    mode::{Level, Mode},
    params::Select,
};

#[test]
fn names() {
    for &kind in Kind::ALL {
        assert_eq!(Kind::from_name(kind.name()), Ok(kind));
    }
    for name in ["", "Fifo", "fifo ", "qbm2"] {
        assert_eq!(Kind::from_name(name).unwrap_err().code, Code::NoEntry);
    }
}

#[test]
fn arguments() {
    let mut tunables = Tunables::default();
    tunables.fairshare.mode = Mode::single(Level::Gid);
    for (kind, argument, shown) in [
        (Kind::Fifo, None, Ok(None)),
        (Kind::Fifo, Some("uid_fair"), Err(Code::Invalid)),
        (Kind::Fifo, Some(""), Err(Code::Invalid)),
        (Kind::Crrn, None, Ok(None)),
        (Kind::Crrn, Some("8"), Err(Code::Invalid)),
        (Kind::Orr, None, Ok(None)),
        (Kind::Orr, Some("reads"), Err(Code::Invalid)),
        (Kind::Trr, None, Ok(None)),
        (Kind::Trr, Some(""), Err(Code::Invalid)),
        (Kind::Delay, None, Ok(None)),
        (Kind::Delay, Some("5"), Err(Code::Invalid)),
        (Kind::Fairshare, None, Ok(None)),
        (Kind::Fairshare, Some("uid_fair"), Ok(Some("uid_fair"))),
        (Kind::Fairshare, Some("nid_fair\n"), Ok(Some("nid_fair"))),
        (Kind::Fairshare, Some("uid"), Err(Code::Invalid)),
        (Kind::Fairshare, Some(""), Err(Code::Invalid)),
    ] {
        let config = Config::parse(kind, argument, &tunables);
        let got = config.map(|config| config.argument().map(|a| a.to_string()));
        let shown = shown.map(|text| text.map(str::to_owned));
        assert_eq!(
            got.map_err(|error| error.code),
            shown,
            "{kind:?} {argument:?}"
        );
        if let Ok(config) = config {
            assert_eq!(config.kind(), kind);
        }
    }
}

/// Verifies that changed parameters reach a started policy, except for a mode given as argument.
#[test]
fn with_other_tunables() {
    let before = Tunables::default();
    let mut after = before;
    after.fairshare.mode = Mode::single(Level::Uid);
    after.fairshare.select = Select::Paper;
    for (argument, mode) in [
        (None, Mode::single(Level::Uid)),
        (Some("gid_fair"), Mode::single(Level::Gid)),
    ] {
        let config = Config::parse(Kind::Fairshare, argument, &before).unwrap();
        assert_eq!(config.with(&before), config);
        let Config::Fairshare(inner) = config.with(&after) else {
            panic!("another policy");
        };
        assert_ne!(Config::Fairshare(inner), config);
        assert_eq!(inner.mode(), mode);
        assert_eq!(inner.tunables.select, Select::Paper);
    }
    let fifo = Config::parse(Kind::Fifo, None, &before).unwrap();
    assert_eq!(fifo.with(&after), fifo);
}
