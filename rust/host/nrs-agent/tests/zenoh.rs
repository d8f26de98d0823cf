// SPDX-License-Identifier: GPL-2.0-only

//! Zenoh sessions on the loopback interface, without scouting.

mod authority;
mod loopback;

use std::{
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use nrs_agent::{
    config::{self, Config},
    transport::{Event, Transport as _},
    zenoh::Zenoh,
};

use authority::certify;
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
    config::parse(&text, "").unwrap()
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
fn servers_hear_each_other_over_tcp() {
    let servers = [("a", address()), ("b", address())];
    let mut a = Zenoh::open(&config("a", &servers, None)).unwrap();
    let mut b = Zenoh::open(&config("b", &servers, None)).unwrap();
    let joined = Event::Joined {
        server: "b".into(),
        group: "all".into(),
    };
    assert!(wait(&mut a, &joined));
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
    let parted = Event::Parted {
        server: "b".into(),
        group: "all".into(),
    };
    assert!(wait(&mut a, &parted));
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
