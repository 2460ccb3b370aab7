//! The documents in the state directory: JSON files that a mux writes and others read.
//!
//! | module | is |
//! |---|---|
//! | [`endpoints`], [`last`], [`life`], [`logged`], [`container`] | one document each |
//! | [`document`] | reading and writing one |

pub(crate) mod container;
pub(crate) mod document;
pub(crate) mod endpoints;
pub(crate) mod last;
pub(crate) mod life;
pub(crate) mod logged;
