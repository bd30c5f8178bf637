//! Objects on a member that do not decode: which of them may be ours. A stranger's is nobody's business; one that may be
//! ours, or of which nothing is known, is taken for ours wherever its absence would be concluded.
//! Must not know what is concluded.

use std::collections::BTreeSet;

use super::withdraw::CHILD_KINDS;
use super::{Flags, decision};
use crate::api::names::FLEET_ID;
use crate::api::{Kind, RootId, Uid};
use crate::row::{Quarantined, Row, Tables};

/// What is being taken off a member: all below `mirror`, all with the root id, in this namespace.
#[derive(Clone, Copy)]
pub(super) struct Family<'a> {
    /// Namespace.
    pub(super) namespace: &'a str,
    /// Root id.
    pub(super) root: &'a RootId,
    /// UID of the mirror, where one was seen.
    pub(super) mirror: Option<&'a Uid>,
}

/// An object that cannot be read and may be of the family: which, and why it cannot be read.
pub(super) fn hidden_child<'a>(tables: &'a Tables, family: Family<'a>, flags: &Flags) -> Option<&'a str> {
    let hidden: Vec<&Quarantined> = CHILD_KINDS.iter().flat_map(|kind| in_namespace(tables, *kind, family)).collect();
    let may_be = |object: &&&Quarantined| match &object.known {
        None => true,
        Some(row) => match &row.root_id {
            Some(root) => root == family.root,
            // Ours, and of whom is not said.
            None => !row.annotation(FLEET_ID).is_empty() && decision::is_of_fleet(row, flags),
        },
    };
    let found = hidden.iter().find(may_be).copied().or_else(|| owned(tables, family, &hidden));
    found.map(|object| object.error.as_str())
}

fn in_namespace<'a>(tables: &'a Tables, kind: Kind, family: Family<'a>) -> impl Iterator<Item = &'a Quarantined> {
    let objects = tables.table(kind).quarantined.iter();
    // One whose namespace cannot be read may be anywhere.
    objects.filter(move |((n, _), _)| **n == *family.namespace || n.is_empty()).map(|(_, object)| object)
}

/// One of these that an object of the family owns, directly or through others.
fn owned<'a>(tables: &Tables, family: Family, hidden: &[&'a Quarantined]) -> Option<&'a Quarantined> {
    if hidden.is_empty() {
        return None;
    }
    let mut seen: BTreeSet<Uid> = family.mirror.cloned().into_iter().collect();
    seen.extend(tables.of_root(family.root).map(|row| row.uid.clone()));
    let mut open: Vec<Uid> = seen.iter().cloned().collect();
    while let Some(owner) = open.pop() {
        let is_owner = |row: &Row| row.owners.contains(&owner);
        if let Some(found) = hidden.iter().find(|object| object.known.as_deref().is_some_and(is_owner)) {
            return Some(found);
        }
        for child in tables.owned_by(&owner) {
            if seen.insert(child.uid.clone()) {
                open.push(child.uid.clone());
            }
        }
    }
    None
}
