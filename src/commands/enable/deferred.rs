//! A unit that disables a service when the service has stopped.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::Result;

use super::disable::DisableTime;
use super::{account, this_program};
use crate::os::print::print;
use crate::systemd::manager::Manager;
use crate::types::limits;
use crate::units::place::UnitDirectory;
use crate::units::text::{UnitOwner, argument, program, with_checksum};
use crate::units::write::{clear_state, summary};
use crate::units::{UnitFile, journal};

/// Pause before `disable` tries again to remove the files of a stopped service: a person has to
/// make them writable.
const DISABLE_AGAIN: Duration = Duration::from_secs(1);

/// The unit. It does not depend on the service, since a dependency would start the service or keep
/// it from stopping. Instead it waits for the end of the service's mux, which lives as long as the
/// service or its next start by Restart=. Then the unit stops itself. Its stop job disables the
/// service, and the service cannot start before that job is done. With [`DisableTime::Now`], the
/// stop job runs in the middle of the service's restart.
pub(super) struct DeferredDisable<'a> {
    manager: Manager,
    place: UnitDirectory,
    owner: UnitOwner<'a>,
    pub(super) unit: String,
}

/// The name of the unit for an app.
pub(super) fn unit(app: &str) -> String {
    format!("iottymux-disable-{app}.service")
}

impl<'a> DeferredDisable<'a> {
    pub(super) fn new(manager: Manager, owner: UnitOwner<'a>) -> Result<Self> {
        let place = UnitDirectory::new(manager.runtime_units()?);
        let unit = unit(owner.0.as_str());
        Ok(Self { manager, place, owner, unit })
    }

    /// Starts the unit. With `stops`, systemd starts it when the service has stopped.
    pub(super) fn begin(&self, when: DisableTime, stops: bool) -> Result<()> {
        let program = program(&this_program()?);
        let command = format!("{program} disable{}", self.manager.option());
        let (service, name) = (self.owner.1, argument(self.owner.1.as_str()));
        let part =
            if when == DisableTime::Now { format!("PartOf={service}\n") } else { String::new() };
        let text = format!(
            "[Unit]\n\
             Description=Disables attaching to {service} when that stops\n\
             DefaultDependencies=no\n\
             Conflicts=shutdown.target\n\
             {part}Before=shutdown.target {service}\n\
             StartLimitIntervalSec=0\n\
             \n\
             [Service]\n\
             Type=exec\n\
             ExecStart={command} --later wait {name}\n\
             ExecStopPost={command} --later finish {name}\n\
             Restart=on-failure\n\
             RestartSec=1s\n"
        );
        let file = UnitFile {
            path: PathBuf::from(&self.unit),
            text: with_checksum(Some(self.owner), &text),
        };
        self.place.plan(&self.place.all()?, self.owner, vec![file])?.carry_out()?;
        self.manager.systemctl(&["daemon-reload"])?;
        let wait = if stops { &["--no-block"][..] } else { &[] };
        self.manager.systemctl(&[&["start"], wait, &[&self.unit]].concat()).map(drop)
    }

    /// Waits until the service has stopped, and then stops the unit and starts it again. So it
    /// waits again if the service was started meanwhile.
    pub(super) fn wait(&self, place: &UnitDirectory) -> Result<()> {
        let state = place.state(self.owner)?;
        let mut why = String::new();
        loop {
            while self.manager.show(self.owner.1.as_str())?.runs() {
                for dir in &state {
                    dir.await_unlocked()?;
                }
                // Only its mux starts again, or the mux ends a moment before the service.
                thread::sleep(limits::LOOK_AGAIN);
            }
            let Err(e) = place.going(&[self.owner]) else { break };
            let now = format!("{e:#}");
            if now != why {
                log::warn!("cannot disable {} yet, and will try again: {now}", self.owner.1);
                why = now;
            }
            thread::sleep(DISABLE_AGAIN);
        }
        // `fail` keeps a stop job that exists already, for example that of a shutdown: its end
        // disables the service, too.
        let restart = ["restart", "--no-block", "--job-mode=fail", "--", &self.unit];
        match self.manager.systemctl(&restart) {
            Err(_) if self.is_stopped()? => Ok(()),
            done => done.map(drop),
        }
    }

    /// Whether the unit is stopping, or has a job.
    fn is_stopped(&self) -> Result<bool> {
        let shown = self.manager.show(&self.unit)?;
        Ok(shown.stops() || shown.has_job())
    }

    /// Disables the service, unless it runs.
    pub(super) fn finish(&self, place: &UnitDirectory) -> Result<()> {
        if self.manager.show(self.owner.1.as_str())?.runs() {
            return Ok(());
        }
        let (state, muxes) = (place.state(self.owner)?, place.muxes(self.owner)?);
        print(&summary(&place.uninstall(&[self.owner])?))?;
        self.remove()?;
        self.manager.systemctl(&["daemon-reload"])?;
        for (unit, name) in muxes {
            // The mux ends by itself, but its files are removed after its end.
            self.manager.stop(&unit)?;
            // systemd would list a failed mux for ever.
            self.manager.forget(&unit)?;
            journal::end(self.manager, &name)?;
            account::clear_logs(self.manager, &name);
        }
        clear_state(&state)
    }

    /// Whether the unit's file exists.
    pub(super) fn is_there(&self) -> bool {
        self.place.has(Path::new(&self.unit))
    }

    /// Starts the unit again after [`DeferredDisable::cancel`], if the service is still enabled.
    pub(super) fn resume(&self, place: &UnitDirectory) {
        let begin = || {
            if !place.owners()?.iter().any(|(app, of)| (app, of) == self.owner) {
                return Ok(());
            }
            self.begin(DisableTime::Stopped, self.manager.show(self.owner.1.as_str())?.stops())
        };
        if let Err(e) = begin() {
            log::warn!("{} will stay enabled when it stops: {e:#}", self.owner.1);
        }
    }

    /// Removes the unit and stops it.
    pub(super) fn cancel(&self) -> Result<()> {
        self.remove()?;
        self.manager.stop(&self.unit)
    }

    fn remove(&self) -> Result<()> {
        self.place.uninstall(&[self.owner]).map(drop)
    }
}
