//! What the mux decides, without any I/O: what the app wrote, how far each client is, how both are
//! written. Pure: no descriptor, no clock, no failure.
//!
//! | module | is |
//! |---|---|
//! | [`hub`] | what the app wrote, how far each client is, what clients typed |
//! | [`logfmt`] | one file per log format |
//! | [`wire`] | the session protocol |

pub mod hub;
pub mod logfmt;
pub mod wire;
