//! What a client does: it attaches to an app, asks it, or reads what was logged.
//!
//! It finds a mux and speaks with it, and never is one. Whether a service is enabled it asks the
//! host's room.
//!
//! | module | is |
//! |---|---|
//! | [`library`] | consoles of apps, for programs in Rust |
//! | [`follow`] | attaching again when an app runs again |
//! | [`attach`], [`logs`] | being a client; reading what was logged |
//! | [`script`] | typing, asking, waiting and looking, for scripts |
//! | [`list`], [`metrics`], [`status`] | telling about apps |
//! | [`find`] | finding an app and waiting for it |
//! | [`containers`] | names of containers |
//! | [`each`] | asking all apps |
//! | [`tokio_runtime`] | waiting for many things in one thread |

pub(crate) mod attach;
pub(crate) mod containers;
pub(crate) mod each;
pub(crate) mod find;
pub(crate) mod follow;
mod library;
pub(crate) mod list;
pub(crate) mod logs;
pub(crate) mod metrics;
pub(crate) mod script;
pub(crate) mod status;
mod tokio_runtime;

pub use library::*;
