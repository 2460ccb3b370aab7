//! When output is looked at: programs draw in several writes, and those are read in pieces.

use std::time::Duration;

use tokio::time::Instant;

/// Pause after which a terminal shows what it is to show: a program draws it in a few writes.
pub(crate) const SETTLES: Duration = Duration::from_millis(50);
/// The same of one that draws all the time.
pub(crate) const BUSY: Duration = Duration::from_millis(200);

/// See the module.
#[derive(Debug)]
pub(crate) struct Quiet {
    /// The pause after which it is looked at.
    pause: Duration,
    /// How long output that has no pause is not looked at.
    most: Duration,
    /// When the pause is over, and when it is looked at in any case.
    due: Option<(Instant, Instant)>,
}

impl Quiet {
    pub(crate) fn new(pause: Duration, most: Duration) -> Self {
        Self { pause, most, due: None }
    }

    /// There is output.
    pub(crate) fn disturb(&mut self) {
        let now = Instant::now();
        self.due = Some((now + self.pause, self.due.map_or(now + self.most, |(_, most)| most)));
    }

    /// When it is looked at, if there is something.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due.map(|(quiet, most)| quiet.min(most))
    }

    /// Whether it is to be looked at now, which is done then.
    pub(crate) fn take(&mut self) -> bool {
        self.due.take_if(|(quiet, most)| Instant::now() >= (*quiet).min(*most)).is_some()
    }
}
