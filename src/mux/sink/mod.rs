//! Where the app's bytes go: clients on unix sockets, the model of a terminal's screen.

pub(crate) mod client;
pub(crate) mod kept;
pub(crate) mod listener;
pub(crate) mod painter;
