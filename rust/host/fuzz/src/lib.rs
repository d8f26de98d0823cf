// SPDX-License-Identifier: GPL-2.0-only

//! Fuzz targets: functions that accept any bytes, and panic if a property does not hold that must
//! hold for every input.
//!
//! [`TARGETS`] has one row per target. The corpus of a target, `corpus/TARGET/`, consists of inputs
//! that reached new code. The tests run each target on its corpus, and on the number of modified
//! inputs that the row states, always the same ones (`replay.rs`).

use libfuzzer_sys::arbitrary::{Arbitrary, Unstructured};
use nrs_sched::{
    error::{Error, Result},
    parameters::{all, Parameter},
    policy::Kind,
};
use std::fmt::{self, Debug};

use exchange::exchange;
use nid::nid;
use part::part;
use partition::partition;
use rules::rules;
use settings::{parameters, plan, timeouts, weights};
use texts::{config, control, jobid, policies, words};
use wire::wire;

mod exchange;
mod nid;
mod part;
mod partition;
#[cfg(test)]
mod replay;
mod rules;
mod settings;
mod texts;
mod wire;

/// A fuzz target.
pub struct Target {
    /// Name of the target, and of the directory of its corpus.
    pub name: &'static str,
    /// Function that checks an input.
    pub run: fn(&[u8]),
    /// Number of modified inputs of a bounded run.
    pub count: u32,
    /// Maximum length of a modified input, bytes.
    pub longest: usize,
    /// Words that inputs are likely to contain, separated by blanks.
    words: &'static str,
}

/// Declares the targets, and a test that runs each: function, number of inputs of a bounded run,
/// longest input, words. The function takes bytes, a text, or a selecting byte and a text.
macro_rules! targets {
    ($($name:ident $count:literal $longest:literal $words:literal;)+) => {
        /// All targets.
        pub const TARGETS: &[Target] = &[$(Target {
            name: stringify!($name),
            run: |data| {
                // A text ends where the bytes are not UTF-8.
                let input = Arbitrary::arbitrary_take_rest(Unstructured::new(data));
                $name(input.expect("any bytes will do"));
            },
            count: $count,
            longest: $longest,
            words: $words,
        },)+];

        #[cfg(test)]
        mod tests {
            $(#[test]
            fn $name() {
                crate::replay::bounded(crate::target(stringify!($name)));
            })+
        }
    };
}

// scripts/fuzz.sh reads the names here.
targets! {
    config 500 512 "
        nrs_policies tbf crrn orr trr delay qbm fairshare reg hp uid nid gid_then_uid_fair
        nrs_tbf_rule start change stop default uid={1} nid={10.0.0.*@tcp} rate= minrate= also=a
        rank= realtime=1 iops MB/s nrs_fairshare_weights uid:1:2 nrs_fairshare_mode
        nrs_qbm_config group a capacity=1M; client 5 min=50% nrs_tbf_rate buffer_max slots at_min
        nrs_crrn_quantum reg_quantum:3 #";
    control 20_000 256 "services get set bind accounts all names factors";
    exchange 1_000 600 "";
    jobid 20_000 512 "%e %u %g %p %h %H %j %% * ? # #4096 #18446744073709551616 .";
    nid 10_000 512 "
        @tcp @o2ib1 @lo @gni @kfi7 @gip @ptlf 10.0.0. 255 [1-9/2] [0-3,7] *.* /24 /0 /128 fe80::
        ::ffff:10.0.0.1 *@ 65535";
    parameters 20_000 128 "reg_ hp_ realtime meta prio 4294967295 65535 1048576";
    part 5_000 600 "";
    partition 1_000 600 "";
    plan 1_500 1_024 "
        by nid jobid uid device tune period= fast= slow= idle= floor= grant= sleep= high= low=
        raise= lower= headroom= 40ms 30s default group a client capacity= target=8:0 strategy=mover
        class= min= max= group=a reserve_first_come= reserve_mover= first_come fair_share low_share
        mover 100MB/s 1GiB 32Ki 50% 10.0.[0-9/2].*@tcp 0@lo dd.* d? # ;";
    policies 20_000 256 "reg hp uid_fair gid_then_uid_fair jobid+opcode generic";
    rules 1_000 1_024 "
        start change stop reg hp default uid={ gid={ projid={ nodemap={ cgroup={ jobid={ opcode={
        nid={ } }& }, rate= minrate= rank= realtime= borrow= also= iops MiB/s 10.0.[0-9/2].*@tcp
        2001:db8::/32@o2ib1 [1,3-5]@gni 0@lo ost_read ldlm_enqueue dd.*";
    timeouts 10_000 512 "100 5000 600000 4294967295 3600 0 1";
    weights 3_000 512 "
        uid: gid: projid: nodemap: cgroup: nid:10.0.0.1@tcp: nid:fe80::1@o2ib: jobid: jobid:\" \":
        \\x2a \\\" :10000 :1 -uid: -jobid: clear 4294967295 * ? uid_fair weight= &
        opcode:ost_write ioprio:be-4 ioprio:idle
        size_then_uid_fair";
    wire 6_000 1_024 "";
    words 40_000 256 "
        gid uid jobid projid nid nodemap cgroup size opcode ioprio be-4 rt-0 idle _then_ _fair +
        generic realtime meta
        prio none ost_read ost_write mds_ ldlm_ B/s MB/s GiB/s KiB iops 1TiB/s 1024GiB/s
        1099511627776 10000000 100% 8:16 4095:1048575 mover classes first_come fair_share low_share
        reserve_ capacity";
}

/// Returns the target `name`.
///
/// # Panics
///
/// The target does not exist.
pub fn target(name: &str) -> &'static Target {
    let found = TARGETS.iter().find(|target| target.name == name);
    found.unwrap_or_else(|| panic!("no target {name:?}"))
}

impl Target {
    /// Returns the words of the target, those of the schema, and separators; empty if inputs are
    /// not text.
    pub fn words(&self) -> Vec<&'static str> {
        let mut words: Vec<&str> = self.words.split_ascii_whitespace().collect();
        match self.name {
            "policies" => words.extend(Kind::ALL.iter().map(|kind| kind.name())),
            "parameters" => words.extend(all().flat_map(|one| one.takes.split([' ', ',']))),
            "timeouts" => words.extend(all().map(Parameter::name).filter(|n| n.starts_with("at_"))),
            _ => {}
        }
        words.retain(|word| !word.is_empty());
        if !words.is_empty() {
            words.extend([" ", "\n", "\t", "\r\n", "\0"]);
        }
        words
    }

    /// Returns the words as a dictionary of libFuzzer.
    pub fn dictionary(&self) -> String {
        let line = |word: &str| {
            let bytes = word.bytes().map(|byte| format!("\\x{byte:02x}"));
            format!("\"{}\"\n", bytes.collect::<String>())
        };
        let lines: String = self.words().into_iter().map(line).collect();
        format!("# Words of the target {}.\n{lines}", self.name)
    }
}

/// Checks that a refusal has a reason, of one line.
fn check_reason(error: &Error) {
    assert!(!error.reason.is_empty() && !error.to_string().contains('\n'));
}

/// Returns what `write` writes.
fn shown(write: impl FnOnce(&mut String) -> fmt::Result) -> String {
    let mut text = String::new();
    write(&mut text).expect("strings take all");
    text
}

/// Parses `text`; checks that the shown value parses to an equal value, or the reason of a refusal.
fn read_back<T: PartialEq + Debug>(
    text: &str,
    parse: impl Fn(&str) -> Result<T>,
    show: impl Fn(&T) -> String,
) -> Option<T> {
    let value = parse(text).inspect_err(check_reason).ok()?;
    let shown = show(&value);
    let again = parse(&shown);
    assert_eq!(again.as_ref(), Ok(&value), "{text:?} shown as {shown:?}");
    Some(value)
}
