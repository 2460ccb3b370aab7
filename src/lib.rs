//! iottymux: the stdin, stdout, stderr or terminal of a service, for any number of clients.
//!
//! The code map, from the command line down to the system. `docs/dev/architecture.md` says more. A
//! module uses only modules below it, and a test checks that. The library is [`client`]; the others are
//! public for what tests the program, by the feature `rooms`.
//!
//! | module | is |
//! |---|---|
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

pub mod client;
pub(crate) mod containers;
pub(crate) mod keeper;

#[cfg(not(feature = "rooms"))]
pub(crate) mod cli;
#[cfg(not(feature = "rooms"))]
pub(crate) mod core;
#[cfg(not(feature = "rooms"))]
pub(crate) mod host;
#[cfg(not(feature = "rooms"))]
pub(crate) mod mux;
#[cfg(not(feature = "rooms"))]
pub(crate) mod screen;
#[cfg(not(feature = "rooms"))]
pub(crate) mod sys;
#[cfg(not(feature = "rooms"))]
pub(crate) mod types;

// For tests, benches and fuzz targets.
#[cfg(feature = "rooms")]
pub mod cli;
#[cfg(feature = "rooms")]
pub mod core;
#[cfg(feature = "rooms")]
pub mod host;
#[cfg(feature = "rooms")]
pub mod mux;
#[cfg(feature = "rooms")]
pub mod screen;
#[cfg(feature = "rooms")]
pub mod sys;
#[cfg(feature = "rooms")]
pub mod types;
#[cfg(feature = "rooms")]
#[path = "../tests/bench/workload.rs"]
pub mod workload;

pub use cli::command_line;
pub use cli::dispatch::main;
