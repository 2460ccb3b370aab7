//! How right the screen is: what other emulators show of a redraw, beside what they show of the
//! app's own bytes.
//!
//! - `view`: what a terminal shows
//! - `oracle`, `panes`, `xterm`: the other emulators
//! - `sequences`: a table of control sequences
//! - `situations`: when programs are judged, and the table of the verdicts
//! - `recordings`: programs that were recorded
//! - `live`, `programs`: programs of this machine, under a mux
//!
//! `tests/terminal/run` prints the tables and how many of them are right.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panics")]

mod cast;
#[path = "../support/form.rs"]
mod form;
#[path = "../support/installed.rs"]
mod installed;
mod live;
mod oracle;
#[path = "../support/pair.rs"]
mod pair;
mod panes;
#[allow(dead_code, unused_imports, reason = "others use the rest")]
#[path = "../support/proc.rs"]
mod proc;
mod programs;
#[path = "../support/pty.rs"]
mod pty;
mod recordings;
mod sequences;
mod situations;
#[path = "../support/skip.rs"]
mod skip;
mod unescape;
mod view;
#[path = "../support/wait.rs"]
mod wait;
mod xterm;
