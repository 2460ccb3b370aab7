//! What makes services of this machine attachable: unit files, `enable`, and the program itself.
//!
//! Nothing here runs beside an app, but for the journal writer, which is a process of its own.
//!
//! | module | is |
//! |---|---|
//! | [`install`] | copying the program and its files |
//! | [`enable`] | making a service attachable, and no longer |
//! | [`journal_writer`] | taking a service's lines from a mux to the journal |
//! | [`units`] | the unit files for all that |

pub(crate) mod enable;
pub(crate) mod install;
pub(crate) mod journal_writer;
pub mod units;
