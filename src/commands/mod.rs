//! What each command of a person does, and the journal writer.
//!
//! A command gets what was asked for already resolved and checked; it knows nothing of the command
//! line.
//!
//! | module | is |
//! |---|---|
//! | [`oci`] | being the runtime of a container engine |
//! | [`containerd_logger`] | logging a container of containerd |
//! | [`run`], [`keeper`] | being a mux; keeping the mux of a command and its descriptors |
//! | [`stop`] | ending an app of `run` |
//! | [`script`] | typing, asking, waiting and looking, for scripts |
//! | [`install`] | copying the program and its files |
//! | [`attach`], [`logs`] | being a client; reading what was logged |
//! | [`list`], [`metrics`], [`status`] | telling about apps |
//! | [`find`] | finding an app and waiting for it |
//! | [`enable`] | making a service attachable, and no longer |
//! | [`each`] | asking all apps |
//! | [`journal_writer`] | taking a service's lines from a mux to the journal |

pub(crate) mod attach;
pub(crate) mod containerd_logger;
pub(crate) mod each;
pub(crate) mod enable;
pub(crate) mod find;
pub(crate) mod install;
pub(crate) mod journal_writer;
pub(crate) mod keeper;
pub(crate) mod list;
pub(crate) mod logs;
pub(crate) mod metrics;
pub(crate) mod oci;
pub(crate) mod run;
pub(crate) mod script;
pub(crate) mod status;
pub(crate) mod stop;
