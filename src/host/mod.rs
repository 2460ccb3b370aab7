//! What makes services of this machine attachable: unit files, `enable`, and the program itself.
//!
//! Nothing here keeps running with an app.
//!
//! | module | is |
//! |---|---|
//! | [`engine_config`] | the configuration of a container engine |
//! | [`install`] | copying the program and its files |
//! | [`enable`] | making a service attachable, and no longer |
//! | [`units`] | the unit files for all that |

pub(crate) mod enable;
pub(crate) mod engine_config;
pub(crate) mod install;
pub mod units;
