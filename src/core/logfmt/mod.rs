//! The formats of logs: bytes of streams into entries, and entries into the bytes of a format. No
//! I/O, no clock.
//!
//! | module | is |
//! |---|---|
//! | [`spec`] | what a user writes to name a log |
//! | [`format`](mod@format) | the formats, one file each, and the table of them |
//! | [`frame`] | frames for the journal's writer |
//! | [`encoder`] | what a format is |
//! | [`path`] | the path of a log |
//! | [`syslog`] | priorities of lines |
//! | [`chunk`] | encoded entries on their way to a target |
//! | [`entry`], [`json`] | entries that are read; text in JSON |
//! | [`lines`], [`stamp`] | bytes of streams into entries; times as text |
//! | [`buffer`] | the memory that entries are encoded into |

pub mod buffer;
pub(crate) mod chunk;
pub mod encoder;
pub(crate) mod entry;
pub mod format;
pub(crate) mod frame;
pub(crate) mod json;
pub(crate) mod lines;
pub mod path;
pub(crate) mod spec;
pub mod stamp;
pub(crate) mod syslog;
