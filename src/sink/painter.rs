//! The thread that knows what the app's terminal shows: the model of a screen costs more for each byte
//! than all the rest of the mux.
//!
//! The loop gives it everything that the app prints, in pieces, and asks it for what depends on that: a
//! screen for a client, an answer for the app. Both come behind all that was given before. Invariant:
//! who asks [`Painter::is_full`] before has no more waiting here than [`limits::SCREEN_AHEAD`] and what
//! it gives at once.

use std::io;
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use super::kept::Kept;
use super::thread::{Ear, Mouth, Over, mailbox};
use crate::hub::ClientId;
use crate::limits;
use crate::proto::Size;
use crate::screen::Screen;

/// What the thread is to do.
#[derive(Debug)]
enum Order {
    /// The app has printed this, up to the offset `end`; the queries in it are to be answered, or a
    /// client's terminal does so.
    Show {
        bytes: Vec<u8>,
        end: u64,
        answers: bool,
    },
    Resize(Size),
    /// The modes that the app has set are over.
    Reset,
    /// A client with this window is to see the screen.
    Draw(ClientId, Option<Size>),
}

/// What the thread has to tell.
#[derive(Debug)]
pub enum Word {
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
        /// How long it took.
        took: Duration,
    },
    /// Why the screen is known no more.
    Off(String),
}

/// The loop's side.
#[derive(Debug)]
pub struct Painter {
    orders: Sender<Order>,
    /// What it tells.
    pub ear: Ear<Word>,
    /// What it is given next.
    filling: Vec<u8>,
    /// Memory for that.
    spare: Option<Vec<u8>>,
    /// Offset after that.
    end: u64,
    /// Bytes that it has not told to be shown.
    handed: usize,
}

/// The thread's side.
struct Easel {
    /// Until it cannot go on.
    screen: Option<Screen>,
    mouth: Mouth<Word>,
    /// Where screens are kept for the next mux, and how many bytes are shown between two of them.
    kept: Option<(Kept, u64)>,
    /// Offset before which all is in what is kept.
    kept_at: u64,
}

impl Painter {
    /// A screen of this size; after each so many bytes it is `kept` for the next mux.
    ///
    /// # Errors
    /// When the system gives no thread or descriptor.
    pub fn start(size: Size, kept: Option<(Kept, u64)>) -> io::Result<Self> {
        let (orders, inbox) = channel();
        let (mouth, ear) = mailbox()?;
        let up = Arc::new(Barrier::new(2));
        let is_up = Arc::clone(&up);
        let work = move || {
            is_up.wait();
            // An app that prints nothing needs no memory for it.
            let Ok(first) = inbox.recv() else { return };
            let screen = Some(Screen::new(size));
            let mut easel = Easel { screen, mouth, kept, kept_at: 0 };
            for order in iter::once(first).chain(inbox) {
                let Ok(()) = easel.take(order) else { return };
            }
        };
        thread::Builder::new().name("screen".into()).spawn(work)?;
        // What a beginning thread needs is needed before the code of starting up is given back.
        up.wait();
        Ok(Self { orders, ear, filling: Vec::new(), spare: None, end: 0, handed: 0 })
    }

    /// Whether it has so much to show that it is to be given no more.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.handed + self.filling.len() >= limits::SCREEN_AHEAD
    }

    /// The app has printed something, up to this offset.
    pub fn show(&mut self, pieces: [&[u8]; 2], end: u64, answers: bool) {
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
    }

    /// The terminal has this size now.
    pub fn resize(&mut self, size: Size) {
        self.hand_over(false);
        self.order(Order::Resize(size));
    }

    /// The app has ended: the modes that it has set are over.
    pub fn reset(&mut self) {
        self.hand_over(false);
        self.order(Order::Reset);
    }

    /// A client is to see the screen in its window, or as it is.
    pub fn draw(&mut self, id: ClientId, window: Option<Size>) {
        self.hand_over(false);
        self.order(Order::Draw(id, window));
    }

    /// What was shown is needed no more.
    pub fn shown(&mut self, len: usize, mut memory: Vec<u8>) {
        self.handed -= len;
        memory.clear();
        if memory.capacity() <= 2 * limits::SCREEN_PIECE {
            self.spare = Some(memory);
        }
    }

    fn hand_over(&mut self, answers: bool) {
        if self.filling.is_empty() {
            return;
        }
        let next = self.spare.take().unwrap_or_default();
        let bytes = std::mem::replace(&mut self.filling, next);
        self.handed += bytes.len();
        self.order(Order::Show { bytes, end: self.end, answers });
    }

    fn order(&mut self, order: Order) {
        // The thread ends only after this.
        let _ = self.orders.send(order);
    }
}

impl Easel {
    /// Obeys an order; a screen that cannot go on is given up, and all else goes on without.
    fn take(&mut self, order: Order) -> Result<(), Over> {
        let (mut len, mut draws) = (0, None);
        match &order {
            Order::Show { bytes, .. } => len = bytes.len(),
            Order::Draw(id, _) => draws = Some(*id),
            Order::Resize(_) | Order::Reset => {}
        }
        let obeyed = catch_unwind(AssertUnwindSafe(|| self.obey(order)));
        obeyed.unwrap_or_else(|_| {
            self.screen = None;
            // Who waits for it waits no more.
            self.mouth.tell(Word::Shown(len, Vec::new()))?;
            if let Some(id) = draws {
                let (screen, took) = (Vec::new(), Duration::ZERO);
                self.mouth.tell(Word::Drawn { id, screen, took })?;
            }
            self.mouth.tell(Word::Off("it cannot be drawn".into()))
        })
    }

    fn obey(&mut self, order: Order) -> Result<(), Over> {
        match (order, self.screen.as_mut()) {
            (Order::Show { bytes, end, answers }, screen) => {
                if let Some(screen) = screen {
                    screen.process(&bytes);
                    let asked: Vec<_> = screen.queries().filter(|_| answers).collect();
                    for answer in asked.iter().filter_map(|asked| screen.answer(asked)) {
                        self.mouth.tell(Word::Answer(answer))?;
                    }
                }
                self.mouth.tell(Word::Shown(bytes.len(), bytes))?;
                self.keep(end);
            }
            (Order::Draw(id, window), screen) => {
                let window = window.unwrap_or(Size { rows: 0, cols: 0 });
                let began = Instant::now();
                let screen = screen.and_then(|screen| screen.redraw(window)).unwrap_or_default();
                self.mouth.tell(Word::Drawn { id, screen, took: began.elapsed() })?;
            }
            (Order::Resize(size), Some(screen)) => screen.resize(size),
            (Order::Reset, Some(screen)) => {
                let undo = screen.modes().undo();
                screen.process(undo.as_bytes());
            }
            (Order::Resize(_) | Order::Reset, None) => {}
        }
        match self.screen.as_mut().and_then(Screen::why_off) {
            Some(why) => self.mouth.tell(Word::Off(why)),
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
