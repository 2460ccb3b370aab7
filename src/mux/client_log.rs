//! The log lines that clients can cause. Each kind is limited; the lines of root and the mux's own
//! user have a limit of their own, so that other users cannot hide them.

use std::fmt::Arguments;

use log::Level;

use crate::sys::diagnostics::{EventFields, Limited};
use crate::types::rights::Right;

/// One kind of line, of root with the mux's own user and of all others.
#[derive(Debug)]
pub(crate) struct ClientLines {
    own: Limited,
    others: Limited,
}

/// Clients that attach and detach.
pub(crate) static ATTACHING: ClientLines =
    ClientLines::new("clients of other users that attach or detach");
/// Requests of clients.
pub(crate) static REQUESTS: ClientLines = ClientLines::new("requests of other users");
/// Clients that are refused.
pub(crate) static REFUSALS: ClientLines = ClientLines::new("refused clients");
/// Dropped clients, and their losses.
pub(crate) static DROPS: ClientLines = ClientLines::new("dropped clients of other users");

impl ClientLines {
    const fn new(what: &'static str) -> Self {
        Self {
            own: Limited::new("clients of root and the mux's own user"),
            others: Limited::new(what),
        }
    }

    /// Logs a line about what a client did that may do this.
    pub(crate) fn log(&self, right: Right, level: Level, event: EventFields, line: Arguments<'_>) {
        let lines = if right == Right::Own { &self.own } else { &self.others };
        lines.log(level, event, line);
    }

    /// Logs the numbers of omitted lines at the end.
    pub(crate) fn finish() {
        for lines in [&ATTACHING, &REQUESTS, &REFUSALS, &DROPS] {
            lines.own.finish();
            lines.others.finish();
        }
    }
}
