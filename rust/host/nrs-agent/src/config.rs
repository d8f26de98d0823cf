// SPDX-License-Identifier: GPL-2.0-only

//! Configuration of an agent, `agent.toml`.
//!
//! A row of [`KEYS`] defines a key completely: values, default, meaning, and setter. The agent and
//! `nrsctl check` parse files with this table. The reference in `Documentation/agent.md` is
//! generated from the table.

use std::{
    collections::BTreeMap, fs, ops::RangeInclusive, os::unix::fs::MetadataExt as _, path::PathBuf,
    sync::Arc, time::Duration,
};

use crate::{
    secret::check_mode,
    toml::{Fault, FilePosition, TomlKey, TomlNode, TomlValue},
    Terms,
};

/// Path of the configuration file.
pub const PATH: &str = "/etc/nrs/agent.toml";

/// Maximum size of a datagram, bytes. Transports carry datagrams in streams, and drop whole
/// datagrams.
pub const DATAGRAM_MAX: u32 = 16_384;

/// Encryption and authentication of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// TLS; each server has a certificate.
    #[default]
    Tls,
    /// TCP without encryption and authentication.
    Tcp,
}

impl Protocol {
    /// Returns the name of the protocol.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tls => "tls",
            Self::Tcp => "tcp",
        }
    }
}

/// Configuration of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Name of the realm.
    pub realm: String,
    /// Name of this server.
    pub server: String,
    /// File with the secret of the realm.
    pub secret: PathBuf,
    /// Time between two steps, ms.
    pub delta_ms: u32,
    /// Number of deltas after which the rates of a silent server start to fade.
    pub hold: u32,
    /// Number of deltas after which the module drops factors that are not renewed.
    pub lease: u32,
    /// Maximum number of entities of this server, and of each other server.
    pub entities_max: u32,
    /// Maximum number of other servers.
    pub servers_max: u32,
    /// Cost of a large request, in units of cost.
    pub grain: u32,
    /// Protocol of connections.
    pub transport: Protocol,
    /// Address to listen at.
    pub listen: String,
    /// File with the certificate of the authority that signs the certificates of servers.
    pub ca: PathBuf,
    /// File with the certificate of this server.
    pub certificate: PathBuf,
    /// File with the private key of this server.
    pub key: PathBuf,
    /// True if a certificate must name the address of the connection.
    pub verify_names: bool,
    /// Addresses of the servers, by name.
    pub servers: BTreeMap<String, String>,
    /// Addresses of the routers, by name.
    pub routers: BTreeMap<String, String>,
    /// Groups, by the names of their services.
    pub services: BTreeMap<String, String>,
    /// Name of the file.
    file: Arc<str>,
    /// Place of each key, for errors of the files that keys name.
    places: BTreeMap<String, FilePosition>,
}

impl Default for Config {
    fn default() -> Self {
        let terms = Terms::default();
        Self {
            realm: String::new(),
            server: String::new(),
            secret: PathBuf::new(),
            delta_ms: 100,
            hold: terms.hold,
            lease: 32,
            entities_max: terms.entities_max,
            servers_max: terms.servers_max,
            grain: terms.grain,
            transport: Protocol::default(),
            listen: "[::]:7447".into(),
            ca: PathBuf::new(),
            certificate: PathBuf::new(),
            key: PathBuf::new(),
            verify_names: true,
            servers: BTreeMap::new(),
            routers: BTreeMap::new(),
            services: BTreeMap::new(),
            file: "".into(),
            places: BTreeMap::new(),
        }
    }
}

impl Config {
    /// Returns the terms of the protocol in the realm with the number `realm`.
    pub fn terms(&self, realm: u64) -> Terms {
        Terms {
            realm,
            delta_ns: u64::from(self.delta_ms) * 1_000_000,
            hold: self.hold,
            servers_max: self.servers_max,
            entities_max: self.entities_max,
            datagram_max: DATAGRAM_MAX,
            grain: self.grain,
            ..Terms::default()
        }
    }

    /// Returns the time for which the module keeps factors that are not renewed.
    pub fn lease(&self) -> Duration {
        Duration::from_millis(u64::from(self.lease) * u64::from(self.delta_ms))
    }

    /// Returns the fault `reason` at the place of `key`, or at the start of the file.
    fn fault(&self, key: &str, reason: impl Into<String>) -> Fault {
        let start = || FilePosition {
            file: self.file.clone(),
            line: 1,
            column: 1,
        };
        let place = self.places.get(key).cloned().unwrap_or_else(start);
        Fault::new(&place, key, reason)
    }
}

/// Kind of table in the configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConfigTable {
    /// Top level of the file.
    Top,
    /// `[servers]`
    Servers,
    /// `[routers]`
    Routers,
    /// `[service.NAME]`
    Service,
}

impl ConfigTable {
    /// All tables, each with its heading in the reference.
    const ALL: [(Self, &'static str); 4] = [
        (Self::Top, "the file"),
        (Self::Servers, "[servers]"),
        (Self::Routers, "[routers]"),
        (Self::Service, "[service.NAME]"),
    ];
}

/// Setter of a value. Arguments: the configuration, the name of the table or key, and the value.
type Set = fn(&mut Config, &str, &TomlNode) -> Result<(), String>;

/// Key of the configuration file; the name `NAME` matches any name.
type Key = TomlKey<ConfigTable, Set>;

/// Returns a row of the table of keys.
const fn key(
    table: ConfigTable,
    name: &'static str,
    takes: &'static str,
    default: &'static str,
    about: &'static str,
    set: Set,
) -> Key {
    TomlKey {
        table,
        name,
        takes,
        default,
        about,
        set,
    }
}

/// Setter that assigns the value parsed by `$parse` to the field `$field`.
macro_rules! set {
    ($field:ident, $parse:ident $(, $range:expr)?) => {
        |config, _, item| {
            config.$field = $parse(item $(, $range)?)?;
            Ok(())
        }
    };
}

/// Setter that inserts an address by its name.
macro_rules! insert {
    ($field:ident) => {
        |config, name, item| {
            check_name(name)?;
            config.$field.insert(name.into(), address(item)?);
            Ok(())
        }
    };
}

use ConfigTable::{Routers, Servers, Service, Top};

/// Table of all keys.
#[rustfmt::skip]
static KEYS: [Key; 18] = [
    key(Top, "realm", "1 to 63 letters, digits and `_ - .`", "required",
        "name of the realm; only servers with the same realm and secret share", set!(realm, name)),
    key(Top, "server", "1 to 63 letters, digits and `_ - .`", "the host name",
        "name of this server, unique in the realm; with `tls` the common name of its certificate",
        set!(server, name)),
    key(Top, "secret", "a path", "required",
        "file with the secret of the realm, 32 hexadecimal digits; mode 0600", set!(secret, path)),
    key(Top, "delta_ms", "50 to 500", "100",
        "time between two steps, ms; must be equal on all servers",
        set!(delta_ms, number, 50..=500)),
    key(Top, "hold", "2 to 1000", "16",
        "number of deltas after which the rates of a silent server halve; \
         must be equal on all servers",
        set!(hold, number, 2..=1000)),
    key(Top, "lease", "8 to 120", "32",
        "number of deltas after which the module resets factors that are not renewed to 1",
        set!(lease, number, 8..=120)),
    key(Top, "entities_max", "1 to 16384", "16384",
        "maximum number of entities of this server, and of each other server",
        set!(entities_max, number, 1..=16_384)),
    key(Top, "servers_max", "1 to 1024", "256",
        "maximum number of other servers", set!(servers_max, number, 1..=1024)),
    key(Top, "grain", "1 to 65536", "256",
        "cost of a large request, in units of the cost model: 1 MiB in pages of 4 KiB",
        set!(grain, number, 1..=65_536)),
    key(Top, "transport", "`tls`, `tcp`", "`tls`",
        "protocol of connections; `tcp` has no encryption and no authentication: any host can \
         send in the name of any server",
        set!(transport, protocol)),
    key(Top, "listen", "`ADDRESS:PORT`", "`[::]:7447`",
        "address to listen at", set!(listen, address)),
    key(Top, "ca", "a path", "required with `tls`",
        "certificate of the authority that signs the certificates of servers and routers, PEM",
        set!(ca, path)),
    key(Top, "certificate", "a path", "required with `tls`",
        "certificate of this server, PEM", set!(certificate, path)),
    key(Top, "key", "a path", "required with `tls`",
        "private key of this server, PEM; mode 0600", set!(key, path)),
    key(Top, "verify_names", "`true`, `false`", "`true`",
        "`true`: the certificate of a server or router must name the address of the connection",
        set!(verify_names, truth)),
    key(Servers, "NAME", "`HOST:PORT`", "none",
        "address of the server; the entry of this server is ignored, so that all servers can use \
         the same file",
        insert!(servers)),
    key(Routers, "NAME", "`HOST:PORT`", "none",
        "address of a zenoh router; the router is trusted to forward only keys of their senders",
        insert!(routers)),
    key(Service, "group", "as the name of a service", "the name of the service",
        "group of services that share; one service per server and group", |config, service, item| {
        config.services.insert(service.into(), service_name(text(item)?)?);
        Ok(())
    }),
];

/// Returns the string in `item`.
fn text(item: &TomlNode) -> Result<&str, String> {
    item.text().map_err(|_| kind(item, "a string"))
}

/// Returns the error that `item` has another type than `wanted`.
fn kind(item: &TomlNode, wanted: &str) -> String {
    format!("expected {wanted}, found {}", item.kind)
}

/// Returns the number in `item`, if the number is in `range`.
fn number(item: &TomlNode, range: RangeInclusive<u32>) -> Result<u32, String> {
    let TomlValue::Number(found) = item.value else {
        return Err(kind(item, "a number"));
    };
    let found = u32::try_from(found).ok();
    let found = found.filter(|number| range.contains(number));
    found.ok_or_else(|| {
        format!(
            "expected a number from {} to {}",
            range.start(),
            range.end()
        )
    })
}

/// Returns the boolean in `item`.
fn truth(item: &TomlNode) -> Result<bool, String> {
    match item.value {
        TomlValue::Truth(truth) => Ok(truth),
        _ => Err(kind(item, "true or false")),
    }
}

/// Returns the absolute path in `item`.
fn path(item: &TomlNode) -> Result<PathBuf, String> {
    let path = PathBuf::from(text(item)?);
    match path.is_absolute() {
        true => Ok(path),
        false => Err("expected an absolute path".into()),
    }
}

/// Returns the name of a realm or server in `item`.
fn name(item: &TomlNode) -> Result<String, String> {
    let name = text(item)?;
    check_name(name)?;
    Ok(name.into())
}

/// Checks the name of a realm, server or router.
///
/// # Errors
///
/// The reason for which the name is invalid.
pub fn check_name(name: &str) -> Result<(), String> {
    match is_word(name, 63, "_-.") {
        true => Ok(()),
        false => Err("invalid name: expected 1 to 63 letters, digits and _ - .".into()),
    }
}

/// Returns `name`, if it is a valid name of a service.
fn service_name(name: &str) -> Result<String, String> {
    match is_word(name, 31, "_-.:") && !name.starts_with('.') {
        true => Ok(name.into()),
        false => Err(
            "invalid name: expected 1 to 31 letters, digits and _ - . :, \
                 not starting with a dot"
                .into(),
        ),
    }
}

/// Returns true if `word` has 1 to `most` characters, each a letter, a digit or one of `more`.
fn is_word(word: &str, most: usize, more: &str) -> bool {
    let fits = |char: char| char.is_ascii_alphanumeric() || more.contains(char);
    (1..=most).contains(&word.len()) && word.chars().all(fits)
}

/// Returns the address with a port in `item`.
fn address(item: &TomlNode) -> Result<String, String> {
    let address = text(item)?;
    let (host, port) = address.rsplit_once(':').unwrap_or_default();
    let plain = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let is_host = match plain {
        Some(number) => is_word(number, 63, ":.%"),
        None => is_word(host, 253, "-._"),
    };
    let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
    match is_host && is_port {
        true => Ok(address.into()),
        false => {
            Err("expected HOST:PORT, such as oss1:7447, 10.0.0.1:7447 or [fe80::1]:7447".into())
        }
    }
}

/// Returns the protocol that `item` names.
fn protocol(item: &TomlNode) -> Result<Protocol, String> {
    let all = [Protocol::Tls, Protocol::Tcp].into_iter();
    let name = text(item)?;
    let found = all.clone().find(|one| one.name() == name);
    found.ok_or_else(|| "expected tls or tcp".into())
}

/// Parser of a configuration file.
struct Reader {
    config: Config,
    faults: Vec<Fault>,
}

impl Reader {
    /// Adds the fault `reason` at the place of `key`.
    fn refuse(&mut self, key: &str, reason: impl Into<String>) {
        let fault = self.config.fault(key, reason);
        self.faults.push(fault);
    }

    /// Parses `entries` of a table of kind `table`; `own` is the name of the table.
    fn table(&mut self, table: ConfigTable, own: &str, entries: &[TomlNode]) {
        for item in entries {
            let (name, path) = (&*item.key, &*item.path);
            self.config.places.insert(path.into(), item.start.clone());
            let mut keys = KEYS.iter().filter(|key| key.table == table);
            let found = keys.find(|key| key.name == name || key.name == "NAME");
            let below = match (table, name) {
                (Top, "servers") => Some(Servers),
                (Top, "routers") => Some(Routers),
                (Top, "service") => Some(Service),
                _ => None,
            };
            let result = match (found, below, item.entries()) {
                (Some(key), ..) => {
                    let name = if key.name == "NAME" { name } else { own };
                    (key.set)(&mut self.config, name, item)
                }
                (None, None, _) => Err("unknown key".into()),
                (None, Some(_), Err(_)) => Err(kind(item, "a table")),
                (None, Some(below), Ok(entries)) => {
                    match below {
                        Service => self.services(entries),
                        below => self.table(below, "", entries),
                    }
                    Ok(())
                }
            };
            if let Err(reason) = result {
                self.refuse(path, reason);
            }
        }
    }

    /// Parses the tables of services.
    fn services(&mut self, services: &[TomlNode]) {
        for item in services {
            let (name, path) = (&*item.key, &*item.path);
            self.config.places.insert(path.into(), item.start.clone());
            match (service_name(name), item.entries()) {
                (Ok(name), Ok(entries)) => {
                    self.config.services.insert(name.clone(), name.clone());
                    self.table(Service, &name, entries);
                }
                (Ok(_), Err(_)) => self.refuse(path, kind(item, "a table")),
                (Err(reason), _) => self.refuse(path, reason),
            }
        }
    }

    /// Checks the constraints between several keys, and reports missing keys.
    fn finish(&mut self) {
        let config = &self.config;
        let missing = |key: &str| !config.places.contains_key(key);
        let mut wanted = vec![
            ("realm", "missing"),
            ("secret", "missing"),
            (
                "service",
                "missing; add a table [service.NAME] for each service",
            ),
        ];
        let refused = |fault: &Fault| fault.key == "transport";
        if config.transport == Protocol::Tls && !self.faults.iter().any(refused) {
            let needed = ["ca", "certificate", "key"];
            wanted.extend(needed.map(|key| (key, "missing; required with transport = \"tls\"")));
            let listed =
                "missing; with transport = \"tls\" datagrams of unlisted servers are dropped";
            wanted.push(("servers", listed));
        }
        wanted.retain(|(key, _)| missing(key));
        let names = config.routers.keys();
        let names = names.filter(|name| config.servers.contains_key(*name));
        let twice = |name| {
            (
                format!("routers.{name}"),
                "name already used in [servers]".to_owned(),
            )
        };
        let mut twice: Vec<(String, String)> = names.map(twice).collect();
        let mut groups = BTreeMap::new();
        for (service, group) in &config.services {
            if let Some(other) = groups.insert(group, service) {
                let reason = format!(
                    "group {group} already contains service {other} \
                     (limit: one per group and server)"
                );
                twice.push((format!("service.{service}"), reason));
            }
        }
        for (key, reason) in wanted {
            self.refuse(key, reason);
        }
        for (key, reason) in twice {
            self.refuse(&key, reason);
        }
    }
}

/// Parses `text` of `file`. The name of the server defaults to `host`.
///
/// # Errors
///
/// All faults, ordered by position.
pub fn parse(file: &str, text: &str, host: &str) -> Result<Config, Vec<Fault>> {
    let config = Config {
        server: host.into(),
        file: file.into(),
        ..Config::default()
    };
    let faults = Vec::new();
    let mut reader = Reader { config, faults };
    match TomlNode::parse(file, text) {
        Ok(document) => {
            reader.table(Top, "", document.entries().unwrap_or_default());
            reader.finish();
        }
        Err(fault) => reader.faults.push(fault),
    }
    let Reader { config, mut faults } = reader;
    if faults.is_empty() && check_name(&config.server).is_err() {
        let reason = format!("missing, and the host name '{host}' is not a valid server name");
        faults.push(config.fault("server", reason));
    }
    faults.sort_by_key(|fault| (fault.place.line, fault.place.column));
    match faults.is_empty() {
        true => Ok(config),
        false => Err(faults),
    }
}

/// Returns the faults of the files that `config` names.
pub fn check_files(config: &Config) -> Vec<Fault> {
    let mut files = vec![("secret", &config.secret, true)];
    if config.transport == Protocol::Tls {
        files.extend([
            ("ca", &config.ca, false),
            ("certificate", &config.certificate, false),
            ("key", &config.key, true),
        ]);
    }
    let fault = |(key, path, private): (&str, &PathBuf, bool)| {
        let reason = match fs::metadata(path) {
            Err(error) => Some(error.to_string()),
            Ok(metadata) if !metadata.is_file() => Some("not a regular file".into()),
            Ok(metadata) if private => check_mode(metadata.mode()).err(),
            Ok(_) => None,
        };
        let reason = format!("{}: {}", path.display(), reason?);
        Some(config.fault(key, reason))
    };
    files.into_iter().filter_map(fault).collect()
}

/// Returns the name of this host.
pub fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname");
    name.unwrap_or_default().trim().into()
}

/// Returns the reference of all keys as Markdown.
pub fn reference() -> String {
    TomlKey::reference(&KEYS, &ConfigTable::ALL)
}

#[cfg(test)]
mod tests;
