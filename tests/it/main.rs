//! Integration tests: they run the binary on real FIFOs, terminals and sockets.
//!
//! Everything waits on an event (the ready datagram, a byte, an end of file, the end of a process);
//! the only clock is the watchdog that ends a test whose event never comes. `IOTTYMUX_LONG=1` runs
//! the ones about volume with gigabytes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panics")]

mod control;
#[path = "../../packaging/files/copyright.rs"]
mod copyright;
#[path = "../support/cri.rs"]
mod cri;
#[path = "../support/dice.rs"]
mod dice;
#[path = "../support/form.rs"]
mod form;
mod hostile;
#[path = "../support/installed.rs"]
mod installed;
mod numbered;
mod pages;
#[path = "../support/pair.rs"]
mod pair;
mod pattern;
mod peer;
mod person;
#[path = "../support/proc.rs"]
mod proc;
#[path = "../support/pty.rs"]
mod pty;
mod rig;
#[path = "../support/skip.rs"]
mod skip;
mod throws;
#[path = "../support/tmux.rs"]
mod tmux;
#[path = "../support/wait.rs"]
mod wait;
mod window;

mod allocations;
mod app_memory;
mod arrows;
mod attach;
mod circle;
mod cli;
mod completion;
mod crowd;
mod docker;
mod driven;
mod ends;
mod find;
mod foreign;
mod fuzz;
mod guard;
mod habits;
mod hangup;
mod history;
mod hub;
mod inquiry;
mod last;
mod leaving;
mod library;
mod life;
mod limits;
mod log;
mod log_failure;
mod log_readers;
mod log_rotation;
mod log_sources;
mod logs;
mod man_pages;
mod metrics;
mod no_room;
mod packaging;
mod pass;
mod programs;
mod promises;
mod queries;
mod quiet;
mod quota;
mod race;
mod reconnect;
mod record;
mod rights;
mod rkt;
mod run;
mod screen;
mod screen_fuzz;
mod script;
mod session;
mod skips;
mod status;
mod stream;
mod terminal;
mod tty;
mod turns;
mod units;
mod users;
mod views;
mod ways_out;
mod windows;
mod words;
