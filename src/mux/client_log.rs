//! The log lines that clients can cause. They are limited; those of root and the mux's own user have a
//! limit of their own, so that other users cannot hide them.

use std::fmt::Arguments;

use log::Level;

use crate::sys::diagnostics::{EventFields, Limited};
use crate::types::rights::Right;

static OWN: Limited = Limited::new("clients of root and the mux's own user");
static OTHERS: Limited = Limited::new("clients of other users");

/// Logs a line about what a client did that may do this.
pub(crate) fn log(right: Right, level: Level, event: EventFields, line: Arguments<'_>) {
    let lines = if right == Right::Own { &OWN } else { &OTHERS };
    lines.log(level, event, line);
}

/// Logs the numbers of omitted lines at the end.
pub(crate) fn finish() {
    OWN.finish();
    OTHERS.finish();
}
