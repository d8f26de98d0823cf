// SPDX-License-Identifier: GPL-2.0-only

//! Tests with results of a device: two repeats, three peers, and one peer that is not possible.

use super::figures::Kind;
use super::*;

/// Writes the results of the device `slow`. `none` shares by processes, dm-linear does the same and
/// is slightly slower, dm-nrs with fairshare is fair and slower still; kyber is not possible.
fn results(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("nrs-report-{name}-{}", std::process::id()));
    let slow = dir.join("slow");
    fs::create_dir_all(&slow).unwrap();
    fs::write(slow.join("device"), "kernel 7.3\n").unwrap();
    fs::write(slow.join("not"), "kyber module not available\n").unwrap();
    for (peer, all, equal, four) in [
        ("none", 2000, "400 1600", "1500 500"),
        ("dm-linear", 1800, "360 1440", "1350 450"),
        ("nrs-fairshare", 1600, "800 800", "320 1280"),
    ] {
        let eight = vec![(all / 8).to_string(); 8].join(" ");
        let [equal, four] = [equal, four].map(|pair| format!("{pair} 9 9 9 9 9 9"));
        let alone = format!("{all} 0 0 0 0 0 0 0");
        let measures = [
            ("one", &alone),
            ("many", &alone),
            ("mix", &alone),
            ("lone", &alone),
        ];
        let shared = [("equal", &equal), ("four", &four), ("eight", &eight)];
        let facts = measures.iter().chain(&shared).map(|(measure, clients)| {
            let first = format!("{measure} 7 7 0 0 0 0 0 0 0 0 0");
            format!("{first}\n{measure} 2000007 500000007 {all} {clients}\n")
        });
        let facts: String = facts.collect();
        for repeat in [1, 2] {
            fs::write(slow.join(format!("{peer}.{repeat}.facts")), &facts).unwrap();
            let report = r#"note: this is text
                {"jobs":[{"jobname":"mix.ask","error":0,"read":{"total_ios":0,"lat_ns":{}}},
                {"jobname":"mix.c1","error":0,"read":{"total_ios":500,"lat_ns":{"percentile":
                {"50.000000":2e6,"99.000000":4e6,"99.900000":5e6}}}}]}"#;
            fs::write(slow.join(format!("{peer}.{repeat}.json")), report).unwrap();
        }
    }
    dir
}

/// Runs the command; returns the files of the report.
fn report(dir: &Path, check: bool) -> Result<BTreeMap<String, String>> {
    let (dir, out, took) = (dir.to_path_buf(), dir.join("out"), Some(61));
    run(Args {
        dir,
        out: out.clone(),
        check,
        took,
    })?;
    let file = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into();
        Ok((name, fs::read_to_string(path)?))
    };
    fs::read_dir(out)?.map(file).collect()
}

#[test]
fn pages() {
    let dir = results("pages");
    let files = report(&dir, false).unwrap();
    for (file, want) in [
        ("compare.md", "| slow   | nrs-fairshare |"),
        ("compare.md", "| not possible |"),
        ("compare.md", "kyber on `slow`: module not available"),
        (
            "compare.md",
            "* `slow`, IOPS of one job: none is best with 1000/s; **none beats dm-nrs**, whose \
             best is nrs-fairshare with 800/s, 20 % less; dm-linear is better than that, too.\n",
        ),
        (
            "compare.md",
            "* `slow`, error of shares at 1:4: nrs-fairshare is best with 0.0 %, 275.0 points less \
             than none, the best of the others (275.0 %).\n",
        ),
        ("compare.md", "p99 of the small client: none is best with 4.00 ms, no clear difference"),
        ("compare.md", "`make compare` took 1 min 1 s."),
        ("compare.md", "fewer than 1000"),
        ("manual.md", "| dm-nrs, fairshare |"),
        ("manual.md", "* IOPS of one job: none and dm-linear on `slow`\n"),
        ("readme.md", "| BFQ "),
        ("p99.svg", "nrs-fairshare"),
    ] {
        assert!(files[file].contains(want), "{want}: {}", files[file]);
    }
    assert_eq!(
        files.keys().filter(|name| name.ends_with(".svg")).count(),
        7
    );
    let json: serde_json::Value = serde_json::from_str(&files["compare.json"]).unwrap();
    let slow = &json["devices"]["slow"];
    assert_eq!(slow["not_possible"]["kyber"], "module not available");
    let value = |peer: &str, key: &str| slow["peers"][peer][key]["median"].as_f64().unwrap();
    for (peer, key, want) in [
        ("none", "iops_1", 1000.0),
        ("none", "cpu_us_1", 250.0),
        ("none", "unused_all_percent", 0.0),
        ("none", "error_equal_percent", 60.0),
        ("none", "error_four_percent", 275.0),
        ("nrs-fairshare", "error_equal_percent", 0.0),
        // Compared with dm-linear, which does 900 requests/s.
        ("nrs-fairshare", "unused_lone_percent", 100.0 / 9.0),
        ("nrs-fairshare", "p99_ms", 4.0),
    ] {
        assert!((value(peer, key) - want).abs() < 1e-9, "{peer} {key}");
    }
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn what_cannot_be() {
    let dir = results("wrong");
    let bad = || {
        let checks = check::checks(&Report::read(&dir).unwrap());
        assert!(checks.len() > 20);
        checks.into_iter().filter(|(_, holds)| !holds).count()
    };
    assert_eq!(bad(), 0);
    for repeat in [1, 2] {
        let file = dir.join(format!("slow/nrs-fairshare.{repeat}.facts"));
        let text = fs::read_to_string(&file).unwrap();
        fs::write(file, text.replace(" 320 1280", " 0 1280")).unwrap();
    }
    // The error of the shares, and in both repeats a client without service.
    assert_eq!(bad(), 3);
    assert!(report(&dir, true).is_err());
    let sample = "one 1 1 1 0 0 0 0 0 0 0 0\n";
    for (file, text, want) in [
        (
            "none.1.json",
            r#"{"jobs":[{"jobname":"mix.c1","error":5}]}"#,
            "failed with error 5",
        ),
        (
            "none.1.json",
            r#"{"jobs":[{"jobname":"mix.c1","error":0}]}"#,
            "no latency",
        ),
        ("none.1.json", "nothing", "expected"),
        ("none.1.facts", "one 1 2 3\n", "malformed sample"),
        (
            "none.1.facts",
            "one 1 x 3 0 0 0 0 0 0 0 0\n",
            "malformed sample",
        ),
        ("none.1.facts", sample, "found 1"),
        ("none.1.facts", &sample.repeat(2), "no time"),
        ("none.1.facts", &sample.repeat(3), "found 3"),
    ] {
        fs::write(dir.join("slow").join(file), text).unwrap();
        let error = report(&dir, false).unwrap_err().to_string();
        assert!(error.contains(file) && error.contains(want), "{error}");
    }
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn alikeness() {
    for (kind, a, b, want) in [
        (Kind::Rate, [101.0; 3], [100.0; 3], false),
        (Kind::Rate, [110.0; 3], [100.0; 3], true),
        (
            Kind::Cost,
            [90.0, 100.0, 120.0],
            [105.0, 110.0, 115.0],
            false,
        ),
        (Kind::Cost, [100.0; 3], [110.0; 3], true),
        (Kind::Percent, [0.1; 3], [0.9; 3], false),
        (Kind::Percent, [0.0; 3], [3.0; 3], true),
    ] {
        let [a, b] = [a, b].map(|[low, median, high]| Spread { low, median, high });
        assert_eq!(sentence::clearly_better(kind, a, b), want, "{a:?} {b:?}");
        assert!(!sentence::clearly_better(kind, b, a));
    }
}
