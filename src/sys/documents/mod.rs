//! The documents in the state directory: JSON files that a mux writes and others read.
//!
//! | module | is |
//! |---|---|
//! | [`endpoints`], [`last`], [`reported_life`], [`logged`], [`container`] | one document each |
//! | [`document`] | reading and writing one |

pub(crate) mod container;
pub(crate) mod document;
pub(crate) mod endpoints;
pub(crate) mod last;
pub(crate) mod logged;
pub(crate) mod reported_life;
