//! The thread that knows what the app's terminal shows: the model of a screen costs more for each byte
//! than all the rest of the mux.
//!
//! The loop gives it everything that the app prints, in pieces, and asks it for what depends on that: a
//! screen for a client, an answer for the app. An answer comes behind all that was given before. A screen does
//! not wait for that: it shows what is shown by then, and tells where in the stream that is. Invariant:
//! who asks [`ScreenWorker::is_full`] before has no more waiting here than [`limits::SCREEN_AHEAD`] and what
//! it gives at once.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, channel};
use std::time::{Duration, Instant};

use super::kept::Kept;
use crate::core::hub::ClientId;
use crate::core::screen::Screen;
use crate::os::mailbox::{Disconnected, Mailbox, Sender, mailbox, spawn};
use crate::types::limits;
use crate::types::size::Size;

/// What the thread is to do.
#[derive(Debug)]
enum ScreenCommand {
    /// The app has printed this, up to the offset `end`; the queries in it are to be answered, or a
    /// client's terminal does so.
    Show {
        bytes: Vec<u8>,
        end: u64,
        answers: bool,
        /// Whether it is a piece of the stream, in which a screen can be drawn.
        is_stream: bool,
    },
    Resize(Size),
    /// The modes that the app has set are over.
    Reset,
    /// A client with this window is to see the screen.
    Draw(ClientId, Option<Size>),
}

/// What the thread has to tell.
#[derive(Debug)]
pub(crate) enum ScreenEvent {
    /// It has shown so much, and gives back the memory.
    Shown(usize, Vec<u8>),
    /// What the app has asked for, as if typed.
    Answer(Vec<u8>),
    /// What shows a client the screen, or nothing, when it is not known.
    Drawn {
        /// Whom.
        id: ClientId,
        /// That.
        screen: Vec<u8>,
        /// The offset before which all is in it, if that is not all that was given before it was asked for.
        at: Option<u64>,
        /// How long it took.
        took: Duration,
    },
    /// Why the screen is known no more.
    Off(String),
}

/// The loop's side.
#[derive(Debug)]
pub(crate) struct ScreenWorker {
    thread: ScreenThread,
    /// What it tells.
    pub(crate) mailbox: Mailbox<ScreenEvent>,
    /// What it is given next.
    filling: Vec<u8>,
    /// Memory for that.
    spare: Option<Vec<u8>>,
    /// Offset after that.
    end: u64,
    /// Bytes that it has not told to be shown.
    handed: usize,
    /// Whether it was too much, and is not yet little enough.
    is_full: bool,
}

/// Where the work is done.
#[derive(Debug)]
enum ScreenThread {
    /// Nowhere before the first order; here, without a screen, when there is no thread to be had.
    Waits(Box<WorkerState>),
    /// In the thread.
    Works(mpsc::Sender<ScreenCommand>),
}

/// The thread's side.
struct WorkerState {
    size: Size,
    /// From the beginning until it cannot go on.
    screen: Option<Screen>,
    mouth: Sender<ScreenEvent>,
    /// Where screens are kept for the next mux, and how many bytes are shown between two of them.
    kept: Option<(Kept, u64)>,
    /// Offset before which all is in what is kept.
    kept_at: u64,
    /// What it is to do, where it is a thread.
    inbox: Option<Receiver<ScreenCommand>>,
    /// Orders that have been taken from there, and come next.
    waiting: VecDeque<ScreenCommand>,
    /// Whose screen is being drawn in the middle of what the app has printed.
    draws: Option<ClientId>,
}

impl ScreenWorker {
    /// A screen of this size; after each so many bytes it is `kept` for the next mux. The thread begins
    /// when there is something to show: an idle mux needs none.
    pub(crate) fn new(size: Size, kept: Option<(Kept, u64)>) -> io::Result<Self> {
        let (mouth, mailbox) = mailbox()?;
        let easel = WorkerState::new(size, mouth, kept);
        let thread = ScreenThread::Waits(Box::new(easel));
        Ok(Self {
            thread,
            mailbox,
            filling: Vec::new(),
            spare: None,
            end: 0,
            handed: 0,
            is_full: false,
        })
    }

    /// Whether it has so much to show that it is to be given no more.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// What shows the screen as it was at this offset under an earlier mux.
    pub(crate) fn restore(&mut self, screen: Vec<u8>, end: u64) {
        if !screen.is_empty() {
            self.handed += screen.len();
            self.order(ScreenCommand::Show {
                bytes: screen,
                end,
                answers: false,
                is_stream: false,
            });
        }
    }

    /// The app has printed something, up to this offset.
    pub(crate) fn show(&mut self, pieces: [&[u8]; 2], end: u64, answers: bool) {
        if answers {
            // What was printed before was not to be answered.
            self.hand_over(false);
        }
        for piece in pieces {
            self.filling.extend_from_slice(piece);
        }
        self.end = end;
        // Nobody needs it before somebody asks; in large pieces it costs least.
        if answers || self.filling.len() >= limits::SCREEN_PIECE {
            self.hand_over(answers);
        }
        self.is_full |= self.waiting() >= limits::SCREEN_AHEAD;
    }

    /// The terminal has this size now.
    pub(crate) fn resize(&mut self, size: Size) {
        self.hand_over(false);
        self.order(ScreenCommand::Resize(size));
    }

    /// The app has ended: the modes that it has set are over.
    pub(crate) fn reset(&mut self) {
        self.hand_over(false);
        self.order(ScreenCommand::Reset);
    }

    /// A client is to see the screen in its window, or as it is.
    pub(crate) fn draw(&mut self, id: ClientId, window: Option<Size>) {
        self.hand_over(false);
        self.order(ScreenCommand::Draw(id, window));
    }

    /// What was shown is needed no more.
    pub(crate) fn shown(&mut self, len: usize, mut memory: Vec<u8>) {
        self.handed -= len;
        self.is_full &= self.waiting() >= limits::SCREEN_BEHIND;
        memory.clear();
        if memory.capacity() <= 2 * limits::SCREEN_PIECE {
            self.spare = Some(memory);
        }
    }

    /// Bytes that are not shown yet, as far as that was told.
    fn waiting(&self) -> usize {
        self.handed + self.filling.len()
    }

    fn hand_over(&mut self, answers: bool) {
        if self.filling.is_empty() {
            return;
        }
        let next = self.spare.take().unwrap_or_default();
        let bytes = std::mem::replace(&mut self.filling, next);
        self.handed += bytes.len();
        self.order(ScreenCommand::Show { bytes, end: self.end, answers, is_stream: true });
    }

    fn order(&mut self, order: ScreenCommand) {
        if let ScreenThread::Waits(easel) = &mut self.thread {
            // What is left here obeys without a screen, where no thread can be had.
            let (size, mouth) = (easel.size, easel.mouth.clone());
            let blind = WorkerState::new(size, mouth, None);
            match std::mem::replace(&mut **easel, blind).begin() {
                Ok(orders) => self.thread = ScreenThread::Works(orders),
                Err(e) => log::error!("a thread for the terminal's screen: {e}"),
            }
        }
        // An end of the thread, or of its words, comes only after this.
        let _ = match &mut self.thread {
            ScreenThread::Works(orders) => orders.send(order).map_err(|_| Disconnected),
            ScreenThread::Waits(blind) => blind.take(order),
        };
    }
}

impl fmt::Debug for WorkerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Easel").field("size", &self.size).finish_non_exhaustive()
    }
}

impl WorkerState {
    fn new(size: Size, mouth: Sender<ScreenEvent>, kept: Option<(Kept, u64)>) -> Self {
        let (inbox, waiting, draws) = (None, VecDeque::new(), None);
        Self { size, screen: None, mouth, kept, kept_at: 0, inbox, waiting, draws }
    }

    /// Begins the thread.
    fn begin(mut self) -> io::Result<mpsc::Sender<ScreenCommand>> {
        let (orders, inbox) = channel();
        self.inbox = Some(inbox);
        let work = move || {
            self.screen = Some(Screen::new(self.size));
            while let Some(order) = self.next_order() {
                let Ok(()) = self.take(order) else { return };
            }
        };
        spawn("screen".into(), work)?;
        Ok(orders)
    }

    /// Waits for the next order; `None` when there will be none.
    fn next_order(&mut self) -> Option<ScreenCommand> {
        self.waiting.pop_front().or_else(|| self.inbox.as_ref()?.recv().ok())
    }

    /// Draws for those who wait, behind nothing but what the app has printed: all before the offset `at` is shown.
    fn draw_between(&mut self, at: u64) -> Result<(), Disconnected> {
        self.waiting.extend(self.inbox.iter().flat_map(Receiver::try_iter));
        let shows = |order: &ScreenCommand| matches!(order, ScreenCommand::Show { .. });
        while let Some(next) = self.waiting.iter().position(|order| !shows(order))
            && let ScreenCommand::Draw(id, window) = self.waiting[next]
        {
            self.waiting.remove(next);
            self.draws = Some(id);
            self.draw(id, window, Some(at))?;
            self.draws = None;
        }
        Ok(())
    }

    fn draw(
        &mut self,
        id: ClientId,
        window: Option<Size>,
        at: Option<u64>,
    ) -> Result<(), Disconnected> {
        let window = window.unwrap_or(Size { rows: 0, cols: 0 });
        let began = Instant::now();
        let screen = self.screen.as_ref().and_then(|screen| screen.redraw(window));
        let (screen, took) = (screen.unwrap_or_default(), began.elapsed());
        self.mouth.send(ScreenEvent::Drawn { id, screen, at, took })
    }

    /// Obeys an order; a screen that cannot go on is given up, and all else goes on without.
    fn take(&mut self, order: ScreenCommand) -> Result<(), Disconnected> {
        let (mut len, mut draws) = (0, None);
        match &order {
            ScreenCommand::Show { bytes, .. } => len = bytes.len(),
            ScreenCommand::Draw(id, _) => draws = Some(*id),
            ScreenCommand::Resize(_) | ScreenCommand::Reset => {}
        }
        let obeyed = catch_unwind(AssertUnwindSafe(|| self.obey(order)));
        obeyed.unwrap_or_else(|_| {
            self.screen = None;
            // Who waits for it waits no more.
            self.mouth.send(ScreenEvent::Shown(len, Vec::new()))?;
            if let Some(id) = draws.or(self.draws.take()) {
                let (screen, at, took) = (Vec::new(), None, Duration::ZERO);
                self.mouth.send(ScreenEvent::Drawn { id, screen, at, took })?;
            }
            self.mouth.send(ScreenEvent::Off("it cannot be drawn".into()))
        })
    }

    fn obey(&mut self, order: ScreenCommand) -> Result<(), Disconnected> {
        match (order, self.screen.as_mut()) {
            (ScreenCommand::Show { bytes, end, answers, is_stream }, _) => {
                let mut left = bytes.len();
                for slice in bytes.chunks(limits::SCREEN_SLICE) {
                    let Some(screen) = self.screen.as_mut() else { break };
                    screen.process(slice);
                    left -= slice.len();
                    if is_stream && left > 0 {
                        self.draw_between(end - left as u64)?;
                    }
                }
                if let Some(screen) = self.screen.as_mut() {
                    let asked: Vec<_> = screen.queries().filter(|_| answers).collect();
                    for answer in asked.iter().filter_map(|asked| screen.answer(asked)) {
                        self.mouth.send(ScreenEvent::Answer(answer))?;
                    }
                }
                self.mouth.send(ScreenEvent::Shown(bytes.len(), bytes))?;
                self.keep(end);
                if is_stream {
                    self.draw_between(end)?;
                }
            }
            (ScreenCommand::Draw(id, window), _) => self.draw(id, window, None)?,
            (ScreenCommand::Resize(size), Some(screen)) => screen.resize(size),
            (ScreenCommand::Reset, Some(screen)) => {
                let undo = screen.modes().undo();
                screen.process(undo.as_bytes());
            }
            (ScreenCommand::Resize(_) | ScreenCommand::Reset, None) => {}
        }
        match self.screen.as_mut().and_then(Screen::why_off) {
            Some(why) => self.mouth.send(ScreenEvent::Off(why)),
            None => Ok(()),
        }
    }

    /// Keeps the screen now and then. `end` is the offset before which all is in it.
    fn keep(&mut self, end: u64) {
        let (Some((kept, every)), Some(screen)) = (&mut self.kept, &self.screen) else { return };
        if end < self.kept_at + *every {
            return;
        }
        self.kept_at = end;
        let drawn = screen.redraw(Size { rows: 0, cols: 0 }).unwrap_or_default();
        if let Err(e) = kept.keep(end, &drawn) {
            log::warn!("keeping the screen for the next mux: {e}");
            self.kept = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However much the app has printed that is not shown yet, and whatever that costs.
    #[test]
    fn a_screen_waits_for_one_slice_of_what_the_app_prints() {
        const ID: ClientId = ClientId(7);
        let (mouth, mut mailbox) = mailbox().unwrap();
        let mut easel = WorkerState::new(Size { rows: 5, cols: 20 }, mouth, None);
        easel.screen = Some(Screen::new(easel.size));
        let (orders, inbox) = channel();
        easel.inbox = Some(inbox);
        let show = |bytes: &[u8], end| {
            let order =
                ScreenCommand::Show { bytes: bytes.to_vec(), end, answers: false, is_stream: true };
            orders.send(order).unwrap();
        };
        let piece = b"x\x1b[J".repeat(limits::SCREEN_PIECE / 4);
        let len = piece.len() as u64;
        for number in 1..=20 {
            show(&piece, number * len);
        }
        orders.send(ScreenCommand::Draw(ID, None)).unwrap();
        // This one is behind another size.
        orders.send(ScreenCommand::Resize(Size { rows: 6, cols: 20 })).unwrap();
        orders.send(ScreenCommand::Draw(ClientId(8), None)).unwrap();
        drop(orders);
        while let Some(order) = easel.next_order() {
            easel.take(order).unwrap();
        }
        let mut words = Vec::new();
        while let Some(word) = mailbox.receive() {
            words.push(match word {
                ScreenEvent::Drawn { id, at, screen, .. } => (id.0, at, !screen.is_empty()),
                ScreenEvent::Shown(..) => (0, None, false),
                other => panic!("{other:?}"),
            });
        }
        assert_eq!(words[0], (7, Some(limits::SCREEN_SLICE as u64), true));
        assert_eq!(words[1..21], [(0, None, false); 20]);
        assert_eq!(words[21..], [(8, None, true)]);
    }
}
