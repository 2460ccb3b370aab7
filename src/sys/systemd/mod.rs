//! The service manager.
//!
//! | module | is |
//! |---|---|
//! | [`app_status`] | how the app ended |
//! | [`manager`] | a service manager: the state of its units, and systemctl |
//! | [`bus`] | asks systemd for properties of a unit |
//! | [`watchdog`] | when systemd is to kill this process because it hangs |
//! | [`notify`] | messages to systemd: readiness, descriptors to store |
//! | [`store`] | the descriptors that an earlier process has stored |
//! | [`own_process`] | this process as systemd started it |

pub(crate) mod app_status;
pub(crate) mod bus;
pub(crate) mod manager;
pub(crate) mod notify;
pub(crate) mod own_process;
pub(crate) mod store;
pub(crate) mod watchdog;
