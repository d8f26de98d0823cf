// SPDX-License-Identifier: GPL-2.0-only

//! `nrs-report profile`: instructions per request by function, from two runs of a machine that
//! differ only in the number of requests.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use nrs_report::table::Table;

use crate::{fio, Result};

/// Executed instructions, and executions of the first instruction, by function.
type Ran = BTreeMap<String, [f64; 2]>;

/// Start of the addresses of the kernel.
const KERNEL: u64 = 1 << 63;

/// Returns a line of /proc/kallsyms as address and name; names in modules are prefixed with the
/// module. Returns `None` if the line is not a function.
fn function(line: &str) -> Option<(u64, String)> {
    let mut words = line.split_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let kind = words.next()?;
    let name = format!("{:#}", rustc_demangle::demangle(words.next()?));
    let module = words.next().unwrap_or("").trim_matches(['[', ']']);
    let name = match module {
        "" => name,
        _ => format!("{module}: {name}"),
    };
    "tTwW".contains(kind).then_some((address, name))
}

/// Returns a block of scripts/profile.c: address, instructions and executions.
fn block(line: &str) -> Option<(u64, f64, f64)> {
    let mut words = line.split_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let mut number = || Some(words.next()?.parse().unwrap_or(0.0));
    Some((address, number()?, number()?))
}

/// Returns what ran, from the text of the files.
fn ran(blocks: &str, symbols: &str) -> Ran {
    let symbols: BTreeMap<u64, String> = symbols.lines().filter_map(function).collect();
    let mut all = Ran::new();
    for (address, length, times) in blocks.lines().filter_map(block) {
        let found = symbols.range(..=address).next_back();
        let (start, name) = match found {
            Some((start, name)) if address >= KERNEL => (*start, name.as_str()),
            _ => (0, "user space"),
        };
        let [instructions, calls] = all.entry(name.to_owned()).or_default();
        *instructions += length * times;
        if start == address {
            *calls += times;
        }
    }
    all
}

/// Returns the cost per request, from the difference of two runs, the most expensive function
/// first.
fn each(few: &Ran, many: &Ran, requests: f64) -> Vec<(String, [f64; 2])> {
    let cost = |(name, more): (&String, &[f64; 2])| {
        let less = few.get(name).copied().unwrap_or_default();
        let cost = [0, 1].map(|n| (more[n] - less[n]) / requests);
        (name.clone(), cost)
    };
    let mut all: Vec<_> = many.iter().map(cost).collect();
    all.sort_by(|(_, one), (_, other)| other[0].total_cmp(&one[0]));
    all
}

/// Prints the table of functions with at least `from` instructions.
pub fn run(dir: &Path, from: f64) -> Result {
    let requests = |name: &str| name.strip_suffix(".blocks")?.parse::<u32>().ok();
    let names = fs::read_dir(dir)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut counts: Vec<u32> = names.filter_map(|name| requests(&name)).collect();
    counts.sort_unstable();
    let &[few, many] = counts.as_slice() else {
        return Err(format!("{}: expected results of two runs", dir.display()).into());
    };
    let read = |requests: u32| -> Result<Ran> {
        let text = |what: &str| fio::text(&dir.join(format!("{requests}.{what}")));
        Ok(ran(&text("blocks")?, &text("symbols")?))
    };
    let all = each(&read(few)?, &read(many)?, (many - few).into());
    let total: f64 = all.iter().map(|(_, [instructions, _])| instructions).sum();
    let ours = all.iter().filter(|(name, _)| name.starts_with("nrs: "));
    let ours: f64 = ours.map(|(_, [instructions, _])| instructions).sum();
    println!("Instructions per request: {total:.0}, {ours:.0} of them in nrs.\n");
    let mut table = Table::headed("instructions|calls|function");
    for (name, [instructions, calls]) in all.iter().filter(|(_, ran)| ran[0] >= from) {
        table.row(&[&format!("{instructions:.1}"), &format!("{calls:.2}"), name]);
    }
    print!("{}", table.markdown());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_of_two_runs() {
        let symbols = "ffffffff81000000 T start\nffffffff81000100 t map\t[nrs]\n\
                       ffffffff81000110 d data\n";
        let few = ran("ffffffff81000100 4 10\n401000 7 100\n", symbols);
        let blocks = "ffffffff81000100 4 30\nffffffff81000110 2 40\nffffffff81000000 1 9\n\
                      401000 7 100\n";
        let all = each(&few, &ran(blocks, symbols), 20.0);
        assert_eq!(all[0], ("nrs: map".to_owned(), [8.0, 1.0]));
        assert_eq!(all[2], ("user space".to_owned(), [0.0; 2]));
    }
}
