// SPDX-License-Identifier: GPL-2.0-only

//! Zenoh as a transport: servers connect to each other directly, and meet at routers.
//!
//! A server publishes its datagrams with the key `nrs/1/REALM/SERVER/GROUP` and congestion control
//! `Drop`. A liveliness token with the same key indicates that the server participates.
//!
//! # Sessions
//!
//! A session of mode `peer` connects to the other servers. A session of mode `client` connects to
//! each router: zenoh's routers forward between clients, but not between peers. A datagram goes to
//! all sessions, and receivers drop duplicates. Routers that are connected with each other return
//! the datagrams of a server to its other sessions; an attachment tells these from datagrams of
//! another server with the same name.
//!
//! # Access control
//!
//! With TLS both sides of a connection have certificates of the realm's authority. Zenoh's access
//! control denies everything by default. A peer whose certificate has the common name SERVER may
//! put keys `nrs/1/REALM/SERVER/**`. Listed servers and routers may subscribe. Each agent checks
//! incoming messages. A router may forward keys of any server, so its own access control must keep
//! servers apart. With TCP nothing is checked.

use std::{
    collections::BTreeMap,
    sync::{
        mpsc::{self, Receiver},
        Arc,
    },
    thread,
    time::Duration,
};

use ::zenoh::{
    bytes::ZBytes,
    liveliness::LivelinessToken,
    pubsub::{Publisher, Subscriber},
    qos::CongestionControl,
    sample::{Locality, Sample, SampleKind},
    Session, Wait as _,
};
use serde_json::{json, Value};

use crate::{
    config::{check_name, Config, Protocol, DATAGRAM_MAX},
    inbox::Inbox,
    transport::{Event, Transport},
};

/// Log filter unless `RUST_LOG` is set; it suppresses messages that a peer can trigger repeatedly.
pub const LOG: &str = "warn,zenoh_link_tls=error,zenoh_transport::unicast=off,\
    zenoh::net::routing=off,zenoh::net::protocol=off";

/// Maximum size of a reassembled zenoh message, bytes; larger ones are dropped.
const MESSAGE_MAX: usize = 65_536;

/// Number of sessions in addition to those of listed servers.
const SESSIONS: usize = 8;

/// Timeout of the TLS handshake of an incoming connection, ms.
const HANDSHAKE_MS: u64 = 2000;

/// Maximum time for which a declaration waits for room in the queue of a connection, µs; then the
/// connection is closed.
const BLOCK_US: u64 = 200_000;

/// Number of queued batches of 64 KiB per connection; more are dropped.
const BATCHES: usize = 16;

/// Time to send the last datagrams before the session is closed.
const DRAIN: Duration = Duration::from_millis(100);

/// Zenoh messages of subscribers.
const HEARS: [&str; 3] = [
    "declare_subscriber",
    "declare_liveliness_subscriber",
    "liveliness_query",
];

/// Zenoh messages of publishers.
const SPEAKS: [&str; 2] = ["put", "liveliness_token"];

/// Open session with its declarations.
struct DeclaredSession {
    session: Session,
    /// Publishers, by group.
    publishers: BTreeMap<String, Publisher<'static>>,
    /// Subscribers and tokens, undeclared when they are dropped.
    _declared: Vec<(Subscriber<()>, Subscriber<()>, LivelinessToken)>,
}

/// Open sessions of a server.
pub struct Zenoh {
    /// Session with other servers, and sessions with routers.
    sessions: Vec<DeclaredSession>,
    /// Sessions with routers that are not among `sessions` yet.
    reached: Receiver<DeclaredSession>,
    inbox: Arc<Inbox>,
    /// Attachment of datagrams of this agent.
    own: [u8; 16],
}

/// Remote side of a session.
#[derive(Clone, Copy)]
enum Remote<'a> {
    /// All other servers.
    Servers,
    /// The router with this name.
    Router(&'a str),
}

impl Remote<'_> {
    /// Returns names and addresses.
    fn addresses(self, config: &Config) -> Vec<(&String, &String)> {
        let servers = config.servers.iter();
        match self {
            Self::Servers => servers
                .filter(|(name, _)| **name != config.server)
                .collect(),
            Self::Router(name) => config.routers.get_key_value(name).into_iter().collect(),
        }
    }
}

/// Returns the configuration of the session with `remote`.
fn settings(config: &Config, remote: Remote<'_>) -> Value {
    let protocol = config.transport.name();
    let endpoint = |address: &str| format!("{protocol}/{address}");
    let mut listen = endpoint(&config.listen);
    if config.transport == Protocol::Tls {
        listen += &format!("#tls_handshake_timeout_ms={HANDSHAKE_MS}");
    }
    let mut addresses = remote.addresses(config);
    let (mode, listen) = match remote {
        Remote::Servers => ("peer", vec![listen]),
        Remote::Router(_) => ("client", Vec::new()),
    };
    if let Remote::Servers = remote {
        // Of each pair of servers, the one with the lower name connects.
        addresses.retain(|(name, _)| **name > config.server);
    }
    let connect = addresses.iter().map(|(_, address)| endpoint(address));
    let connect: Vec<String> = connect.collect();
    let block = json!({ "wait_before_close": BLOCK_US });
    let mut link = json!({
        "protocols": [protocol],
        "tx": { "queue": { "size": sizes(), "congestion_control": { "block": block } } },
        "rx": { "max_message_size": MESSAGE_MAX },
    });
    // Servers advertise numeric addresses, which may be missing in certificates.
    let gossip = config.transport == Protocol::Tcp || !config.verify_names;
    let mut settings = json!({
        "mode": mode,
        "listen": { "endpoints": listen },
        // A connection is retried without limit.
        "connect": { "endpoints": connect, "timeout_ms": -1 },
        "scouting": {
            "multicast": { "enabled": false },
            "gossip": { "enabled": gossip },
        },
    });
    if config.transport == Protocol::Tls {
        link["tls"] = json!({
            "root_ca_certificate": config.ca,
            "listen_certificate": config.certificate,
            "listen_private_key": config.key,
            "connect_certificate": config.certificate,
            "connect_private_key": config.key,
            "enable_mtls": true,
            "verify_name_on_connect": config.verify_names,
            "close_link_on_expiration": true,
        });
        settings["access_control"] = access(config, remote);
    }
    settings["transport"] = json!({
        "unicast": { "max_sessions": sessions(config) },
        "link": link,
    });
    settings
}

/// Returns the maximum number of sessions. A restarted server can have two sessions for some
/// seconds.
fn sessions(config: &Config) -> usize {
    let listed = config.servers.len();
    let servers = match config.transport {
        Protocol::Tls => listed,
        // Servers that are not listed can connect as well.
        Protocol::Tcp => listed.max(config.servers_max as usize),
    };
    2 * servers + SESSIONS
}

/// Returns the queue sizes of a connection, by priority.
fn sizes() -> Value {
    let data = ("data", BATCHES);
    let others = [
        "control",
        "real_time",
        "interactive_high",
        "interactive_low",
        "data_high",
        "data_low",
        "background",
    ];
    let others = others.map(|name| (name, 2));
    let all = others.into_iter().chain([data]);
    all.map(|(name, size)| (name.to_owned(), json!(size)))
        .collect()
}

/// Returns the rules of access control for the session with `remote`.
fn access(config: &Config, remote: Remote<'_>) -> Value {
    let all = format!("nrs/1/{}/**", config.realm);
    let rule = |id: &str, flow: &str, messages: &[&str], key: &str| {
        json!({
            "id": id,
            "permission": "allow",
            "flows": [flow],
            "messages": messages,
            "key_exprs": [key],
        })
    };
    let mut rules = vec![
        rule("subscribe", "ingress", &HEARS, &all),
        rule(
            "send to subscribers",
            "egress",
            &[&HEARS[..], &SPEAKS].concat(),
            &all,
        ),
    ];
    let (mut subjects, mut policies) = (Vec::new(), Vec::new());
    for (name, _) in remote.addresses(config) {
        let own = format!("publish by {name}");
        let keys = match remote {
            Remote::Servers => format!("nrs/1/{}/{name}/**", config.realm),
            Remote::Router(_) => all.clone(),
        };
        rules.push(rule(&own, "ingress", &SPEAKS, &keys));
        subjects.push(json!({ "id": name, "cert_common_names": [name] }));
        let rules = ["subscribe", "send to subscribers", own.as_str()];
        policies.push(json!({ "rules": rules, "subjects": [name] }));
    }
    json!({
        "enabled": true,
        "default_permission": "deny",
        "rules": rules,
        "subjects": subjects,
        "policies": policies,
    })
}

/// Returns server and group of a key of the realm.
fn parse_key(key: &str) -> Option<(String, String)> {
    let parts: Vec<&str> = key.split('/').collect();
    match parts[..] {
        ["nrs", "1", _, server, group] if check_name(server).is_ok() => {
            Some((server.into(), group.into()))
        }
        _ => None,
    }
}

/// Queues the samples of a session.
#[derive(Clone)]
struct Listener {
    inbox: Arc<Inbox>,
    /// Number of the session.
    session: usize,
    /// Attachment of datagrams of this agent.
    own: [u8; 16],
}

impl Listener {
    /// Queues a received datagram, unless a router returned it. A datagram that is too large is not
    /// copied.
    fn datagram(&self, sample: &Sample) {
        let own = |bytes: &ZBytes| bytes.len() == 16 && *bytes.to_bytes() == self.own;
        if sample.attachment().is_some_and(own) {
            return;
        }
        let key = parse_key(sample.key_expr().as_str());
        if let (Some((server, group)), SampleKind::Put) = (key, sample.kind()) {
            let payload = sample.payload();
            match payload.len() <= DATAGRAM_MAX as usize {
                true => {
                    let bytes = payload.to_bytes().into_owned();
                    self.inbox.datagram(server, group, bytes);
                }
                false => self.inbox.refuse(),
            }
        }
    }

    /// Queues a change of presence.
    fn presence(&self, sample: &Sample) {
        if let Some((server, group)) = parse_key(sample.key_expr().as_str()) {
            let joined = sample.kind() == SampleKind::Put;
            self.inbox.presence(self.session, server, group, joined);
        }
    }
}

impl DeclaredSession {
    /// Declares the groups of `config` in a session, which `listener` receives.
    fn new(session: Session, config: &Config, listener: &Listener) -> ::zenoh::Result<Self> {
        let mut publishers = BTreeMap::new();
        let mut declared = Vec::new();
        for group in config.services.values() {
            if publishers.contains_key(group) {
                continue;
            }
            let key = |server: &str| format!("nrs/1/{}/{server}/{group}", config.realm);
            let heard = listener.clone();
            let datagrams = session.declare_subscriber(key("*"));
            let datagrams = datagrams.allowed_origin(Locality::Remote);
            let datagrams = datagrams.callback(move |sample| heard.datagram(&sample));
            let seen = listener.clone();
            let presence = session.liveliness().declare_subscriber(key("*"));
            let presence = presence.history(true);
            let presence = presence.callback(move |sample| seen.presence(&sample));
            let token = session.liveliness().declare_token(key(&config.server));
            declared.push((datagrams.wait()?, presence.wait()?, token.wait()?));
            let publisher = session.declare_publisher(key(&config.server));
            let publisher = publisher.congestion_control(CongestionControl::Drop);
            let publisher = publisher.allowed_destination(Locality::Remote).wait()?;
            publishers.insert(group.clone(), publisher);
        }
        Ok(Self {
            session,
            publishers,
            _declared: declared,
        })
    }
}

/// Opens the session with `remote`; waits until a router is reached.
fn open(config: &Config, remote: Remote<'_>) -> ::zenoh::Result<Session> {
    let settings = settings(config, remote).to_string();
    ::zenoh::open(::zenoh::Config::from_json5(&settings)?).wait()
}

impl Zenoh {
    /// Opens the sessions for the groups of `config`. A session with a router is opened when the
    /// router is reached.
    ///
    /// # Errors
    ///
    /// The error of zenoh: the address is in use, or a certificate cannot be used.
    pub fn open(config: &Config) -> ::zenoh::Result<Self> {
        // This server is a sender, too.
        let servers = config.servers.len().max(config.servers_max as usize) + 1;
        let session = open(config, Remote::Servers)?;
        let mut listener = Listener {
            inbox: Arc::new(Inbox::new(servers * config.services.len())),
            session: 0,
            own: session.zid().to_le_bytes(),
        };
        let first = DeclaredSession::new(session, config, &listener)?;
        let (reach, reached) = mpsc::channel();
        for router in config.routers.keys() {
            listener.session += 1;
            let (listener, reach) = (listener.clone(), reach.clone());
            let (config, router) = (config.clone(), router.clone());
            thread::spawn(move || {
                let session = open(&config, Remote::Router(&router));
                match session.and_then(|session| DeclaredSession::new(session, &config, &listener))
                {
                    // If the agent has ended, the session is closed.
                    Ok(declared) => drop(reach.send(declared)),
                    Err(error) => eprintln!("nrs-agent: router {router}: {error}"),
                }
            });
        }
        Ok(Self {
            sessions: vec![first],
            reached,
            inbox: listener.inbox,
            own: listener.own,
        })
    }

    /// Closes the sessions, after a delay for the last datagrams.
    pub fn close(mut self) {
        thread::sleep(DRAIN);
        self.sessions.extend(self.reached.try_iter());
        for declared in self.sessions {
            // An error of closing is ignored, because the agent ends anyway.
            let _ = declared.session.close().wait();
        }
    }
}

impl Transport for Zenoh {
    fn send(&mut self, group: &str, bytes: &[u8]) {
        self.sessions.extend(self.reached.try_iter());
        let publishers = self.sessions.iter().map(|declared| &declared.publishers);
        for publisher in publishers.filter_map(|publishers| publishers.get(group)) {
            // Datagrams that cannot be sent are dropped.
            let put = publisher.put(ZBytes::from(bytes)).attachment(&self.own[..]);
            let _ = put.wait();
        }
    }

    fn receive(&mut self, timeout: Duration) -> Option<Event> {
        self.inbox.receive(timeout)
    }

    fn dropped(&self) -> u64 {
        self.inbox.dropped()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_name_servers_and_groups() {
        let key = parse_key("nrs/1/r/oss1/ost_io");
        assert_eq!(key, Some(("oss1".into(), "ost_io".into())));
        for other in [
            "nrs/1/r/oss1",
            "nrs/2/r/a/b",
            "nrs/1/r/a/b/c",
            "nrs/1/r/a\nb/c",
            "",
        ] {
            assert_eq!(parse_key(other), None, "{other}");
        }
    }

    #[test]
    fn zenoh_takes_the_settings() {
        let text = "realm = \"r\"\nserver = \"b\"\nsecret = \"/s\"\nca = \"/c\"\n\
                    certificate = \"/d\"\n\
            key = \"/e\"\n[servers]\na = \"a:1\"\nb = \"b:2\"\nc = \"c:3\"\n[routers]\n\
            x = \"x:4\"\n\
            [service.s]\n";
        let config = crate::config::parse("f", text, "").unwrap();
        let all = settings(&config, Remote::Servers);
        ::zenoh::Config::from_json5(&all.to_string()).unwrap();
        assert_eq!(all["connect"]["endpoints"], json!(["tls/c:3"]));
        let listen = json!(["tls/[::]:7447#tls_handshake_timeout_ms=2000"]);
        assert_eq!(all["listen"]["endpoints"], listen);
        let transport = &all["transport"];
        assert_eq!(transport["unicast"]["max_sessions"], 2 * 3 + 8);
        let link = &transport["link"];
        assert_eq!(link["rx"]["max_message_size"], 65_536);
        let congestion = &link["tx"]["queue"]["congestion_control"];
        assert_eq!(congestion["block"]["wait_before_close"], 200_000);
        // Servers put keys of their own, and the router puts keys of all servers.
        let with_router = settings(&config, Remote::Router("x"));
        ::zenoh::Config::from_json5(&with_router.to_string()).unwrap();
        assert_eq!(with_router["connect"]["endpoints"], json!(["tls/x:4"]));
        assert_eq!(with_router["listen"]["endpoints"], json!([]));
        for (all, names) in [(&all, &["a/", "c/"][..]), (&with_router, &[""])] {
            let access = &all["access_control"];
            assert_eq!(access["default_permission"], "deny");
            let rules = access["rules"].as_array().unwrap().iter();
            let puts = rules.filter(|rule| {
                let messages = rule["messages"].as_array().unwrap();
                messages.contains(&json!("put")) && rule["flows"] == json!(["ingress"])
            });
            let keys: Vec<&Value> = puts.map(|rule| &rule["key_exprs"]).collect();
            let wanted = names
                .iter()
                .map(|name| json!([format!("nrs/1/r/{name}**")]));
            assert_eq!(keys, wanted.collect::<Vec<_>>().iter().collect::<Vec<_>>());
        }
        let access = &all["access_control"];
        let rules = ["subscribe", "send to subscribers", "publish by a"];
        let policy = json!({ "rules": rules, "subjects": ["a"] });
        assert_eq!(access["policies"][0], policy);
        assert_eq!(access["policies"].as_array().unwrap().len(), 2);
    }
}
