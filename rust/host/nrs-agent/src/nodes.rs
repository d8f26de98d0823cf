// SPDX-License-Identifier: GPL-2.0-only

//! Nodes of a service, with the mapping between ids of the module and ids of the realm.
//!
//! - *Local id*: id of a node in the module, hashed with a seed of the module.
//! - *Realm id*: id of a node on all servers: its path of names, hashed with the secret of the
//!   realm ([`Secret::node`]).
//!
//! ```text
//!   readings ──take──► nodes ──unnamed──► names of the module ──name──► realm ids
//!                        ├──accounts──► the protocol, by realm ids
//!   the module ◄─factors─┴────────────◄ the protocol
//! ```

use std::collections::{btree_map::Entry, BTreeMap, BTreeSet};

use crate::{
    kernel::{Node, NodeName},
    secret::Secret,
    Account,
};

/// Maximum number of levels in a path.
const DEPTH: usize = 16;

/// State of a node.
#[derive(Clone, Debug)]
struct KnownNode {
    /// Last record of the node.
    node: Node,
    /// Level and key of the node, if the module has reported them.
    name: Option<(String, String)>,
    /// Realm id of the node, if its name and the names of its ancestors are known.
    realm: Option<u64>,
}

/// Nodes of a service, by local id.
///
/// # Invariants
///
/// There are at most `max` nodes.
pub struct Nodes {
    secret: Secret,
    max: usize,
    known: BTreeMap<u64, KnownNode>,
    /// True if a node was left out since the last read of all nodes.
    left_out: bool,
}

impl Nodes {
    /// Creates an empty list of at most `max` nodes.
    pub fn new(secret: Secret, max: u32) -> Self {
        Self {
            secret,
            max: max as usize,
            known: BTreeMap::new(),
            left_out: false,
        }
    }

    /// Removes all nodes.
    pub fn clear(&mut self) {
        self.known.clear();
        self.left_out = false;
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Returns true if all nodes should be read: nodes were left out, and there is room now.
    /// Unchanged nodes are not reported otherwise.
    pub fn wants_all(&self) -> bool {
        self.left_out && self.known.len() < self.max
    }

    /// Removes nodes that are not in `nodes`, a read of all nodes; the caller passes it to `take`
    /// next.
    pub fn retain(&mut self, nodes: &[Node]) {
        let all: BTreeSet<u64> = nodes.iter().map(|node| node.id).collect();
        self.known.retain(|id, _| all.contains(id));
        self.left_out = false;
    }

    /// Stores the nodes that were read; returns the number of nodes without room. Groups are stored
    /// before their children, and the children of a group without room are left out as well. The
    /// last of several records of a node wins.
    pub fn take(&mut self, mut nodes: Vec<Node>) -> u64 {
        nodes.sort_by_key(|node| (node.level, node.id));
        let mut left_out = 0;
        for node in nodes {
            if node.id == 0 || node.id == u64::MAX {
                continue;
            }
            let grouped = node.parent == 0 || self.known.contains_key(&node.parent);
            let room = grouped && self.known.len() < self.max;
            match self.known.entry(node.id) {
                Entry::Occupied(mut place) => place.get_mut().node = node,
                Entry::Vacant(place) if room => {
                    place.insert(KnownNode {
                        node,
                        name: None,
                        realm: None,
                    });
                }
                Entry::Vacant(_) => left_out += 1,
            }
        }
        self.left_out |= left_out > 0;
        left_out
    }

    /// Returns the local ids of at most `most` nodes whose names are not known.
    pub fn unnamed(&self, most: usize) -> Vec<u64> {
        let unnamed = self.known.iter().filter(|(_, known)| known.name.is_none());
        unnamed.map(|(id, _)| *id).take(most).collect()
    }

    /// Stores names of nodes, and computes their realm ids. Names of unknown nodes are ignored.
    pub fn name(&mut self, names: Vec<NodeName>) {
        for name in names {
            if let Some(known) = self.known.get_mut(&name.id) {
                known.name = Some((name.level, name.key));
            }
        }
        let pending = self.known.iter().filter(|(_, known)| known.realm.is_none());
        let mut pending: Vec<(u32, u64)> =
            pending.map(|(id, known)| (known.node.level, *id)).collect();
        // From the root to the leaves.
        pending.sort_unstable();
        for (_, id) in pending {
            let realm = self.realm_of(id);
            if let Some(known) = self.known.get_mut(&id) {
                known.realm = realm;
            }
        }
    }

    /// Returns the realm id of the node `id`, if its name and the realm id of its parent are known.
    /// A cgroup that stands for an unknown user or job has none, because its number is that of
    /// another cgroup on another server.
    fn realm_of(&self, id: u64) -> Option<u64> {
        let known = self.known.get(&id)?;
        let (level, key) = known.name.as_ref()?;
        if level != "cgroup" && key.starts_with("cgroup:") {
            return None;
        }
        let above = self.above(&known.node)?;
        Some(self.secret.node(above, level, key))
    }

    /// Returns the realm id of the parent of `node`, if it is known; 0 for the root.
    fn above(&self, node: &Node) -> Option<u64> {
        match node.parent {
            0 => Some(0),
            parent => self.known.get(&parent)?.realm,
        }
    }

    /// Returns the accounts of all nodes that have realm ids, and removes the nodes marked as gone.
    pub fn accounts(&mut self) -> Vec<Account> {
        let account = |known: &KnownNode| {
            let node = &known.node;
            Some(Account {
                id: known.realm?,
                parent: self.above(node)?,
                weight: node.weight,
                leaf: node.leaf,
                service: node.service,
                active: node.active,
                waiting: node.waiting,
            })
        };
        let accounts = self.known.values().filter_map(account).collect();
        self.known.retain(|_, known| !known.node.gone);
        accounts
    }

    /// Returns the factors (Q31) below 1, by local id and ordered by it. `factors` is ordered by
    /// realm id.
    pub fn factors(&self, factors: &[(u64, u32)]) -> Vec<(u64, u32)> {
        let factor = |(id, known): (&u64, &KnownNode)| {
            let realm = known.realm?;
            let found = factors.binary_search_by_key(&realm, |(id, _)| *id).ok()?;
            let factor = factors[found].1.max(1);
            (factor < 1 << 31).then_some((*id, factor))
        };
        self.known.iter().filter_map(factor).collect()
    }

    /// Returns the paths of all nodes that have realm ids, such as `gid:5/uid:1000`, by realm id.
    pub fn paths(&self) -> BTreeMap<u64, String> {
        let path = |known: &KnownNode| {
            let mut path = known.name.as_ref()?.1.clone();
            let mut up = known.node.parent;
            for _ in 0..DEPTH {
                if up == 0 {
                    break;
                }
                let above = self.known.get(&up)?;
                path = format!("{}/{path}", above.name.as_ref()?.1);
                up = above.node.parent;
            }
            Some((known.realm?, path))
        };
        self.known.values().filter_map(path).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> Secret {
        Secret::parse("000102030405060708090a0b0c0d0e0f").unwrap()
    }

    fn node(id: u64, parent: u64, level: u32) -> Node {
        Node {
            id,
            parent,
            level,
            service: id.wrapping_mul(10),
            weight: 4096,
            leaf: level == 1,
            ..Node::default()
        }
    }

    fn name(id: u64, level: &str, key: &str) -> NodeName {
        NodeName {
            id,
            level: level.into(),
            key: key.into(),
        }
    }

    #[test]
    fn ids_are_those_of_paths() {
        let mut nodes = Nodes::new(secret(), 9);
        // A leaf before its parent, and another record of the leaf.
        let active = Node {
            active: true,
            ..node(3, 7, 1)
        };
        assert_eq!(nodes.take(vec![node(3, 7, 1), node(7, 0, 0), active]), 0);
        assert_eq!(nodes.unnamed(9), [3, 7]);
        assert_eq!(nodes.unnamed(1), [3]);
        nodes.name(vec![name(3, "uid", "uid:1"), name(8, "uid", "uid:8")]);
        // Without the name of its parent the node has no realm id.
        assert_eq!((nodes.accounts().len(), nodes.unnamed(9)), (0, vec![7]));
        nodes.name(vec![name(7, "gid", "gid:5")]);
        let group = secret().node(0, "gid", "gid:5");
        let user = secret().node(group, "uid", "uid:1");
        let accounts = nodes.accounts();
        let ids: Vec<_> = accounts.iter().map(|one| (one.id, one.parent)).collect();
        assert_eq!(ids, [(user, group), (group, 0)]);
        assert_eq!((accounts[0].service, accounts[0].active), (30, true));
        assert_eq!(nodes.paths()[&user], "gid:5/uid:1");
        let mut factors = [(user, 5), (group, 1 << 31), (1, 7)];
        factors.sort_unstable();
        assert_eq!(nodes.factors(&factors), [(3, 5)]);
        // Unchanged nodes are reported again.
        nodes.take(Vec::new());
        assert_eq!(nodes.accounts().len(), 2);
    }

    #[test]
    fn cgroups_in_place_of_users_are_local() {
        let mut nodes = Nodes::new(secret(), 9);
        nodes.take(vec![
            node(7, 0, 0),
            node(8, 0, 0),
            node(3, 7, 1),
            node(4, 8, 1),
        ]);
        nodes.name(vec![
            name(7, "uid", "cgroup:77"),
            name(8, "uid", "uid:8"),
            name(3, "jobid", "jobid:a"),
            name(4, "jobid", "jobid:a"),
        ]);
        let (accounts, unnamed) = (nodes.accounts(), nodes.unnamed(9));
        assert_eq!((accounts.len(), unnamed.len()), (2, 0));
        let user = secret().node(0, "uid", "uid:8");
        assert!(accounts
            .iter()
            .all(|one| one.id == user || one.parent == user));
    }

    #[test]
    fn nodes_are_bounded_and_go() {
        let mut nodes = Nodes::new(secret(), 2);
        let all = (1..=4).map(|id| node(id, 0, 0)).collect();
        assert_eq!((nodes.take(all), nodes.len()), (2, 2));
        nodes.name(vec![name(1, "uid", "uid:1"), name(2, "uid", "uid:2")]);
        let gone = Node {
            gone: true,
            service: 99,
            ..node(1, 0, 0)
        };
        nodes.take(vec![gone, node(0, 0, 0), node(u64::MAX, 0, 0)]);
        // The last service of the removed node counts.
        let service = nodes.accounts().iter().map(|one| one.service).max();
        assert_eq!((service, nodes.len()), (Some(99), 1));
        assert_eq!(nodes.take(vec![node(4, 0, 0)]), 0);
        nodes.clear();
        assert_eq!(nodes.len(), 0);
    }

    #[test]
    fn a_group_that_was_left_out_comes_when_there_is_room() {
        let mut nodes = Nodes::new(secret(), 3);
        let user = |id, parent| node(id, parent, 1);
        // Ids of users are lower than the ids of their groups.
        let all = vec![user(1, 8), user(2, 9), node(8, 0, 0), node(9, 0, 0)];
        assert_eq!((nodes.take(all.clone()), nodes.wants_all()), (1, false));
        assert!(nodes.known.contains_key(&8) && nodes.known.contains_key(&9));
        nodes.clear();
        let all = [all, vec![node(7, 0, 0), user(3, 9)]].concat();
        assert_eq!(nodes.take(all.clone()), 3);
        assert!(!nodes.wants_all());
        let gone = Node {
            gone: true,
            ..node(7, 0, 0)
        };
        nodes.take(vec![gone]);
        nodes.accounts();
        assert!(nodes.wants_all());
        // Node 8 was removed as well, which was not reported.
        let rest: Vec<Node> = all
            .into_iter()
            .filter(|node| node.id < 4 || node.id == 9)
            .collect();
        nodes.retain(&rest);
        assert_eq!(nodes.len(), 1);
        // Without its group user 1 is left out.
        assert_eq!(nodes.take(rest), 1);
        assert_eq!(nodes.unnamed(9), [2, 3, 9]);
    }
}
