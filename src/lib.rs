//! iottymux: the stdin, stdout, stderr or terminal of a service, for any number of clients.
//!
//! The code map, from the command line down to the system. `docs/dev/architecture.md` says more. A
//! module uses only modules below it, and a test checks that.
//!
//! | module | is |
//! |---|---|
//! | [`workload`](crate) | fixed work for the pure parts, whose instructions a check counts; a feature |
//! | [`cli`] | the command line: what was typed, and what it means |
//! | [`containers`] | being the runtime or the logger of a container engine |
//! | [`keeper`] | `run`: keeping a command, its mux and their descriptors |
//! | [`client`] | being a client of a mux, by hand, by script or as a library |
//! | [`host`] | making the services of a machine attachable |
//! | [`mux`] | the event loop of an app's mux: its streams, clients and logs |
//! | [`sys`] | files, processes, systemd, documents; all unsafe code |
//! | [`core`] | what the app wrote, how far each client is, the protocol, log formats (pure) |
//! | [`screen`] | what a terminal shows (pure) |
//! | [`types`] | names, streams, times, limits: words that all use (pure) |

pub mod cli;
pub mod client;
pub(crate) mod containers;
pub mod core;
pub mod host;
pub(crate) mod keeper;
pub mod mux;
pub mod screen;
pub mod sys;
pub mod types;
#[cfg(feature = "workload")]
pub mod workload;

pub use cli::command_line;
pub use cli::dispatch::main;
