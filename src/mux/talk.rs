//! The lines that clients can cause: each kind limited, and those of root and the mux's own user by
//! themselves, so that others cannot hide what these do.

use std::fmt::Arguments;

use log::Level;

use crate::os::diagnostics::Limited;
use crate::types::rights::Right;

/// One kind of line, of root with the mux's own user and of all others.
#[derive(Debug)]
pub(crate) struct Talk {
    own: Limited,
    others: Limited,
}

/// Clients that attach and detach.
pub(crate) static ATTACHING: Talk = Talk::new("clients of other users that attach or detach");
/// What clients ask for.
pub(crate) static REQUESTS: Talk = Talk::new("requests of other users");
/// Clients that may not come.
pub(crate) static REFUSALS: Talk = Talk::new("refused clients");
/// Clients that are dropped, and what is lost with them.
pub(crate) static DROPS: Talk = Talk::new("dropped clients of other users");

impl Talk {
    const fn new(what: &'static str) -> Self {
        Self {
            own: Limited::new("clients of root and the mux's own user"),
            others: Limited::new(what),
        }
    }

    /// Logs a line about a client that may do this.
    pub(crate) fn log(&self, right: Right, level: Level, line: Arguments<'_>) {
        let of = if right == Right::Own { &self.own } else { &self.others };
        of.log(level, line);
    }

    /// Logs at the end what was left out.
    pub(crate) fn finish() {
        for talk in [&ATTACHING, &REQUESTS, &REFUSALS, &DROPS] {
            talk.own.finish();
            talk.others.finish();
        }
    }
}
