//! The system below: descriptors, paths, standard output and error.
//!
//! | module | is |
//! |---|---|
//! | [`state`] | the state directory of an app |
//! | [`walk`] | opening files without others' links |
//! | [`diagnostics`], [`print`] | what is said to people |
//! | [`sys`] | all unsafe code |

pub(crate) mod diagnostics;
pub(crate) mod print;
pub mod state;
pub mod sys;
pub(crate) mod walk;
