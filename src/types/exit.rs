//! Exit codes: one table for the whole program. They are a contract with units and scripts.

/// The exit code of a process of this program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Success.
    #[default]
    Done,
    /// The same of `attach`, whose output has no reader any more.
    Unread,
    /// Something failed before there was a connection to an app.
    Failed,
    /// A usage error in the command line or the environment.
    Usage,
    /// The same of a mux in a unit that no app depends on yet: it is not started again.
    Config,
    /// `attach`, after it had connected: the output is not complete.
    Incomplete,
    /// `attach` and `run`, after they had begun: the connection or the start failed.
    Lost,
    /// The command of `run` cannot be executed. As in shells, like the next one.
    NotExecutable,
    /// The command of `run` does not exist.
    NotFound,
    /// Any failure under rkt's own spelling of the command line.
    Rkt,
    /// The app's own status, or 128 + n when signal n ended it.
    App(u8),
}

impl Exit {
    /// The number that the kernel is given.
    pub(crate) fn code(self) -> i32 {
        match self {
            Self::Done | Self::Unread => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            // As in sysexits.h.
            Self::Config => 78,
            Self::Incomplete => 124,
            Self::Lost => 125,
            Self::NotExecutable => 126,
            Self::NotFound => 127,
            Self::Rkt => 254,
            Self::App(status) => i32::from(status),
        }
    }
}
