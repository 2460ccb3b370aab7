//! The formats of logs: bytes of streams into entries, and entries into the bytes of a format. Pure.
//!
//! | module | is |
//! |---|---|
//! | [`format`] | the table of formats |
//! | [`cast`], [`cri`], [`journal`] | asciicast, CRI, journald |
//! | [`json`] | docker's json-file |
//! | [`frame`] | frames for the journal's writer |
//! | [`syslog`] | priorities of lines |
//! | [`chunk`] | encoded entries on their way to a target |
//! | [`lines`], [`stamp`] | bytes of streams into entries; times as text |

pub mod cast;
pub(crate) mod chunk;
pub(crate) mod cri;
pub mod format;
pub(crate) mod frame;
pub mod journal;
pub(crate) mod json;
pub(crate) mod lines;
pub mod stamp;
pub(crate) mod syslog;
