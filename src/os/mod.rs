//! The system below: descriptors, paths, standard output and error.
//!
//! | module | is |
//! |---|---|
//! | [`state`] | the state directory of an app |
//! | [`tree`] | removing directories that others have filled |
//! | [`confine`] | the user and the view of files of a mux |
//! | [`files`] | reading and replacing files |
//! | [`walk`] | opening files without others' links |
//! | [`fd_message`] | messages with descriptors |
//! | [`diagnostics`], [`print`] | messages and output |
//! | [`mailbox`], [`signals`] | threads and signals, for an event loop |
//! | [`filter`] | the system calls of a mux |
//! | [`sys`] | all unsafe code |

pub(crate) mod confine;
pub(crate) mod diagnostics;
pub(crate) mod fd_message;
pub(crate) mod files;
pub mod filter;
pub(crate) mod mailbox;
pub(crate) mod print;
pub(crate) mod signals;
pub mod state;
pub mod sys;
pub(crate) mod tree;
pub(crate) mod walk;
