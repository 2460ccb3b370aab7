//! Random faults on a real systemd, under an app that writes numbered records with checksums.
//!
//! The mux is killed, stopped, restarted and upgraded, the app and systemd too, disks are full,
//! logs are rotated, clients are hostile; a seed decides which fault comes when. At the end of each
//! round the judge looks for every record in every sink: two attached clients, three logs, and the
//! app's input. A record that is lost untold, repeated, late or torn fails the test.
//!
//! `IOTTYMUX_SEED=N` repeats the rounds of a seed, `IOTTYMUX_LONG=1` runs more rounds with a new
//! seed, `IOTTYMUX_ROUNDS=N` so many. With `IOTTYMUX_MINUTES=N`, `faults_of_all_kinds` runs rounds
//! of all tests for so long.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

mod app;
mod client;
#[path = "../support/form.rs"]
mod form;
mod judge;
mod logs;
#[path = "../support/podsd.rs"]
mod podsd;
#[path = "../support/random.rs"]
mod random;
mod record;
mod schedule;
#[path = "../support/skip.rs"]
mod skip;
mod stage;
mod strike;
mod tally;
#[path = "../support/wait.rs"]
mod wait;

use schedule::Fault::{
    CrashMux, Crowd, EndQuietly, FillDisk, FillRun, FreeDisk, HideMux, Hostile, KillApp, KillMux,
    KillMuxAtEnd, KillMuxBehindClient, KillMuxTwice, LimitMemory, ReexecManager, RenameLogs,
    RestartApp, RestartMux, RestartMuxAtEnd, RotateAsKubelet, ShowMux, StopClient, StopMux,
    TakeInodes, UpgradeMux,
};
use schedule::{Load, Setup};
use stage::{run, run_beside, run_for_minutes, run_steps};

const STREAMS: Setup = Setup {
    terminal: false,
    input: false,
    faults: &[],
    ends: &[EndQuietly],
    load: Load::Steady,
    faults_per_round: 8,
};
const TERMINAL: Setup = Setup { terminal: true, ..STREAMS };

const KILLS: Setup = Setup {
    faults: &[KillMux, RestartMux],
    ends: &[EndQuietly, KillMuxAtEnd, RestartMuxAtEnd],
    ..STREAMS
};
/// In other ways than one kill.
const STOPS: Setup = Setup { faults: &[KillMuxTwice, CrashMux, StopMux, ReexecManager], ..STREAMS };
const APPS: Setup = Setup { faults: &[KillMux, RestartMux, KillApp, RestartApp], ..STREAMS };
/// Without a fault of the mux.
const DISK: Setup = Setup { faults: &[FillDisk, RenameLogs, KillApp], ..STREAMS };
const KILLS_ON_DISK: Setup =
    Setup { faults: &[FillDisk, RenameLogs, KillMux, RestartMux], ..STREAMS };
const FLOOD: Setup = Setup {
    faults: &[KillMux, RestartMux, KillMuxBehindClient, KillMuxTwice, StopMux],
    load: Load::Flood,
    ..STREAMS
};
const RUN: Setup = Setup { faults: &[FillRun, TakeInodes, KillMux, RestartMux], ..STREAMS };
const CLIENTS: Setup = Setup {
    faults: &[Crowd, LimitMemory, Hostile, StopClient, KillMux],
    load: Load::Flood,
    ..STREAMS
};
const ROTATIONS: Setup = Setup {
    faults: &[RotateAsKubelet, RotateAsKubelet, RenameLogs, KillMux, RestartMux, FillDisk],
    load: Load::Flood,
    ..STREAMS
};
const INPUT: Setup = Setup {
    input: true,
    faults: &[KillMux, RestartMux, KillMuxTwice, CrashMux, StopMux, ReexecManager],
    ..STREAMS
};
const UPGRADES: Setup = Setup {
    input: true,
    faults: &[UpgradeMux, KillMux],
    ends: &[EndQuietly, KillMuxAtEnd, RestartMuxAtEnd],
    ..STREAMS
};
const ALL: Setup = Setup {
    faults: &[
        KillMux,
        KillMuxTwice,
        CrashMux,
        StopMux,
        RestartMux,
        UpgradeMux,
        ReexecManager,
        KillApp,
        RestartApp,
        FillDisk,
        TakeInodes,
        FillRun,
        Crowd,
        LimitMemory,
        Hostile,
        StopClient,
        RenameLogs,
        RotateAsKubelet,
        KillMuxBehindClient,
    ],
    faults_per_round: 16,
    ..FLOOD
};
const TERMINALS: Setup =
    Setup { faults: &[KillMux, RestartMux, KillApp, RestartApp, RenameLogs], ..TERMINAL };
const TERMINAL_FLOOD: Setup =
    Setup { faults: &[KillMux, RestartMux, KillMuxTwice, StopMux], load: Load::Flood, ..TERMINAL };
/// A kill could leave some input unknown.
const TERMINAL_INPUT: Setup =
    Setup { input: true, faults: &[RestartMux, StopMux, ReexecManager], ..TERMINAL };
const TERMINAL_UPGRADES: Setup = Setup { faults: &[UpgradeMux, KillMux], ..TERMINAL };

/// What the long form takes its rounds from.
const SETUPS: &[&Setup] = &[
    &KILLS,
    &STOPS,
    &APPS,
    &DISK,
    &KILLS_ON_DISK,
    &FLOOD,
    &RUN,
    &CLIENTS,
    &ROTATIONS,
    &INPUT,
    &UPGRADES,
    &ALL,
    &TERMINALS,
    &TERMINAL_FLOOD,
    &TERMINAL_INPUT,
    &TERMINAL_UPGRADES,
];

/// The long form, if `IOTTYMUX_MINUTES` says how long.
#[test]
fn faults_of_all_kinds() {
    match std::env::var("IOTTYMUX_MINUTES") {
        Ok(minutes) => run_for_minutes(SETUPS, minutes.parse().expect("minutes are a number")),
        Err(_) => run(&ALL),
    }
}

#[test]
fn the_mux_is_killed_and_restarted() {
    run(&KILLS);
}

#[test]
fn the_mux_is_stopped_or_crashes_and_systemd_is_upgraded() {
    run(&STOPS);
}

#[test]
fn the_app_is_killed_and_restarted() {
    run(&APPS);
}

#[test]
fn the_disk_is_full() {
    run(&DISK);
}

#[test]
fn the_mux_is_killed_and_restarted_on_a_full_disk() {
    run(&KILLS_ON_DISK);
}

#[test]
fn the_mux_is_killed_and_restarted_in_a_flood() {
    run(&FLOOD);
}

#[test]
fn the_mux_is_killed_and_restarted_where_its_files_have_no_room() {
    run(&RUN);
}

/// The judge does not know what they say. On the app's standard error, a log would lose it and report
/// more bytes than the app's records have.
#[test]
fn the_hooks_of_an_app_that_is_killed_find_no_mux() {
    let faults = &[FillDisk, HideMux, KillApp, ShowMux, FreeDisk];
    run_steps(&Setup { faults, load: Load::Flood, ..STREAMS });
}

#[test]
fn clients_are_many_stopped_and_hostile() {
    run(&CLIENTS);
}

#[test]
fn logs_are_rotated_while_the_mux_is_killed_and_restarted() {
    run(&ROTATIONS);
}

#[test]
fn a_program_types_while_the_mux_is_killed_and_restarted() {
    run(&INPUT);
}

#[test]
fn the_mux_is_upgraded_and_killed() {
    run(&UPGRADES);
}

#[test]
fn the_mux_of_a_terminal_is_killed_and_restarted() {
    run(&TERMINALS);
}

#[test]
fn the_mux_of_a_terminal_is_killed_and_restarted_in_a_flood() {
    run(&TERMINAL_FLOOD);
}

#[test]
fn a_program_types_on_a_terminal_while_the_mux_is_restarted() {
    run(&TERMINAL_INPUT);
}

#[test]
fn the_mux_of_a_terminal_is_upgraded_and_killed() {
    run(&TERMINAL_UPGRADES);
}

/// An older release by turns with this one: `IOTTYMUX_OTHER` is the path of its program.
#[test]
fn the_mux_is_upgraded_and_downgraded() {
    let Some(other) = std::env::var_os("IOTTYMUX_OTHER") else {
        return skip::skip("other-release", "IOTTYMUX_OTHER names no other release");
    };
    for setup in [STREAMS, TERMINAL] {
        run_beside(&Setup { faults: &[UpgradeMux], ..setup }, Path::new(&other));
    }
}
