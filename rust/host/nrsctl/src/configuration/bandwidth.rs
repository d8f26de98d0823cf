// SPDX-License-Identifier: GPL-2.0-only

//! Conversion of the configuration of `qbm` to tables of a file.

use super::render::{quote, value};

/// Returns the tables of the service at `path` for `text`, as the module shows it.
pub fn render(path: &str, text: &str) -> String {
    let (mut head, mut tables) = (String::new(), String::new());
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let verb = words.next().unwrap_or_default();
        match verb {
            "by" => {
                let by = words.next().unwrap_or_default();
                head.push_str(&format!("by = {}\n", quote(by)));
            }
            "tune" | "default" => {
                let pairs: Vec<String> = words.map(pair).collect();
                head.push_str(&format!("{verb} = {{ {} }}\n", pairs.join(", ")));
            }
            _ => {
                tables.push_str(&format!("\n[[{path}.qbm.{verb}]]\n"));
                let name = words.next().unwrap_or_default();
                tables.push_str(&format!("name = {}\n", quote(name)));
                for word in words {
                    tables.push_str(&format!("{}\n", pair(word)));
                }
            }
        }
    }
    format!("\n[{path}.qbm]\n{head}{tables}")
}

/// Returns `KEY = VALUE` for `KEY=VALUE`.
fn pair(word: &str) -> String {
    let (key, text) = word.split_once('=').unwrap_or((word, ""));
    format!("{key} = {}", value(text))
}

#[cfg(test)]
mod tests {
    use super::super::read::{parse_one, tests::check_refusals};
    use super::*;

    const SERVICE: &str = "[service.s]\npolicy = \"qbm\"\n";

    fn plan(text: &str) -> Result<String, String> {
        let section = parse_one(&format!("{SERVICE}{text}"));
        section.map(|section| section.state.plan)
    }

    #[test]
    fn tables_and_text() {
        let toml = "\
            [service.s.qbm]\nby = \"uid\"\ntune = { slow = \"20s\", headroom = \"5%\" }\n\
            default = { class = \"low_share\", min = \"1%\", max = \"20%\" }\n\
            [[service.s.qbm.group]]\nname = \"data0\"\ncapacity = \"900MB/s\"\n\
            target = \"253:0\"\nreserve_first_come = \"20%\"\n\
            [[service.s.qbm.group]]\nname = \"data1\"\ncapacity = 500000000\nclass = \"fs\"\n\
            min = \"5MB/s\"\n\
            [[service.s.qbm.client]]\nname = 1001\nclass = \"first_come\"\nmin = \"200MB/s\"\n\
            group = \"data0\"\n";
        let want = "\
            by uid\ntune slow=20s headroom=5%\ndefault class=low_share min=1% max=20%\n\
            group data0 capacity=900MB/s target=253:0 reserve_first_come=20%\n\
            group data1 capacity=500MB/s class=fair_share min=5MB/s\n\
            client 1001 class=first_come min=200MB/s group=data0\n";
        let text = plan(toml).unwrap();
        assert_eq!(text, want);
        let back = render("service.s", &text);
        assert_eq!(plan(&back), Ok(text), "{back}");
        assert_eq!(plan("[service.s.qbm]\ndefault = {}\n"), Ok(String::new()));
    }

    /// Texts, each with the beginning of the fault; GROUP and CLIENT stand for two lines each.
    const REFUSED: &str = r#"
qbm = 5
    3:7: service.s.qbm: is a number, not a table
GROUP
    3:1: service.s.qbm.group[0]: capacity is missing
GROUP ; capacity = "9XB"
    5:12: service.s.qbm.group[0].capacity: capacity is not a size such as 500MB/s
GROUP ; capacity = "9MB group b"
    5:12: service.s.qbm.group[0].capacity: has the invalid character ' '
GROUP ; capacity = "9MB" ; clas = "fs"
    6:1: service.s.qbm.group[0].clas: unknown key; did you mean `class`?
GROUP ; capacity = "9MB" ; GROUP ; capacity = "9MB"
    6:1: service.s.qbm.group[1]:
CLIENT
    3:1: service.s.qbm.client[0]: min is missing
CLIENT ; min = "1MB/s" ; group = "b"
    3:1: service.s.qbm.client[0]: no earlier line defines this group
CLIENT ; min = true
    6:7: service.s.qbm.client[0].min:
[service.s.qbm] ; by = "user"
    4:6: service.s.qbm.by: by is not nid, jobid, uid or device
[service.s.qbm] ; by = ""
    4:6: service.s.qbm.by: is empty
[service.s.qbm] ; by = '#'
    4:6: service.s.qbm.by: begins with #
[service.s.qbm] ; tune = { slow = "20" }
    4:17: service.s.qbm.tune.slow: slow is not a time
[service.s.qbm] ; group = { name = "a" }
    4:9: service.s.qbm.group: is a table, not a list of tables: write [[service.s.qbm.group]]
"#;

    #[test]
    fn what_is_refused_is_found() {
        let group = "[[service.s.qbm.group]] ; name = \"a\"";
        let client = "[[service.s.qbm.client]] ; name = \"1.2.3.4@tcp\" ; class = \"fs\"";
        let marks = [("GROUP", group), ("CLIENT", client)];
        check_refusals(SERVICE, REFUSED, &marks);
    }
}
