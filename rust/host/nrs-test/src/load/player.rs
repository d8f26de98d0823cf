// SPDX-License-Identifier: GPL-2.0-only

//! Simulated clients: their identity, and the times of their requests.
//!
//! - *Closed loop*: the next request is due when an earlier one has ended.
//! - *Open loop*: requests are due at a rate, independent of completions.
//! - *Credits*: number of requests that the module grants a client.

use std::{
    net::IpAddr,
    str::FromStr,
    time::{Duration, Instant},
};

use nrs_client::{opcode, Nid, Request};
use nrs_sched::attr::Opcode;

use crate::random::Random;

/// Times of the requests of a player.
#[derive(Clone, Debug)]
pub enum Pace {
    /// Closed loop: constant number of requests in flight.
    Closed {
        /// Number of requests in flight.
        depth: u64,
    },
    /// Open loop: one request per interval.
    Open {
        /// Time between two requests.
        interval: Duration,
    },
}

/// Size of the area of random offsets, bytes.
const EXTENT: u64 = 1 << 30;

/// Offsets of the requests of a client.
#[derive(Clone, Copy, Debug)]
enum Offsets {
    /// Constant offset.
    At(u64),
    /// Sequential offsets.
    Sequential,
    /// Random offsets in the first GiB, multiples of the request size.
    Random,
}

/// Specification on the command line of one client, or of several clients that differ in an index.
#[derive(Clone, Debug)]
pub struct Spec {
    name: String,
    nid: Option<String>,
    jobid: String,
    object: String,
    stream: String,
    offsets: Offsets,
    start: Duration,
    count: u64,
    pace: Pace,
    requests: u64,
    bytes: u64,
    request: Request,
}

impl FromStr for Spec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut spec = Self {
            name: "client".into(),
            nid: None,
            jobid: String::new(),
            object: "0".into(),
            stream: "0".into(),
            offsets: Offsets::At(0),
            start: Duration::ZERO,
            count: 1,
            pace: Pace::Closed { depth: 1 },
            requests: u64::MAX,
            bytes: 4096,
            request: Request::new(0).opcode(opcode::OST_READ).length(4096),
        };
        for pair in text.split(',') {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(format!("expected NAME=VALUE, found '{pair}'"));
            };
            spec.set(key, value)
                .ok_or_else(|| format!("'{pair}': unknown name or invalid value"))?;
        }
        Ok(spec)
    }
}

impl Spec {
    /// Sets the parameter `key` to `value`; returns `None` if it is invalid.
    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        let number = || value.parse::<u64>().ok();
        let id = || value.parse::<u32>().ok();
        let request = self.request;
        match key {
            "name" => self.name = value.into(),
            "jobid" => self.jobid = value.into(),
            "nid" => {
                value.parse::<Nid>().ok()?;
                self.nid = Some(value.into());
            }
            "count" => self.count = number().filter(|count| (1..=100_000).contains(count))?,
            "depth" => {
                self.pace = Pace::Closed {
                    depth: number().filter(|depth| *depth > 0)?,
                };
            }
            "rate" => {
                let rate = value.parse::<f64>().ok()?;
                let interval = Duration::try_from_secs_f64(1.0 / rate).ok()?;
                if interval.is_zero() {
                    return None;
                }
                self.pace = Pace::Open { interval };
            }
            "requests" => self.requests = number()?,
            "size" => {
                self.bytes = number()?;
                self.request = request.length(self.bytes);
            }
            "charge" => self.request = request.charge(number()?),
            "object" | "stream" => {
                value.replace('%', "0").parse::<u64>().ok()?;
                match key {
                    "object" => self.object = value.into(),
                    _ => self.stream = value.into(),
                }
            }
            "offset" => {
                self.offsets = match value {
                    "seq" => Offsets::Sequential,
                    "random" => Offsets::Random,
                    _ => Offsets::At(number()?),
                };
            }
            "target" => self.request = request.target(id()?),
            "start" => {
                self.start = Duration::try_from_secs_f64(value.parse().ok()?).ok()?;
            }
            "opcode" => {
                let named = Opcode::parse(value).map(Opcode::number);
                self.request = request.opcode(named.or_else(id)?);
            }
            "uid" => self.request = request.uid(id()?),
            "gid" => self.request = request.gid(id()?),
            "nodes" => self.request = request.job_size(u32::try_from(number()?).ok()?),
            "projid" => self.request = request.projid(id()?),
            "nodemap" => self.request = request.nodemap(id()?),
            "priority" => match value {
                "high" => self.request = request.high_priority(true),
                "regular" => self.request = request.high_priority(false),
                _ => return None,
            },
            _ => return None,
        }
        Some(())
    }

    /// Returns the specified clients.
    pub fn players(&self) -> impl Iterator<Item = Player> + '_ {
        (0..self.count).map(|index| {
            let with = |text: &str| text.replace('%', &index.to_string());
            let jobid = with(&self.jobid);
            // `set` has checked that the text is a number, but it may be too long after the
            // replacement.
            let number = |text: &str| with(text).parse().unwrap_or(u64::MAX);
            let mut request = self
                .request
                .jobid(&jobid)
                .object(number(&self.object))
                .stream(number(&self.stream));
            if let Some(nid) = self.nid.as_ref().and_then(|nid| counted(nid, index)) {
                request = request.nid(&nid);
            }
            Player {
                name: with(&self.name),
                pace: self.pace.clone(),
                bytes: self.bytes,
                object: number(&self.object),
                offsets: self.offsets,
                random: Random::with_seed(index),
                start: self.start,
                credits: u64::MAX,
                request,
                each: jobid.contains('@').then_some(jobid),
                wanted: self.requests,
                left: self.requests,
                active: 0,
                next: None,
            }
        })
    }
}

/// Returns the network identifier `nid` with `index` added to its address.
fn counted(nid: &str, index: u64) -> Option<Nid> {
    let (address, net) = nid.split_once('@')?;
    let text = match address.parse() {
        Ok(IpAddr::V4(ip)) => {
            let ip = u32::from(ip).wrapping_add(index as u32);
            std::net::Ipv4Addr::from(ip).to_string()
        }
        Ok(IpAddr::V6(ip)) => {
            let ip = u128::from(ip).wrapping_add(index.into());
            std::net::Ipv6Addr::from(ip).to_string()
        }
        Err(_) => (address.parse::<u64>().ok()? + index).to_string(),
    };
    format!("{text}@{net}").parse().ok()
}

/// Simulated client.
#[derive(Debug)]
pub struct Player {
    /// Name of the client in the report.
    pub name: String,
    /// Times of the requests.
    pub pace: Pace,
    /// Object of the requests.
    pub object: u64,
    bytes: u64,
    offsets: Offsets,
    /// Generator of random offsets.
    random: Random,
    start: Duration,
    /// Current credits; unlimited if they are ignored.
    credits: u64,
    request: Request,
    /// Job identifier per request, with `@` in place of the number of the request; `None` if it is
    /// constant.
    each: Option<String>,
    wanted: u64,
    left: u64,
    active: u64,
    next: Option<Instant>,
}

impl Player {
    /// Starts the client at `start`, plus its own delay. With `credits` the client respects its
    /// credits, initially 1.
    pub fn begin(&mut self, start: Instant, credits: bool) {
        if !self.start.is_zero() {
            self.next = Some(start + self.start);
        }
        if credits {
            self.credits = 1;
        }
    }

    /// Sets the credits of the client.
    pub fn set_credits(&mut self, credits: u64) {
        self.credits = credits;
    }

    /// Returns true if a request is due now; if so, the request is counted as submitted.
    pub fn due(&mut self, now: Instant) -> bool {
        if self.left == 0 || self.active >= self.credits {
            return false;
        }
        match self.pace {
            Pace::Closed { depth } if self.active >= depth => return false,
            Pace::Closed { .. } => {
                if self.next.is_some_and(|next| next > now) {
                    return false;
                }
                self.next = None;
            }
            Pace::Open { interval } => {
                let next = self.next.unwrap_or(now);
                if next > now {
                    return false;
                }
                self.next = Some(next + interval);
            }
        }
        self.left -= 1;
        self.active += 1;
        true
    }

    /// Returns the time of the next request, if it depends only on time.
    pub fn next(&self) -> Option<Instant> {
        self.next
            .filter(|_| self.left > 0 && self.active < self.credits)
    }

    /// Returns the offset of the next request.
    fn offset(&mut self) -> u64 {
        match self.offsets {
            Offsets::At(offset) => offset,
            Offsets::Sequential => (self.wanted - self.left - 1).wrapping_mul(self.bytes),
            Offsets::Random => {
                let places = (EXTENT / self.bytes.max(1)).max(1);
                self.random.u64(..places) * self.bytes
            }
        }
    }

    /// Returns the request that was due last, with the cookie `cookie`, and its offset.
    pub fn request(&mut self, cookie: u64) -> (Request, u64) {
        let offset = self.offset();
        let request = match &self.each {
            Some(jobid) => {
                let number = self.wanted - self.left;
                self.request.jobid(&jobid.replace('@', &number.to_string()))
            }
            None => self.request,
        };
        (request.offset(offset).named(cookie), offset)
    }

    /// Returns the size of each request, bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Records the end of a request.
    pub fn ended(&mut self) {
        self.active -= 1;
    }

    /// Returns true if no request is in flight.
    pub fn is_idle(&self) -> bool {
        self.active == 0
    }

    /// Returns true if no request is due or in flight any more.
    pub fn is_over(&self) -> bool {
        self.left == 0 && self.is_idle()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the last client specified by `text`, and its request without a cookie.
    fn player(text: &str) -> (Player, Request) {
        let spec: Spec = text.parse().unwrap();
        (spec.players().last().unwrap(), spec.request)
    }

    #[test]
    fn specifications() {
        let spec: Spec = "name=c%,nid=10.0.0.254@tcp,jobid=job.%,count=3,rate=10,uid=5"
            .parse()
            .unwrap();
        let mut players: Vec<_> = spec.players().collect();
        assert_eq!(players.len(), 3);
        assert_eq!(players[2].name, "c2");
        let wanted = Request::new(9)
            .opcode(opcode::OST_READ)
            .length(4096)
            .uid(5)
            .jobid("job.2")
            .nid(&"10.0.1.0@tcp".parse().unwrap());
        assert_eq!(players[2].request(9), (wanted, 0));
        for text in [
            "",
            "name",
            "depth=0",
            "rate=-1",
            "rate=0",
            "uid=x",
            "nid=1",
            "priority=",
            "stream=x",
            "offset=back",
            "target=-1",
            "start=-1",
            "x=1",
        ] {
            assert!(text.parse::<Spec>().is_err(), "{text}");
        }
    }

    #[test]
    fn each_request_its_own_job() {
        let (mut player, plain) = player("jobid=job%.@,depth=2,count=2");
        let now = Instant::now();
        for number in 1..=2u64 {
            assert!(player.due(now));
            let wanted = plain.jobid(&format!("job1.{number}")).named(7);
            assert_eq!(player.request(7).0, wanted);
        }
    }

    #[test]
    fn a_closed_loop_waits_for_an_end() {
        let (mut player, _) = player("depth=2,requests=3");
        let now = Instant::now();
        assert!(player.due(now) && player.due(now) && !player.due(now));
        player.ended();
        assert!(player.due(now) && !player.due(now) && player.next().is_none());
        player.ended();
        player.ended();
        assert!(player.is_over());
    }

    #[test]
    fn an_open_loop_keeps_its_rate() {
        let (mut player, _) = player("rate=100");
        let start = Instant::now();
        let due = |player: &mut Player, ms| {
            let now = start + Duration::from_millis(ms);
            (0..).take_while(|_| player.due(now)).count()
        };
        assert_eq!(due(&mut player, 0), 1);
        assert_eq!(due(&mut player, 9), 0);
        // The requests are late, but none is dropped.
        assert_eq!(due(&mut player, 35), 3);
        assert_eq!(player.next(), Some(start + Duration::from_millis(40)));
    }

    #[test]
    fn ranges() {
        let offsets = |text: &str| -> Vec<u64> {
            let (mut player, _) = player(text);
            let mut next = || {
                assert!(player.due(Instant::now()));
                player.request(1).1
            };
            (0..3).map(|_| next()).collect()
        };
        assert_eq!(offsets("depth=9,offset=seq,size=4096"), [0, 4096, 8192]);
        assert_eq!(offsets("depth=9,offset=7"), [7, 7, 7]);
        let random = offsets("depth=9,offset=random,size=512");
        assert!(random.iter().all(|at| at % 512 == 0 && *at < EXTENT));
        assert!(random[0] != random[1] && random == offsets("depth=9,offset=random,size=512"));
        assert_ne!(random, offsets("depth=9,offset=random,size=512,count=2"));
        let (mut player, plain) = player("object=1%,stream=2%,target=3,count=2");
        let wanted = plain.jobid("").object(11).stream(21).target(3);
        assert!(player.due(Instant::now()));
        assert_eq!(player.request(4), (wanted.named(4), 0));
    }

    #[test]
    fn requests_in_flight_are_limited_by_credits() {
        let (mut player, _) = player("depth=9,start=1");
        let now = Instant::now();
        player.begin(now, true);
        assert!(!player.due(now));
        assert_eq!(player.next(), Some(now + Duration::from_secs(1)));
        let now = now + Duration::from_secs(1);
        assert!(player.due(now) && !player.due(now) && player.next().is_none());
        player.set_credits(2);
        assert!(player.due(now) && !player.due(now));
        player.set_credits(1);
        player.ended();
        assert!(!player.due(now));
        player.ended();
        assert!(player.due(now));
    }
}
