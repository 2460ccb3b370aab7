//! The app: its output streams, its input, its process under `run`, and its life cycle.
//!
//! It knows nothing of clients but the ids under which their input is queued.

pub(crate) mod input;
pub(crate) mod life;
mod process;
pub(crate) mod sources;

pub(crate) use process::{AWAIT_CLIENT, AppProcess, TERM};
