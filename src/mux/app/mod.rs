//! The app: its output streams, its input, and its life cycle.
//!
//! It knows nothing of clients but the ids under which their input is queued.

pub(crate) mod input_feed;
pub(crate) mod life;
pub(crate) mod sources;
