//! The way in: what clients type, merged into one sequence for the app.
//!
//! A single writer passes through byte for byte. While more than one writes lines, these are merged at
//! their ends: a half line keeps the turn for a bounded time and length. What a person types at a
//! terminal has its turn at once, and keeps none. Invariant: no byte is lost or changed, and the bytes
//! of one client stay in order. Pure: no I/O, no clock, no failure.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use super::ClientId;
use crate::types::limits;

/// How a client's input is put together with that of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Merge {
    /// At line ends: no half line of it is mixed with another's.
    Lines,
    /// As it comes, also into another's half line.
    AsTyped,
}

/// The input of one client that may not go to the app yet.
#[derive(Debug)]
struct Typist {
    merge: Merge,
    /// The user whose client it is.
    uid: u32,
    waiting: VecDeque<u8>,
    ended: bool,
    /// Its client has gone.
    left: bool,
}

/// A client in the middle of a line.
#[derive(Clone, Copy, Debug)]
struct LineTurn {
    client: ClientId,
    since: Instant,
    len: usize,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Input {
    /// Bytes cleared for the app.
    queue: VecDeque<u8>,
    /// Bytes that the app's pipe or terminal has accepted.
    written: u64,
    writers: BTreeMap<ClientId, Typist>,
    /// Bytes that wait, by user, for users that have some.
    users: BTreeMap<u32, usize>,
    turn: Option<LineTurn>,
    /// The one whose input alone goes on; that of the others waits.
    only: Option<ClientId>,
    /// The client served last, so that all get their turn.
    last: Option<ClientId>,
    /// Writers that ended, with the offset after their last byte.
    ends: VecDeque<(u64, ClientId)>,
}

impl Input {
    /// A client that may type, for the first time.
    pub(crate) fn join(&mut self, id: ClientId, merge: Merge, uid: u32) {
        let writer = Typist { merge, uid, waiting: VecDeque::new(), ended: false, left: false };
        self.writers.insert(id, writer);
    }

    /// How many bytes of this client may be read now; 0 until the app or the other writers have
    /// made room.
    pub(crate) fn room(&self, id: ClientId) -> usize {
        let Some(writer) = self.writers.get(&id).filter(|w| !w.ended) else { return 0 };
        let room = if writer.waiting.is_empty() {
            limits::INPUT.saturating_sub(self.queue.len())
        } else {
            limits::INPUT.saturating_sub(writer.waiting.len())
        };
        // The client whose turn it is does not wait for others of its user: they wait for it.
        let has_turn = self.only == Some(id) || self.turn.is_some_and(|turn| turn.client == id);
        let of_user = self.users.get(&writer.uid).copied().unwrap_or(0);
        if has_turn { room } else { room.min(limits::USER_INPUT.saturating_sub(of_user)) }
    }

    /// Queues input of a client; more than [`Input::room`] is kept, too.
    pub(crate) fn push(&mut self, id: ClientId, bytes: &[u8], now: Instant) {
        let Some(writer) = self.writers.get_mut(&id).filter(|w| !w.ended) else { return };
        writer.waiting.extend(bytes);
        *self.users.entry(writer.uid).or_default() += bytes.len();
        self.advance(now);
    }

    /// Queues an answer to the app, which no client typed, behind all that may go on.
    pub(crate) fn insert(&mut self, bytes: &[u8]) {
        self.queue.extend(bytes);
    }

    /// The client types no more: its last bytes need no line end. Once they are with the app,
    /// [`Input::delivered`] names it.
    pub(crate) fn end(&mut self, id: ClientId, now: Instant) {
        if let Some(writer) = self.writers.get_mut(&id) {
            writer.ended = true;
            self.advance(now);
        }
    }

    /// The client has gone. What it typed still goes on, unless it waits for another client to let
    /// go of the input, which may be never, or its user's clients have left too much: then it is forgotten.
    /// Returns how many bytes that are.
    pub(crate) fn leave(&mut self, id: ClientId, now: Instant) -> usize {
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
        self.writers.remove(&id).map_or(0, |writer| {
            self.taken(uid, writer.waiting.len());
            writer.waiting.len()
        })
    }

    /// So many bytes of a user wait no more.
    fn taken(&mut self, uid: u32, len: usize) {
        if let Some(waiting) = self.users.get_mut(&uid) {
            *waiting = waiting.saturating_sub(len);
            if *waiting == 0 {
                self.users.remove(&uid);
            }
        }
    }

    /// Only this client's input goes on, or again that of all.
    pub(crate) fn reserve(&mut self, only: Option<ClientId>, now: Instant) {
        self.only = only;
        self.advance(now);
    }

    /// The client whose input alone goes on.
    pub(crate) fn only(&self) -> Option<ClientId> {
        self.only
    }

    fn may_go_on(&self, id: ClientId) -> bool {
        self.only.is_none_or(|only| only == id)
    }

    /// The clients with input that may go on, and how it is merged.
    fn at_work(&self) -> impl Iterator<Item = (ClientId, Merge)> {
        let works = |(id, w): (&ClientId, &Typist)| {
            (w.has_work() && self.may_go_on(*id)).then_some((*id, w.merge))
        };
        self.writers.iter().filter_map(works)
    }

    /// Whether another client has lines that may go on.
    fn are_lines_beside(&self, id: ClientId) -> bool {
        self.at_work().any(|(other, merge)| other != id && merge == Merge::Lines)
    }

    /// The bytes that the app is to be given next, in one piece or two.
    pub(crate) fn next(&self) -> [&[u8]; 2] {
        let (a, b) = self.queue.as_slices();
        [a, b]
    }

    /// The app's side has accepted `len` bytes of [`Input::next`].
    pub(crate) fn written(&mut self, len: usize, now: Instant) {
        let len = len.min(self.queue.len());
        self.queue.drain(..len);
        self.written += len as u64;
        self.advance(now);
    }

    /// The next client of those that ended and whose every byte is with the app.
    pub(crate) fn delivered(&mut self) -> Option<ClientId> {
        let (end, id) = *self.ends.front()?;
        if end > self.written {
            return None;
        }
        self.ends.pop_front();
        Some(id)
    }

    /// Forgets everything that the app has not been given, and all writers: its input is closed. A
    /// reservation stays.
    pub(crate) fn close(&mut self) {
        *self = Self { written: self.written, only: self.only, ..Self::default() };
    }

    /// When a half line stops keeping other clients waiting. While the queue is full the app alone decides
    /// when a client goes on.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let turn = self.turn.filter(|_| self.has_room())?;
        self.are_lines_beside(turn.client).then(|| turn.since + limits::INPUT_TURN)
    }

    /// Goes on with what may go on now.
    pub(crate) fn advance(&mut self, now: Instant) {
        while self.has_room() && self.step(now) {}
    }

    fn has_room(&self) -> bool {
        self.queue.len() < limits::INPUT
    }

    /// Moves the bytes of one client; whether there was something to move.
    fn step(&mut self, now: Instant) -> bool {
        if let Some(turn) = self.turn
            && (turn.len >= limits::INPUT
                || now.saturating_duration_since(turn.since) >= limits::INPUT_TURN
                || !self.writers.contains_key(&turn.client)
                || !self.may_go_on(turn.client))
        {
            self.turn = None;
        }
        let Some(id) = self.next_writer() else { return false };
        let alone = !self.are_lines_beside(id);
        let Some(writer) = self.writers.get_mut(&id) else { return false };
        self.last = Some(id);
        let merge = writer.merge;
        let len = merge.portion(&writer.waiting, alone, self.turn.is_some());
        let whole = len == 0 || writer.waiting[len - 1] == b'\n';
        self.queue.extend(writer.waiting.drain(..len));
        if writer.waiting.is_empty() && writer.waiting.capacity() > limits::IDLE_INPUT {
            writer.waiting = VecDeque::new();
        }
        let (uid, ended) = (writer.uid, writer.ended && writer.waiting.is_empty());
        if ended {
            self.ends.push_back((self.written + self.queue.len() as u64, id));
            self.writers.remove(&id);
        }
        self.taken(uid, len);
        if merge == Merge::AsTyped {
            return true;
        }
        self.turn = if whole || ended {
            None
        } else {
            let turn = self.turn.unwrap_or(LineTurn { client: id, since: now, len: 0 });
            Some(LineTurn { len: turn.len + len, ..turn })
        };
        true
    }

    /// The first client after the one served last that has something; while one is in a line, no other
    /// with lines, even if that one has nothing now.
    fn next_writer(&self) -> Option<ClientId> {
        let may = |(id, merge): (ClientId, Merge)| {
            let waits = merge == Merge::Lines && self.turn.is_some_and(|turn| turn.client != id);
            (!waits).then_some(id)
        };
        let after = |id: &ClientId| self.last.is_some_and(|last| *id > last);
        let first = self.at_work().find_map(may);
        self.at_work().filter_map(may).find(after).or(first)
    }
}

impl Typist {
    fn has_work(&self) -> bool {
        self.ended || !self.waiting.is_empty()
    }

    /// Bytes of memory that it counts once its client has gone.
    fn cost(&self) -> usize {
        self.waiting.len() + limits::LEFT_WRITER
    }
}

impl Merge {
    /// How many of the waiting bytes go at once: all of them, unless another client waits too. Then
    /// a half line begun earlier is finished first, and otherwise only whole lines go, as long as
    /// there are any.
    fn portion(self, waiting: &VecDeque<u8>, alone: bool, in_line: bool) -> usize {
        if alone || self == Self::AsTyped {
            return waiting.len();
        }
        let end = if in_line {
            waiting.iter().position(|b| *b == b'\n')
        } else {
            waiting.iter().rposition(|b| *b == b'\n')
        };
        end.map_or(waiting.len(), |at| at + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    const A: ClientId = ClientId(1);
    const B: ClientId = ClientId(2);

    fn take(input: &mut Input, now: Instant) -> String {
        let bytes = input.next().concat();
        input.written(bytes.len(), now);
        String::from_utf8(bytes).unwrap()
    }

    fn two(merge: Merge) -> (Input, Instant) {
        let mut input = Input::default();
        input.join(A, merge, 0);
        input.join(B, merge, 0);
        (input, Instant::now())
    }

    #[test]
    fn a_single_writer_passes_through_at_once() {
        let (mut input, now) = two(Merge::Lines);
        for part in ["hel", "lo\nwor", "\n", "ld"] {
            input.push(A, part.as_bytes(), now);
            assert_eq!(take(&mut input, now), part);
        }
    }

    #[test]
    fn a_half_line_keeps_the_turn_until_its_end() {
        let (mut input, now) = two(Merge::Lines);
        input.push(A, b"one ", now);
        input.push(B, b"two\n", now);
        assert_eq!(take(&mut input, now), "one ");
        assert!(input.deadline().is_some());
        input.push(A, b"line\nthree", now);
        assert_eq!(take(&mut input, now), "line\ntwo\nthree");
        assert_eq!(input.deadline(), None);
    }

    #[test]
    fn a_half_line_keeps_the_turn_for_a_second_at_most() {
        let (mut input, now) = two(Merge::Lines);
        input.push(A, b"half", now);
        input.push(B, b"whole\n", now);
        let later = input.deadline().unwrap();
        assert_eq!(later, now + Duration::from_secs(1));
        input.advance(later);
        assert_eq!(take(&mut input, later), "halfwhole\n");
    }

    #[test]
    fn no_time_is_due_while_the_app_does_not_read() {
        let (mut input, now) = two(Merge::Lines);
        input.push(A, b"half", now);
        input.push(B, b"whole\n", now);
        input.push(A, &vec![b'x'; limits::INPUT], now);
        assert_eq!(input.deadline(), None);
        let later = now + 2 * limits::INPUT_TURN;
        input.advance(later);
        assert_eq!(input.deadline(), None);
        input.written(100, later);
        assert!(input.deadline().is_none_or(|at| at > later));
    }

    #[test]
    fn a_half_line_keeps_the_turn_for_64_kib_at_most() {
        let (mut input, now) = two(Merge::Lines);
        input.push(A, &vec![b'x'; limits::INPUT], now);
        input.push(B, b"whole\n", now);
        assert_eq!(take(&mut input, now).len(), limits::INPUT);
        assert_eq!(take(&mut input, now), "whole\n");
    }

    #[test]
    fn the_end_of_a_writer_frees_its_turn_and_is_told_when_all_is_delivered() {
        let (mut input, now) = two(Merge::Lines);
        input.push(A, b"half", now);
        input.push(B, b"whole\n", now);
        input.end(A, now);
        assert_eq!(input.delivered(), None);
        assert_eq!(take(&mut input, now), "halfwhole\n");
        assert_eq!(input.delivered(), Some(A));
        assert_eq!(input.delivered(), None);
    }

    #[test]
    fn the_end_of_the_apps_input_is_not_the_end_of_having_it_alone() {
        let (mut input, now) = two(Merge::Lines);
        input.reserve(Some(A), now);
        input.close();
        // The app was started again, and these come anew.
        input.join(B, Merge::Lines, 0);
        input.push(B, b"b", now);
        assert_eq!(take(&mut input, now), "");
        input.reserve(None, now);
        assert_eq!(take(&mut input, now), "b");
    }

    #[test]
    fn who_has_the_input_alone_types_alone() {
        let (mut input, now) = two(Merge::Lines);
        input.push(A, b"half", now);
        assert_eq!(take(&mut input, now), "half");
        input.reserve(Some(B), now);
        input.push(A, b" line\n", now);
        input.push(B, b"alone", now);
        assert_eq!(take(&mut input, now), "alone");
        assert_eq!(input.room(A), limits::INPUT - " line\n".len());
        assert_eq!(input.deadline(), None);
        input.reserve(None, now);
        let later = now + limits::INPUT_TURN;
        input.advance(later);
        assert_eq!(take(&mut input, later), " line\n");
        // What somebody leaves behind who may not type is nobody's.
        input.reserve(Some(B), now);
        input.push(A, b"x\n", now);
        input.leave(A, now);
        input.reserve(None, now);
        assert_eq!(take(&mut input, now), "");
    }

    #[test]
    fn what_clients_of_one_user_have_waiting_and_leave_is_bounded() {
        let (mut input, now) = two(Merge::Lines);
        input.reserve(Some(A), now);
        let mut waits = 0;
        for id in 10..1000 {
            let id = ClientId(id);
            input.join(id, Merge::Lines, 7);
            let room = input.room(id);
            input.push(id, &vec![b'x'; room], now);
            waits += room;
        }
        assert_eq!(waits, limits::USER_INPUT);
        // Neither who types alone nor another user waits for that.
        assert_eq!((input.room(A), input.room(B)), (limits::INPUT, limits::INPUT));
        input.reserve(None, now);
        take(&mut input, now);
        input.reserve(Some(ClientId(10)), now);
        input.push(ClientId(10), &vec![b'x'; limits::INPUT], now);
        assert!(input.next().concat().len() >= limits::INPUT);
        input.reserve(None, now);
        let (mut lost, mut left) = (0, 0);
        for id in 11..1000 {
            let id = ClientId(id);
            let len = input.writers[&id].waiting.len();
            let gone = input.leave(id, now);
            assert!(gone == 0 || gone == len);
            lost += gone;
            left += usize::from(input.writers.contains_key(&id));
        }
        assert!(lost > 0);
        let kept: usize = input.writers.values().filter(|w| w.left).map(Typist::cost).sum();
        assert!(kept <= limits::LEFT_INPUT, "{kept} bytes of {left} writers");
        // Another user's are kept, and in the end all goes on and is delivered.
        input.push(B, b"b", now);
        assert_eq!(input.leave(B, now), 0);
        let mut at = now;
        while !input.writers.is_empty() && input.users.values().sum::<usize>() > 0 {
            at += limits::INPUT_TURN;
            take(&mut input, at);
        }
        assert_eq!(input.users.len(), 0);
    }

    #[test]
    fn keys_are_merged_as_typed() {
        let (mut input, now) = two(Merge::AsTyped);
        input.push(A, b"a", now);
        input.push(B, b"b", now);
        input.push(A, b"c", now);
        assert_eq!(take(&mut input, now), "abc");
    }

    #[test]
    fn keys_wait_for_no_line_and_lines_for_no_key() {
        const KEYS: ClientId = ClientId(3);
        let (mut input, now) = two(Merge::Lines);
        input.join(KEYS, Merge::AsTyped, 0);
        input.push(A, b"half", now);
        input.push(B, b"whole\n", now);
        input.push(KEYS, b"k", now);
        assert_eq!(take(&mut input, now), "halfk");
        input.push(KEYS, b"e", now);
        input.push(A, b" line\n", now);
        assert_eq!(take(&mut input, now), "e line\nwhole\n");
        assert_eq!(input.deadline(), None);
        // A key that waits for room is no line that waits for its turn.
        input.push(A, &vec![b'x'; limits::INPUT], now);
        input.push(KEYS, b"y", now);
        assert_eq!(input.deadline(), None);
        assert_eq!(take(&mut input, now).len(), limits::INPUT);
        assert_eq!(take(&mut input, now), "y");
    }

    #[test]
    fn a_writer_is_not_read_while_the_app_does_not_read() {
        let (mut input, now) = two(Merge::Lines);
        input.push(A, &vec![b'\n'; limits::INPUT], now);
        assert_eq!((input.room(A), input.room(B)), (0, 0));
        input.written(1000, now);
        assert_eq!(input.room(B), 1000);
    }

    proptest! {
        /// Whatever is typed in whatever pieces, each client's bytes arrive whole and in order.
        #[test]
        fn nothing_is_lost_or_reordered(
            steps in prop::collection::vec((0u64..3, "[a-c\n]{0,6}", 0u64..600), 0..60),
            lines in prop::array::uniform3(prop::bool::ANY),
        ) {
            let mut input = Input::default();
            let mut at = Instant::now();
            let mut typed: [String; 3] = Default::default();
            let mut got: [String; 3] = Default::default();
            for (id, lines) in (0..3).zip(lines) {
                input.join(ClientId(id), if lines { Merge::Lines } else { Merge::AsTyped }, 0);
            }
            for (id, text, wait) in steps {
                // Each client has an alphabet of its own; the first one alone ends lines.
                let own: String = text
                    .chars()
                    .filter(|c| id == 0 || *c != '\n')
                    .map(|c| match (id, c) {
                        (1, c) => c.to_ascii_uppercase(),
                        (2, c) => char::from(c as u8 - b'a' + b'0'),
                        (_, c) => c,
                    })
                    .collect();
                input.push(ClientId(id), own.as_bytes(), at);
                typed[usize::try_from(id).unwrap()].push_str(&own);
                at += Duration::from_millis(wait);
                input.advance(at);
                for c in take(&mut input, at).chars() {
                    got[match c { 'A'..='Z' => 1, '0'..='9' => 2, _ => 0 }].push(c);
                }
            }
            for id in 0..3 {
                input.end(ClientId(id), at);
            }
            at += limits::INPUT_TURN;
            input.advance(at);
            for c in take(&mut input, at).chars() {
                got[match c { 'A'..='Z' => 1, '0'..='9' => 2, _ => 0 }].push(c);
            }
            prop_assert_eq!(typed, got);
        }
    }
}
