// SPDX-License-Identifier: GPL-2.0-only

//! Zenoh as a transport: servers are zenoh peers that connect to each other directly or through
//! routers.
//!
//! A server publishes its datagrams with the key `nrs/1/REALM/SERVER/GROUP` and congestion control
//! `Drop`. A liveliness token with the same key indicates that the server participates.
//!
//! # Access control
//!
//! With TLS both sides of a connection have certificates of the realm's authority. Zenoh's access
//! control denies everything by default. A peer whose certificate has the common name SERVER may
//! put keys `nrs/1/REALM/SERVER/**`. Listed servers and routers may subscribe. Each agent checks
//! incoming messages. A router may forward keys of any server, so its own access control must keep
//! servers apart. With TCP nothing is checked.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

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

/// Number of sessions in addition to those of listed servers and routers.
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

/// Open session.
pub struct Zenoh {
    session: Session,
    /// Publishers, by group.
    publishers: BTreeMap<String, Publisher<'static>>,
    /// Subscribers and tokens, undeclared when they are dropped.
    _declared: Vec<(Subscriber<()>, Subscriber<()>, LivelinessToken)>,
    inbox: Arc<Inbox>,
}

/// Returns the configuration of zenoh for `config`.
pub fn settings(config: &Config) -> Value {
    let protocol = config.transport.name();
    let endpoint = |address: &String| format!("{protocol}/{address}");
    // Of each pair of servers, the one with the lower name connects.
    let servers = config
        .servers
        .iter()
        .filter(|(name, _)| **name > config.server);
    let connect: Vec<String> = servers
        .chain(&config.routers)
        .map(|(_, address)| endpoint(address))
        .collect();
    let block = json!({ "wait_before_close": BLOCK_US });
    let mut link = json!({
        "protocols": [protocol],
        "tx": { "queue": { "size": sizes(), "congestion_control": { "block": block } } },
        "rx": { "max_message_size": MESSAGE_MAX },
    });
    let mut listen = endpoint(&config.listen);
    if config.transport == Protocol::Tls {
        listen += &format!("#tls_handshake_timeout_ms={HANDSHAKE_MS}");
    }
    // Servers advertise numeric addresses, which may be missing in certificates.
    let gossip = config.transport == Protocol::Tcp || !config.verify_names;
    let mut settings = json!({
        "mode": "peer",
        "listen": { "endpoints": [listen] },
        "connect": { "endpoints": connect },
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
        settings["access_control"] = access(config);
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
    let listed = config.servers.len() + config.routers.len();
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

/// Returns the rules of access control.
fn access(config: &Config) -> Value {
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
        rule("forward by routers", "ingress", &SPEAKS, &all),
    ];
    let (mut subjects, mut policies) = (Vec::new(), Vec::new());
    let servers = config.servers.keys().filter(|name| **name != config.server);
    for name in servers {
        let own = format!("publish by {name}");
        let keys = format!("nrs/1/{}/{name}/**", config.realm);
        rules.push(rule(&own, "ingress", &SPEAKS, &keys));
        subjects.push(json!({ "id": name, "cert_common_names": [name] }));
        let rules = ["subscribe", "send to subscribers", own.as_str()];
        policies.push(json!({ "rules": rules, "subjects": [name] }));
    }
    for name in config.routers.keys() {
        subjects.push(json!({ "id": name, "cert_common_names": [name] }));
        let rules = ["subscribe", "send to subscribers", "forward by routers"];
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

/// Queues a received datagram. A datagram that is too large is not copied.
fn hear_datagram(inbox: &Inbox, sample: &Sample) {
    let key = parse_key(sample.key_expr().as_str());
    if let (Some((server, group)), SampleKind::Put) = (key, sample.kind()) {
        let payload = sample.payload();
        match payload.len() <= DATAGRAM_MAX as usize {
            true => inbox.datagram(server, group, payload.to_bytes().into_owned()),
            false => inbox.refuse(),
        }
    }
}

/// Queues a change of presence.
fn hear_presence(inbox: &Inbox, sample: &Sample) {
    if let Some((server, group)) = parse_key(sample.key_expr().as_str()) {
        inbox.presence(server, group, sample.kind() == SampleKind::Put);
    }
}

impl Zenoh {
    /// Opens a session for the groups of `config`.
    ///
    /// # Errors
    ///
    /// The error of zenoh: the address is in use, or a certificate cannot be used.
    pub fn open(config: &Config) -> ::zenoh::Result<Self> {
        let settings = ::zenoh::Config::from_json5(&settings(config).to_string())?;
        let session = ::zenoh::open(settings).wait()?;
        let servers = config.servers.len().max(config.servers_max as usize);
        let inbox = Arc::new(Inbox::new(servers * config.services.len()));
        let mut publishers = BTreeMap::new();
        let mut declared = Vec::new();
        for group in config.services.values() {
            if publishers.contains_key(group) {
                continue;
            }
            let key = |server: &str| format!("nrs/1/{}/{server}/{group}", config.realm);
            let heard = Arc::clone(&inbox);
            let datagrams = session.declare_subscriber(key("*"));
            let datagrams = datagrams.allowed_origin(Locality::Remote);
            let datagrams = datagrams.callback(move |sample| hear_datagram(&heard, &sample));
            let seen = Arc::clone(&inbox);
            let presence = session.liveliness().declare_subscriber(key("*"));
            let presence = presence.history(true);
            let presence = presence.callback(move |sample| hear_presence(&seen, &sample));
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
            inbox,
        })
    }

    /// Closes the session, after a delay for the last datagrams.
    pub fn close(self) {
        std::thread::sleep(DRAIN);
        // An error of closing is ignored, because the agent ends anyway.
        let _ = self.session.close().wait();
    }
}

impl Transport for Zenoh {
    fn send(&mut self, group: &str, bytes: &[u8]) {
        if let Some(publisher) = self.publishers.get(group) {
            // Datagrams that cannot be sent are dropped.
            let _ = publisher.put(ZBytes::from(bytes)).wait();
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
        let config = crate::config::parse(text, "").unwrap();
        let all = settings(&config);
        ::zenoh::Config::from_json5(&all.to_string()).unwrap();
        assert_eq!(all["connect"]["endpoints"], json!(["tls/c:3", "tls/x:4"]));
        let listen = json!(["tls/[::]:7447#tls_handshake_timeout_ms=2000"]);
        assert_eq!(all["listen"]["endpoints"], listen);
        let transport = &all["transport"];
        assert_eq!(transport["unicast"]["max_sessions"], 2 * 4 + 8);
        let link = &transport["link"];
        assert_eq!(link["rx"]["max_message_size"], 65_536);
        let congestion = &link["tx"]["queue"]["congestion_control"];
        assert_eq!(congestion["block"]["wait_before_close"], 200_000);
        let access = &all["access_control"];
        assert_eq!(access["default_permission"], "deny");
        // Only routers may put keys in the name of other servers.
        for rule in access["rules"].as_array().unwrap() {
            let puts = rule["messages"].as_array().unwrap().contains(&json!("put"));
            if puts && rule["flows"] == json!(["ingress"]) && rule["id"] != "forward by routers" {
                let name = rule["id"].as_str().unwrap().rsplit(' ').next().unwrap();
                assert_eq!(rule["key_exprs"], json!([format!("nrs/1/r/{name}/**")]));
            }
        }
        let rules = ["subscribe", "send to subscribers", "publish by a"];
        let policy = json!({ "rules": rules, "subjects": ["a"] });
        assert_eq!(access["policies"][0], policy);
        assert_eq!(access["policies"].as_array().unwrap().len(), 3);
    }
}
