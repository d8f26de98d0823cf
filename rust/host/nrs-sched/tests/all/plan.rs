// SPDX-License-Identifier: GPL-2.0-only

//! Plans of `qbm`: random plans against a model, and the documented plans. The fuzz target `plan`
//! checks what must hold for any text.

use nrs_sched::{
    jobid::JobId,
    key::Key,
    nid::Nid,
    policy::Nothing,
    qbm::{
        plan::{ClientKey, Plan},
        terms::{BandwidthClass, Entitlement},
    },
    rng::Rng,
};

/// Attribute that identifies clients, clients, and names in lines with the clients that each name
/// matches.
type Names = (
    &'static str,
    [&'static str; 5],
    [(&'static str, &'static [usize]); 9],
);

const NIDS: Names = (
    "nid",
    [
        "0@lo",
        "10.0.0.1@tcp",
        "10.0.0.2@tcp",
        "10.0.7.2@tcp1",
        "fe80::1@tcp",
    ],
    [
        ("0@lo", &[0]),
        ("10.0.0.1@tcp", &[1]),
        ("10.0.0.2@tcp", &[2]),
        ("fe80::1@tcp", &[4]),
        ("*@tcp", &[1, 2, 4]),
        ("10.0.0.[1,3-9]@tcp", &[1]),
        ("10.0.[0-8].[2-8/2]@tcp1", &[3]),
        ("10.0.0.0/30@tcp", &[1, 2]),
        ("[1-9/4]@gni", &[]),
    ],
);

const JOBS: Names = (
    "jobid",
    ["dd.0", "dd.1", "fio.0", "x", "aXbXc"],
    [
        ("dd.0", &[0]),
        ("x", &[3]),
        ("fio.0", &[2]),
        ("none", &[]),
        ("*", &[0, 1, 2, 3, 4]),
        ("dd.?", &[0, 1]),
        ("*.0", &[0, 2]),
        ("*X*X*", &[4]),
        ("f*.1", &[]),
    ],
);

const MB: u64 = 1_000_000;

/// Either a number of MB/s or a percentage of the group's capacity.
#[derive(Clone, Copy)]
struct Amount {
    number: u64,
    is_percent: bool,
}

impl Amount {
    fn draw(rng: &mut Rng) -> Self {
        let is_percent = rng.below(2) == 0;
        let number = if is_percent {
            4 + rng.below(97)
        } else {
            1 + rng.below(12)
        };
        Self { number, is_percent }
    }

    fn text(self) -> String {
        format!(
            "{}{}",
            self.number,
            if self.is_percent { "%" } else { "MB/s" }
        )
    }

    fn of(self, capacity: u64) -> u64 {
        self.number * if self.is_percent { capacity / 100 } else { MB }
    }
}

/// A line of a client, or the default as a line for all clients.
struct Line {
    item: usize,
    group: Option<usize>,
    class: BandwidthClass,
    min: Amount,
    max: Option<Amount>,
}

impl Line {
    fn draw(rng: &mut Rng) -> Self {
        Self {
            item: rng.below(9) as usize,
            group: (rng.below(2) == 0).then(|| rng.below(3) as usize),
            class: BandwidthClass::ALL[rng.below(4) as usize],
            min: Amount::draw(rng),
            max: (rng.below(2) == 0).then(|| Amount::draw(rng)),
        }
    }

    fn is_in(&self, group: usize) -> bool {
        self.group.is_none_or(|own| own == group)
    }

    fn terms(&self, capacity: u64) -> Entitlement {
        Entitlement {
            class: self.class,
            min: self.min.of(capacity),
            max: self.max.map_or(capacity, |max| max.of(capacity)),
        }
    }

    fn text(&self) -> String {
        let (class, min) = (self.class.name(), self.min.text());
        let max = self.max.map(|max| format!(" max={}", max.text()));
        let group = self.group.map(|group| format!(" group=g{group}"));
        format!(
            "class={class} min={min}{}{}\n",
            max.unwrap_or_default(),
            group.unwrap_or_default()
        )
    }

    /// Returns true if the line does not fit into all groups that it applies to; no line fits into
    /// a group that does not exist.
    fn is_wrong(&self, capacities: &[u64]) -> bool {
        let fits = |terms: Entitlement, capacity| {
            (32_768..=terms.max).contains(&terms.min) && terms.max <= capacity
        };
        let mut groups = (0..)
            .zip(capacities)
            .filter(|(group, _)| self.is_in(*group));
        let is_reversed = self.max.is_some_and(|max| {
            max.is_percent == self.min.is_percent && max.number < self.min.number
        });
        is_reversed
            || self.group.is_some_and(|group| group >= capacities.len())
            || groups.any(|(_, capacity)| !fits(self.terms(*capacity), *capacity))
    }
}

/// Compares plans with the model: the first line that matches a client in a group applies, else the
/// default. Lines that do not fit, and duplicates, are refused.
#[test]
fn plans_say_what_the_model_says() {
    let mut rng = Rng::new(1);
    let mut refused = 0;
    for _ in 0..1_500 {
        let (by, clients, items) = if rng.below(2) == 0 { NIDS } else { JOBS };
        let capacities: Vec<u64> = (0..1 + rng.below(3))
            .map(|_| (10 + rng.below(90)) * MB)
            .collect();
        let lines: Vec<Line> = (0..rng.below(9)).map(|_| Line::draw(&mut rng)).collect();
        let default = Line {
            group: None,
            max: None,
            ..Line::draw(&mut rng)
        };
        let mut text = format!("by {by}\ndefault {}", default.text());
        for (group, capacity) in capacities.iter().enumerate() {
            text += &format!(
                "group g{group} capacity={}MB/s target={group}\n",
                capacity / MB
            );
        }
        for line in &lines {
            text += &format!("client {} {}", items[line.item].0, line.text());
        }
        let is_twice = (0..lines.len()).any(|at| {
            let same =
                |other: &Line| (other.item, other.group) == (lines[at].item, lines[at].group);
            lines[..at].iter().any(same)
        });
        let is_wrong = is_twice
            || lines
                .iter()
                .chain([&default])
                .any(|line| line.is_wrong(&capacities));
        let plan = Plan::parse(&text);
        assert_eq!(
            plan.as_ref().err().is_some(),
            is_wrong,
            "{:?}\n{text}",
            plan.err()
        );
        let Ok(plan) = plan else {
            refused += 1;
            continue;
        };
        for (group, capacity) in capacities.iter().enumerate() {
            assert_eq!(plan.group_of(group as u32), Some(group as u32));
            for (client, name) in clients.iter().enumerate() {
                let key = match by {
                    "nid" => Key::Nid(Nid::parse(name).expect("valid")),
                    _ => Key::Jobid(JobId::new(name.as_bytes())),
                };
                let is_for =
                    |line: &&Line| line.is_in(group) && items[line.item].1.contains(&client);
                let line = lines.iter().find(is_for).unwrap_or(&default);
                let got = plan.terms(group as u32, &ClientKey::Key(key), &Nothing);
                assert_eq!(got, Some(line.terms(*capacity)), "{group} {name}\n{text}");
            }
        }
    }
    assert!((300..1_200).contains(&refused), "{refused} of 1500");
}

/// Checks that the documented plans are valid.
#[test]
fn documented() {
    let page = include_str!("../../../../../Documentation/qbm.md");
    // Every second piece between fences is a block; the first line may name a language.
    let blocks = page.split("\n```").skip(1).step_by(2);
    let texts: Vec<&str> = blocks
        .filter_map(|block| {
            let start = block.find("\nby ")?;
            let text = &block[start + 1..];
            Some(text.split("\nEND").next().unwrap())
        })
        .collect();
    assert_eq!(texts.len(), 5, "{texts:#?}");
    for text in texts {
        let plan = Plan::parse(text).unwrap_or_else(|error| panic!("{error} of\n{text}"));
        assert!(!plan.groups().is_empty());
    }
}
