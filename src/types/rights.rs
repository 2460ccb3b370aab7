//! Access rights of peers, from the user and group ids that the kernel reports. No I/O, no clock.

use std::fmt;

/// The user, and groups, of a peer that a user namespace hides from this process, unless a machine has
/// another number in `/proc/sys/kernel/overflowuid` (user_namespaces(7)).
const OVERFLOW: u32 = 65534;
/// The number that no user and no group has.
pub(crate) const NO_USER: u32 = u32::MAX;

/// The users and groups with access to an app, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lists {
    /// Users that may attach and type.
    pub(crate) allow_uid: Vec<u32>,
    /// Groups whose members may attach and type.
    pub(crate) allow_gid: Vec<u32>,
    /// Users that may attach read-only.
    pub(crate) view_uid: Vec<u32>,
    /// Groups whose members may attach read-only.
    pub(crate) view_gid: Vec<u32>,
}

impl Lists {
    /// Whether users other than root and the mux's own user have access.
    pub(crate) fn let_others_in(&self) -> bool {
        let Self { allow_uid, allow_gid, view_uid, view_gid } = self;
        [allow_uid, allow_gid, view_uid, view_gid].into_iter().any(|list| !list.is_empty())
    }

    /// Whether users other than those may type.
    pub(crate) fn let_others_type(&self) -> bool {
        !self.allow_uid.is_empty() || !self.allow_gid.is_empty()
    }
}

/// The right of a peer; each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Right {
    /// To read, and to ask for the status.
    View,
    /// To type, to resize, and to detach clients of its own user.
    Write,
    /// To do everything: root and the mux's own user.
    Own,
}

/// Why a peer has no access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It is in none of the lists.
    Unlisted(u32),
    /// The user namespace of the mux does not map its user.
    Hidden,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlisted(uid) => {
                write!(
                    f,
                    "user {uid} may not attach (IOTTYMUX_ALLOW_UID= and IOTTYMUX_VIEW_UID= of its mux admit users)"
                )
            }
            Self::Hidden => write!(
                f,
                "the user namespace of the mux does not map your user; try to enter it with nsenter"
            ),
        }
    }
}

impl std::error::Error for Refused {}

/// The rules of a mux.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// The user that the mux runs as.
    pub(crate) own_uid: u32,
    /// Whether the user namespace of the mux may hide users and groups from it.
    pub(crate) hides_others: bool,
    /// The other users and groups with access.
    pub(crate) lists: Lists,
}

impl Rules {
    /// The right of a user with these groups.
    pub(crate) fn of(&self, uid: u32, gids: &[u32]) -> Result<Right, Refused> {
        let Lists { allow_uid, allow_gid, view_uid, view_gid } = &self.lists;
        if uid == 0 || uid == self.own_uid {
            return Ok(Right::Own);
        }
        let is_hidden = |id: u32| self.hides_others && id == OVERFLOW;
        if is_hidden(uid) {
            return Err(Refused::Hidden);
        }
        let member = |list: &[u32]| gids.iter().any(|gid| !is_hidden(*gid) && list.contains(gid));
        if allow_uid.contains(&uid) || member(allow_gid) {
            Ok(Right::Write)
        } else if view_uid.contains(&uid) || member(view_gid) {
            Ok(Right::View)
        } else {
            Err(Refused::Unlisted(uid))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_decide() {
        let lists = Lists {
            allow_uid: vec![10, OVERFLOW],
            allow_gid: vec![100, OVERFLOW],
            view_uid: vec![20, 10],
            view_gid: vec![200, 0],
        };
        let rules = Rules { own_uid: 7, hides_others: true, lists };
        for (uid, gids, want) in [
            (0, &[][..], Ok(Right::Own)),
            (7, &[], Ok(Right::Own)),
            (10, &[], Ok(Right::Write)),
            (11, &[5, 100], Ok(Right::Write)),
            (20, &[100], Ok(Right::Write)),
            (20, &[], Ok(Right::View)),
            (11, &[200], Ok(Right::View)),
            (11, &[0], Ok(Right::View)),
            (11, &[10, 20, OVERFLOW], Err(Refused::Unlisted(11))),
            (OVERFLOW, &[100], Err(Refused::Hidden)),
        ] {
            assert_eq!(rules.of(uid, gids), want, "{uid} {gids:?}");
        }
        let nobody = Rules { lists: Lists::default(), ..rules.clone() };
        assert!(rules.lists.let_others_in() && !nobody.lists.let_others_in());
        assert_eq!(nobody.of(10, &[0]), Err(Refused::Unlisted(10)));
        let sees_all = Rules { hides_others: false, ..rules.clone() };
        assert_eq!(sees_all.of(OVERFLOW, &[]), Ok(Right::Write));
        // A mux that runs as the overflow user serves that user.
        let own = Rules { own_uid: OVERFLOW, ..nobody };
        assert_eq!(own.of(OVERFLOW, &[]), Ok(Right::Own));
    }
}
