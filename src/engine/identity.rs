//! Members that are the clusters that they were registered as: nothing else is planned on them.
//! Must not know how an identity is established.

use super::Engine;
use super::owner::{Owner, Which};
use super::tables::member_key;
use crate::api::{Id, Key, Kind, MemberName, Time};
use crate::plan::Why;
use crate::plan::identity::{Identity, identity};

impl Engine {
    /// Works out anew whether a member is what it was registered as, and wakes what waited for that.
    pub(super) fn identify(&mut self, member: &MemberName, now: Time) {
        let cluster = self.world.hub.get(&Id::new(Kind::MemberCluster, "", member.0.clone()));
        let found = cluster.zip(self.world.members.get(member)).map(|(cluster, tables)| {
            match identity(cluster, tables, &self.flags) {
                Identity::Settled => Ok(()),
                Identity::Marked | Identity::Free => Err(Why::new(format!("member {member} is being registered"))),
                Identity::Unseen(why) => Err(Why::new(format!("member {member} is not known yet: {why}"))),
                Identity::Wrong(why) => Err(Why::new(format!("member {member} is not touched: {why}"))),
            }
        });
        if self.identities.get(member) == found.as_ref() {
            return;
        }
        let settled = matches!(found, Some(Ok(())));
        match found {
            Some(found) => self.identities.insert(member.clone(), found),
            None => self.identities.remove(member),
        };
        self.wake(&member_key(member), now);
        if settled {
            let keys: Vec<Key> = self.world.keys_of(member).collect();
            self.wake_all(keys, now);
        }
    }

    /// Why a key on a member is not planned, where the member is not known to be what it was registered as.
    pub(super) fn unsettled(&self, owner: &Owner) -> Option<Why> {
        let member = owner.member.as_ref().filter(|_| owner.which != Which::Member)?;
        if self.world.is_given_up(member) || !self.world.members.contains_key(member) {
            return None;
        }
        match self.identities.get(member) {
            Some(Ok(())) => None,
            Some(Err(why)) => Some(why.clone()),
            None => Some(Why::new(format!("member {member} is not known yet"))),
        }
    }
}
