//! The number of clients of each user, and whether one more may stay. Pure except for the process's
//! limit of descriptors.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use nix::sys::resource::{Resource, getrlimit};

use crate::core::wire::NoRoom;
use crate::types::limits;
use crate::types::rights::Right;

/// Places for clients of root and the mux's own user, so that an administrator can attach when
/// other users have taken the rest. One place in four if the process may have few descriptors.
const RESERVED_CLIENTS: usize = 64;

/// See the module. Each client is counted from its connection on, whether it may stay or not.
#[derive(Debug)]
pub(crate) struct Crowd {
    /// The maximum of clients of all users.
    most: usize,
    /// The maximum of clients of users other than root and the mux's own.
    most_others: usize,
    own: usize,
    /// The clients of each other user.
    users: BTreeMap<u32, usize>,
}

impl Crowd {
    /// No clients, with the limits of this process.
    pub(crate) fn new() -> Self {
        let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft);
        Self::with(usize::try_from(descriptors).unwrap_or(usize::MAX))
    }

    /// No clients yet, for a process that may have this many descriptors.
    fn with(descriptors: usize) -> Self {
        let places = descriptors.saturating_sub(limits::OWN_DESCRIPTORS).min(limits::CLIENTS);
        Self {
            most: places,
            most_others: places - RESERVED_CLIENTS.min(places.div_ceil(4)),
            own: 0,
            users: BTreeMap::new(),
        }
    }

    /// Counts a client; an error if it may not stay.
    pub(crate) fn enter(&mut self, uid: u32, right: Right) -> Result<()> {
        let others: usize = self.users.values().sum();
        let there = self.own + others;
        if right == Right::Own {
            self.own += 1;
            if there >= self.most {
                bail!(NoRoom(format!("there are {there} clients already")));
            }
            return Ok(());
        }
        let of_user = self.users.entry(uid).or_default();
        *of_user += 1;
        if *of_user > limits::USER_CLIENTS {
            bail!(NoRoom(format!("user {uid} has {} clients already", limits::USER_CLIENTS)));
        }
        if others >= self.most_others || there >= self.most {
            let why =
                format!("there are {there} clients already, and the other places are reserved");
            bail!(NoRoom(why));
        }
        Ok(())
    }

    /// Counts a client no more.
    pub(crate) fn leave(&mut self, uid: u32, right: Right) {
        if right == Right::Own {
            self.own = self.own.saturating_sub(1);
            return;
        }
        if let Some(of_user) = self.users.get_mut(&uid) {
            *of_user -= 1;
            if *of_user == 0 {
                self.users.remove(&uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_leave_places_for_root_and_each_user_for_the_others() {
        let mut crowd = Crowd::with(8192);
        let mut come = |uid, right| {
            let may = crowd.enter(uid, right).is_ok();
            if !may {
                crowd.leave(uid, right);
            }
            may
        };
        let fills = |come: &mut dyn FnMut(u32, Right) -> bool, uid| {
            (0..300).filter(|_| come(uid, Right::View)).count()
        };
        let mut all = 0;
        for uid in 1000..1020 {
            let of_user = fills(&mut come, uid);
            assert!(of_user <= limits::USER_CLIENTS);
            all += of_user;
        }
        assert_eq!(all, limits::CLIENTS - RESERVED_CLIENTS);
        let own = (0..100).filter(|_| come(0, Right::Own)).count();
        assert_eq!(own, RESERVED_CLIENTS);
        crowd.leave(1000, Right::View);
        assert!(crowd.enter(1001, Right::View).is_err());
        crowd.leave(1001, Right::View);
        assert!(crowd.enter(1000, Right::Write).is_ok());
    }

    #[test]
    fn few_descriptors_are_few_places() {
        let cases = [(0, 0, 0), (48, 8, 6), (1024, 984, 920), (8192, 4096, 4032)];
        for (descriptors, all, others) in cases {
            let crowd = Crowd::with(descriptors);
            assert_eq!((crowd.most, crowd.most_others), (all, others));
        }
    }
}
