// SPDX-License-Identifier: MIT OR Apache-2.0

//! Network identifiers in Lustre's notation: `ADDRESS@NETWORK`.

use std::{fmt, net::IpAddr, str::FromStr};

use crate::wire;

/// Types of networks, by name.
const NETS: [(&str, u8); 7] = [
    ("tcp", wire::NET_TCP),
    ("o2ib", wire::NET_O2IB),
    ("lo", wire::NET_LO),
    ("gni", wire::NET_GNI),
    ("gip", wire::NET_GIP),
    ("ptlf", wire::NET_PTLF),
    ("kfi", wire::NET_KFI),
];

/// Network identifier of a client.
///
/// Only the syntax is checked; the module checks that the network accepts the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Nid {
    /// Type of the network: one of `wire::NET_*`.
    pub net: u8,
    /// Number of the network.
    pub number: u16,
    address: Address,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Address {
    Ip(IpAddr),
    Number(u32),
}

impl Nid {
    /// Returns the address, most significant byte first and padded with 0, and its length, bytes.
    pub fn address(&self) -> ([u8; 16], u8) {
        let short = |address: [u8; 4]| {
            let mut all = [0; 16];
            all[..4].copy_from_slice(&address);
            (all, 4)
        };
        match self.address {
            Address::Ip(IpAddr::V6(ip)) => (ip.octets(), 16),
            Address::Ip(IpAddr::V4(ip)) => short(ip.octets()),
            Address::Number(number) => short(number.to_be_bytes()),
        }
    }
}

/// Returns the identifier on the network `tcp`; an IPv4-mapped IPv6 address is converted to IPv4.
impl From<IpAddr> for Nid {
    fn from(address: IpAddr) -> Self {
        Self {
            net: wire::NET_TCP,
            number: 0,
            address: Address::Ip(address.to_canonical()),
        }
    }
}

/// Error for a text that is not a network identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotANid;

impl fmt::Display for NotANid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not ADDRESS@NETWORK, as 10.0.0.1@tcp or 7@kfi1")
    }
}

impl std::error::Error for NotANid {}

impl FromStr for Nid {
    type Err = NotANid;

    fn from_str(text: &str) -> Result<Self, NotANid> {
        let (address, network) = text.split_once('@').ok_or(NotANid)?;
        let (net, number) = NETS
            .iter()
            .find_map(|(name, net)| {
                let number = network.strip_prefix(name)?;
                match number {
                    "" => Some((*net, 0)),
                    number => Some((*net, number.parse().ok()?)),
                }
            })
            .ok_or(NotANid)?;
        let address = match address.parse() {
            Ok(ip) => Address::Ip(ip),
            Err(_) => Address::Number(address.parse().map_err(|_| NotANid)?),
        };
        Ok(Self {
            net,
            number,
            address,
        })
    }
}

impl fmt::Display for Nid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Address::Ip(ip) => write!(f, "{ip}")?,
            Address::Number(number) => write!(f, "{number}")?,
        }
        let name = NETS.iter().find(|(_, net)| *net == self.net);
        write!(f, "@{}", name.map_or("?", |(name, _)| name))?;
        match self.number {
            0 => Ok(()),
            number => write!(f, "{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_and_written() {
        for text in [
            "10.0.0.1@tcp",
            "10.0.0.1@o2ib3",
            "fe80::1@tcp",
            "0@lo",
            "7@kfi2",
        ] {
            let nid: Nid = text.parse().unwrap();
            assert_eq!(nid.to_string(), text);
        }
        let nid: Nid = "258@kfi".parse().unwrap();
        assert_eq!(
            nid.address(),
            ([0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 4)
        );
    }

    #[test]
    fn of_addresses() {
        for (address, nid) in [
            ("10.0.0.1", "10.0.0.1@tcp"),
            ("fe80::1", "fe80::1@tcp"),
            ("::ffff:10.0.0.1", "10.0.0.1@tcp"),
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(Nid::from(address).to_string(), nid);
        }
    }

    #[test]
    fn refused() {
        for text in [
            "",
            "10.0.0.1",
            "10.0.0.1@",
            "10.0.0.1@xyz",
            "a@tcp",
            "1@tcp-1",
            "1@tcp65536",
        ] {
            assert_eq!(text.parse::<Nid>(), Err(NotANid), "{text}");
        }
    }
}
