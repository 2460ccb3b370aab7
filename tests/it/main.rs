//! Integration tests: they run the binary on real FIFOs, terminals and sockets.
//!
//! Everything waits on an event (the ready datagram, a byte, an end of file, the end of a process);
//! the only clock is the watchdog that ends a test whose event never comes. `IOTTYMUX_LONG=1` runs
//! the ones about volume with gigabytes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panics")]

mod at_terminal;
mod control;
#[path = "../../packaging/files/copyright.rs"]
mod copyright;
#[path = "../support/cri.rs"]
mod cri;
#[path = "../support/form.rs"]
mod form;
mod hostile;
#[path = "../support/installed.rs"]
mod installed;
mod link;
mod numbered;
mod pages;
#[path = "../support/pair.rs"]
mod pair;
mod pattern;
mod peer;
#[path = "../support/proc.rs"]
mod proc;
#[path = "../support/pty.rs"]
mod pty;
#[path = "../support/random.rs"]
mod random;
mod random_input;
mod rig;
#[path = "../support/skip.rs"]
mod skip;
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
mod dead_clients;
mod detaching;
mod docker;
mod documents;
mod driven;
mod file_rights;
mod find;
mod foreign;
mod fuzz;
mod habits;
mod half_line;
mod hangup;
mod history;
mod hub;
mod inquiry;
mod kubernetes;
mod last;
mod library;
mod life_cycle;
mod limits;
mod log;
mod log_failure;
mod log_readers;
mod log_rotation;
mod log_sources;
mod logs;
mod man_pages;
mod metrics;
mod mux_ends;
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
mod restored;
mod rights;
mod rkt;
mod run;
mod screen;
mod screen_fuzz;
mod script;
mod send_stop;
mod session;
mod skips;
mod stable;
mod status;
mod stream;
mod taken_over;
mod terminal;
mod tty;
mod units;
mod unread;
mod users;
mod views;
mod windows;
