//! Words that all modules use. No I/O but the clocks and the system's file of users.
//!
//! | module | is |
//! |---|---|
//! | [`container_id`], [`kubernetes`], [`user`] | names of containers; the user of the muxes |
//! | [`service`] | names of services |
//! | [`name`], [`stream`], [`size`], [`terminal_identity`], [`time`] | apps, streams, sizes, terminals, times |
//! | [`rights`] | who may do what |
//! | [`backoff`] | pauses between connections |
//! | [`record`] | records in memory that outlives a process |
//! | [`refused`] | counts of escape sequences |
//! | [`escape`], [`exit`], [`limits`] | escaping for terminals, exit codes, every shared limit |

pub(crate) mod backoff;
pub(crate) mod container_id;
pub(crate) mod escape;
pub(crate) mod exit;
pub(crate) mod kubernetes;
pub mod limits;
pub(crate) mod name;
pub(crate) mod record;
pub mod refused;
pub(crate) mod rights;
pub(crate) mod service;
pub mod size;
pub mod stream;
pub mod terminal_identity;
pub mod time;
pub(crate) mod user;
