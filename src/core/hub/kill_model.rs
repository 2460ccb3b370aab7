//! A small mux that is killed between any two stores, again and again: every order of a few steps,
//! and after each store of each step.
//!
//! An app writes bytes that tell their offset, by way of a stage. Two clients read them, and come
//! back to the next mux with the offset that they have reached. Each byte is to reach each client
//! once and in its place, or a gap is to name it. A client that the app waits for when its mux is
//! killed, and that comes back while it is waited for, is to have no gap.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use super::tests::{PATIENCE, Rig};
use super::*;
use crate::types::record::kills;

/// Bytes of the ring.
const CAP: usize = 8;
const STREAM: Stream = Stream::Tty;
/// Words that are looked at: all but those of logs.
const USED: usize = memory::USED;
/// How many steps there are before the first kill and before the second.
const DEPTHS: [usize; 2] = [4, 2];

#[derive(Clone, Copy, Debug)]
enum Step {
    /// So many bytes are read, if there is room.
    Read(usize),
    /// A client takes so many bytes, if it is there.
    Take(usize, usize),
    /// A client comes back.
    Return(usize),
    /// A client goes and does not return.
    Leave(usize),
    /// The patience passes.
    Wait,
}

/// The steps of the first mux, and of the second.
const STEPS: [&[Step]; 2] = [
    &[
        Step::Read(3),
        Step::Read(8),
        Step::Take(0, 2),
        Step::Take(0, 99),
        Step::Take(1, 99),
        Step::Leave(1),
        Step::Wait,
    ],
    &[
        Step::Read(5),
        Step::Return(0),
        Step::Return(1),
        Step::Take(0, 3),
        Step::Take(1, 99),
        Step::Wait,
    ],
];

/// A client as it is outside of the mux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Person {
    /// The next byte that it has not got.
    at: u64,
    /// Whether the app waits for it, now or when it comes back.
    is_waited_for: bool,
    has_left: bool,
}

/// What a mux that is killed leaves behind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct LeftByKill {
    words: Vec<u64>,
    ring: [u8; CAP],
    /// Bytes that came out of the app's end so far, and how many of those are in the stage.
    taken: u64,
    staged: usize,
    people: [Person; 2],
}

/// A mux that runs.
struct Life {
    hub: Hub,
    now: Instant,
    /// All that would be left if it were killed now; the words are those of its last store.
    left: LeftByKill,
    ids: [Option<ClientId>; 2],
    /// What would have been left after each store of the last step.
    killed: Vec<LeftByKill>,
}

fn byte(offset: u64) -> u8 {
    u8::try_from(offset % 251).unwrap()
}

impl Life {
    fn begin(left: LeftByKill, words: &'static [AtomicU64], now: Instant) -> Self {
        kills::record(&[]);
        for (word, value) in words.iter().zip(&left.words) {
            word.store(*value, Ordering::Relaxed);
        }
        kills::record(&words[..USED]);
        let hub = Hub::new(&[STREAM], CAP, Memory::again(words, &left.ring), Epoch(7));
        let mut life = Self { hub, now, left, ids: [None; 2], killed: Vec::new() };
        life.note();
        life.hub.recover(STREAM, Some(life.left.staged));
        life.note();
        life.hub.await_clients(now, PATIENCE);
        let end = life.hub.extent(STREAM).unwrap().0;
        assert_eq!(end + life.left.staged as u64, life.left.taken, "{:?}", life.left);
        life
    }

    /// The first mux, with two clients that have caught up.
    fn first(words: &'static [AtomicU64], now: Instant) -> Self {
        let person = Person { at: 0, is_waited_for: false, has_left: false };
        let words_left = vec![0; USED];
        let left = LeftByKill {
            words: words_left,
            ring: [0; CAP],
            taken: 0,
            staged: 0,
            people: [person; 2],
        };
        let mut life = Self::begin(left, words, now);
        for who in 0..2 {
            life.step(Step::Return(who));
        }
        life
    }

    /// Takes the stores of the last call to the hub, during which nothing else has changed.
    fn note(&mut self) {
        for words in kills::recorded() {
            self.left.words = words;
            self.killed.push(self.left.clone());
        }
    }

    /// One step, and what would be left by a kill after any store in it.
    fn step(&mut self, step: Step) {
        self.killed.clear();
        let before = self.left.people;
        match step {
            Step::Read(len) => self.read(len),
            Step::Take(who, max) => self.take(who, max),
            Step::Return(who) => self.come(who),
            Step::Leave(who) => {
                if let Some(id) = self.ids[who].take() {
                    self.left.people[who].has_left = true;
                    self.hub.leave(id);
                }
            }
            Step::Wait => {
                self.now += PATIENCE;
                for (person, id) in self.left.people.iter_mut().zip(self.ids) {
                    person.is_waited_for &= id.is_some();
                }
            }
        }
        self.note();
        for (person, id) in self.left.people.iter_mut().zip(self.ids) {
            if let Some(id) = id {
                person.is_waited_for =
                    self.hub.clients[&id].stall.delays_app() && !self.hub.missed(id, STREAM);
            }
            person.is_waited_for &= !person.has_left;
        }
        // In the middle of a step that can be so or so.
        for left in &mut self.killed {
            for (left, (before, after)) in
                left.people.iter_mut().zip(before.iter().zip(&self.left.people))
            {
                left.is_waited_for = before.is_waited_for && after.is_waited_for;
            }
        }
    }

    fn read(&mut self, len: usize) {
        let room = self.hub.make_room(STREAM, self.now);
        self.note();
        let Room::Free(room) = room else { return };
        if self.left.staged == 0 {
            self.left.staged = len;
            self.left.taken += len as u64;
            self.killed.push(self.left.clone());
        }
        self.hub.announce(STREAM, self.left.staged);
        self.note();
        let len = room.min(self.left.staged);
        let at = self.left.taken - self.left.staged as u64;
        for (at, slot) in (at..).zip(self.hub.space(STREAM, len).into_iter().flatten()) {
            *slot = byte(at);
        }
        self.note();
        for at in at..at + len as u64 {
            self.left.ring[usize::try_from(at).unwrap() % CAP] = byte(at);
            self.killed.push(self.left.clone());
        }
        self.left.staged -= len;
        self.killed.push(self.left.clone());
        let now = Now { at: self.now, stamp: crate::types::time::Stamp(0) };
        self.hub.commit(STREAM, len, now);
    }

    fn take(&mut self, who: usize, mut max: usize) {
        let Some(id) = self.ids[who] else { return };
        while max > 0 {
            let at = self.left.people[who].at;
            match self.hub.next(id, max) {
                None => break,
                Some(Next::Gap(_, gap)) => {
                    assert_eq!(gap.start, at);
                    assert!(!self.left.people[who].is_waited_for, "{who} lost {gap:?}");
                    self.left.people[who].at = gap.end;
                }
                Some(Next::Bytes(stream, range)) => {
                    assert_eq!(range.start, at);
                    let bytes = self.hub.bytes(stream, range.clone()).concat();
                    let want: Vec<u8> = range.clone().map(byte).collect();
                    assert_eq!(bytes, want, "{range:?}");
                    max -= bytes.len();
                    // The client has it before the hub knows.
                    self.left.people[who].at = range.end;
                    self.hub.accepted(id, stream, bytes.len());
                }
            }
            self.note();
        }
    }

    /// What a hello does.
    fn come(&mut self, who: usize) {
        let person = self.left.people[who];
        if self.ids[who].is_some() || person.has_left {
            return;
        }
        let id = self.hub.join(PATIENCE);
        self.hub.clients.get_mut(&id).unwrap().unproven = 0;
        let begin = self.hub.subscribe(id, STREAM, Position::Offset(person.at)).unwrap();
        assert!(!person.is_waited_for || begin == person.at, "{who} lost {}..{begin}", person.at);
        self.note();
        self.hub.will_return(id);
        self.note();
        self.hub.welcome_back(id, self.now);
        self.ids[who] = Some(id);
    }

    /// Both come back and get everything, and then the app is not held back.
    fn finish(mut self) {
        use Step::{Read, Return, Take, Wait};
        let both = [Take(0, 99), Take(1, 99)];
        let all = [Read(3), Return(1), Read(8), Take(1, 99), Return(0), Read(8)];
        for step in
            all.into_iter().chain(both).chain([Read(8)]).chain(both).chain([Wait]).chain(both)
        {
            self.step(step);
        }
        let end = self.hub.extent(STREAM).unwrap().0;
        for person in self.left.people {
            assert!(person.has_left || person.at == end, "{person:?} of {end}");
        }
        assert_eq!(self.hub.make_room(STREAM, self.now), Room::Free(CAP));
    }
}

/// All orders of so many steps after `begin`, each with a kill after each store of its last step.
/// What was left already once is not looked at again.
fn kill_everywhere(
    begin: &dyn Fn() -> Life,
    steps: &[Step],
    depth: usize,
    left: &mut HashSet<LeftByKill>,
) {
    left.extend(begin().killed);
    let mut orders = vec![Vec::new()];
    for _ in 0..depth {
        let longer = |order: &Vec<Step>| {
            let order = order.clone();
            steps.iter().map(move |step| [&order[..], &[*step]].concat())
        };
        orders = orders.iter().flat_map(longer).collect();
        for order in &orders {
            let mut life = begin();
            for step in order {
                life.step(*step);
            }
            left.extend(life.killed);
        }
    }
}

#[test]
fn whatever_store_was_the_last_each_byte_comes_once_or_is_in_a_gap() {
    let now = Rig::new().now;
    let words = [(); 3].map(|()| Memory::new(&[STREAM], CAP).words);
    let mut once = HashSet::new();
    kill_everywhere(&|| Life::first(words[0], now), STEPS[0], DEPTHS[0], &mut once);
    let mut twice = HashSet::new();
    for left in &once {
        kill_everywhere(
            &|| Life::begin(left.clone(), words[1], now),
            STEPS[1],
            DEPTHS[1],
            &mut twice,
        );
    }
    println!("{} kills, and {} after those", once.len(), twice.len());
    assert!(once.len() > 400 && twice.len() > 3000);
    for left in once.into_iter().chain(twice) {
        Life::begin(left, words[2], now).finish();
    }
    kills::record(&[]);
}
