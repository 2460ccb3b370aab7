//! The formats of logs: bytes of streams into entries, and entries into the bytes of a format. Pure.
//!
//! To add a format, write a file like [`raw`] or [`cri`], and add it to the table in [`format`] and to
//! docs/logs.md.
//!
//! | module | is |
//! |---|---|
//! | [`spec`] | what a user writes to name a log |
//! | [`format`] | the table of formats |
//! | [`cri`], [`json_file`], [`raw`], [`cast`] | formats of files: CRI, docker's json-file, bytes, asciicast |
//! | [`journal`], [`journald`] | entries for the journal |
//! | [`frame`] | frames for the journal's writer |
//! | [`encoder`] | what a format is |
//! | [`path`] | the path of a log |
//! | [`syslog`] | priorities of lines |
//! | [`chunk`] | encoded entries on their way to a target |
//! | [`entry`], [`json`] | entries that are read; text in JSON |
//! | [`lines`], [`stamp`] | bytes of streams into entries; times as text |

pub mod cast;
pub(crate) mod chunk;
pub(crate) mod cri;
pub mod encoder;
pub(crate) mod entry;
pub mod format;
pub(crate) mod frame;
pub(crate) mod journal;
pub(crate) mod journald;
pub(crate) mod json;
pub(crate) mod json_file;
pub(crate) mod lines;
pub mod path;
pub(crate) mod raw;
pub(crate) mod spec;
pub mod stamp;
pub(crate) mod syslog;
