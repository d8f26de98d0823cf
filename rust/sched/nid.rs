// SPDX-License-Identifier: GPL-2.0-only

//! Network identifiers of clients in Lustre's syntax: `ADDRESS@NETWORK`.
//!
//! A network consists of a type ([`Net`]), which determines the syntax of addresses, and a number.
//! Number 0 is omitted (`tcp` is `tcp0`). An [`Address`] is an IPv4 or IPv6 address on networks
//! with IP addresses, else a decimal number.
//!
//! | network | type | addresses |
//! |---|---|---|
//! | `tcp`, `o2ib`, `gip` | sockets, InfiniBand verbs, Gemini over IP | IPv4 or IPv6 |
//! | `gni`, `ptlf`, `kfi` | Gemini, Portals 4, kfabric | a number |
//! | `lo` | loopback | always `0@lo` |
//!
//! Two identifiers name the same client if type, number and address are equal. An IPv4 address and
//! the IPv6 address that embeds it are different.

pub mod pattern;

use crate::sched::error::{Error, Result};
use core::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// Type of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Net {
    /// `tcp`: IP addresses over sockets.
    Tcp,
    /// `o2ib`: InfiniBand verbs, named by IP addresses.
    O2ib,
    /// `lo`: this node.
    Lo,
    /// `gni`: Cray Gemini and Aries, numbered nodes.
    Gni,
    /// `gip`: same hardware as `gni`, named by IP addresses.
    Gip,
    /// `ptlf`: Portals 4, numbered nodes.
    Ptlf,
    /// `kfi`: kfabric, numbered nodes.
    Kfi,
}

impl Net {
    /// All types.
    pub const ALL: [Self; 7] = [
        Self::Tcp,
        Self::O2ib,
        Self::Lo,
        Self::Gni,
        Self::Gip,
        Self::Ptlf,
        Self::Kfi,
    ];

    /// Returns the name of the network type.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::O2ib => "o2ib",
            Self::Lo => "lo",
            Self::Gni => "gni",
            Self::Gip => "gip",
            Self::Ptlf => "ptlf",
            Self::Kfi => "kfi",
        }
    }

    /// Returns true if addresses of the network are IP addresses.
    pub const fn is_ip(self) -> bool {
        matches!(self, Self::Tcp | Self::O2ib | Self::Gip)
    }

    /// Parses a network with an optional number, such as `tcp` or `o2ib1`.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: unknown name, a number that is malformed or above 65535, or a number after `lo`.
    pub fn parse(text: &str) -> Result<(Self, u16)> {
        let unknown = Error::invalid("unknown network (networks: tcp o2ib lo gni gip ptlf kfi)");
        let (net, rest) = Self::ALL
            .iter()
            .find_map(|&net| {
                let rest = text.strip_prefix(net.name())?;
                rest.bytes()
                    .all(|b| b.is_ascii_digit())
                    .then_some((net, rest))
            })
            .ok_or(unknown)?;
        if rest.is_empty() {
            return Ok((net, 0));
        }
        if net == Self::Lo {
            return Err(Error::invalid("network lo takes no number"));
        }
        match rest.parse() {
            Ok(number) => Ok((net, number)),
            Err(_) => Err(Error::invalid("network number is too large (limit: 65535)")),
        }
    }
}

/// Address on a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    /// IPv4, most significant byte first.
    V4([u8; 4]),
    /// IPv6, most significant byte first.
    V6([u8; 16]),
    /// Node number.
    Number(u32),
}

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => Self::V4(ip.octets()),
            IpAddr::V6(ip) => Self::V6(ip.octets()),
        }
    }
}

/// Network identifier of a client.
///
/// # Invariants
///
/// The kind of the address matches the network type: IP on [`Net::is_ip`] networks, 0 on `lo`, else
/// a number. The number of `lo` is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nid {
    net: Net,
    number: u16,
    address: Address,
}

impl Nid {
    /// Parses `ADDRESS@NETWORK`, for example `10.0.0.1@tcp`, `fe80::1@o2ib1` or `0@lo`.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: no `@`, an unknown network, or an address that is invalid for the network.
    pub fn parse(text: &str) -> Result<Self> {
        let Some((address, net)) = text.split_once('@') else {
            return Err(Error::invalid("no '@' between address and network"));
        };
        let (net, number) = Net::parse(net)?;
        let address = if net.is_ip() {
            match address.parse::<IpAddr>() {
                Ok(ip) => ip.into(),
                Err(_) => return Err(Error::invalid("bad address: not IPv4 or IPv6")),
            }
        } else {
            // `u32::from_str` accepts a sign, node numbers have none.
            let digits = address.bytes().all(|b| b.is_ascii_digit());
            match address.parse::<u32>() {
                Ok(node) if digits => Address::Number(node),
                _ => return Err(Error::invalid("bad address: not a decimal number")),
            }
        };
        if net == Net::Lo && address != Address::Number(0) {
            return Err(Error::invalid("bad address: lo has only 0@lo"));
        }
        // INVARIANT: the kind of the address and the number of `lo` were checked.
        Ok(Self {
            net,
            number,
            address,
        })
    }

    /// Creates the identifier of the client at `address` on network `number` of type `net`.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: an address that is invalid for the network, or one of `lo` other than `0@lo`.
    pub fn new(net: Net, number: u16, address: Address) -> Result<Self> {
        let fits = match (net, address) {
            (Net::Lo, address) => number == 0 && address == Address::Number(0),
            (net, Address::Number(_)) => !net.is_ip(),
            (net, Address::V4(_) | Address::V6(_)) => net.is_ip(),
        };
        if !fits {
            return Err(Error::invalid(
                "address does not match the type of the network",
            ));
        }
        // INVARIANT: checked above.
        Ok(Self {
            net,
            number,
            address,
        })
    }

    /// Returns the type of the network.
    pub const fn net(&self) -> Net {
        self.net
    }

    /// Returns the number of the network.
    pub const fn number(&self) -> u16 {
        self.number
    }

    /// Returns the address on the network.
    pub const fn address(&self) -> Address {
        self.address
    }
}

impl fmt::Display for Nid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Address::V4(ip) => write!(f, "{}", Ipv4Addr::from(ip))?,
            Address::V6(ip) => write!(f, "{}", Ipv6Addr::from(ip))?,
            Address::Number(node) => write!(f, "{node}")?,
        }
        write!(f, "@{}", self.net.name())?;
        if self.number != 0 {
            write!(f, "{}", self.number)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fits_in_24_bytes() {
        assert!(core::mem::size_of::<Nid>() <= 24);
        assert!(core::mem::size_of::<Option<Nid>>() <= 24);
    }

    #[test]
    fn round_trip() {
        for (text, shown) in [
            ("10.0.0.1@tcp", "10.0.0.1@tcp"),
            ("10.0.0.1@tcp0", "10.0.0.1@tcp"),
            ("255.255.255.255@tcp65535", "255.255.255.255@tcp65535"),
            ("10.1.2.3@o2ib1", "10.1.2.3@o2ib1"),
            ("fe80::1@tcp6", "fe80::1@tcp6"),
            ("FE80:0::1@gip", "fe80::1@gip"),
            ("::@o2ib", "::@o2ib"),
            ("::ffff:1.2.3.4@tcp", "::ffff:1.2.3.4@tcp"),
            ("0@lo", "0@lo"),
            ("7@gni", "7@gni"),
            ("0042@ptlf3", "42@ptlf3"),
            ("4294967295@kfi2", "4294967295@kfi2"),
        ] {
            let nid = Nid::parse(text).unwrap();
            assert_eq!(nid.to_string(), shown);
            assert_eq!(Nid::parse(shown), Ok(nid));
        }
    }

    #[test]
    fn refused() {
        for (text, word) in [
            ("", "'@'"),
            ("10.0.0.1", "'@'"),
            ("10.0.0.1@", "network"),
            ("10.0.0.1@ib", "unknown network"),
            ("10.0.0.1@TCP", "unknown network"),
            ("10.0.0.1@tcp1 ", "unknown network"),
            ("10.0.0.1@tcp65536", "65535"),
            ("10.0.0@tcp", "address"),
            ("10.0.0.256@tcp", "address"),
            ("010.0.0.1@tcp", "address"),
            ("fe80::1%eth0@tcp", "address"),
            ("5@tcp", "address"),
            ("10.0.0.1@gni", "number"),
            ("+5@gni", "number"),
            ("4294967296@kfi", "number"),
            ("1@lo", "0@lo"),
            ("0@lo0", "takes no number"),
        ] {
            let reason = Nid::parse(text).unwrap_err().reason;
            assert!(reason.contains(word), "{text:?}: {reason}");
        }
    }

    #[test]
    fn made_of_parts() {
        for text in ["10.0.0.1@tcp3", "fe80::1@gip", "0@lo", "7@kfi2"] {
            let nid = Nid::parse(text).unwrap();
            assert_eq!(Nid::new(nid.net(), nid.number(), nid.address()), Ok(nid));
        }
        for (net, number, address) in [
            (Net::Lo, 1, Address::Number(0)),
            (Net::Lo, 0, Address::Number(1)),
            (Net::Lo, 0, Address::V4([0; 4])),
            (Net::Tcp, 0, Address::Number(1)),
            (Net::Kfi, 0, Address::V6([0; 16])),
        ] {
            assert!(Nid::new(net, number, address).is_err());
        }
    }
}
