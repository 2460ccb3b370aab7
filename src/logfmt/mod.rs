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
pub mod chunk;
pub mod cri;
pub mod format;
pub mod frame;
pub mod journal;
pub mod json;
pub mod lines;
pub mod stamp;
pub mod syslog;
