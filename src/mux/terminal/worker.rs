//! The thread that models the app's screen, which costs more per byte than all the rest of the mux.
//!
//! The loop gives it all output of the app, in pieces, and requests screens and answers to queries.
//! An answer comes after all earlier output is processed. A screen does not wait for that: it shows
//! the current state, and has its offset in the stream. While the caller respects
//! `ScreenWorker::is_full`, at most [`limits::SCREEN_AHEAD`] and one read wait here.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::core::hub::ClientId;
use crate::core::wire::History;
use crate::mux::terminal::snapshot::KeptScreen;
use crate::screen::Screen;
use crate::screen::query::{PendingQuery, Query};
use crate::sys::calls;
use crate::sys::mailbox::{Disconnected, Mailbox, Sender, mailbox, spawn};
use crate::types::limits;
use crate::types::size::{Size, Window};

/// Cells of a screen that leaves memory to give back to the system when its size changes: they take
/// a MiB. That takes a millisecond, so smaller screens do without.
const LARGE_SCREEN: usize = 16 * 1024;
/// Bytes that the screen worker gets at once, unless a screen is needed sooner. Of text that scrolls
/// away only the end of a piece costs something, so pieces are large. They are also what a screen
/// waits for: some hundred microseconds of usual output, and 50 ms of the most expensive. The last
/// read of a terminal fits in memory of 64 KiB, too.
const SCREEN_PIECE: usize = 60 * 1024;

/// Queries that are remembered in case the client that is to answer them leaves.
const ASKED: usize = 64;
/// How long the thread waits for more output after a large piece before it gives memory back to the
/// system: that takes a millisecond.
const SCREEN_IDLE: Duration = Duration::from_secs(1);

/// A command to the thread.
#[derive(Debug)]
enum ScreenCommand {
    /// The app has printed these bytes, up to the offset `end`. If `answers` the thread answers the
    /// queries in them, else a client's terminal does.
    Show {
        bytes: Vec<u8>,
        end: u64,
        answers: bool,
        /// Whether it is a piece of the stream, in which a screen can be drawn.
        is_stream: bool,
    },
    Resize(Window),
    /// The modes that the app has set are over.
    Reset,
    /// Whether a client has the focus.
    Focus(bool),
    /// A client's terminal does not answer these queries any more.
    Answer(Vec<Query>),
    /// A client with this window is to see the screen, and these lines above it.
    Draw(ClientId, Option<Size>, Option<History>),
}

/// A message of the thread.
#[derive(Debug)]
pub(crate) enum ScreenEvent {
    /// This many bytes are shown; returns their memory.
    Shown(usize, Vec<u8>),
    /// The answer to a query of the app, as if typed.
    Answer(Vec<u8>),
    /// The bytes that show a client the screen; none if the screen is not known.
    Drawn {
        id: ClientId,
        screen: Vec<u8>,
        /// The offset up to which the screen shows the stream, if the command came after more
        /// output.
        at: Option<u64>,
        took: Duration,
    },
    /// The screen is lost, for this reason.
    Off(String),
}

/// The loop's side.
#[derive(Debug)]
pub(crate) struct ScreenWorker {
    thread: ScreenThread,
    pub(crate) mailbox: Mailbox<ScreenEvent>,
    /// Bytes for the next command.
    filling: Vec<u8>,
    /// Memory for the bytes after that.
    spare: Option<Vec<u8>>,
    /// Offset after `filling`.
    end: u64,
    /// Bytes that the thread has and has not shown yet.
    handed: usize,
    /// Bytes that it has shown.
    pub(crate) done: u64,
    /// Whether it must get no more: too many bytes waited, and still too many do.
    pub(crate) is_full: bool,
}

/// The state of the thread.
#[derive(Debug)]
enum ScreenThread {
    /// Not started, before the first command; without a screen if it cannot be started.
    Waits(Box<WorkerState>),
    /// Running.
    Works(mpsc::Sender<ScreenCommand>),
}

/// The thread's side.
struct WorkerState {
    size: Size,
    /// Lines that are kept when they scroll off the screen.
    scrollback: usize,
    /// From the beginning until it cannot go on.
    screen: Option<Screen>,
    events: Sender<ScreenEvent>,
    /// Where screens are kept for the next mux, and how many bytes are shown between two of them.
    kept: Option<(KeptScreen, u64)>,
    /// The offset up to which the snapshot shows the stream.
    kept_at: u64,
    /// The commands, once it is a thread.
    inbox: Option<Receiver<ScreenCommand>>,
    /// Commands that have been taken from the inbox, and come next.
    waiting: VecDeque<ScreenCommand>,
    /// The client whose screen is being drawn between two pieces.
    draws: Option<ClientId>,
    /// The last queries that a client's terminal is to answer.
    asked: Vec<PendingQuery>,
    /// Whether a client has the focus.
    has_focus: bool,
    /// Whether a large piece has left memory to give back.
    was_busy: bool,
}

impl ScreenWorker {
    /// A screen of this size, which keeps this many lines. `kept` has the memory for snapshots and
    /// the number of bytes between two of them. The thread starts with the first output: an idle mux
    /// needs none.
    pub(crate) fn new(screen: (Size, usize), kept: Option<(KeptScreen, u64)>) -> io::Result<Self> {
        let (events, mailbox) = mailbox()?;
        let state = WorkerState::new(screen, events, kept);
        let thread = ScreenThread::Waits(Box::new(state));
        Ok(Self {
            thread,
            mailbox,
            filling: Vec::new(),
            spare: None,
            end: 0,
            handed: 0,
            done: 0,
            is_full: false,
        })
    }

    /// Whether a client has the focus.
    pub(crate) fn focus(&mut self, is_there: bool) {
        match &mut self.thread {
            // It prints nothing yet, and wants no report.
            ScreenThread::Waits(state) => state.has_focus = is_there,
            ScreenThread::Works(_) => {
                self.order(ScreenCommand::Focus(is_there));
            }
        }
    }

    /// Shows the screen as it was at this offset under an earlier mux.
    pub(crate) fn restore(&mut self, screen: Vec<u8>, end: u64) {
        if !screen.is_empty() {
            self.handed += screen.len();
            self.command(ScreenCommand::Show {
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
            // The queries before these bytes have their answers.
            self.hand_over(false);
        }
        for piece in pieces {
            self.filling.extend_from_slice(piece);
        }
        self.end = end;
        // Large pieces cost least, and a screen or an answer takes a smaller one along.
        if answers || self.filling.len() >= SCREEN_PIECE {
            self.hand_over(answers);
        }
        self.is_full |= self.waiting() >= limits::SCREEN_AHEAD;
    }

    /// The terminal has this size now.
    pub(crate) fn resize(&mut self, window: Window) {
        self.order(ScreenCommand::Resize(window));
    }

    /// The app has ended: the modes that it has set are over.
    pub(crate) fn reset(&mut self) {
        self.order(ScreenCommand::Reset);
    }

    /// The client that was to answer these queries has gone. They are the newest first, and may be
    /// any number.
    pub(crate) fn answer(&mut self, queries: impl Iterator<Item = Query>) {
        let queries: Vec<_> = queries.take(ASKED).collect();
        if queries.is_empty() {
            return;
        }
        self.order(ScreenCommand::Answer(queries));
    }

    /// A client is to see the screen in its window, or as it is.
    pub(crate) fn draw(&mut self, id: ClientId, window: Option<Size>, history: Option<History>) {
        self.order(ScreenCommand::Draw(id, window, history));
    }

    /// This many bytes have been shown; their memory is reused.
    pub(crate) fn shown(&mut self, len: usize, mut memory: Vec<u8>) {
        self.handed -= len;
        self.done += len as u64;
        self.is_full &= self.waiting() >= limits::SCREEN_BEHIND;
        memory.clear();
        // The last piece of all leaves none behind.
        if self.waiting() > 0 && memory.capacity() <= 2 * SCREEN_PIECE {
            self.spare = Some(memory);
        }
    }

    /// Bytes that are not known to be shown.
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
        self.command(ScreenCommand::Show { bytes, end: self.end, answers, is_stream: true });
    }

    /// Gives a command behind the output so far.
    fn order(&mut self, command: ScreenCommand) {
        self.hand_over(false);
        self.command(command);
    }

    fn command(&mut self, command: ScreenCommand) {
        if let ScreenThread::Waits(state) = &mut self.thread {
            // If no thread can be started, this executes the commands without a screen.
            let (screen, events) = ((state.size, state.scrollback), state.events.clone());
            let blind = WorkerState::new(screen, events, None);
            match std::mem::replace(&mut **state, blind).begin() {
                Ok(commands) => self.thread = ScreenThread::Works(commands),
                Err(e) => log::error!("a thread for the terminal's screen: {e}"),
            }
        }
        // The thread, or its messages, end only after this worker.
        let _ = match &mut self.thread {
            ScreenThread::Works(commands) => commands.send(command).map_err(|_| Disconnected),
            ScreenThread::Waits(blind) => blind.take(command),
        };
    }
}

impl fmt::Debug for WorkerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerState").field("size", &self.size).finish_non_exhaustive()
    }
}

impl WorkerState {
    fn new(
        (size, scrollback): (Size, usize),
        events: Sender<ScreenEvent>,
        kept: Option<(KeptScreen, u64)>,
    ) -> Self {
        Self {
            size,
            scrollback,
            screen: None,
            events,
            kept,
            kept_at: 0,
            inbox: None,
            waiting: VecDeque::new(),
            draws: None,
            asked: Vec::new(),
            has_focus: false,
            was_busy: false,
        }
    }

    /// Begins the thread.
    fn begin(mut self) -> io::Result<mpsc::Sender<ScreenCommand>> {
        let (commands, inbox) = channel();
        self.inbox = Some(inbox);
        let work = move || {
            self.screen = Some(Screen::new(self.size).keeping(self.scrollback));
            while let Some(command) = self.next_command() {
                let Ok(()) = self.take(command) else { return };
            }
        };
        spawn("screen".into(), work)?;
        Ok(commands)
    }

    /// Waits for the next command; `None` when there will be none.
    fn next_command(&mut self) -> Option<ScreenCommand> {
        self.waiting.pop_front().or_else(|| self.receive())
    }

    /// Waits for a command, and gives memory back if none comes.
    fn receive(&mut self) -> Option<ScreenCommand> {
        let inbox = self.inbox.as_ref()?;
        if std::mem::take(&mut self.was_busy) {
            match inbox.recv_timeout(SCREEN_IDLE) {
                Ok(command) => {
                    self.was_busy = true;
                    return Some(command);
                }
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => calls::give_back_memory(),
            }
        }
        inbox.recv().ok()
    }

    /// Draws for clients that wait for nothing but app output, with which they continue. Everything
    /// before the offset `at` is shown.
    fn draw_between(&mut self, at: u64) -> Result<(), Disconnected> {
        self.waiting.extend(self.inbox.iter().flat_map(Receiver::try_iter));
        let shows = |command: &ScreenCommand| matches!(command, ScreenCommand::Show { .. });
        while let Some(next) = self.waiting.iter().position(|command| !shows(command))
            && let ScreenCommand::Draw(id, window, history) = self.waiting[next]
            && history != Some(History::Only)
        {
            self.waiting.remove(next);
            self.draws = Some(id);
            self.draw(id, (window, history), Some(at))?;
            self.draws = None;
        }
        Ok(())
    }

    fn draw(
        &mut self,
        id: ClientId,
        (window, history): (Option<Size>, Option<History>),
        at: Option<u64>,
    ) -> Result<(), Disconnected> {
        let window = window.unwrap_or(Size { rows: 0, cols: 0 });
        let began = Instant::now();
        let screen = self.screen.as_ref().map(|screen| match history {
            None => screen.redraw(window),
            Some(History::Before) => [screen.scrollback(window), screen.redraw(window)].concat(),
            Some(History::Only) => screen.text(),
        });
        let screen = screen.unwrap_or_default();
        self.events.send(ScreenEvent::Drawn { id, screen, at, took: began.elapsed() })
    }

    /// Executes a command. A screen that panics is given up, and the rest goes on without it.
    fn take(&mut self, command: ScreenCommand) -> Result<(), Disconnected> {
        let (mut len, mut draws) = (0, None);
        match &command {
            ScreenCommand::Show { bytes, .. } => len = bytes.len(),
            ScreenCommand::Draw(id, ..) => draws = Some(*id),
            ScreenCommand::Resize(_)
            | ScreenCommand::Reset
            | ScreenCommand::Focus(_)
            | ScreenCommand::Answer(_) => {}
        }
        let executed = catch_unwind(AssertUnwindSafe(|| self.execute(command)));
        executed.unwrap_or_else(|_| {
            self.screen = None;
            // A client that waits for it waits no more.
            self.events.send(ScreenEvent::Shown(len, Vec::new()))?;
            if let Some(id) = draws.or(self.draws.take()) {
                let (screen, at, took) = (Vec::new(), None, Duration::ZERO);
                self.events.send(ScreenEvent::Drawn { id, screen, at, took })?;
            }
            self.events.send(ScreenEvent::Off("it cannot be drawn".into()))
        })
    }

    fn execute(&mut self, command: ScreenCommand) -> Result<(), Disconnected> {
        match (command, self.screen.as_mut()) {
            (ScreenCommand::Show { bytes, end, answers, is_stream }, screen) => {
                self.was_busy |= bytes.len() >= SCREEN_PIECE;
                if let Some(screen) = screen {
                    screen.process(&bytes);
                    let asked: Vec<_> = screen.queries().collect();
                    if answers {
                        for answer in asked.iter().filter_map(|asked| screen.answer(asked)) {
                            self.events.send(ScreenEvent::Answer(answer))?;
                        }
                    } else if !asked.is_empty() {
                        self.asked.extend(asked);
                        self.asked.drain(..self.asked.len().saturating_sub(ASKED));
                    }
                }
                self.report_focus()?;
                self.events.send(ScreenEvent::Shown(bytes.len(), bytes))?;
                self.keep(end);
                if is_stream {
                    self.draw_between(end)?;
                }
            }
            (ScreenCommand::Draw(id, window, history), _) => {
                self.draw(id, (window, history), None)?;
            }
            (ScreenCommand::Resize(window), Some(screen)) => {
                let size = window.size();
                if size != self.size {
                    screen.resize(size);
                }
                screen.set_pixels(window);
                if let Some(report) = screen.size_report() {
                    self.events.send(ScreenEvent::Answer(report))?;
                }
                // The screen in its old size, and what it took to lay it out again.
                if std::mem::replace(&mut self.size, size).cells() >= LARGE_SCREEN {
                    calls::give_back_memory();
                }
            }
            (ScreenCommand::Focus(is_there), _) => {
                self.has_focus = is_there;
                self.report_focus()?;
            }
            (ScreenCommand::Reset, Some(screen)) => {
                let undo = screen.modes().undo(self.size.cols);
                screen.process(undo.as_bytes());
            }
            (ScreenCommand::Answer(queries), Some(screen)) => {
                let mut found = Vec::new();
                for query in &queries {
                    let last = self.asked.iter().rposition(|asked| asked.query == *query);
                    let Some(at) = last else { break };
                    found.push(self.asked[at]);
                    self.asked.truncate(at);
                }
                for answer in found.iter().rev().filter_map(|asked| screen.answer(asked)) {
                    self.events.send(ScreenEvent::Answer(answer))?;
                }
            }
            (ScreenCommand::Resize(_) | ScreenCommand::Reset | ScreenCommand::Answer(_), None) => {}
        }
        Ok(())
    }

    /// Tells the app of the focus, if it wants to know and does not.
    fn report_focus(&mut self) -> Result<(), Disconnected> {
        let report = self.screen.as_mut().and_then(|screen| screen.focus_report(self.has_focus));
        report.map_or(Ok(()), |report| self.events.send(ScreenEvent::Answer(report.to_vec())))
    }

    /// Keeps the screen from time to time. It shows everything before the offset `end`.
    fn keep(&mut self, end: u64) {
        let (Some((kept, every)), Some(screen)) = (&mut self.kept, &self.screen) else { return };
        if end < self.kept_at + *every {
            return;
        }
        self.kept_at = end;
        kept.keep(end, &screen.copy());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This holds for any amount of waiting output, and for any cost of it.
    #[test]
    fn a_screen_waits_for_one_piece_of_what_the_app_prints() {
        const ID: ClientId = ClientId(7);
        let (events, mut mailbox) = mailbox().unwrap();
        let mut state = WorkerState::new((Size { rows: 5, cols: 20 }, 0), events, None);
        state.screen = Some(Screen::new(state.size));
        let (commands, inbox) = channel();
        state.inbox = Some(inbox);
        let show = |bytes: &[u8], end| {
            let command =
                ScreenCommand::Show { bytes: bytes.to_vec(), end, answers: false, is_stream: true };
            commands.send(command).unwrap();
        };
        let piece = b"x\x1b[J".repeat(SCREEN_PIECE / 4);
        let len = piece.len() as u64;
        for number in 1..=20 {
            show(&piece, number * len);
        }
        commands.send(ScreenCommand::Draw(ID, None, None)).unwrap();
        // This one is behind another size.
        commands.send(ScreenCommand::Resize(Size { rows: 6, cols: 20 }.into())).unwrap();
        commands.send(ScreenCommand::Draw(ClientId(8), None, None)).unwrap();
        drop(commands);
        while let Some(command) = state.next_command() {
            state.take(command).unwrap();
        }
        let mut words = Vec::new();
        while let Some(word) = mailbox.receive() {
            words.push(match word {
                ScreenEvent::Drawn { id, at, screen, .. } => (id.0, at, !screen.is_empty()),
                ScreenEvent::Shown(..) => (0, None, false),
                other => panic!("{other:?}"),
            });
        }
        assert_eq!(words[0], (0, None, false));
        assert_eq!(words[1], (7, Some(len), true));
        assert_eq!(words[2..21], [(0, None, false); 19]);
        assert_eq!(words[21..], [(8, None, true)]);
    }
}
