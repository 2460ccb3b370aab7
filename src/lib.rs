//! iottymux: the stdin, stdout, stderr or terminal of a service, for any number of clients.
//!
//! The code map, from the command line down to the system. `docs/architecture.md` says more. A
//! module uses only modules below it, and a test checks that.
//!
//! | module | is |
//! |---|---|
//! | [`workload`] | fixed work for the pure parts, whose instructions a check counts |
//! | [`client`] | the library: consoles of apps, for programs in Rust |
//! | [`cli`] | the command line: arguments, rkt's spelling, and what they mean |
//! | [`commands`] | what each command does: attach, logs, run, enable, … |
//! | [`units`] | the unit files that make a service attachable |
//! | [`mux`] | the event loop of an app's mux: its streams, clients and logs |
//! | [`containers`] | what container engines and runtimes say, and what they can be asked |
//! | [`logfmt`] | one file per log format (pure) |
//! | [`core`] | what the app wrote, how far each client is, what a terminal shows (pure) |
//! | [`systemd`] | readiness, stored descriptors, questions and orders about units |
//! | [`wire`] | the session protocol, and the documents in the state directory |
//! | [`os`] | unsafe calls, the state directory, standard output and error |
//! | [`types`] | names, streams, times, limits: words that all use (pure) |

pub mod cli;
pub mod client;
pub mod commands;
pub(crate) mod containers;
pub mod core;
pub mod logfmt;
pub mod mux;
pub mod os;
pub mod systemd;
pub mod types;
pub mod units;
pub mod wire;
pub mod workload;

pub use cli::command_line;
pub use cli::dispatch::main;
