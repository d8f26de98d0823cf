// SPDX-License-Identifier: GPL-2.0-only

//! Names of parameters in Lustre's format: `ost.OSS.ost_io.nrs_policies`, `*.OSS.*.nrs_*`,
//! `ost_io.slots`.
//!
//! # Vocabulary
//!
//! - *Component*: a part of a name between dots; `/` is equivalent to a dot.
//! - *Prefix*: two optional components before the service that name the kind of service in Lustre:
//!   `ost.OSS`, `mds.MDS`, ... Any two components are accepted; a pattern matches only
//!   [`PREFIXES`].
//! - *Pattern*: a name with `*`, `?`, `[...]` or `{...}`.
//!
//! Service names may contain dots. The last component is the parameter. The longest existing
//! service name that ends before it is the service; a prefix or nothing precedes it. A pattern
//! selects all services that match with any split. In place of a service, `*` matches dots as well.

use std::borrow::Borrow;

use globset::{GlobBuilder, GlobMatcher};
use nrs_sched::parameters::{all, Parameter};
use strsim::osa_distance;

use crate::failure::{failure, Failure, Result};

/// Description of a valid service name.
pub const NAME: &str = "1 to 31 letters, digits and _ - . : not starting with a dot";

/// Returns true if `name` is a valid service name.
pub fn is_service(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte);
    (1..=31).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(fits)
}

/// Prefixes of Lustre, in the order in which a pattern is matched.
pub const PREFIXES: [[&str; 2]; 4] = [
    ["ost", "OSS"],
    ["mds", "MDS"],
    ["mgs", "MGS"],
    ["ldlm", "services"],
];

/// A service selected by a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedService {
    /// Displayed name: with the prefix, if the given name has one.
    pub shown: String,
    /// Name of the service.
    pub name: String,
}

/// A parameter of a service, selected by a name.
#[derive(Clone, Debug)]
pub struct Found {
    /// The service.
    pub service: NamedService,
    /// The parameter.
    pub parameter: &'static Parameter,
}

impl Found {
    /// Returns the displayed name.
    pub fn shown(&self) -> String {
        format!("{}.{}", self.service.shown, self.parameter.name())
    }

    /// Returns `=` if the parameter can be written, otherwise an empty string.
    pub fn mark(&self) -> &'static str {
        match self.parameter.access.writes() {
            true => "=",
            false => "",
        }
    }
}

/// Returns the parameters that satisfy `fits` of each of `services`.
pub fn each(services: &[NamedService], fits: impl Fn(&Parameter) -> bool) -> Vec<Found> {
    let of = |service: &NamedService| {
        let fitting = all().filter(|parameter| fits(parameter));
        let service = service.clone();
        let found = move |parameter| Found {
            service: service.clone(),
            parameter,
        };
        fitting.map(found).collect::<Vec<Found>>()
    };
    services.iter().flat_map(of).collect()
}

/// Returns true if `name` is a pattern.
pub fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?', '[', '{'])
}

/// Splits `name` into components; dots within brackets and braces do not separate.
fn components(name: &str) -> Vec<String> {
    let mut components = vec![String::new()];
    let mut depth = 0u32;
    for c in name.chars() {
        match c {
            '[' | '{' => depth += 1,
            ']' | '}' => depth = depth.saturating_sub(1),
            '.' | '/' if depth == 0 => {
                components.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = components.last_mut() {
            last.push(c);
        }
    }
    components
}

/// Compiles `pattern`.
///
/// # Errors
///
/// `Usage`: `pattern` is invalid.
fn matcher(pattern: &str) -> Result<GlobMatcher> {
    let glob = glob(pattern).map_err(|error| {
        failure!(Usage: "invalid pattern '{pattern}': {}", error.kind())
            .hint("patterns may contain * ? [...] {a,b}")
    })?;
    Ok(glob)
}

/// Compiles `pattern`, in which alternatives may be empty: `nrs_tbf_rule{,_error}`.
///
/// # Errors
///
/// `pattern` is invalid.
pub fn glob(pattern: &str) -> std::result::Result<GlobMatcher, globset::Error> {
    let glob = GlobBuilder::new(pattern).empty_alternates(true).build()?;
    Ok(glob.compile_matcher())
}

/// Returns the prefix to display for the components `written`; `None` if they are not a prefix.
fn prefix(written: &[String]) -> Result<Option<String>> {
    match written {
        [] => Ok(Some(String::new())),
        [first, second] if !is_pattern(first) && !is_pattern(second) => {
            Ok(Some(format!("{first}.{second}.")))
        }
        [first, second] => {
            let (first, second) = (matcher(first)?, matcher(second)?);
            let mut known = PREFIXES.iter();
            let found = known.find(|[a, b]| first.is_match(a) && second.is_match(b));
            Ok(found.map(|[a, b]| format!("{a}.{b}.")))
        }
        _ => Ok(None),
    }
}

/// Returns the elements of `services` that are selected by the components.
fn fitting(components: &[String], services: &[String]) -> Result<Vec<NamedService>> {
    let mut found: Vec<NamedService> = Vec::new();
    let literal = !components.iter().any(|component| is_pattern(component));
    // The longest service name is tried first.
    for at in 0..components.len() {
        let (before, name) = components.split_at(at);
        let Some(prefix) = prefix(before)? else {
            continue;
        };
        let pattern = matcher(&name.join("."))?;
        for service in services {
            let fits = match literal {
                true => *service == name.join("."),
                false => pattern.is_match(service),
            };
            if fits && !found.iter().any(|other| other.name == *service) {
                found.push(NamedService {
                    shown: format!("{prefix}{service}"),
                    name: service.clone(),
                });
            }
        }
        if literal && !found.is_empty() {
            break;
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Returns the elements of `services` that are selected by `name`.
///
/// # Errors
///
/// `Usage`: a pattern is invalid.
pub fn services(name: &str, services: &[String]) -> Result<Vec<NamedService>> {
    fitting(&components(name), services)
}

/// Returns the parameters that are selected by `name`.
///
/// # Errors
///
/// `Usage`: a pattern is invalid.
pub fn parameters(name: &str, services: &[String]) -> Result<Vec<Found>> {
    let components = components(name);
    let Some((last, before)) = components.split_last() else {
        return Ok(Vec::new());
    };
    let pattern = matcher(last)?;
    let fits = |parameter: &Parameter| match is_pattern(last) {
        true => pattern.is_match(parameter.name()),
        false => parameter.name() == last,
    };
    Ok(each(&fitting(before, services)?, fits))
}

/// Returns the failure for a name that selects nothing, with the message of `lctl`.
pub fn unmatched(verb: &str, name: &str, services: &[String]) -> Failure {
    let path = components(name).join("/");
    let failure = failure!(NotFound:
        "error: {verb}: param_path '{path}': No such file or directory");
    let components = components(name);
    let (last, before) = match components.split_last() {
        Some((last, before)) if !before.is_empty() => (last, before),
        _ => {
            return failure.hint(
                "names are SERVICE.PARAMETER or ost.OSS.SERVICE.PARAMETER; \
                 see: nrsctl list_param -R '*'",
            )
        }
    };
    let there = fitting(before, services).unwrap_or_default();
    if let Some(service) = there.first() {
        let near = near(last, all().map(Parameter::name));
        let near = near.iter().map(|name| format!("{}.{name}", service.shown));
        let other = format!("see: nrsctl list_param -R {}", service.shown);
        return or_meant(failure, ":", near.collect(), other);
    }
    let service = before.last().map(String::as_str).unwrap_or_default();
    let near = near(service, services.iter().map(String::as_str));
    or_meant(failure, " service", near, listed("services", services))
}

/// Returns `failure` with a hint: the similar names `near`, or `other` if there are none.
pub fn or_meant<T: Borrow<str>>(
    failure: Failure,
    mean: &str,
    near: Vec<T>,
    other: String,
) -> Failure {
    failure.hint(match near.is_empty() {
        true => other,
        false => format!("did you mean{mean} {}", near.join(", ")),
    })
}

/// Returns the names of `services` after `title`.
fn listed(title: &str, services: &[String]) -> String {
    match services.is_empty() {
        true => {
            "no services exist; create one: nrsctl service add NAME, or nrsctl device add".into()
        }
        false => format!("{title}: {}", services.join(", ")),
    }
}

/// Maximum number of similar names in a hint.
const NEAR: usize = 4;

/// Returns the elements of `names` that are similar to `name`, most similar first.
pub fn near<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let most = name.chars().count() / 3 + 1;
    let mut near: Vec<(usize, &str)> = names
        .into_iter()
        .filter_map(|other| {
            let long = name.len().min(other.len()) > 2;
            let within = long && (other.contains(name) || name.contains(other));
            let distance = osa_distance(name, other);
            (distance <= most || within).then_some((distance, other))
        })
        .collect();
    near.sort_unstable();
    near.truncate(NEAR);
    near.into_iter().map(|(_, name)| name).collect()
}

/// Returns the failure for a missing service `name`; `there` are the existing services.
pub fn no_service(name: &str, there: &[String]) -> Failure {
    let failure = failure!(NotFound: "service '{name}' does not exist");
    let near = near(name, there.iter().map(String::as_str));
    or_meant(failure, ":", near, listed("services", there))
}

/// Returns the failure for a missing client `name`; `there` are the existing clients.
pub fn no_client<'a>(name: &str, there: impl Iterator<Item = &'a str>) -> Failure {
    let failure = failure!(NotFound: "client '{name}' does not exist");
    or_meant(
        failure,
        ":",
        near(name, there),
        "see: nrsctl device list".into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::FailureKind;

    fn there() -> Vec<String> {
        ["a.b", "b", "ost.OSS.x", "ost_io", "san", "x"]
            .map(str::to_owned)
            .to_vec()
    }

    fn shown(name: &str) -> String {
        let found = parameters(name, &there()).unwrap().into_iter();
        let all = found.map(|found| found.shown());
        all.collect::<Vec<String>>().join(" ")
    }

    #[test]
    fn names() {
        for (name, want) in [
            ("ost_io.slots", "ost_io.slots"),
            ("ost.OSS.ost_io.slots", "ost.OSS.ost_io.slots"),
            ("ost/OSS/ost_io/slots", "ost.OSS.ost_io.slots"),
            ("any.thing.san.slots", "any.thing.san.slots"),
            // A prefix has two components.
            ("OSS.ost_io.slots", ""),
            ("a.b.c.ost_io.slots", ""),
            ("slots", ""),
            ("", ""),
            // The longest service name is selected.
            ("a.b.slots", "a.b.slots"),
            ("b.slots", "b.slots"),
            ("ost.OSS.a.b.slots", "ost.OSS.a.b.slots"),
            ("ost.a.b.slots", "ost.a.b.slots"),
            ("ost.OSS.x.slots", "ost.OSS.x.slots"),
            ("mds.MDS.x.slots", "mds.MDS.x.slots"),
            ("ost_io.slot", ""),
            ("ost_i.slots", ""),
            // Patterns.
            ("san.at_m*", "san.at_min san.at_max"),
            ("*.OSS.s*.slots", "ost.OSS.san.slots"),
            ("mds.*.san.slots", "mds.MDS.san.slots"),
            ("*.XYZ.san.slots", ""),
            ("{ost_io,san}.slots", "ost_io.slots san.slots"),
            ("s?n.at_{min,max}", "san.at_min san.at_max"),
            ("a.*.slots", "a.b.slots"),
            ("[a.]*.slots", "a.b.slots"),
            (
                "san.nrs_tbf_rule{,_error}",
                "san.nrs_tbf_rule san.nrs_tbf_rule_error",
            ),
            (
                "*.slots",
                "a.b.slots b.slots ost.OSS.x.slots ost_io.slots san.slots x.slots",
            ),
        ] {
            assert_eq!(shown(name), want, "{name}");
        }
        // A service name that contains a prefix takes precedence over a prefix and a shorter name.
        let all = shown("*.OSS.*.slots");
        assert!(
            all.contains("ost.OSS.x.slots") && all.contains("ost.OSS.a.b.slots"),
            "{all}"
        );
        assert_eq!(services("*", &there()).unwrap().len(), 6);
        assert!(services("[", &there()).is_err());
        assert_eq!(
            parameters("a.[", &there()).unwrap_err().kind,
            FailureKind::Usage
        );
    }

    #[test]
    fn hints() {
        for (name, hint) in [
            (
                "ost.OSS.ost_io.nrs_policie",
                "did you mean: ost.OSS.ost_io.nrs_policies",
            ),
            ("ost.OSS.ost_oi.slots", "did you mean service ost_io"),
            (
                "unknown.slots",
                "services: a.b, b, ost.OSS.x, ost_io, san, x",
            ),
            ("san.qqqqqqqqqqqqqq", "see: nrsctl list_param -R san"),
        ] {
            let failure = unmatched("get_param", name, &there());
            assert_eq!(failure.hint.as_deref(), Some(hint));
        }
        let none = unmatched("set_param", "a.slots", &[]).hint.unwrap();
        assert!(none.starts_with("no services exist"), "{none}");
        let known = ["slots", "policy", "cpts", "parameters", "rule"];
        for (word, want) in [
            ("slot", Some("slots")),
            ("solts", Some("slots")),
            ("Slots", Some("slots")),
            ("rules", Some("rule")),
            ("weights", None),
            ("", None),
        ] {
            assert_eq!(near(word, known).first().copied(), want, "{word}");
        }
    }
}
