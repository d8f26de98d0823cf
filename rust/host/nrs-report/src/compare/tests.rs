// SPDX-License-Identifier: GPL-2.0-only

//! Tests with results of a device: two boots, four peers, and one peer that is not possible.

use super::figures::Kind;
use super::*;

/// Writes the results of the device `slow`. `none` shares by processes, dm-nrs with fairshare is
/// fair and slower, BFQ is slower still; nrs with one slot is measured in the mix alone. kyber is
/// not possible.
fn results(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("nrs-report-{name}-{}", std::process::id()));
    for boot in [1, 2] {
        let slow = dir.join(format!("slow/{boot}"));
        fs::create_dir_all(&slow).unwrap();
        fs::write(slow.join("device"), "kernel 7.3\ndevice slow\n").unwrap();
        fs::write(slow.join("not"), "kyber module not available\n").unwrap();
        let mut runs = String::new();
        for (peer, all, equal, four) in [
            ("none", 2000, "400,1600", "1500,500"),
            ("bfq", 500, "200,300", "100,400"),
            ("dm-fairshare", 1600, "800,800", "320,1280"),
            ("nrs-1", 1000, "", ""),
        ] {
            let alone = format!("{all}");
            let mix = format!("{},{}", all / 4, all - all / 4);
            let eight = vec![(all / 8).to_string(); 8].join(",");
            let measures = [
                ("mix", &*mix),
                ("one", &alone),
                ("lone", &alone),
                ("equal", equal),
                ("four", four),
                ("eight", &eight),
            ];
            for (measure, got) in measures
                .into_iter()
                .take(if equal.is_empty() { 1 } else { 6 })
            {
                runs +=
                    &format!(r#"{peer} {measure} {{"seconds":2.0,"busy":0.25,"requests":[{got}],"#);
                runs += &format!(r#""bytes":[{got}],"latency_ms":[2.0,3.0,4.0,5.0],"rate":9}}"#);
                runs += "\n";
            }
        }
        fs::write(slow.join("runs"), runs).unwrap();
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
        ("compare.md", "| slow   | dm-fairshare |"),
        ("compare.md", "| not possible |"),
        ("compare.md", "kyber on `slow`: module not available"),
        (
            "compare.md",
            "* `slow`, IOPS of one client: none is best with 1000/s; **none beats nrs**, whose \
             best is dm-fairshare with 800/s, 20 % less.\n",
        ),
        (
            "compare.md",
            "* `slow`, error of shares at 1:1: dm-fairshare is best with 0.0 %, 20.0 points less \
             than bfq, the best of the others (20.0 %).\n",
        ),
        (
            "compare.md",
            "p99 of the small client: none is best with 4.00 ms, no clear difference",
        ),
        ("compare.md", "`make compare` took 1 min 1 s."),
        ("compare.md", "fewer than 1000"),
        ("manual.md", "| dm-nrs, fairshare |"),
        ("manual.md", "| the same, slots 1"),
        ("manual.md", "* IOPS of one client: none on `slow`\n"),
        ("readme.md", "| BFQ "),
        ("error-1-4.svg", "dm-fairshare"),
        ("mix-slow.svg", "nrs by slots"),
    ] {
        assert!(files[file].contains(want), "{want}: {}", files[file]);
    }
    assert_eq!(
        files.keys().filter(|name| name.ends_with(".svg")).count(),
        2
    );
    let json: serde_json::Value = serde_json::from_str(&files["compare.json"]).unwrap();
    let slow = &json["devices"]["slow"];
    assert_eq!(slow["not_possible"]["kyber"], "module not available");
    let value = |peer: &str, key: &str| slow["peers"][peer][key]["median"].as_f64().unwrap();
    for (peer, key, want) in [
        ("none", "iops", 1000.0),
        ("none", "cpu_us", 250.0),
        ("none", "unused_all_percent", 0.0),
        ("none", "error_equal_percent", 60.0),
        ("none", "error_four_percent", 275.0),
        ("dm-fairshare", "error_equal_percent", 0.0),
        ("dm-fairshare", "unused_lone_percent", 20.0),
        ("dm-fairshare", "p90_ms", 3.0),
        ("bfq", "unused_mix_percent", 75.0),
        ("nrs-1", "share_mix_percent", 25.0),
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
    for boot in [1, 2] {
        let file = dir.join(format!("slow/{boot}/runs"));
        let text = fs::read_to_string(&file).unwrap();
        fs::write(file, text.replace("800,800", "0,1600")).unwrap();
    }
    // In both boots a client without service.
    assert_eq!(bad(), 2);
    assert!(report(&dir, true).is_err());
    let run = |end: &str| format!(r#"none one {{"busy":1,"bytes":[1],{end}}}"#);
    let times = r#""latency_ms":[1,1,1,1]"#;
    for (text, want) in [
        ("none one".to_owned(), "malformed run"),
        ("none one {}".to_owned(), "missing field"),
        (
            run(&format!(r#""seconds":0,"requests":[1],{times}"#)),
            "no time",
        ),
        (
            run(&format!(r#""seconds":1,"requests":[],{times}"#)),
            "no requests",
        ),
        (
            run(&format!(r#""seconds":1,"requests":[1],{times}"#)).replace("none", "odd"),
            "unknown peer",
        ),
    ] {
        fs::write(dir.join("slow/1/runs"), text).unwrap();
        let error = report(&dir, false).unwrap_err().to_string();
        assert!(error.contains("1/runs") && error.contains(want), "{error}");
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
