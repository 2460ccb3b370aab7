//! What each command of a person does, and the journal writer.
//!
//! A command gets what was asked for already resolved and checked; it knows nothing of the command line.
//!
//! | module | is |
//! |---|---|
//! | [`run`] | being a mux, in front or in the background |
//! | [`enable`] | making a service attachable, and no longer |
//! | [`attach`], [`logs`] | being a client; reading what was logged |
//! | [`list`], [`status`] | telling about apps |
//! | [`find`] | finding an app and waiting for it |
//! | [`journal_writer`] | taking a service's lines from a mux to the journal |

pub mod attach;
pub mod enable;
pub mod find;
pub mod journal_writer;
pub mod list;
pub mod logs;
pub mod run;
pub mod status;
