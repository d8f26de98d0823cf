// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use std::os::unix::fs::PermissionsExt as _;

/// Smallest valid file.
const SMALL: &str = "realm = \"r\"\nsecret = \"/s\"\ntransport = \"tcp\"\n[service.ost_io]\n";

const WHOLE: &str = r#"
realm = "scratch"
server = "oss2"
secret = "/etc/nrs/agent.secret"
delta_ms = 200
hold = 8
lease = 40
entities_max = 100
servers_max = 7
grain = 64
listen = "10.0.0.2:7447"
ca = "/etc/nrs/agent/ca.pem"
certificate = "/etc/nrs/agent/oss2.pem"
key = "/etc/nrs/agent/oss2.key"
verify_names = false

[servers]
oss1 = "oss1.example:7447"
oss2 = "[fe80::2]:7447"

[routers]
r1 = "10.0.0.9:7447"

[service]
mdt = { group = "meta" }

[service.ost_io]
"#;

fn lines(faults: Vec<Fault>) -> String {
    let line = |fault: &Fault| fault.to_string().replacen("f:", "", 1);
    faults.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn mistakes(text: &str) -> String {
    lines(parse("f", text, "host").err().unwrap_or_default())
}

#[test]
fn every_key_is_taken() {
    let config = parse("f", WHOLE, "host").unwrap_or_else(|all| panic!("{all:?}"));
    let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect()
    };
    let want = Config {
        realm: "scratch".into(),
        server: "oss2".into(),
        secret: "/etc/nrs/agent.secret".into(),
        delta_ms: 200,
        hold: 8,
        lease: 40,
        entities_max: 100,
        servers_max: 7,
        grain: 64,
        transport: Protocol::Tls,
        listen: "10.0.0.2:7447".into(),
        ca: "/etc/nrs/agent/ca.pem".into(),
        certificate: "/etc/nrs/agent/oss2.pem".into(),
        key: "/etc/nrs/agent/oss2.key".into(),
        verify_names: false,
        servers: map(&[("oss1", "oss1.example:7447"), ("oss2", "[fe80::2]:7447")]),
        routers: map(&[("r1", "10.0.0.9:7447")]),
        services: map(&[("mdt", "meta"), ("ost_io", "ost_io")]),
        file: "f".into(),
        places: config.places.clone(),
    };
    assert_eq!(config, want);
    let terms = config.terms(5);
    assert_eq!(
        (terms.realm, terms.delta_ns, terms.hold),
        (5, 200_000_000, 8)
    );
    // Every key of the table is in this file.
    for key in KEYS
        .iter()
        .filter(|key| key.table == Top && key.name != "transport")
    {
        assert!(config.places.contains_key(key.name), "{}", key.name);
    }
}

#[test]
fn defaults_are_those_of_the_reference() {
    let config = parse("f", SMALL, "host.example").unwrap();
    let plain = Config::default();
    assert_eq!(config.server, "host.example");
    assert_eq!(
        (config.delta_ms, config.lease),
        (plain.delta_ms, plain.lease)
    );
    for (name, value) in [
        ("delta_ms", plain.delta_ms.to_string()),
        ("hold", plain.hold.to_string()),
        ("lease", plain.lease.to_string()),
        ("entities_max", plain.entities_max.to_string()),
        ("servers_max", plain.servers_max.to_string()),
        ("grain", plain.grain.to_string()),
        ("transport", format!("`{}`", plain.transport.name())),
        ("listen", format!("`{}`", plain.listen)),
        ("verify_names", format!("`{}`", plain.verify_names)),
    ] {
        let key = KEYS.iter().find(|key| key.name == name).unwrap();
        assert_eq!(key.default, value, "{name}");
    }
}

/// Wrong first lines of a file, each with the only fault.
const REFUSED: &str = r#"
realm = "a b"
    1:9: realm: invalid name: expected 1 to 63 letters, digits and _ - .
realm = 1
    1:9: realm: expected a string, found integer
server = "*"
    1:10: server: invalid name: expected 1 to 63 letters, digits and _ - .
secret = "s"
    1:10: secret: expected an absolute path
delta_ms = 49
    1:12: delta_ms: expected a number from 50 to 500
delta_ms = 501
    1:12: delta_ms: expected a number from 50 to 500
delta_ms = "1s"
    1:12: delta_ms: expected a number, found string
lease = -1
    1:9: lease: expected a number from 8 to 120
entities_max = 16385
    1:16: entities_max: expected a number from 1 to 16384
transport = "udp"
    1:13: transport: expected tls or tcp
verify_names = 1
    1:16: verify_names: expected true or false, found integer
listen = "7447"
    1:10: listen: expected HOST:PORT, such as oss1:7447, 10.0.0.1:7447 or [fe80::1]:7447
listen = "a/b:7"
    1:10: listen: expected HOST:PORT, such as oss1:7447, 10.0.0.1:7447 or [fe80::1]:7447
listen = "a:0"
    1:10: listen: expected HOST:PORT, such as oss1:7447, 10.0.0.1:7447 or [fe80::1]:7447
relam = "r"
    1:9: relam: unknown key
servers = 1
    1:11: servers: expected a table, found integer
servers = { "a/b" = "h:1" }
    1:21: servers.a/b: invalid name: expected 1 to 63 letters, digits and _ - .
routers = { r = 1 }
    1:17: routers.r: expected a string, found integer
"#;

#[test]
fn each_refusal_is_one_line() {
    let cases: Vec<&str> = REFUSED.trim().lines().collect();
    for case in cases.chunks(2) {
        let (line, want) = (case[0], case[1].trim());
        let name = line.split(' ').next().unwrap();
        let others = SMALL.lines().filter(|other| !other.starts_with(name));
        let text = format!("{line}\n{}\n", others.collect::<Vec<_>>().join("\n"));
        assert_eq!(mistakes(&text), want, "{line}");
    }
}

#[test]
fn what_all_keys_together_lack() {
    let want = "1:1: realm: missing\n1:1: secret: missing\n\
        1:1: service: missing; add a table [service.NAME] for each service\n\
        1:1: ca: missing; required with transport = \"tls\"\n\
        1:1: certificate: missing; required with transport = \"tls\"\n\
        1:1: key: missing; required with transport = \"tls\"\n\
        1:1: servers: missing; with transport = \"tls\" datagrams of unlisted servers are dropped";
    assert_eq!(mistakes(""), want);
    assert!(mistakes("a = \n").starts_with("1:5: "));
    let both = format!("{SMALL}[servers]\nr = \"h:1\"\n[routers]\nr = \"i:1\"\n");
    assert_eq!(
        mistakes(&both),
        "8:5: routers.r: name already used in [servers]"
    );
    let service = format!("{SMALL}[service.\".x\"]\n");
    assert!(
        mistakes(&service).starts_with("5:1: service..x: invalid name"),
        "{}",
        mistakes(&service)
    );
    let group = format!("{SMALL}group = \"\"\npolicy = \"fifo\"\n");
    let want = "5:9: service.ost_io.group: invalid name: \
                expected 1 to 31 letters, digits and _ - . :, not starting with a dot\n\
                6:10: service.ost_io.policy: unknown key";
    assert_eq!(mistakes(&group), want);
    let twice = format!("{SMALL}[service.other]\ngroup = \"ost_io\"\n");
    let want = "5:1: service.other: group ost_io already contains service ost_io \
                (limit: one per group and server)";
    assert!(
        mistakes(&twice).ends_with(&want[4..]),
        "{}",
        mistakes(&twice)
    );
    let unnamed = parse("f", SMALL, "-/-").unwrap_err();
    assert!(
        unnamed[0].reason.contains("the host name '-/-'"),
        "{unnamed:?}"
    );
}

#[test]
fn files_have_to_be_there_and_private() {
    let room = tempfile::tempdir().unwrap();
    let file = |name: &str, mode| {
        let path = room.path().join(name);
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.display().to_string()
    };
    let (secret, key) = (file("secret", 0o600), file("key", 0o640));
    let text = format!(
        "realm = \"r\"\nsecret = \"{secret}\"\nca = \"/nowhere\"\ncertificate = \"/\"\n\
         key = \"{key}\"\n\
         [servers]\na = \"a:1\"\n[service.x]\n"
    );
    let found = lines(check_files(&parse("f", &text, "a").unwrap()));
    let found: Vec<&str> = found.lines().collect();
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(
        found[0].starts_with("3:6: ca: /nowhere: No such file"),
        "{found:?}"
    );
    assert_eq!(found[1], "4:15: certificate: /: not a regular file");
    assert!(found[2].contains("key: file accessible to"), "{found:?}");
    assert!(found[2].starts_with("5:7: key: "), "{found:?}");
}

#[test]
fn the_table_is_whole() {
    assert_eq!(TomlKey::wrong(&KEYS), None);
    assert!(reference().contains("\n| `delta_ms` | 50 to 500 | 100 | time"));
}
