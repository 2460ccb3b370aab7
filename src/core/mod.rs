//! What the mux decides, without any I/O: what the app wrote and how far each client is, and what a
//! terminal shows. Pure: no descriptor, no clock, no failure.
//!
//! | module | is |
//! |---|---|
//! | [`hub`] | what the app wrote, how far each client is, what clients typed |
//! | [`screen`] | what a terminal shows, and how to show it again |

pub mod hub;
pub mod screen;
