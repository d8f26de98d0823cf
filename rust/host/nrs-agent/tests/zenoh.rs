// SPDX-License-Identifier: GPL-2.0-only

//! Zenoh sessions on the loopback interface, without scouting.

mod authority;
mod loopback;

use std::{
    collections::BTreeSet,
    fs,
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use ::zenoh::{Session, Wait as _};

use nrs_agent::{
    config::{self, Config},
    transport::{Event, Transport as _},
    zenoh::Zenoh,
};

use authority::{certify, sign};
use loopback::address;

/// Maximum time for a connection.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time for which datagrams must not arrive.
const LITTLE: Duration = Duration::from_secs(1);

/// Returns the configuration of the server `name` among `servers`, with certificates in `room` if
/// TLS is used.
fn config(name: &str, servers: &[(&str, SocketAddr)], room: Option<&Path>) -> Config {
    let listen = servers
        .iter()
        .find(|(server, _)| *server == name)
        .unwrap()
        .1;
    let mut text =
        format!("realm = \"r\"\nserver = \"{name}\"\nsecret = \"/s\"\nlisten = \"{listen}\"\n");
    text += &match room {
        None => "transport = \"tcp\"\n".into(),
        Some(room) => {
            let room = room.display();
            format!(
                "ca = \"{room}/ca.pem\"\ncertificate = \"{room}/{name}.pem\"\n\
                 key = \"{room}/{name}.key\"\n"
            )
        }
    };
    text += "[servers]\n";
    for (server, address) in servers {
        text += &format!("{server} = \"{address}\"\n");
    }
    text += "[service.svc]\ngroup = \"all\"\n[service.other]\n";
    config::parse("f", &text, "").unwrap()
}

/// Sends `bytes` from `from` until `to` receives a datagram with these bytes; returns the sender.
fn carried(from: &mut Zenoh, to: &mut Zenoh, bytes: &[u8], patience: Duration) -> Option<String> {
    let since = Instant::now();
    while since.elapsed() < patience {
        from.send("all", bytes);
        let wait = Instant::now();
        while wait.elapsed() < Duration::from_millis(50) {
            match to.receive(Duration::from_millis(50)) {
                Some(Event::Datagram {
                    server,
                    group,
                    bytes: got,
                }) if got == bytes => {
                    assert_eq!(group, "all");
                    return Some(server);
                }
                _ => {}
            }
        }
    }
    None
}

/// Returns the presence of `server` in the group of all servers.
fn presence(server: &str, joined: bool) -> Event {
    let (server, group) = (server.into(), "all".into());
    match joined {
        true => Event::Joined { server, group },
        false => Event::Parted { server, group },
    }
}

/// Opens a router with the configuration `text`, as zenohd(8) does.
fn router(text: &str) -> Session {
    let config = ::zenoh::Config::from_json5(text).unwrap();
    ::zenoh::open(config).wait().unwrap()
}

/// Waits for the event `wanted`; returns false after a timeout.
fn wait(zenoh: &mut Zenoh, wanted: &Event) -> bool {
    let since = Instant::now();
    while since.elapsed() < PATIENCE {
        if zenoh.receive(Duration::from_millis(100)).as_ref() == Some(wanted) {
            return true;
        }
    }
    false
}

#[test]
fn servers_exchange_datagrams_over_tcp() {
    let servers = [("a", address()), ("b", address())];
    let mut a = Zenoh::open(&config("a", &servers, None)).unwrap();
    let mut b = Zenoh::open(&config("b", &servers, None)).unwrap();
    assert!(wait(&mut a, &presence("b", true)));
    assert_eq!(
        carried(&mut a, &mut b, b"one", PATIENCE).as_deref(),
        Some("a")
    );
    assert_eq!(
        carried(&mut b, &mut a, b"two", PATIENCE).as_deref(),
        Some("b")
    );
    // A message of many datagrams arrives completely if the connection is idle.
    let large: Vec<Vec<u8>> = (0..17u8).map(|number| vec![number; 16_384]).collect();
    for bytes in &large {
        a.send("all", bytes);
    }
    let mut got = Vec::new();
    while let Some(event) = b.receive(Duration::from_secs(1)) {
        if let Event::Datagram { bytes, .. } = event {
            got.extend((bytes.len() > 1000).then_some(bytes));
        }
    }
    assert_eq!(got.len(), large.len());
    assert_eq!((a.dropped(), b.dropped()), (0, 0));
    // Larger datagrams are dropped, and the connection stays open.
    let huge = vec![1; 1 << 20];
    assert_eq!(carried(&mut a, &mut b, &huge, LITTLE), None);
    assert_eq!(b.dropped(), 0);
    assert_eq!(carried(&mut a, &mut b, &huge[..16_385], LITTLE), None);
    assert!(b.dropped() > 0);
    assert_eq!(
        carried(&mut a, &mut b, b"six", PATIENCE).as_deref(),
        Some("a")
    );
    // An address in use is refused.
    assert!(Zenoh::open(&config("a", &servers, None)).is_err());
    b.close();
    assert!(wait(&mut a, &presence("b", false)));
    a.close();
}

#[test]
fn with_tls_a_server_speaks_only_for_itself() {
    let room = tempfile::tempdir().unwrap();
    let all = ["a", "b", "liar", "0stranger"].map(|name| (name, address()));
    certify(room.path(), &all);
    let [servers @ .., stranger] = all;
    let mut a = Zenoh::open(&config("a", &servers, Some(room.path()))).unwrap();
    let mut b = Zenoh::open(&config("b", &servers, Some(room.path()))).unwrap();
    assert_eq!(
        carried(&mut a, &mut b, b"one", PATIENCE).as_deref(),
        Some("a")
    );
    assert_eq!(
        carried(&mut b, &mut a, b"two", PATIENCE).as_deref(),
        Some("b")
    );
    b.close();
    // A server with a certificate of its own that claims to be b.
    let mut lies = config("b", &servers, Some(room.path()));
    lies.certificate = room.path().join("liar.pem");
    lies.key = room.path().join("liar.key");
    let mut liar = Zenoh::open(&lies).unwrap();
    // The server receives like the others, but its datagrams are dropped.
    assert_eq!(
        carried(&mut a, &mut liar, b"six", PATIENCE).as_deref(),
        Some("a")
    );
    assert_eq!(
        carried(&mut liar, &mut a, b"lie", Duration::from_secs(2)),
        None
    );
    liar.close();
    // A server with a certificate of the authority that is not listed receives nothing. It connects
    // to a.
    let more = [servers[0], stranger];
    let mut stranger = Zenoh::open(&config("0stranger", &more, Some(room.path()))).unwrap();
    assert_eq!(
        carried(&mut a, &mut stranger, b"ten", Duration::from_secs(2)),
        None
    );
    assert_eq!(
        carried(&mut stranger, &mut a, b"hey", Duration::from_secs(2)),
        None
    );
    stranger.close();
    a.close();
}

#[test]
fn servers_meet_at_a_router() {
    let room = tempfile::tempdir().unwrap();
    let all = ["oss1", "oss2", "oss3", "router"].map(|name| (name, address()));
    certify(room.path(), &all);
    let [servers @ .., (_, meeting)] = all;
    let configured = |name| {
        let mut config = config(name, &servers, Some(room.path()));
        // oss1 connects to oss3, and does not reach it.
        if name == "oss1" {
            config.servers.insert("oss3".into(), address().to_string());
        }
        config.routers.insert("router".into(), meeting.to_string());
        config
    };
    let directory = room.path().to_str().unwrap();
    let text = include_str!("../../../../Documentation/examples/router.json5")
        .replace("[::]:7447", &meeting.to_string())
        .replace("/scratch/", "/r/")
        .replace("/etc/nrs/agent/server", &format!("{directory}/router"))
        .replace("/etc/nrs/agent", directory);
    // The agents start without the router.
    let [mut one, mut two, mut three] =
        ["oss1", "oss2", "oss3"].map(|name| Zenoh::open(&configured(name)).unwrap());
    assert!(wait(&mut one, &presence("oss2", true)));
    for _ in 0..2 {
        let meeting = router(&text);
        assert!(wait(&mut one, &presence("oss3", true)));
        let sender = carried(&mut one, &mut three, b"one", PATIENCE);
        assert_eq!(sender.as_deref(), Some("oss1"));
        let sender = carried(&mut three, &mut one, b"three", PATIENCE);
        assert_eq!(sender.as_deref(), Some("oss3"));
        let sender = carried(&mut two, &mut three, b"two", PATIENCE);
        assert_eq!(sender.as_deref(), Some("oss2"));
        meeting.close().wait().unwrap();
        // oss2 is still connected directly.
        let mut events = Vec::new();
        while !events.contains(&presence("oss3", false)) {
            events.push(one.receive(PATIENCE).expect("oss3 parts"));
        }
        events.extend(std::iter::from_fn(|| one.receive(LITTLE)));
        assert!(!events.contains(&presence("oss2", false)), "{events:?}");
    }
    // The router does not forward what a server sends in the name of another server.
    two.close();
    three.close();
    let mut lies = configured("oss3");
    lies.certificate = room.path().join("oss2.pem");
    lies.key = room.path().join("oss2.key");
    let mut liar = Zenoh::open(&lies).unwrap();
    let meeting = router(&text);
    let sender = carried(&mut one, &mut liar, b"one", PATIENCE);
    assert_eq!(sender.as_deref(), Some("oss1"));
    assert_eq!(carried(&mut liar, &mut one, b"lie", 2 * LITTLE), None);
    liar.close();
    one.close();
    meeting.close().wait().unwrap();
}

#[test]
fn connected_routers_return_nothing() {
    let [x, y] = [address(), address()];
    let text = |at: SocketAddr, other: &str| {
        format!(
            "{{ mode: \"router\", listen: {{ endpoints: [\"tcp/{at}\"] }}, \
             connect: {{ endpoints: [{other}] }}, \
             scouting: {{ multicast: {{ enabled: false }} }} }}"
        )
    };
    let first = router(&text(x, ""));
    let second = router(&text(y, &format!("\"tcp/{x}\"")));
    let open = |name: &str, routers: &[SocketAddr]| {
        let mut config = config(name, &[(name, address())], None);
        for at in routers {
            config.routers.insert(at.to_string(), at.to_string());
        }
        Zenoh::open(&config).unwrap()
    };
    let (mut a, mut b, mut c) = (open("a", &[x, y]), open("b", &[x]), open("c", &[y]));
    let sender = carried(&mut b, &mut c, b"far", PATIENCE);
    assert_eq!(sender.as_deref(), Some("b"));
    for to in [&mut b, &mut c] {
        let sender = carried(&mut a, to, b"near", PATIENCE);
        assert_eq!(sender.as_deref(), Some("a"));
    }
    let heard = |a: &mut Zenoh| {
        let mut heard = BTreeSet::new();
        while let Some(event) = a.receive(LITTLE) {
            if let Event::Datagram { server, .. } = event {
                heard.insert(server);
            }
        }
        heard
    };
    assert!(!heard(&mut a).contains("a"));
    // Another server with the same name is heard.
    let mut other = open("a", &[y]);
    let sender = carried(&mut other, &mut a, b"other", PATIENCE);
    assert_eq!(sender.as_deref(), Some("a"));
    for zenoh in [a, b, c, other] {
        zenoh.close();
    }
    for router in [first, second] {
        router.close().wait().unwrap();
    }
}

#[test]
fn wrong_certificates_are_refused() {
    let room = tempfile::tempdir().unwrap();
    // Servers with lower names connect to the server m; m connects to the others.
    let kinds = ["good", "foreign", "expired", "early", "renamed"];
    let names: Vec<String> = ["a", "z"]
        .iter()
        .flat_map(|side| kinds.map(|kind| format!("{side}-{kind}")))
        .collect();
    let mut servers = vec![("m", address())];
    servers.extend(names.iter().map(|name| (&**name, address())));
    certify(room.path(), &servers);
    let other = room.path().join("other");
    fs::create_dir(&other).unwrap();
    certify(&other, &servers);
    for (name, at) in &servers {
        let own = format!("IP:{}", at.ip());
        let (names, when) = match name.split('-').nth(1) {
            Some("expired") => (
                &*own,
                "-not_before 20250101000000Z -not_after 20250102000000Z",
            ),
            Some("early") => (
                &*own,
                "-not_before 20990101000000Z -not_after 20990102000000Z",
            ),
            Some("renamed") => ("IP:127.0.0.1", "-days 2"),
            _ => continue,
        };
        sign(room.path(), name, names, when);
    }
    let open = |name: &str| {
        let mut config = config(name, &servers, Some(room.path()));
        // Each server connects to m only, or m to the server.
        config
            .servers
            .retain(|other, _| name == "m" || other == "m");
        if name.ends_with("-foreign") {
            config.certificate = other.join(format!("{name}.pem"));
            config.key = other.join(format!("{name}.key"));
        }
        Zenoh::open(&config).unwrap()
    };
    let (connecting, listening) = names.split_at(kinds.len());
    let mut all: Vec<Zenoh> = listening.iter().map(|name| open(name)).collect();
    let mut m = open("m");
    all.extend(connecting.iter().map(|name| open(name)));
    let good = BTreeSet::from(["a-good", "z-good", "a-renamed"].map(String::from));
    let mut heard = BTreeSet::new();
    let mut reached = Vec::new();
    let mut since = Instant::now();
    let started = since;
    while since.elapsed() < 2 * LITTLE {
        m.send("all", b"m");
        for (name, one) in listening.iter().chain(connecting).zip(&mut all) {
            one.send("all", name.as_bytes());
            while let Some(event) = one.receive(Duration::ZERO) {
                reached.extend(matches!(event, Event::Datagram { .. }).then(|| name.clone()));
            }
        }
        while let Some(event) = m.receive(Duration::from_millis(20)) {
            if let Event::Datagram { server, .. } = event {
                heard.insert(server);
            }
        }
        // The time without others starts when all good servers were heard.
        if !heard.is_superset(&good) {
            since = Instant::now();
        }
        assert!(started.elapsed() < 2 * PATIENCE, "{heard:?}");
    }
    assert_eq!(heard, good);
    assert_eq!(reached.into_iter().collect::<BTreeSet<_>>(), good);
}
