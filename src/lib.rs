//! iottymux: the stdin, stdout, stderr or terminal of a service, for any number of clients.
//!
//! The code map, in the order in which a command and then a byte travels. `docs/architecture.md`
//! says more; each module says what it is, what always holds in it, and what it does not do.
//! Arrows go downward only, and a test checks that.
//!
//! | module | is |
//! |---|---|
//! | [`rkt`], [`config`] | what a command line means, in rkt's spelling and in ours |
//! | [`run`] | being a mux, in front or in the background |
//! | [`cli`], [`values`] | what was typed |
//! | [`attach`], [`list`], [`status`], [`logs`] | being a client, or looking |
//! | [`units`] | making a service attachable: the units that it needs |
//! | [`journal_writer`] | taking a service's lines from a mux to the journal |
//! | [`find`], [`session`] | finding an app and waiting for it; opening a session with its mux |
//! | [`mux`] | the event loop and the life cycle of an app's mux |
//! | [`app`], [`unit`] | the app, as a child of this process or as a unit of systemd |
//! | [`sink`] | clients on sockets, and logs: where bytes go |
//! | [`source`] | FIFOs and ptys: where bytes come from, and where input goes |
//! | [`poll`] | readiness: what has become possible |
//! | [`hub`] | what the app wrote and how far each client is; what clients typed (pure) |
//! | [`screen`] | what a terminal shows, and how to show it again; its modes, its queries (pure) |
//! | [`last`], [`logged`], [`proto`], [`endpoints`], [`document`] | the session protocol (pure), the documents |
//! | [`rights`] | who may do what (pure) |
//! | [`systemd`], [`state`], [`walk`], [`sys`] | the edges: the service manager, paths, opening them, unsafe |
//! | [`diagnostics`], [`print`] | what is said to people |
//! | [`escape`] | what a terminal would obey, escaped (pure) |
//! | [`service`], [`name`], [`stream`], [`time`], [`limits`], [`exit`] | words that all use |

pub mod app;
pub mod attach;
pub mod cli;
pub mod config;
pub mod diagnostics;
pub mod document;
pub mod endpoints;
pub mod escape;
pub mod exit;
pub mod find;
pub mod hub;
pub mod journal_writer;
pub mod last;
pub mod limits;
pub mod list;
pub mod logged;
pub mod logs;
pub mod mux;
pub mod name;
pub mod poll;
pub mod print;
pub mod proto;
pub mod rights;
pub mod rkt;
pub mod run;
pub mod screen;
pub mod service;
pub mod session;
pub mod sink;
pub mod source;
pub mod state;
pub mod status;
pub mod stream;
pub mod sys;
pub mod systemd;
pub mod time;
pub mod unit;
pub mod units;
pub mod values;
pub mod walk;
