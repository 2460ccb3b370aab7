//! Words that all modules use. Pure.
//!
//! | module | is |
//! |---|---|
//! | [`service`] | names of services |
//! | [`name`], [`stream`], [`time`] | apps, streams, times |
//! | [`rights`] | who may do what |
//! | [`escape`], [`exit`], [`limits`] | escaping for terminals, exit codes, every shared limit |

pub mod escape;
pub mod exit;
pub mod limits;
pub mod name;
pub mod rights;
pub mod service;
pub mod stream;
pub mod time;
