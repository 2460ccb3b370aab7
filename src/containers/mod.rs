//! What container runtimes and engines say to a process beside them.
//!
//! A module knows neither the mux nor the command line.
//!
//! | module | is |
//! |---|---|
//! | [`console`] | the socket on which a runtime sends the terminal of a container |

pub(crate) mod console;
