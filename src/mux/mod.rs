//! The mux: one loop that carries bytes between the app and its clients, and the app's life cycle.
//!
//! Data goes source → hub → clients, and clients → input queue → app. Everything that can happen is
//! a [`poll::Readiness`] or an arm of the loop; each is handled to the end before the next. The phases
//! only go forward: ready, draining (the sources are read empty), delivering (clients get the
//! rest), done. Nothing here blocks, except opening at the start, and a nap of a fraction of a
//! millisecond (`source/pace.rs`).
//!
//! The code map. A module uses only modules below it; the parts of a mux (from `logs` to
//! `app_files`) do not use each other, nor can they see the fields of [`Mux`].
//!
//! | module | is |
//! |---|---|
//! | [`event_loop`] | the loop, which carries between the parts |
//! | [`prepare`] | what a mux does as root, and how it shuts itself in |
//! | [`app_ends`] | the app's ends: opening them, or taking them over |
//! | [`logs`] | the logs |
//! | [`admission`] | which clients may connect, and how many |
//! | [`app`] | the app's streams, input, process and life cycle |
//! | [`clients`] | the registry of clients, and their connections |
//! | [`terminal`] | size, screen and queries of the app's terminal |
//! | [`engine`] | the engine of a container, as a client |
//! | [`app_files`] | the app's directory, and what the mux made there |
//! | [`client_log`] | the log lines that clients can cause |
//! | [`source`] | FIFOs and pty pairs |
//! | [`origin`] | who has started the mux |
//! | [`kept_memory`] | memory that systemd keeps over a restart of the mux |
//! | [`pages`] | the newest output as pages, for clients without a copy |
//! | [`peer`], [`poll`] | peers, readiness |

mod admission;
pub(crate) mod app;
mod app_ends;
mod app_files;
mod client_log;
mod clients;
mod engine;
mod event_loop;
mod kept_memory;
pub mod logs;
mod origin;
mod pages;
mod peer;
pub(crate) mod poll;
mod prepare;
pub(crate) mod source;
mod terminal;

pub(crate) use self::app_ends::Streams;
pub(crate) use self::engine::stored_name as engine_end;
pub(crate) use self::event_loop::{Mux, MuxPlan};
pub(crate) use self::logs::LogPlan;
pub(crate) use self::origin::Origin;
pub(crate) use self::prepare::give_up;
pub(crate) use self::source::pty::{STORED as TERMINAL, foreground};
