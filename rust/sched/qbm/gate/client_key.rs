// SPDX-License-Identifier: GPL-2.0-only

//! Encoding of clients as words, which can be read while they are written.

use crate::sched::{
    attr::CgroupPath,
    jobid::{JobId, JOBID_MAX},
    key::{words_of, Field, Key},
    nid::{Address, Net, Nid},
    qbm::plan::ClientKey,
};

/// Number of words of a client.
pub const WORDS: usize = 5;

/// Maximum length of an address, bytes.
const ADDRESS: usize = 16;

const SHARED: u8 = 0;
const DEVICE: u8 = 1;
const UID: u8 = 2;
const JOBID: u8 = 3;
const NO_UID: u8 = 4;
const NO_JOBID: u8 = 5;
const NO_NID: u8 = 6;
const NUMBERED: u8 = 7;
const V4: u8 = 8;
const V6: u8 = 9;
const CGROUP: u8 = 10;

/// Builds words from `head`, followed by `bytes`.
fn pack(head: u64, bytes: &[u8]) -> [u64; WORDS] {
    let mut words = [head, 0, 0, 0, 0];
    for (to, word) in words.iter_mut().skip(1).zip(words_of(bytes)) {
        *to = word;
    }
    words
}

/// Encodes `party`.
pub fn words(party: &ClientKey) -> [u64; WORDS] {
    let number = |kind: u8, number: u32| pack((u64::from(number) << 32) | u64::from(kind), &[]);
    match party {
        ClientKey::Device(device) => number(DEVICE, *device),
        ClientKey::Key(Key::Uid(uid)) => number(UID, *uid),
        ClientKey::Key(Key::Cgroup(path)) => pack(u64::from(CGROUP), &path.number().to_le_bytes()),
        ClientKey::Key(Key::Absent(Field::Uid)) => number(NO_UID, 0),
        ClientKey::Key(Key::Absent(Field::Jobid)) => number(NO_JOBID, 0),
        ClientKey::Key(Key::Absent(Field::Nid)) => number(NO_NID, 0),
        ClientKey::Key(Key::Jobid(job)) => {
            let len = u64::from(job.len());
            pack((len << 8) | u64::from(JOBID), job.as_bytes())
        }
        ClientKey::Key(Key::Nid(nid)) => {
            let net = Net::ALL.iter().position(|net| *net == nid.net());
            let net = ((net.unwrap_or_default() as u64) << 8) | (u64::from(nid.number()) << 16);
            match nid.address() {
                Address::V4(bytes) => pack(net | u64::from(V4), &bytes),
                Address::V6(bytes) => pack(net | u64::from(V6), &bytes),
                Address::Number(node) => pack(net | u64::from(NUMBERED), &node.to_le_bytes()),
            }
        }
        ClientKey::Key(_) => number(SHARED, 0),
    }
}

/// Decodes `words`; `None` if they do not encode a client.
pub fn read(words: &[u64; WORDS]) -> Option<ClientKey> {
    let [head, rest @ ..] = words;
    let (kind, number) = (*head as u8, (head >> 32) as u32);
    let mut bytes = [0; JOBID_MAX + 1];
    let all = rest.iter().flat_map(|word| word.to_le_bytes());
    for (byte, value) in bytes.iter_mut().zip(all) {
        *byte = value;
    }
    let key = match kind {
        DEVICE => return Some(ClientKey::Device(number)),
        UID => Key::Uid(number),
        CGROUP => Key::Cgroup(CgroupPath::from_number(*rest.first()?)),
        NO_UID => Key::Absent(Field::Uid),
        NO_JOBID => Key::Absent(Field::Jobid),
        NO_NID => Key::Absent(Field::Nid),
        JOBID => {
            let len = usize::from((head >> 8) as u8);
            Key::Jobid(JobId::new(bytes.get(..len)?))
        }
        NUMBERED | V4 | V6 => {
            let net = Net::ALL.get(usize::from((head >> 8) as u8))?;
            let address: [u8; ADDRESS] = bytes.first_chunk().copied()?;
            let first: [u8; 4] = bytes.first_chunk().copied()?;
            let address = match kind {
                NUMBERED => Address::Number(u32::from_le_bytes(first)),
                V4 => Address::V4(first),
                _ => Address::V6(address),
            };
            Key::Nid(Nid::new(*net, (head >> 16) as u16, address).ok()?)
        }
        _ => return None,
    };
    Some(ClientKey::Key(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let nids = [
            "0@lo",
            "10.0.0.1@tcp",
            "fe80::1@o2ib7",
            "4294967295@gni65535",
        ];
        let nids = nids.map(|text| Key::Nid(Nid::parse(text).unwrap()));
        let jobs = ["a", "dd.0", &"x".repeat(31)].map(|job| Key::Jobid(JobId::new(job.as_bytes())));
        let absent = [Field::Nid, Field::Jobid, Field::Uid].map(Key::Absent);
        let others = [
            Key::Uid(0),
            Key::Uid(u32::MAX),
            Key::Cgroup(CgroupPath::from_number(u64::MAX - 7)),
            Key::Jobid(JobId::new(b"\xff\x80")),
        ];
        let keys = nids.into_iter().chain(jobs).chain(absent).chain(others);
        for party in keys
            .map(ClientKey::Key)
            .chain([0, 7].map(ClientKey::Device))
        {
            assert_eq!(read(&words(&party)), Some(party), "{party:?}");
        }
        assert_eq!(read(&words(&ClientKey::Key(Key::Default))), None);
    }
}
