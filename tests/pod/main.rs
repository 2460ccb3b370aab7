//! Tests on a real systemd, which runs as PID 1 of a pod of its own (`podsd`).
//!
//! Where no pod can be made, as for an ordinary user, each test says why and passes. Each waits for
//! events: a command that ends, a line, the end of a stream. `IOTTYMUX_LONG=1` runs the long form.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod continuity;
mod direct;
mod documented;
mod enable;
#[path = "../support/form.rs"]
mod form;
mod hardened;
mod immutable;
mod input;
mod journal;
mod kinds;
mod log;
mod lossless;
mod modes;
mod mutable;
mod pod;
#[path = "../support/podsd.rs"]
mod podsd;
mod privileges;
#[path = "../it/proc.rs"]
#[allow(dead_code, reason = "of the other tests")]
mod proc;
#[path = "../it/pty.rs"]
#[allow(dead_code, reason = "of the other tests")]
mod pty;
#[path = "../it/reader.rs"]
#[allow(dead_code, reason = "of the other tests")]
mod reader;
mod restart;
mod rkt;
mod safety;
mod services;
mod sockets;
mod status;
mod templates;
mod terminal;
#[path = "../it/tmux.rs"]
#[allow(dead_code, reason = "of the other tests")]
mod tmux;
mod user;
#[path = "../support/wait.rs"]
mod wait;
