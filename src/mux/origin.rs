//! Who has started a mux.

use anyhow::Result;

use super::kept_memory::MEMORY;
use crate::sys::systemd::notify::{self, Notify};
use crate::sys::systemd::store::Stored;

/// Who has started a mux: that decides what it finds, who reports how its app goes, and what it
/// leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A unit of ours, or a shell. Systemd keeps the app's ends, if there is one.
    Unit,
    /// A unit that rkt wrote: it keeps nothing.
    Rkt,
    /// The keeper of a command, whose children may write when it has ended.
    Run,
    /// The keeper of a container: its engine reports the end, and nothing of it is left then.
    Container,
}

impl Origin {
    /// Whether it is a keeper, which holds the app's ends and alone knows its life cycle.
    pub(crate) fn is_kept(self) -> bool {
        matches!(self, Self::Run | Self::Container)
    }

    /// Whether an earlier mux has served this app. A keeper of a container and the hooks of a unit
    /// may have stored ends for the first one.
    pub(super) fn takes_over(self, stored: &Stored) -> bool {
        if self == Self::Run { !stored.is_empty() } else { stored.has(MEMORY) }
    }

    /// The connection to whoever keeps the descriptors.
    pub(super) fn notify(self, stored: &mut Stored) -> Result<Notify> {
        match stored.remove(notify::KEEPER).filter(|_| self.is_kept()) {
            Some(keeper) => Ok(Notify::to_keeper(keeper)),
            None => Notify::from_env(self != Self::Rkt),
        }
    }
}
