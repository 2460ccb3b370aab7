//! The service manager: readiness and stored descriptors, asking and telling it about units.
//!
//! | module | is |
//! |---|---|
//! | [`unit`] | the app as a unit: how it ended |
//! | [`manager`] | asking and telling systemd about units |
//! | [`notify`] | readiness and stored descriptors |

pub(crate) mod manager;
pub(crate) mod notify;
pub(crate) mod unit;
