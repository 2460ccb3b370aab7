//! Random faults on a real systemd, under an app that writes numbered records with checksums.
//!
//! The mux is killed and restarted, the app too, the disk of the logs is full, logs are rotated; a
//! seed decides which fault comes when. At the end of each round the judge looks for every record
//! in every sink: two attached clients and three logs. A record that is lost untold, repeated, late
//! or torn fails the test, unless `known.rs` names the defect and allows for it.
//!
//! `IOTTYMUX_SEED=N` repeats the rounds of a seed, `IOTTYMUX_LONG=1` runs more rounds with a new
//! seed, `IOTTYMUX_ROUNDS=N` so many.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod app;
#[path = "../support/dice.rs"]
mod dice;
#[path = "../support/form.rs"]
mod form;
mod judge;
mod known;
#[path = "../support/podsd.rs"]
mod podsd;
mod record;
#[path = "../support/skip.rs"]
mod skip;
mod stage;
#[path = "../support/wait.rs"]
mod wait;

use stage::Fault::{
    EndQuietly, FillDisk, FreeDisk, KillApp, KillMux, KillMuxAtEnd, KillMuxBehindClient,
    RenameLogs, RestartApp, RestartMux, RestartMuxAtEnd,
};
use stage::{Load, Setup, run};

const STREAMS: Setup = Setup {
    terminal: false,
    faults: &[],
    ends: &[EndQuietly],
    load: Load::Steady,
    faults_per_round: 8,
};
const TERMINAL: Setup = Setup { terminal: true, ..STREAMS };

#[test]
fn the_mux_is_killed_and_restarted() {
    let ends = &[EndQuietly, KillMuxAtEnd, RestartMuxAtEnd];
    run(&Setup { faults: &[KillMux, RestartMux], ends, ..STREAMS });
}

#[test]
fn the_app_is_killed_and_restarted() {
    run(&Setup { faults: &[KillMux, RestartMux, KillApp, RestartApp], ..STREAMS });
}

/// Without a fault of the mux: nothing of this is a known failure.
#[test]
fn the_disk_is_full() {
    run(&Setup { faults: &[FillDisk, FreeDisk, RenameLogs, KillApp], ..STREAMS });
}

#[test]
fn the_mux_is_killed_and_restarted_on_a_full_disk() {
    run(&Setup { faults: &[FillDisk, FreeDisk, RenameLogs, KillMux, RestartMux], ..STREAMS });
}

#[test]
fn the_mux_is_killed_and_restarted_in_a_flood() {
    let faults = &[KillMux, RestartMux, KillMuxBehindClient];
    run(&Setup { faults, load: Load::Flood, ..STREAMS });
}

#[test]
fn the_mux_of_a_terminal_is_killed_and_restarted() {
    run(&Setup { faults: &[KillMux, RestartMux, KillApp, RestartApp, RenameLogs], ..TERMINAL });
}

#[test]
fn the_mux_of_a_terminal_is_killed_and_restarted_in_a_flood() {
    run(&Setup { faults: &[KillMux, RestartMux], load: Load::Flood, ..TERMINAL });
}
