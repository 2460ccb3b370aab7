//! Decides which screen is drawn next.
//!
//! One screen is drawn at a time, with pauses, so that the app does not wait for screens, for any
//! number of viewers. Users take turns, independent of their numbers of viewers, and so do the
//! viewers of a user. Pure: the time is an argument.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::core::hub::ClientId;
use crate::types::limits;

/// After drawing a screen, the worker draws none for this many times the time that it took. The
/// app's output uses the rest, since the same thread shows it.
const SCREEN_REST: u32 = 3;

/// A client that is due a screen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Viewer {
    pub(crate) id: ClientId,
    pub(crate) uid: u32,
    /// Whether it takes a screen, as far as is known. One that does not is looked at when it does.
    pub(crate) takes: bool,
    /// It gets no screen before this time.
    pub(crate) not_before: Option<Instant>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct DrawTurns {
    /// Whether a client may be due a screen.
    is_due: bool,
    /// When a client is due that is not yet.
    next: Option<Instant>,
    is_drawing: bool,
    /// The client whose screen was drawn last.
    last: Option<ClientId>,
    /// How many screens were drawn.
    count: u64,
    /// For each user the number of the latest screen that one of its viewers got.
    served: BTreeMap<u32, u64>,
    /// No screen is drawn before this time.
    rests_until: Option<Instant>,
}

impl DrawTurns {
    /// A client may be due a screen.
    pub(crate) fn owe(&mut self) {
        self.is_due = true;
    }

    /// The size has changed, which has a pause of its own: programs ask their terminal things then,
    /// and the one that answers is not to wait for its screen.
    pub(crate) fn owe_at_once(&mut self) {
        (self.is_due, self.rests_until) = (true, None);
    }

    /// Whether a screen may be drawn now. While the mux ends there are no pauses.
    pub(crate) fn may_draw(&mut self, now: Instant, is_ending: bool) -> bool {
        if !self.is_due {
            return false;
        }
        let rests = self.rests_until.filter(|until| now < *until);
        let may = !self.is_drawing && (rests.is_none() || is_ending);
        if !may {
            self.next = rests;
        }
        may
    }

    /// Nothing is drawn before this time.
    pub(crate) fn put_off(&mut self, until: Instant) {
        self.next = Some(until);
    }

    /// The clients that can be drawn for now, in their order, out of all that are due a screen.
    pub(crate) fn order(
        &mut self,
        viewers: impl Iterator<Item = Viewer>,
        now: Instant,
    ) -> Vec<ClientId> {
        (self.is_due, self.next) = (false, None);
        let mut ready = Vec::new();
        for Viewer { id, uid, takes, not_before } in viewers {
            self.is_due = true;
            if !takes {
                continue;
            }
            match not_before.filter(|at| now < *at) {
                Some(at) => self.next = Some(self.next.map_or(at, |next| next.min(at))),
                None => ready.push((self.served.get(&uid).copied(), self.last >= Some(id), id)),
            }
        }
        ready.sort_unstable();
        ready.into_iter().map(|(.., id)| id).collect()
    }

    /// A screen is being drawn for this client.
    pub(crate) fn begin(&mut self, id: ClientId, uid: u32) {
        if self.served.len() >= limits::CLIENTS {
            self.served.clear();
        }
        self.count += 1;
        self.served.insert(uid, self.count);
        (self.is_drawing, self.last, self.next) = (true, Some(id), None);
    }

    /// A screen has been drawn, in this time.
    pub(crate) fn finish(&mut self, now: Instant, took: Duration) {
        self.is_drawing = false;
        self.rests_until = Some(now + SCREEN_REST * took);
    }

    /// When [`DrawTurns::may_draw`] is to be asked though nothing happens.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.next.filter(|_| self.is_due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn viewer(id: u64, uid: u32) -> Viewer {
        Viewer { id: ClientId(id), uid, takes: true, not_before: None }
    }

    #[test]
    fn users_take_turns_and_so_do_their_viewers() {
        let mut turns = DrawTurns::default();
        let now = Instant::now();
        let all = [viewer(1, 10), viewer(2, 10), viewer(3, 10), viewer(4, 11)];
        let mut drawn = Vec::new();
        for _ in 0..8 {
            turns.owe();
            assert!(turns.may_draw(now, true));
            let id = turns.order(all.into_iter(), now)[0];
            turns.begin(id, if id.0 == 4 { 11 } else { 10 });
            assert!(!turns.may_draw(now, true), "one at a time");
            turns.finish(now, Duration::ZERO);
            drawn.push(id.0);
        }
        assert_eq!(drawn, [1, 4, 1, 4, 1, 4, 1, 4]);
        // Without the other user the viewers of this one alternate.
        drawn.clear();
        for _ in 0..4 {
            let id = turns.order(all[..3].iter().copied(), now)[0];
            turns.begin(id, 10);
            turns.finish(now, Duration::ZERO);
            drawn.push(id.0);
        }
        assert_eq!(drawn, [1, 2, 3, 1]);
    }

    #[test]
    fn a_new_size_is_drawn_without_a_pause() {
        let mut turns = DrawTurns::default();
        let now = Instant::now();
        turns.begin(ClientId(1), 10);
        turns.finish(now, Duration::from_secs(1));
        turns.owe();
        assert!(!turns.may_draw(now, false));
        turns.owe_at_once();
        assert!(turns.may_draw(now, false));
    }

    #[test]
    fn pauses_are_kept_except_at_the_end() {
        let mut turns = DrawTurns::default();
        let now = Instant::now();
        assert!(!turns.may_draw(now, false), "nobody is due");
        turns.owe();
        turns.begin(ClientId(1), 10);
        turns.finish(now, Duration::from_millis(1));
        assert!(!turns.may_draw(now, false) && turns.may_draw(now, true));
        assert_eq!(turns.deadline(), Some(now + SCREEN_REST * Duration::from_millis(1)));
        let (later, busy) = (now + Duration::from_secs(1), now + Duration::from_secs(2));
        let waits = Viewer { not_before: Some(busy), ..viewer(1, 10) };
        let full = Viewer { takes: false, ..viewer(2, 10) };
        assert_eq!(turns.order([waits, full].into_iter(), later), []);
        assert_eq!(turns.deadline(), Some(busy));
        assert_eq!(turns.order([].into_iter(), later), []);
        assert!(turns.deadline().is_none() && !turns.may_draw(busy, false));
    }
}
