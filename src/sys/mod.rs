//! The system below: files, processes, signals, systemd, and what a mux writes for others to read.
//!
//! All unsafe code is in [`calls`]. It decides nothing about an app or a client.
//!
//! | module | is |
//! |---|---|
//! | [`agent`] | the ssh agent of an app |
//! | [`systemd`] | readiness, stored descriptors, questions and orders about units |
//! | [`session`] | a client's way into a session of a mux |
//! | [`documents`] | the documents in the state directory |
//! | [`state`] | the state directory of an app |
//! | [`confine`] | the user and the view of files of a mux |
//! | [`files`] | reading and replacing files |
//! | [`walk`] | opening files without others' links |
//! | [`process`] | other processes |
//! | [`pty_pair`] | new terminals |
//! | [`fd_message`] | messages with descriptors |
//! | [`diagnostics`], [`print`] | messages and output |
//! | [`mailbox`], [`signals`] | threads and signals, for an event loop |
//! | [`ready`] | waiting for descriptors |
//! | [`call_filter`] | the system calls of a mux |
//! | [`calls`] | all unsafe code |

pub(crate) mod agent;
pub mod call_filter;
pub mod calls;
pub(crate) mod confine;
pub(crate) mod diagnostics;
pub(crate) mod documents;
pub(crate) mod fd_message;
pub(crate) mod files;
pub(crate) mod mailbox;
pub(crate) mod print;
pub(crate) mod process;
pub(crate) mod pty_pair;
pub(crate) mod ready;
pub mod session;
pub(crate) mod signals;
pub mod state;
pub mod systemd;
pub(crate) mod walk;
