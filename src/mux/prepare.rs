//! What root does before a mux of another user starts: it makes the app's ends and has systemd
//! keep them.

use anyhow::{Context, Result, bail};

use super::ends::{Streams, open_ends};
use super::logs;
use super::source::{fifo, pty};
use crate::os::state::AppDir;
use crate::systemd::manager::Manager;
use crate::systemd::notify::Notify;
use crate::systemd::process;
use crate::systemd::store::Stored;
use crate::types::service::ServiceName;
use crate::types::stream::Stream;

/// Makes the ends of an app for a mux of another user, as root, and gives them to the service
/// manager to keep. A restarted mux has its ends there already; then only their names are checked.
///
/// `check` fails if the mux cannot parse its options. If no app depends on such a mux, it gets no
/// ends, so that it fails, too.
pub(crate) fn prepare(
    dir: &AppDir,
    (streams, has_journal): (&Streams, bool),
    (unit, service): (&str, &ServiceName),
    check: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let notify = Notify::from_env(true)?;
    if !notify.keeps() {
        bail!("preparing app {}: this is a hook of a mux's unit", dir.name());
    }
    if !process::is_of_user() {
        process::enter_main_mount_namespace()?;
    }
    let kept = Manager::of_this_process().stored_descriptors(unit)?;
    if kept == 0 {
        // Whatever fails after that: the app must not open what has no peer.
        dir.lead_nowhere()?;
        check()?;
        dir.remove_own()?;
    }
    dir.split()?;
    if kept == 0 {
        let run = Manager::of_this_process().run_of(service.as_str());
        dir.note_earlier(run.as_deref())?;
    }
    let prepared = prepare_ends(dir, (streams, has_journal), kept, &notify);
    if prepared.is_err() && kept == 0 {
        // These ends are closed with this process, so the app must not open them.
        dir.lead_nowhere()?;
    }
    prepared?;
    dir.mark_prepared()
}

fn prepare_ends(
    dir: &AppDir,
    (streams, has_journal): (&Streams, bool),
    kept: usize,
    notify: &Notify,
) -> Result<()> {
    if kept == 0 {
        if matches!(streams, Streams::Fifos { make: true, .. }) {
            dir.remove_old_input()?;
        }
        open_ends(dir, streams, &mut Stored::default(), notify)?;
    } else {
        match streams {
            Streams::Terminal { .. } => pty::place(dir)?,
            Streams::Passed { .. } => {}
            Streams::Fifos { enabled, make } => {
                for stream in enabled {
                    if *make {
                        fifo::make(dir, *stream)?;
                    } else if fifo::exists(dir, *stream) {
                        fifo::renew_foreign(dir, *stream, &mut Stored::default(), notify)?;
                    }
                }
            }
        }
    }
    if matches!(streams, Streams::Fifos { enabled, make: true } if enabled.contains(&Stream::Stdin))
    {
        dir.give_input().context("cannot give the mux the FIFO of the app's input")?;
    }
    // A user's mux writes to the journal itself, so the FIFO would have no reader.
    if has_journal && !process::is_of_user() {
        logs::prepare_journal(dir, notify)?;
    }
    notify.barrier()
}
