//! Tests on a real systemd, which runs as PID 1 of a pod of its own (`podsd`).
//!
//! Where no pod can be made, as for an ordinary user, each test says why and passes. Each waits for
//! events: a command that ends, a line, the end of a stream. `IOTTYMUX_LONG=1` runs the long form.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod book;
mod completion;
mod consoles;
mod continuity;
#[path = "../support/cri.rs"]
mod cri;
mod direct;
mod documented;
mod enable;
mod end;
mod flood;
#[path = "../support/form.rs"]
mod form;
mod full_disk;
mod group;
mod guests;
mod hardened;
mod immutable;
#[path = "../support/installed.rs"]
mod installed;
mod journal;
mod kinds;
mod log;
mod lossless;
mod modes;
mod mutable;
mod no_room;
mod package;
#[path = "../support/pair.rs"]
mod pair;
mod picture;
mod piped;
mod pod;
mod podman;
#[path = "../support/podsd.rs"]
mod podsd;
mod privileges;
#[path = "../support/proc.rs"]
mod proc;
#[path = "../support/pty.rs"]
mod pty;
#[path = "../support/random.rs"]
mod random;
mod restart;
mod rkt;
mod safety;
mod scope;
mod services;
mod sessions;
#[path = "../support/skip.rs"]
mod skip;
mod sockets;
mod status;
mod stop_line;
mod takeover;
mod templates;
mod terminal;
#[path = "../support/tmux.rs"]
mod tmux;
mod user;
#[path = "../support/wait.rs"]
mod wait;
mod watchdog;
