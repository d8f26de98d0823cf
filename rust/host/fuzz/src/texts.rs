// SPDX-License-Identifier: GPL-2.0-only

//! Commands, formats, words and numbers, and texts of a whole service.

use crate::{check_reason, plan, read_back};
use nrs_sched::{
    agent::LEASE_MAX_MS,
    attr::Opcode,
    control::NodeCommand,
    error::{Error, Result},
    jobid::{JobId, Source, Template, FORMAT_MAX, JOBID_MAX},
    key::Field,
    policy::{
        fairshare::{
            job_size::{suffix, SIZE_MAX},
            mode::{Level, Mode, DEPTH_MAX},
        },
        Config, Kind, Tunables,
    },
    priority_sources::PrioritySources,
    qbm::terms::BandwidthClass,
    rules::{self, Fields, Name, Rate, Unit},
    service_world::ServiceWorld,
    text::{Heads, PolicyCommand, ARGUMENT_MAX, COMMAND_MAX, NAME_MAX},
};

/// Checks a text of a whole service: a refused text changes nothing; the text of the service that
/// an accepted text made, makes another service equal to it.
pub(crate) fn config(text: &str) {
    let world = ServiceWorld::new(1, 1);
    let present = "slots 3\nnrs_policies tbf uid\nnrs_tbf_rule start old uid={1} rate=5\n";
    world.set("config", present).expect("valid");
    let before = world.show();
    if let Err(error) = world.set("config", text).inspect_err(check_reason) {
        assert!(error.line() as usize <= text.lines().count());
        assert_eq!(world.show(), before);
        return;
    }
    let (other, own) = (ServiceWorld::new(1, 1), world.text());
    other.set("config", &own).expect("the text of a service");
    assert_eq!((other.text(), other.show()), (own, world.show()));
    let changes = world.primaries_changed.get();
    world.set("config", &other.text()).expect("its own text");
    assert_eq!(world.primaries_changed.get(), changes);
}

/// Returns true if `text` is one word of printable characters.
fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| (b'!'..=b'~').contains(&byte))
}

/// Returns true if `text` is an id.
fn is_id(text: &str) -> bool {
    (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns true if `text` is a lease, ms.
fn is_lease(text: &str) -> bool {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits
        && text
            .parse()
            .is_ok_and(|ms| (1..=LEASE_MAX_MS).contains(&ms))
}

/// Parses a command of the control node; checks the reason of a refusal.
fn node_command(text: &str) -> Option<NodeCommand<'_>> {
    let command = NodeCommand::parse(text.as_bytes());
    command.inspect_err(check_reason).ok()
}

/// Checks a command of the control node against its words.
pub(crate) fn control(text: &str) {
    let said = text.strip_suffix('\n').unwrap_or(text);
    // The value of `set` and the pairs of `factors` are any text.
    let (line, pairs) = text.split_once('\n').unwrap_or((text, ""));
    let has_pairs = said.starts_with("factors ");
    let words: Vec<&str> = if has_pairs { line } else { said }.split(' ').collect();
    let number = |id: &str| u64::from_str_radix(id, 16).expect("an id");
    let parsed = node_command(text);
    let want = match words[..] {
        ["services"] => Some(NodeCommand::Services),
        ["accounts"] => Some(NodeCommand::Accounts { all: false }),
        ["accounts", "all"] => Some(NodeCommand::Accounts { all: true }),
        ["get", service, name] if is_word(service) && is_word(name) => {
            Some(NodeCommand::Get { service, name })
        }
        ["set", service, name, ..] if is_word(service) && is_word(name) => Some(NodeCommand::Set {
            service,
            name,
            value: said.splitn(4, ' ').nth(3).unwrap_or_default(),
        }),
        ["bind", service] if is_word(service) => Some(NodeCommand::Bind { service }),
        ["names", ref ids @ ..] => {
            let valid = !ids.is_empty() && ids.iter().all(|id| is_id(id)) && said.len() <= 4096;
            assert_eq!(parsed.is_some(), valid, "{text:?}");
            if let Some(NodeCommand::Names { ids: found }) = parsed {
                assert!(found.iter().eq(ids.iter().map(|id| number(id))));
            }
            parsed
        }
        ["factors", instance, lease] if is_id(instance) && is_lease(lease) => {
            text.contains('\n').then(|| NodeCommand::Factors {
                instance: number(instance),
                lease_ms: lease.parse().expect("a lease"),
                pairs: pairs.as_bytes(),
            })
        }
        _ => None,
    };
    assert_eq!(parsed, want, "{text:?}");
    if !has_pairs {
        // An end of line has no effect.
        assert_eq!(node_command(&format!("{said}\n")), want, "{text:?}");
    }
}

/// Checks a command of `nrs_policies`: the words, the policy, and the argument as parsed by each
/// policy.
pub(crate) fn policies(all: &str) {
    let command = match PolicyCommand::parse(all) {
        Ok(command) => command,
        Err(error) => return check_reason(&error),
    };
    let (policy, argument) = (command.policy, command.argument);
    assert!(all.len() <= COMMAND_MAX && all.contains(policy));
    assert!((1..=NAME_MAX).contains(&policy.len()));
    let heads = match command.heads {
        // If an argument starts with a word that names heads, the heads were named before it.
        Heads::All => "",
        Heads::Regular => " reg",
        Heads::High => " hp",
    };
    let mut shown = format!("{policy}{heads}");
    if let Some(argument) = argument {
        assert!((1..=ARGUMENT_MAX).contains(&argument.len()) && all.contains(argument));
        assert_eq!(argument, argument.trim_matches([' ', '\t']));
        shown += &format!(" {argument}");
    }
    assert_eq!(PolicyCommand::parse(&shown), Ok(command), "{shown:?}");
    let kind = Kind::ALL.iter().find(|kind| kind.name() == policy);
    assert_eq!(Kind::from_name(policy).ok(), kind.copied());
    // Every policy must handle every argument.
    for &kind in Kind::ALL {
        let parse = |argument| Config::parse(kind, argument, &Tunables::default());
        let Ok(config) = parse(argument).inspect_err(check_reason) else {
            continue;
        };
        let shown = config.argument().map(|argument| argument.to_string());
        assert_eq!(config.kind(), kind);
        assert_eq!(shown.is_some(), argument.is_some());
        assert_eq!(parse(shown.as_deref()), Ok(config), "{shown:?}");
    }
}

/// Checks the format `text` of job identifiers with tasks called `names`.
fn format(text: &str, names: &[&[u8]]) {
    let Some(template) = read_back(text, Template::parse, Template::to_string) else {
        return;
    };
    assert!((1..=FORMAT_MAX).contains(&text.len()));
    assert_eq!(template.to_string(), text);
    let name = |at: usize| names.get(at).copied().unwrap_or_default();
    let known = Source {
        comm: name(0),
        uid: Some(name(0).len() as u32),
        gid: None,
        pid: Some(4_000_000_000),
        host: name(1),
        cgroup: names.get(2).copied(),
    };
    let unknown = Source {
        comm: b"",
        uid: None,
        gid: None,
        pid: None,
        host: b"\0x",
        cgroup: None,
    };
    for source in [known, unknown] {
        let id = template.expand(&source);
        assert!(id.as_bytes().len() <= JOBID_MAX);
        assert!(id.as_bytes().iter().all(u8::is_ascii_graphic));
        assert_eq!(id.to_string().as_bytes(), id.as_bytes());
        // Properties that the format does not name have no effect.
        let mut other = source;
        if !template.uses_pid() {
            other.pid = Some(1);
        }
        if !template.uses_host() {
            other.host = b"other";
        }
        if !template.uses_cgroup() {
            other.cgroup = Some(b"other");
        }
        assert_eq!(template.expand(&other), id);
    }
}

/// Returns the number after the last `#`, if a name precedes it.
fn size(name: &[u8]) -> Option<u128> {
    let text: String = name.iter().map(|&byte| char::from(byte)).collect();
    let (before, number) = text.rsplit_once('#')?;
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let number: u128 = number.parse().ok().filter(|_| digits)?;
    (!before.is_empty() && number > 0).then_some(number)
}

/// Checks job identifiers: the first line is a format, all lines are names, which may end in a
/// size.
pub(crate) fn jobid(data: &[u8]) {
    let names: Vec<&[u8]> = data.split(|&byte| byte == b'\n').take(17).collect();
    if let Ok(text) = core::str::from_utf8(names[0]) {
        format(text, &names[1..]);
    }
    for name in names {
        let id = JobId::new(name);
        let end = name.iter().position(|&byte| byte == 0);
        let want = &name[..end.unwrap_or(name.len()).min(JOBID_MAX)];
        assert_eq!(id.as_bytes(), want);
        assert_eq!(JobId::new(id.as_bytes()), id);
        assert!(id.to_string().len() == want.len() && usize::from(id.len()) == want.len());
        let told = size(want).map(|size| size.min(SIZE_MAX.into()) as u32);
        assert_eq!(suffix(want), told, "{want:?}");
    }
}

/// Returns `parse` with an error instead of `None`.
pub(crate) fn some<T>(parse: impl Fn(&str) -> Option<T>) -> impl Fn(&str) -> Result<T> {
    move |text| parse(text).ok_or(Error::invalid("no such word"))
}

/// Settings of a group of a plan, beside its capacity.
const SETTINGS: &str = "target strategy class min max reserve_first_come reserve_fair_share \
                        reserve_low_share reserve_mover";

/// Checks the text as each type that is parsed from words or from numbers with units, and as a
/// setting of a group: the capacity, and the setting that the first byte selects.
pub(crate) fn words((first, text): (u8, &str)) {
    if let Some(mode) = read_back(text, Mode::parse, Mode::to_string) {
        let levels = mode.levels();
        // A mode has a long form, and a short form if it has several levels.
        let names: Vec<_> = levels.iter().map(|level| level.name()).collect();
        let said = text.strip_suffix('\n').unwrap_or(text);
        assert!(said == mode.to_string() || names.len() > 1 && said == names.join("+"));
        assert!((1..=DEPTH_MAX).contains(&levels.len()));
        assert_eq!(levels.len(), mode.depth());
        assert_eq!(mode.has_size(), levels.contains(&Level::Size));
        for (at, level) in levels.iter().enumerate() {
            let mut before = levels[..at].iter();
            assert!(before.all(|other| other.field() != level.field()));
        }
    }
    if let Some(fields) = read_back(text, Fields::parse, Fields::to_string) {
        let count = fields.iter().count();
        assert!(count >= 1 && fields.to_string().len() <= 64);
        let mut words = text.split('+').filter_map(Field::parse);
        assert!(text == "generic" || words.clone().count() >= count);
        assert!(text == "generic" || words.all(|field| fields.has(field)));
        assert_eq!(fields.single().is_some(), count == 1);
    }
    if let Some(sources) = read_back(text, PrioritySources::parse, PrioritySources::to_string) {
        assert_eq!(PrioritySources::from_bits(sources.bits()), sources);
        let (words, shown) = (text.split_ascii_whitespace(), sources.to_string());
        assert!(words.count() == shown.split(' ').count() || text.trim() == "none");
    }
    if let Some(rate) = read_back(text, some(Rate::parse), Rate::to_string) {
        assert_eq!(Rate::new(rate.per_second(), rate.unit()), Some(rate));
        // A rate without a unit is a number.
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        assert_eq!(rate.unit() == Unit::Plain, digits, "{text:?}");
    }
    if let Some(name) = read_back(text, some(Name::new), Name::to_string) {
        assert_eq!(name.as_str(), text);
        assert!(text.len() <= rules::NAME_MAX && text.bytes().all(Name::takes));
    }
    if let Some(opcode) = read_back(text, some(Opcode::parse), Opcode::to_string) {
        assert_eq!(opcode.name(), Some(text));
    }
    if let Some(field) = Field::parse(text) {
        assert_eq!(field.name(), text);
    }
    read_back(text, some(BandwidthClass::parse), |class| {
        class.name().to_owned()
    });
    plan(&format!("group g capacity={text}"));
    let setting = SETTINGS
        .split(' ')
        .cycle()
        .nth(first.into())
        .expect("endless");
    plan(&format!("group g capacity=1TiB {setting}={text}"));
}
