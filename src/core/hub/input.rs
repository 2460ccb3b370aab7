//! The input of all clients, merged into one sequence for the app.
//!
//! A single writer passes through byte for byte. While several write lines, these are merged at
//! line ends: an unfinished line keeps the turn for a bounded time and length. Input typed at a
//! terminal has its turn at once, and keeps none. Invariant: no byte is lost or changed, and the
//! bytes of one client stay in order. Pure: no I/O, no clock, no failure.
//!
//! What is merged is in the [`queue`], which may outlive the mux. What still waits for its turn is
//! not, and is not acknowledged.

pub(crate) mod queue;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use memchr::memmem::rfind;
use memchr::{memchr, memrchr, memrchr2};

use self::queue::{InputQueue, InputRecord};
use super::ClientId;
use crate::core::wire::{InputIdentity, InputPosition, InputTaken};
use crate::types::limits;
use crate::types::rights::Right;

/// Bytes that a disconnected client counts besides its input: the memory for its record.
const LEFT_WRITER: usize = 512;
/// Bytes that stay allocated for a client without waiting input.
const IDLE_INPUT: usize = 4096;

/// How a client's input is put together with that of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Merge {
    /// At line ends: no half line of it is mixed with another's.
    Lines,
    /// As it comes, also into another's half line.
    AsTyped,
}

/// How a client types.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Typing {
    pub(crate) merge: Merge,
    /// Whether its returns come in a read of their own.
    pub(crate) enter_apart: bool,
    /// Whether it is a program that types a line, which is to be a line of its own.
    pub(crate) is_program: bool,
    /// Whether it learns at its end where the app was given its last input.
    pub(crate) learns_place: bool,
}

impl From<Merge> for Typing {
    fn from(merge: Merge) -> Self {
        Self { merge, enter_apart: false, is_program: false, learns_place: false }
    }
}

/// What empties the line that others have begun, before a program's own line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineEditor {
    /// Nothing: the app has it already, and a newline ends it.
    Nobody,
    /// The terminal, at this key.
    Terminal(u8),
    /// The app, which has its terminal raw, as a line editor.
    App,
    /// A program with a screen of its own: what it was given were keys.
    Screen,
}

impl LineEditor {
    /// The keys that empty a line of which these bytes were typed, with a paste that `is_open`.
    fn keys(self, typed: &[u8], is_open: bool) -> Vec<u8> {
        match self {
            Self::Nobody => b"\n".to_vec(),
            // A key behind ^V counts as text.
            Self::Terminal(key) => vec![key; 1 + usize::from(typed.last() == Some(&QUOTE))],
            Self::Screen => Vec::new(),
            Self::App => {
                let paste: &[u8] = if is_open { PASTE_END } else { b"" };
                // At the beginning of a pasted line it takes the end of the one before.
                let breaks = typed.iter().filter(|byte| b"\r\n".contains(byte)).count();
                let kills = (1 + 2 * breaks).min(KILLS);
                [paste, LINE, &[KILL; KILLS][..kills]].concat()
            }
        }
    }
}

/// ^A and ^K, which readline, reline, zsh, fish, JLine and prompt_toolkit take as "to the beginning of the line" and
/// "delete what is behind the cursor". The first ^A ends a search, or is what ^V or ^X wait for.
const LINE: &[u8] = b"\x01\x01\x0b";
/// ^U, which most of these take as "delete what is before the cursor": readline up to the beginning of a pasted block,
/// the others up to that of its line. Those with the keys of vi have had ^A and ^K as text.
const KILL: u8 = 0x15;
/// So many of them at most: for a hundred pasted lines.
const KILLS: usize = 200;
/// ^V, which takes the next key as text, at terminals as well.
const QUOTE: u8 = 0x16;
/// What terminals send in front of a paste and behind it.
const PASTE: &[u8] = b"\x1b[200~";
const PASTE_END: &[u8] = b"\x1b[201~";
/// Bytes of the newest input in which the beginning of a line and of a paste is looked for.
const LINES: usize = limits::INPUT;
/// Most bytes that [`LineEditor::keys`] gives.
const LINE_KEYS: usize = KILLS + 16;

/// A place in the queue: a raw terminal's app gets what is behind it in another read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Break {
    /// Offset of the byte behind it.
    pub(crate) at: u64,
    /// How long that waits at least.
    pub(crate) pause: Duration,
}

/// How long a return that comes in a read of its own waits after its line: programs that type for
/// people tell a paste from a line by 120 ms at most.
const ENTER_GAP: Duration = Duration::from_millis(150);

/// How long a program's text waits behind the keys that it begins with: readline, zsh and Python lose what
/// comes with ^C.
const KEY_GAP: Duration = Duration::from_millis(200);

/// The input of one client that may not go to the app yet.
#[derive(Debug)]
struct Typist {
    how: Typing,
    /// The user whose client it is.
    uid: u32,
    right: Right,
    waiting: VecDeque<u8>,
    /// When it was served last, by [`Input::served`].
    served: u64,
    /// Where its queued bytes end, and where the app was given the last of them, if it was.
    queued: u64,
    taken: Option<InputTaken>,
    ended: bool,
    /// Its client has gone.
    left: bool,
    /// What is kept of its client, if that has named its input.
    kept: Option<KeptPosition>,
}

/// The part of a user in the input that waits.
#[derive(Debug)]
struct Share {
    /// Bytes that wait.
    waiting: usize,
    /// When one of its clients was served last, or the first of these bytes came, by
    /// [`Input::served`].
    served: u64,
}

/// The position of a client in its own input.
#[derive(Clone, Copy, Debug)]
struct KeptPosition {
    record: InputRecord,
    /// Bytes that came from it.
    received: u64,
    /// Of these, bytes that may still become part of its input, and have not.
    held: usize,
    /// Bytes that were acknowledged, or will be with the next [`Input::next_acknowledged`].
    acknowledged: u64,
}

/// A client that has ended.
#[derive(Debug)]
struct EndedClient {
    id: ClientId,
    /// Once the app has been given all up to here, it has all of this client's.
    at: u64,
    queued: u64,
    taken: Option<InputTaken>,
}

/// A client in the middle of a line.
#[derive(Clone, Copy, Debug)]
struct LineTurn {
    client: ClientId,
    since: Instant,
    len: usize,
}

/// Stands for a client of the mux before this one that is in the middle of a line and may return.
const RETURNING: ClientId = ClientId(u64::MAX);

/// See the module.
#[derive(Debug)]
pub(crate) struct Input {
    /// Bytes cleared for the app.
    pub(crate) queue: InputQueue,
    writers: BTreeMap<ClientId, Typist>,
    /// The users whose input waits.
    users: BTreeMap<u32, Share>,
    turn: Option<LineTurn>,
    /// Who edits the app's lines, as far as it was known when a program typed last.
    editor: LineEditor,
    /// The client that typed last.
    last: Option<ClientId>,
    /// Where the input of this run of the app begins.
    run: u64,
    /// The one whose input alone goes on, and its right; that of others waits, unless their right is
    /// higher.
    only: Option<(ClientId, Right)>,
    /// The clients that wait for the lock, in their order.
    waiting: VecDeque<ClientId>,
    /// How often a client was served.
    served: u64,
    /// The breaks in what is queued, in their order.
    breaks: VecDeque<Break>,
    /// Writers that ended.
    ends: VecDeque<EndedClient>,
    /// The clients that have named their input.
    records: BTreeMap<ClientId, InputRecord>,
    /// Clients of whom much was queued since the last acknowledgement.
    acknowledged: VecDeque<(ClientId, u64)>,
}

impl Input {
    /// The input of clients that are still to come, behind what is queued.
    pub(crate) fn new(queue: InputQueue, now: Instant) -> Self {
        let turn = queue.turn().map(|_| LineTurn { client: RETURNING, since: now, len: 0 });
        Self {
            queue,
            writers: BTreeMap::new(),
            users: BTreeMap::new(),
            turn,
            editor: LineEditor::Nobody,
            last: None,
            run: 0,
            only: None,
            waiting: VecDeque::new(),
            served: 0,
            breaks: VecDeque::new(),
            ends: VecDeque::new(),
            records: BTreeMap::new(),
            acknowledged: VecDeque::new(),
        }
    }

    /// A client that may type, for the first time.
    pub(crate) fn join(&mut self, id: ClientId, how: impl Into<Typing>, uid: u32, right: Right) {
        let (waiting, served) = (VecDeque::new(), self.served);
        let writer = Typist {
            how: how.into(),
            uid,
            right,
            waiting,
            served,
            queued: 0,
            taken: None,
            ended: false,
            left: false,
            kept: None,
        };
        self.writers.insert(id, writer);
    }

    /// A program types; who edits the app's lines now.
    pub(crate) fn set_editor(&mut self, editor: LineEditor) {
        self.editor = editor;
    }

    /// The next break from this offset on.
    pub(crate) fn next_break(&mut self, from: u64) -> Option<Break> {
        while self.breaks.front().is_some_and(|next| next.at < from) {
            self.breaks.pop_front();
        }
        self.breaks.front().copied()
    }

    /// What is behind the next break may go on.
    pub(crate) fn pass_break(&mut self) {
        self.breaks.pop_front();
    }

    /// A client names its input. Returns from where on it is to be sent: if the client `returns`,
    /// that is what the mux before this one had queued of it, or this one. `None` if nothing is
    /// known of it, or nothing can be kept.
    pub(crate) fn identify(
        &mut self,
        id: ClientId,
        uid: u32,
        identity: InputIdentity,
    ) -> Option<InputPosition> {
        let in_use = |record| {
            let types = |writer: &Typist| writer.kept.is_some_and(|kept| kept.record == record);
            self.records.values().any(|used| *used == record) || self.writers.values().any(types)
        };
        let record = match self.queue.find(identity.id, uid) {
            Some(record) => record,
            None if identity.returns => return None,
            None => self.queue.add(identity.id, uid, |record| !in_use(record))?,
        };
        // What its earlier connection left waiting comes again.
        let left = |(_, w): (&ClientId, &Typist)| w.kept.is_some_and(|k| k.record == record);
        if let Some((old, _)) = self.writers.iter().find(|entry| left(*entry)) {
            self.forget(*old);
        }
        if let Some(turn) = self.turn.as_mut().filter(|turn| turn.client == RETURNING)
            && self.queue.turn() == Some(record)
        {
            turn.client = id;
            self.last = Some(id);
        }
        let position = self.queue.position(record);
        self.records.insert(id, record);
        if let Some(writer) = self.writers.get_mut(&id) {
            writer.queued = if identity.returns { self.queue.end() } else { 0 };
            let (received, acknowledged) = (position.offset, position.offset);
            writer.kept = Some(KeptPosition { record, received, held: 0, acknowledged });
        }
        Some(position)
    }

    /// How many bytes of this client may be read now; 0 until the app or the other writers have
    /// made room.
    pub(crate) fn room(&self, id: ClientId) -> usize {
        let Some(writer) = self.writers.get(&id).filter(|w| !w.ended) else { return 0 };
        let room = match writer.right {
            Right::Own if writer.waiting.is_empty() => {
                limits::INPUT.saturating_sub(self.queue.len())
            }
            // More than may be queued, so that it can be cut at a line's end.
            _ => limits::INPUT.saturating_sub(writer.waiting.len()),
        };
        // The client whose turn it is does not wait for others of its user: they wait for it.
        let has_turn = self.only() == Some(id) || self.turn.is_some_and(|turn| turn.client == id);
        let of_user = self.users.get(&writer.uid).map_or(0, |share| share.waiting);
        if has_turn { room } else { room.min(limits::USER_INPUT.saturating_sub(of_user)) }
    }

    /// So many bytes came from a client. In all, `held` of its bytes are still to be pushed or
    /// dropped.
    pub(crate) fn receive(&mut self, id: ClientId, len: usize, held: usize) {
        if let Some(kept) = self.writers.get_mut(&id).and_then(|writer| writer.kept.as_mut()) {
            kept.received += len as u64;
            kept.held = held;
        }
    }

    /// Queues input of a client; more than [`Input::room`] is kept, too.
    pub(crate) fn push(&mut self, id: ClientId, bytes: &[u8], now: Instant) {
        let Some(writer) = self.writers.get(&id).filter(|w| !w.ended) else { return };
        if bytes.is_empty() {
            if let (true, Some(kept)) = (writer.waiting.is_empty(), writer.kept) {
                self.queue.skip(kept.record, kept.position(0));
            }
            return;
        }
        let mut waits = bytes;
        let room = self.queue_room(writer.right);
        if room > 0 && self.is_next_alone(id) {
            let len = if bytes.len() <= room { bytes.len() } else { whole_lines(&bytes[..room]) };
            let (passes, left) = bytes.split_at(len);
            self.pass(id, [passes, &[]], left.len(), now);
            waits = left;
        }
        if let Some(writer) = self.writers.get_mut(&id).filter(|_| !waits.is_empty()) {
            writer.waiting.extend(waits);
            let new = Share { waiting: 0, served: self.served };
            self.users.entry(writer.uid).or_insert(new).waiting += waits.len();
        }
        self.advance(now);
    }

    /// Whether the next bytes of a client can go on at once, since no others wait.
    fn is_next_alone(&self, id: ClientId) -> bool {
        self.turn.is_none_or(|turn| turn.client == id)
            && self.may_go_on(id)
            && self.writers.get(&id).is_some_and(|writer| writer.waiting.is_empty())
            && self.at_work().next().is_none()
    }

    /// Queues an answer to the app, which no client typed, behind all that may go on. An app that
    /// asks and does not read gets no more answers than fit.
    pub(crate) fn insert(&mut self, bytes: &[u8]) {
        if bytes.len() <= self.queue.free() {
            self.queue.append([bytes, &[]], None);
        }
    }

    /// The next client of whom much was queued, and how many of its bytes are.
    pub(crate) fn next_acknowledged(&mut self) -> Option<(ClientId, u64)> {
        self.acknowledged.pop_front()
    }

    /// The client types no more: its last bytes need no line end. Once they are with the app,
    /// [`Input::delivered`] names it.
    pub(crate) fn end(&mut self, id: ClientId, now: Instant) {
        if let Some(writer) = self.writers.get_mut(&id) {
            writer.ended = true;
            self.advance(now);
        }
    }

    /// The client has gone. Its input still goes to the app, with two exceptions: it waits for
    /// another client to release the input, which may never happen, or the user's clients have left
    /// too much. Then it is dropped. Returns the number of dropped bytes.
    pub(crate) fn leave(&mut self, id: ClientId, now: Instant) -> usize {
        self.records.remove(&id);
        self.waiting.retain(|waits| *waits != id);
        let Some(writer) = self.writers.get(&id) else { return 0 };
        let (uid, cost) = (writer.uid, writer.cost());
        let left = self.writers.values().filter(|w| w.left && w.uid == uid);
        let goes_on = self.may_go_on(id)
            && cost + left.map(Typist::cost).sum::<usize>() <= limits::LEFT_INPUT;
        if goes_on && let Some(writer) = self.writers.get_mut(&id) {
            writer.left = true;
            self.end(id, now);
            return 0;
        }
        self.forget(id)
    }

    /// Forgets a writer, and how many bytes of it wait, which is returned.
    fn forget(&mut self, id: ClientId) -> usize {
        self.writers.remove(&id).map_or(0, |writer| {
            self.taken(writer.uid, writer.waiting.len());
            writer.waiting.len()
        })
    }

    /// This many bytes of a user do not wait any more.
    fn taken(&mut self, uid: u32, len: usize) {
        if let Some(share) = self.users.get_mut(&uid) {
            share.waiting = share.waiting.saturating_sub(len);
            if share.waiting == 0 {
                self.users.remove(&uid);
            }
        }
    }

    /// Only this client's input goes on, and that of users with a higher right than it has; or again
    /// that of all.
    pub(crate) fn reserve(&mut self, only: Option<(ClientId, Right)>, now: Instant) {
        self.only = only;
        self.advance(now);
    }

    /// This client is to have the lock when nobody else has it.
    pub(crate) fn await_lock(&mut self, id: ClientId) {
        self.waiting.push_back(id);
    }

    /// The next client that has waited for the lock.
    pub(crate) fn next_waiting(&mut self) -> Option<ClientId> {
        self.waiting.pop_front()
    }

    /// Whether the app may be given input now of a client that will learn where.
    pub(crate) fn needs_place(&self) -> bool {
        let is_queued = self.queue.len() > 0;
        let needs = |writer: &Typist| writer.how.learns_place && (is_queued || writer.ended);
        !self.ends.is_empty() || self.writers.values().any(needs)
    }

    /// The app was given the bytes from this offset of the queue on, after it had written so much.
    pub(crate) fn given(&mut self, from: u64, taken: &InputTaken) {
        let writers = self.writers.values_mut().map(|w| (w.queued, &mut w.taken));
        let ended = self.ends.iter_mut().map(|end| (end.queued, &mut end.taken));
        for (_, last) in writers.chain(ended).filter(|(queued, _)| *queued > from) {
            *last = Some(taken.clone());
        }
    }

    /// The client whose input alone goes on.
    pub(crate) fn only(&self) -> Option<ClientId> {
        self.only.map(|(only, _)| only)
    }

    /// Whether no lock binds a client of this right. None of an admitted user binds root or the
    /// mux's own user.
    pub(crate) fn is_free_for(&self, id: ClientId, right: Right) -> bool {
        self.only.is_none_or(|(only, its)| only == id || its < right)
    }

    fn may_go_on(&self, id: ClientId) -> bool {
        // Mostly there is no lock, and no need to look for the writer.
        self.only.is_none()
            || self.writers.get(&id).is_some_and(|writer| self.is_free_for(id, writer.right))
    }

    /// The clients with input that may go on, and that there is room for.
    fn at_work(&self) -> impl Iterator<Item = (ClientId, &Typist)> {
        let rooms = [Right::Own, Right::Write].map(|right| self.queue_room(right) > 0);
        let has_room = move |w: &Typist| rooms[usize::from(w.right < Right::Own)];
        let all = self.writers.iter().map(|(id, writer)| (*id, writer));
        all.filter(move |(id, w)| w.has_work() && has_room(w) && self.is_free_for(*id, w.right))
    }

    /// Whether another client has lines that may go on.
    fn are_lines_beside(&self, id: ClientId) -> bool {
        self.at_work().any(|(other, writer)| other != id && writer.how.merge == Merge::Lines)
    }

    /// The next client of those that ended and whose every byte is with the app, and where that was
    /// given the last of them.
    pub(crate) fn delivered(&mut self) -> Option<(ClientId, Option<InputTaken>)> {
        let delivered = self.queue.delivered();
        if self.ends.front()?.at > delivered {
            return None;
        }
        self.ends.pop_front().map(|end| (end.id, end.taken))
    }

    /// The clients that have not ended, or whose bytes are not all with the app.
    pub(crate) fn undelivered(&self) -> Vec<ClientId> {
        self.writers.keys().copied().chain(self.ends.iter().map(|end| end.id)).collect()
    }

    /// The app has ended: forgets what was queued for it. Returns the clients that have ended and
    /// whose last bytes were among that. What still waits is for the app's next run.
    pub(crate) fn forget_queued(&mut self, now: Instant) -> Vec<ClientId> {
        let delivered = self.queue.delivered();
        self.queue.discard();
        self.breaks.clear();
        self.run = self.queue.end();
        self.turn = None;
        let (lost, taken): (VecDeque<_>, VecDeque<_>) =
            self.ends.drain(..).partition(|end| end.at > delivered);
        self.ends = taken;
        self.advance(now);
        lost.into_iter().map(|end| end.id).collect()
    }

    /// Forgets everything that the app has not been given, and all writers: its input is closed. A
    /// reservation stays.
    pub(crate) fn close(&mut self) {
        self.queue.discard();
        self.breaks.clear();
        self.writers.clear();
        self.users.clear();
        self.ends.clear();
        self.acknowledged.clear();
        self.turn = None;
    }

    /// The time when an unfinished line stops delaying other clients. While the queue is full, only
    /// the app decides when a client continues.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let turn = self.turn.filter(|_| self.has_room())?;
        self.are_lines_beside(turn.client).then(|| turn.since + limits::INPUT_TURN)
    }

    /// Queues all input that may go to the app now.
    pub(crate) fn advance(&mut self, now: Instant) {
        while self.has_room() && self.step(now) {}
        self.keep_turn();
    }

    fn has_room(&self) -> bool {
        self.queue.len() < limits::INPUT
    }

    /// How many bytes of a client with this right may be queued behind what is. Admitted users have
    /// one turn in the queue at a time.
    fn queue_room(&self, right: Right) -> usize {
        match right {
            Right::Own if self.has_room() => self.queue.free().saturating_sub(LINE_KEYS),
            Right::Own => 0,
            _ if self.queue.len() == 0 => limits::SHARED_INPUT,
            _ => 0,
        }
    }

    /// Moves the bytes of one client; whether there was something to move.
    fn step(&mut self, now: Instant) -> bool {
        if let Some(turn) = self.turn
            && ((turn.len >= limits::INPUT
                || now.saturating_duration_since(turn.since) >= limits::INPUT_TURN)
                && self.are_lines_beside(turn.client)
                || turn.client != RETURNING
                    && (!self.writers.contains_key(&turn.client) || !self.may_go_on(turn.client)))
        {
            self.turn = None;
        }
        let Some(id) = self.next_writer() else { return false };
        let alone = !self.are_lines_beside(id);
        let Some(right) = self.writers.get(&id).map(|writer| writer.right) else { return false };
        let room = self.queue_room(right);
        let Some(writer) = self.writers.get_mut(&id) else { return false };
        let (uid, mut waiting) = (writer.uid, std::mem::take(&mut writer.waiting));
        let len = writer.how.merge.portion(&waiting, room, alone, self.turn.is_some());
        let (a, b) = waiting.as_slices();
        let first = len.min(a.len());
        self.pass(id, [&a[..first], &b[..len - first]], waiting.len() - len, now);
        waiting.drain(..len);
        let is_idle = waiting.is_empty() && waiting.capacity() > IDLE_INPUT;
        if let Some(writer) = self.writers.get_mut(&id).filter(|_| !is_idle) {
            writer.waiting = waiting;
        }
        self.taken(uid, len);
        true
    }

    /// Queues the next bytes of a client, of which so many are left.
    fn pass(&mut self, id: ClientId, pieces: [&[u8]; 2], left: usize, now: Instant) {
        self.served += 1;
        let Some(writer) = self.writers.get_mut(&id) else { return };
        writer.served = self.served;
        let goes_on = self.last == Some(id);
        if writer.how.enter_apart && !goes_on {
            // The app reads first what others typed.
            self.breaks.push_back(Break { at: self.queue.end(), pause: Duration::ZERO });
        }
        if writer.how.is_program && !goes_on {
            let own = pieces[0].iter().chain(pieces[1]).take_while(|byte| is_key(**byte)).count();
            // Only a terminal has breaks: of a FIFO nobody would take them out again.
            let has_breaks = writer.how.enter_apart;
            if own > 0 && has_breaks {
                // Such as ^C, at which an editor throws away what comes with it.
                self.breaks.push_back(Break { at: self.queue.end() + own as u64, pause: KEY_GAP });
            }
            let keys = keys_before(pieces, &self.queue, self.run, self.editor);
            if !keys.is_empty() {
                self.queue.append([&keys, &[]], None);
                if has_breaks {
                    let at = self.queue.end();
                    self.breaks.push_back(Break { at, pause: Duration::ZERO });
                }
            }
        }
        if let Some(share) = self.users.get_mut(&writer.uid) {
            share.served = self.served;
        }
        if writer.how.enter_apart {
            let from = self.queue.end();
            let bytes = pieces[0].iter().chain(pieces[1]);
            let enters = (from..).zip(bytes).filter(|(_, byte)| **byte == b'\r');
            let breaks = enters.flat_map(|(at, _)| {
                // One without a line before it is a key.
                let gap = (goes_on || at > from).then_some(Break { at, pause: ENTER_GAP });
                gap.into_iter().chain([Break { at: at + 1, pause: Duration::ZERO }])
            });
            self.breaks.extend(breaks);
        }
        let len = pieces[0].len() + pieces[1].len();
        if len > 0 {
            self.last = Some(id);
            writer.queued = self.queue.end() + len as u64;
        }
        let ended = writer.ended && left == 0;
        let client = writer.kept.map(|kept| (kept.record, kept.position(left)));
        if writer.how.merge == Merge::Lines {
            let half = half_line(pieces);
            let earlier = self.turn.filter(|_| half == len);
            self.turn = (half > 0 && !ended).then(|| {
                let turn = earlier.unwrap_or(LineTurn { client: id, since: now, len: 0 });
                LineTurn { len: turn.len + half, ..turn }
            });
            if self.turn.is_some() {
                // Before its bytes: a mux that is killed leaves no half line without its turn.
                self.keep_turn();
            }
        }
        self.queue.append(pieces, client);
        if let Some(Typist { kept: Some(kept), .. }) = self.writers.get_mut(&id)
            && let Some((_, position)) = client
            && position - kept.acknowledged >= limits::ACKNOWLEDGED
        {
            kept.acknowledged = position;
            self.acknowledged.push_back((id, position));
        }
        if ended && let Some(Typist { queued, taken, .. }) = self.writers.remove(&id) {
            self.ends.push_back(EndedClient { id, at: self.queue.end(), queued, taken });
        }
    }

    /// Keeps for the next mux whose turn it is.
    fn keep_turn(&self) {
        let turn = self.turn.filter(|turn| turn.client != RETURNING);
        if turn.is_some() || self.turn.is_none() {
            self.queue.set_turn(turn.and_then(|turn| self.records.get(&turn.client).copied()));
        }
    }

    /// The next client with input: root and the mux's own user come before all others, and of those
    /// the user comes first who has waited longest, with the client that has. While a client is in a
    /// line, other clients with lines wait, even if that client has no input now.
    fn next_writer(&self) -> Option<ClientId> {
        let may = |(id, writer): &(ClientId, &Typist)| {
            writer.how.merge != Merge::Lines || self.turn.is_none_or(|turn| turn.client == *id)
        };
        let order = |(id, writer): &(ClientId, &Typist)| {
            let of_user = self.users.get(&writer.uid).map_or(0, |share| share.served);
            (writer.right < Right::Own, of_user, writer.served, *id)
        };
        let mut all = self.at_work().filter(may);
        let first = all.next()?;
        // Mostly it is the only one.
        let Some(second) = all.next() else { return Some(first.0) };
        let next = [first, second].into_iter().chain(all).min_by_key(order);
        next.map(|(id, _)| id)
    }
}

/// Whether a program's line begins with a key instead of text.
fn is_key(byte: u8) -> bool {
    byte.is_ascii_control() && !b"\r\n".contains(&byte)
}

/// What empties the line that others have begun, before a program's line that begins so: it is one of
/// its own. One that begins with a key brings what it needs. `run` is where the input of this run of
/// the app begins.
fn keys_before(
    [first, second]: [&[u8]; 2],
    queue: &InputQueue,
    run: u64,
    editor: LineEditor,
) -> Vec<u8> {
    if first.first().or(second.first()).copied().is_some_and(is_key) {
        return Vec::new();
    }
    let end = queue.end();
    let from = run.max(end.saturating_sub(LINES as u64));
    let typed = queue.bytes(from..end).concat();
    let line = memrchr2(b'\n', b'\r', &typed).map_or(0, |at| at + 1);
    let (paste, paste_end) = (rfind(&typed, PASTE), rfind(&typed, PASTE_END));
    let is_open = paste > paste_end;
    // The line ends of a paste are text.
    let block = paste.filter(|_| is_open || paste_end >= Some(line));
    let half = &typed[block.unwrap_or(line)..];
    if half.is_empty() {
        return Vec::new();
    }
    editor.keys(half, is_open)
}

impl Typist {
    fn has_work(&self) -> bool {
        self.ended || !self.waiting.is_empty()
    }

    /// Bytes of memory that it counts once its client has gone.
    fn cost(&self) -> usize {
        self.waiting.len() + LEFT_WRITER
    }
}

/// The length of the line that these bytes begin and do not end.
fn half_line([a, b]: [&[u8]; 2]) -> usize {
    let behind = |piece: &[u8]| memrchr(b'\n', piece).map(|at| piece.len() - at - 1);
    behind(b).unwrap_or_else(|| b.len() + behind(a).unwrap_or(a.len()))
}

impl KeptPosition {
    /// The client's position when so many of its bytes wait.
    fn position(&self, waiting: usize) -> u64 {
        self.received.saturating_sub((self.held + waiting) as u64)
    }
}

impl Merge {
    /// How many of the waiting bytes go at once: as many as there is room for, and whole lines if
    /// that is not all of them, as long as there are any. If another client waits too, a half line
    /// begun earlier is finished first, and otherwise only whole lines go.
    fn portion(self, waiting: &VecDeque<u8>, room: usize, alone: bool, in_line: bool) -> usize {
        let len = waiting.len().min(room);
        if self == Self::AsTyped || alone && len == waiting.len() {
            return len;
        }
        let (a, b) = waiting.as_slices();
        let a = &a[..len.min(a.len())];
        let b = &b[..len - a.len()];
        let end = if in_line {
            memchr(b'\n', a).or_else(|| Some(a.len() + memchr(b'\n', b)?))
        } else {
            memrchr(b'\n', b).map(|at| a.len() + at).or_else(|| memrchr(b'\n', a))
        };
        end.map_or(len, |at| at + 1)
    }
}

/// The length of the whole lines that these bytes begin with, or of all if there are none.
fn whole_lines(bytes: &[u8]) -> usize {
    memrchr(b'\n', bytes).map_or(bytes.len(), |at| at + 1)
}

#[cfg(test)]
mod tests;
