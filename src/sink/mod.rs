//! Where the app's bytes go: clients on unix sockets.

pub mod client;
pub mod listener;
pub mod log;
pub mod thread;
