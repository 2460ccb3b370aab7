//! The size of the app's terminal: the window of the client that typed or resized last.
//!
//! Pure: the time is an argument. Invariants: the terminal is never given a size of zero; it is changed
//! only to another size than it has, and during a burst of changes now and then only.

use std::time::Instant;

use super::ClientId;
use crate::types::limits;
use crate::types::size::{Size, Window};

/// See the module.
#[derive(Debug)]
pub(crate) struct Sizes {
    /// The size that the terminal has.
    window: Window,
    /// The size that it is to have.
    wanted: Window,
    /// When it was changed last.
    changed: Option<Instant>,
    /// The windows of the clients that type; the last one decides.
    windows: Vec<(ClientId, Window)>,
}

impl Sizes {
    /// A terminal that has this size.
    pub(crate) fn new(size: Size) -> Self {
        let window = size.into();
        Self { window, wanted: window, changed: None, windows: Vec::new() }
    }

    /// The size that the terminal has now, or that apps take one without a size to have.
    pub(crate) fn size(&self) -> Size {
        let size = self.window.size();
        if size.is_none() { Size::DEFAULT } else { size }
    }

    /// Whether the terminal is to get another size, or one in pixels for the first time: each change is
    /// a signal for the app.
    pub(crate) fn is_changing(&self) -> bool {
        let learns = !self.window.has_pixels() && self.wanted.has_pixels();
        self.wanted.size() != self.window.size() || learns
    }

    /// The client whose window the terminal has, or gets.
    pub(crate) fn decider(&self) -> Option<ClientId> {
        self.windows.last().map(|(id, _)| *id)
    }

    /// A client's window has this size now.
    pub(crate) fn resized(&mut self, id: ClientId, window: Window) {
        if window.size().is_none() {
            return;
        }
        let window = window.checked();
        self.windows.retain(|(other, _)| *other != id);
        self.windows.push((id, window));
        self.wanted = window;
    }

    /// A client has typed.
    pub(crate) fn typed(&mut self, id: ClientId) {
        match self.windows.iter().rposition(|(other, _)| *other == id) {
            Some(at) => self.windows[at..].rotate_left(1),
            None => return,
        }
        self.follow_decider();
    }

    /// A client types no more; the one that typed before it decides.
    pub(crate) fn leave(&mut self, id: ClientId) {
        if self.decider() == Some(id) {
            self.windows.pop();
            self.follow_decider();
        } else {
            self.windows.retain(|(other, _)| *other != id);
        }
    }

    /// A client without a window requests a size, which holds until one with a window types or
    /// resizes.
    pub(crate) fn ask(&mut self, size: Size) {
        if !size.is_none() {
            self.wanted = size.into();
        }
    }

    /// The size that the terminal is to be given now, if it is to be given another.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Window> {
        let is_burst = self.changed.is_some_and(|at| now < at + limits::RESIZE_PAUSE);
        if !self.is_changing() || is_burst {
            return None;
        }
        self.changed = Some(now);
        self.window = self.wanted;
        Some(self.window)
    }

    /// The next time at which [`Sizes::due`] returns a size; `None` if the terminal has the right
    /// one.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        Some(self.changed.filter(|_| self.is_changing())? + limits::RESIZE_PAUSE)
    }

    fn follow_decider(&mut self) {
        if let Some((_, window)) = self.windows.last() {
            self.wanted = *window;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn size(rows: u16, cols: u16) -> Size {
        Size { rows, cols }
    }

    #[test]
    fn pixels_come_with_a_size_or_for_the_first_time() {
        let (a, b) = (ClientId(1), ClientId(2));
        let window = |width| Window { width, height: 300, ..size(24, 80).into() };
        let (mut sizes, mut now) = (Sizes::new(size(24, 80)), Instant::now());
        let mut due = |sizes: &mut Sizes| {
            now += limits::RESIZE_PAUSE;
            sizes.due(now)
        };
        sizes.resized(a, size(24, 80).into());
        assert_eq!(due(&mut sizes), None);
        for too_few in [0, 79] {
            sizes.resized(a, window(too_few));
            assert_eq!(due(&mut sizes), None);
        }
        sizes.resized(a, window(800));
        assert_eq!(due(&mut sizes), Some(window(800)));
        // Two who type in turns, with other fonts.
        sizes.resized(b, window(400));
        sizes.typed(a);
        assert_eq!(due(&mut sizes), None);
        sizes.resized(b, size(9, 9).into());
        assert_eq!(due(&mut sizes), Some(size(9, 9).into()));
        sizes.typed(a);
        assert_eq!(due(&mut sizes), Some(window(800)));
    }

    #[test]
    fn a_terminal_without_a_size_gets_that_of_the_first_window() {
        let mut sizes = Sizes::new(size(0, 0));
        assert_eq!((sizes.due(Instant::now()), sizes.size()), (None, Size::DEFAULT));
        sizes.resized(ClientId(1), Size::DEFAULT.into());
        assert_eq!(sizes.due(Instant::now()), Some(Size::DEFAULT.into()));
    }

    #[test]
    fn who_typed_or_resized_last_decides() {
        let (a, b, c) = (ClientId(1), ClientId(2), ClientId(3));
        let mut sizes = Sizes::new(size(24, 80));
        let mut now = Instant::now();
        let mut due = |sizes: &mut Sizes| {
            now += limits::RESIZE_PAUSE;
            sizes.due(now).map(Window::size)
        };
        assert_eq!((due(&mut sizes), sizes.decider()), (None, None));
        sizes.resized(a, size(30, 100).into());
        assert_eq!(due(&mut sizes), Some(size(30, 100)));
        sizes.resized(b, size(10, 20).into());
        assert_eq!(due(&mut sizes), Some(size(10, 20)));
        assert_eq!((due(&mut sizes), sizes.decider()), (None, Some(b)));
        sizes.typed(a);
        assert_eq!((due(&mut sizes), sizes.decider()), (Some(size(30, 100)), Some(a)));
        // One without a window, and a window that is none, change nothing.
        sizes.typed(c);
        sizes.resized(b, size(0, 20).into());
        assert_eq!((due(&mut sizes), sizes.decider()), (None, Some(a)));
        sizes.leave(a);
        assert_eq!((due(&mut sizes), sizes.decider()), (Some(size(10, 20)), Some(b)));
        sizes.ask(size(50, 50));
        assert_eq!(due(&mut sizes), Some(size(50, 50)));
        sizes.ask(size(50, 0));
        assert_eq!(due(&mut sizes), None);
        sizes.typed(b);
        assert_eq!(due(&mut sizes), Some(size(10, 20)));
        sizes.leave(b);
        assert_eq!((due(&mut sizes), sizes.size()), (None, size(10, 20)));
    }

    proptest! {
        /// For any changes at any rate: the last one wins in the end, and no change is repeated or
        /// comes too early.
        #[test]
        fn a_burst_is_a_few_changes(steps in prop::collection::vec((0u64..4, 0u16..5, 0u64..10), 1..100)) {
            let mut sizes = Sizes::new(size(1, 1));
            let (mut now, mut last) = (Instant::now(), None::<Instant>);
            let mut before = sizes.size();
            for (id, cols, millis) in steps {
                now += std::time::Duration::from_millis(millis);
                sizes.resized(ClientId(id), size(2, cols).into());
                if let Some(next) = sizes.due(now).map(Window::size) {
                    prop_assert!(next != before && !next.is_none());
                    prop_assert!(last.is_none_or(|last| now >= last + limits::RESIZE_PAUSE));
                    (last, before) = (Some(now), next);
                }
            }
            now += limits::RESIZE_PAUSE;
            sizes.due(now);
            let wanted = sizes.windows.last().map_or(size(1, 1), |(_, window)| window.size());
            prop_assert_eq!((sizes.size(), sizes.due(now)), (wanted, None));
        }
    }
}
