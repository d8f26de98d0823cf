// SPDX-License-Identifier: GPL-2.0-only

//! `nrs-report profile`: instructions per request by function, from two runs of a machine that
//! differ only in the number of requests.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use nrs_report::table::Table;

/// Directory of the results, and minimum to show.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Directory of the results: files N.blocks and N.symbols for two numbers N of requests.
    dir: PathBuf,
    /// Minimum number of instructions per request; functions with fewer are omitted.
    #[arg(long, default_value_t = 10.0)]
    from: f64,
}

/// Executed instructions and calls of one function.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Ran {
    instructions: f64,
    /// Number of executions of the first instruction.
    calls: f64,
}

/// Start of the addresses of the kernel.
const KERNEL: u64 = 1 << 63;

fn words<const N: usize>(line: &str) -> Option<[&str; N]> {
    let words: Vec<&str> = line.split_whitespace().take(N).collect();
    words.try_into().ok()
}

/// Returns functions by address, from text in the format of /proc/kallsyms; names in modules are
/// prefixed with the module.
fn symbols(text: &str) -> BTreeMap<u64, String> {
    let symbol = |line: &str| {
        let [address, kind, name] = words(line)?;
        let module = line.split_whitespace().nth(3).unwrap_or("");
        let module = module.trim_matches(['[', ']']);
        let name = format!("{:#}", rustc_demangle::demangle(name));
        let name = if module.is_empty() {
            name
        } else {
            format!("{module}: {name}")
        };
        let address = u64::from_str_radix(address, 16).ok()?;
        "tTwW".contains(kind).then_some((address, name))
    };
    text.lines().filter_map(symbol).collect()
}

/// Returns the executed instructions and calls by function, from `blocks` as written by
/// scripts/profile.c.
fn ran(blocks: &str, symbols: &BTreeMap<u64, String>) -> HashMap<String, Ran> {
    let mut all = HashMap::<String, Ran>::new();
    for line in blocks.lines() {
        let Some([address, length, times]) = words(line) else {
            continue;
        };
        let Ok(address) = u64::from_str_radix(address, 16) else {
            continue;
        };
        let number = |word: &str| word.parse::<f64>().unwrap_or(0.0);
        let found = symbols.range(..=address).next_back();
        let (start, name) = match found {
            Some((start, name)) if address >= KERNEL => (*start, name.as_str()),
            _ => (0, "user space"),
        };
        let one = all.entry(name.to_owned()).or_default();
        one.instructions += number(length) * number(times);
        if start == address {
            one.calls += number(times);
        }
    }
    all
}

/// Returns the cost per request, from the difference of two runs, the most expensive function
/// first.
fn each(
    few: &HashMap<String, Ran>,
    many: &HashMap<String, Ran>,
    requests: f64,
) -> Vec<(String, Ran)> {
    let cost = |(name, more): (&String, &Ran)| {
        let less = few.get(name).copied().unwrap_or_default();
        let ran = Ran {
            instructions: (more.instructions - less.instructions) / requests,
            calls: (more.calls - less.calls) / requests,
        };
        (name.clone(), ran)
    };
    let mut all: Vec<_> = many.iter().map(cost).collect();
    all.sort_by(|(_, one), (_, other)| other.instructions.total_cmp(&one.instructions));
    all
}

fn read(dir: &Path, requests: u32) -> Result<HashMap<String, Ran>, Box<dyn Error>> {
    let text = |what: &str| {
        let path = dir.join(format!("{requests}.{what}"));
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    Ok(ran(&text("blocks")?, &symbols(&text("symbols")?)))
}

/// Prints the table.
///
/// # Errors
///
/// Missing or unreadable results.
pub fn run(args: Args) -> Result<(), Box<dyn Error>> {
    let name = |entry: std::io::Result<fs::DirEntry>| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        name.strip_suffix(".blocks")?.parse::<u32>().ok()
    };
    let mut counts: Vec<u32> = fs::read_dir(&args.dir)?.filter_map(name).collect();
    counts.sort_unstable();
    let &[few, many] = counts.as_slice() else {
        return Err(format!("{}: expected results of two runs", args.dir.display()).into());
    };
    let all = each(
        &read(&args.dir, few)?,
        &read(&args.dir, many)?,
        (many - few).into(),
    );
    let total: f64 = all.iter().map(|(_, ran)| ran.instructions).sum();
    let ours: f64 = all
        .iter()
        .filter(|(name, _)| name.starts_with("nrs: "))
        .map(|(_, ran)| ran.instructions)
        .sum();
    println!("Instructions per request: {total:.0}, {ours:.0} of them in nrs.\n");
    let mut table = Table::headed("instructions|calls|function");
    for (name, ran) in all.iter().filter(|(_, ran)| ran.instructions >= args.from) {
        table.row(&[
            format!("{:.1}", ran.instructions),
            format!("{:.2}", ran.calls),
            name.clone(),
        ]);
    }
    print!("{}", table.markdown());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_of_two_runs() {
        let symbols = symbols(
            "ffffffff81000000 T start\nffffffff81000100 t map\t[nrs]\nffffffff81000200 d data\n",
        );
        assert_eq!(symbols.len(), 2);
        let few = ran("ffffffff81000100 4 10\n401000 7 100\n", &symbols);
        let many = ran(
            "ffffffff81000100 4 30\nffffffff81000110 2 40\nffffffff81000000 1 9\n401000 7 100\n",
            &symbols,
        );
        let all = each(&few, &many, 20.0);
        let map = Ran {
            instructions: 8.0,
            calls: 1.0,
        };
        assert_eq!(all[0], ("nrs: map".to_owned(), map));
        assert_eq!(all[2], ("user space".to_owned(), Ran::default()));
    }
}
