//! The programs that are compared.

use super::installed::is_installed;

/// A program, and how it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// The mux. Clients read its raw sockets, or use `iottymux attach`.
    Iottymux,
    /// The mux, whose clients have sessions.
    Session,
    /// The release that `IOTTYMUX_OTHER` names, as [`Tool::Iottymux`].
    Other,
    /// conmon(8), which podman and CRI-O use.
    Conmon,
    /// s6-log with times, which is no CRI.
    S6Log,
    /// `cat fifo >file`, which adds nothing.
    Cat,
    /// socat with 64 KiB.
    Socat,
    Dtach,
    Tmux,
    /// A limit: tee(2) and splice(2) to each client, and no more.
    TeeSplice,
    /// A limit: read(2), and write(2) to each client.
    ReadWrite,
    /// A limit: the bench itself at the other end of the terminal.
    NoMux,
}

impl Tool {
    pub fn name(self) -> &'static str {
        match self {
            Self::Iottymux => "iottymux",
            Self::Session => "iottymux session",
            Self::Other => "other release",
            Self::Conmon => "conmon",
            Self::S6Log => "s6-log T",
            Self::Cat => "cat",
            Self::Socat => "socat",
            Self::Dtach => "dtach",
            Self::Tmux => "tmux",
            Self::TeeSplice => "tee+splice limit",
            Self::ReadWrite => "read/write limit",
            Self::NoMux => "no mux",
        }
    }

    /// Whether it is the mux.
    pub fn is_ours(self) -> bool {
        matches!(self, Self::Iottymux | Self::Session | Self::Other)
    }

    /// Whether it shows what the machine can do, rather than what a program does.
    pub fn is_limit(self) -> bool {
        matches!(self, Self::TeeSplice | Self::ReadWrite | Self::NoMux | Self::Cat)
    }

    /// Whether it can be measured here.
    pub fn is_there(self, has_other: bool) -> bool {
        match self {
            Self::Other => has_other,
            Self::Conmon => is_installed("conmon"),
            Self::S6Log => is_installed("s6-log"),
            Self::Socat => is_installed("socat"),
            Self::Dtach => is_installed("dtach"),
            Self::Tmux => is_installed("tmux"),
            _ => true,
        }
    }
}
