// SPDX-License-Identifier: GPL-2.0-only

//! What must hold whatever is written: one module per fuzz target, shared by the target and by the bounded
//! runs among the tests of `nrs-sched` and `nrs-client`.
//!
//! # Vocabulary
//!
//! - *Target*: a function that takes any bytes and panics if something does not hold ([`rules::run`] and others).
//! - *Corpus*: bytes that a target has been seen to do something new with; `corpus/TARGET/`.
//! - *Bounded run*: the corpus, and so many changes of it that are always the same ([`replay`]).
//!
//! | target | what it takes | what must hold, beside that nothing panics |
//! |---|---|---|
//! | `rule_command` | commands of `nrs_tbf_rule` | look-ups agree with a walk, lines enter again, a refusal names a column of the text |
//! | `plan` | texts of `nrs_qbm_config` | what is written reads back as the same plan, look-ups agree with a walk |
//! | `nid` | network identifiers and ranges of them | read back, has what a slow reading of the text has, guards let members pass |
//! | `jobid` | formats, patterns, names with sizes | read back, one word of at most 31 bytes, agrees with a slow matcher |
//! | `weights` | changes of `nrs_fairshare_weights` | read back as an equal table, bounded, refused as a whole |
//! | `modes` | fairshare modes, sets of fields, operations, sources | read back; there is one way to write a mode |
//! | `policies` | commands of `nrs_policies` | words are parts of the text, read back, arguments are shown as they are read |
//! | `tunables` | every parameter of every policy and service | shown as it is read, within its limits |
//! | `numbers` | rates, sizes, percentages, settings of plans | the same value after it was shown, within its limits |
//! | `timeouts` | terms of timeouts, and samples | estimates stay within `at_min` and `at_max`, grow with samples |
//! | `wire` | records and arguments of `/dev/nrs` | read back; only zeros are taken behind a structure |
//! | `control` | commands of `/dev/nrs-control` | words are parts of the text, read back |
//! | `exchange` | datagrams between servers, in any order | nothing is trusted: bounded memory, factors within their limits, what is written reads back |
//! | `part` | a policy and what happens to it | nothing is lost, doubled or withheld for ever, lengths are right |
//! | `partition` | a partition and what happens to it | each request starts once and ends, order or not |

mod bytes;
pub mod control;
pub mod exchange;
pub mod jobid;
pub mod modes;
pub mod nid;
pub mod numbers;
pub mod part;
pub mod partition;
pub mod plan;
pub mod policies;
pub mod replay;
pub mod rules;
pub mod timeouts;
pub mod tunables;
pub mod weights;
pub mod wire;
