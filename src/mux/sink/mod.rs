//! Where the app's bytes go: clients on unix sockets, logs, the model of a terminal's screen.

pub mod client;
pub mod kept;
pub mod listener;
pub mod log;
pub mod painter;
pub mod thread;
