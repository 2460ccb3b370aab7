//! The state that a hub leaves to the next one, and how that one uses it.

use super::tests::{CAP, PATIENCE, Rig};
use super::*;
use std::sync::atomic::{AtomicU64, Ordering};

const STREAM: Stream = Stream::Stdout;

/// A mux that may be killed: its memory stays.
struct MuxLife {
    words: &'static [AtomicU64],
    ring: Vec<u8>,
    rig: Rig,
}

impl MuxLife {
    fn begin() -> Self {
        let words = Memory::new(&Stream::PLAIN, CAP).words;
        let rig = Rig::new();
        let mut life = Self { words, ring: vec![0; 2 * CAP], rig };
        life.kill();
        life
    }

    /// Killed, and begun again.
    fn kill(&mut self) {
        if let Some((end, _)) = self.rig.hub.extent(STREAM).filter(|(end, _)| *end > 0) {
            let start = self.rig.hub.start(STREAM).unwrap();
            let kept = self.rig.hub.bytes(STREAM, start..end).concat();
            for (at, byte) in (start..end).zip(kept) {
                self.ring[usize::try_from(at).unwrap() % CAP] = byte;
            }
        }
        let memory = Memory::again(self.words, &self.ring);
        self.rig.hub = Hub::new(&Stream::PLAIN, CAP, memory, Epoch(1));
        self.rig.hub.await_clients(self.rig.now, PATIENCE);
    }

    /// A client that returns if it is killed, and reads.
    fn client(&mut self) -> ClientId {
        let id = self.rig.proven(&[STREAM], Position::Unseen);
        self.rig.hub.will_return(id);
        id
    }

    /// One that comes back with its offset.
    fn back(&mut self, at: u64) -> ClientId {
        let id = self.rig.client(&[STREAM], Position::Offset(at));
        self.rig.hub.will_return(id);
        self.rig.hub.welcome_back(id, self.rig.now);
        id
    }

    /// A client accepts bytes. Then the loop looks for room, which stores the lowest offset.
    fn take(&mut self, id: ClientId, max: usize) -> String {
        let taken = self.rig.take(id, max);
        self.is_held();
        taken
    }

    fn is_held(&mut self) -> bool {
        matches!(self.rig.hub.make_room(STREAM, self.rig.now), Room::Held(_))
    }
}

#[test]
fn a_mux_that_is_killed_while_it_waits_leaves_the_wait_to_the_next_one() {
    let mut life = MuxLife::begin();
    let ids = [life.client(), life.client()];
    life.rig.write(STREAM, b"seen");
    for id in ids {
        life.take(id, 99);
    }
    life.kill();
    assert_eq!(life.rig.write(STREAM, &[b'a'; CAP]), CAP);
    // One of two is back when it is killed again.
    let first = life.back(4);
    assert_eq!(life.take(first, 10).len(), 10);
    life.kill();
    assert!(life.is_held());
    let first = life.back(14);
    assert_eq!(life.take(first, 99).len(), CAP - 10);
    assert!(life.is_held());
    let second = life.back(4);
    assert_eq!(life.take(second, 99), "a".repeat(CAP));
    assert_eq!(life.rig.write(STREAM, &[b'b'; CAP]), CAP);
    // All are back: those two are waited for by the next one, and no more.
    life.take(first, 99);
    life.take(second, 99);
    life.kill();
    let end = CAP as u64 + 68;
    assert_eq!(life.rig.write(STREAM, &[b'c'; CAP]), CAP);
    for left in [1, 0] {
        let id = life.back(end);
        assert_eq!(life.take(id, 99).len(), CAP);
        assert_eq!(life.is_held(), left > 0);
    }
}

#[test]
fn a_client_that_did_not_return_is_not_waited_for_again() {
    let mut life = MuxLife::begin();
    let id = life.client();
    life.rig.write(STREAM, b"seen");
    life.take(id, 99);
    life.kill();
    assert_eq!(life.rig.write(STREAM, &[b'a'; CAP]), CAP);
    assert!(life.is_held());
    life.rig.pass(1000);
    assert!(!life.is_held());
    life.kill();
    assert!(!life.is_held());
}

#[test]
fn the_next_mux_keeps_what_the_slowest_client_has_not_got() {
    let mut life = MuxLife::begin();
    let [fast, slow] = [life.client(), life.client()];
    life.rig.write(STREAM, &[b'a'; 40]);
    assert_eq!((life.take(fast, 99).len(), life.take(slow, 8).len()), (40, 8));
    life.kill();
    let fast = life.back(40);
    assert_eq!(life.rig.write(STREAM, &[b'b'; CAP]), 32);
    life.take(fast, 99);
    assert!(life.is_held());
    let slow = life.back(8);
    assert_eq!(life.take(slow, 99), "a".repeat(32) + &"b".repeat(32));
    assert!(!life.is_held());
}

#[test]
fn the_next_mux_keeps_nothing_for_a_client_that_was_skipped_or_has_no_patience() {
    let mut life = MuxLife::begin();
    let [fast, skipped] = [life.client(), life.client()];
    life.rig.write(STREAM, &[b'a'; CAP]);
    life.take(fast, 99);
    assert!(life.is_held());
    life.rig.pass(1000);
    assert_eq!(life.rig.write(STREAM, &[b'b'; 30]), 30);
    life.take(fast, 99);
    let viewer = life.rig.hub.join(Duration::ZERO);
    life.rig.hub.subscribe(viewer, STREAM, Position::Now);
    life.rig.hub.will_return(viewer);
    assert!(life.rig.hub.missed(skipped, STREAM));
    life.kill();
    assert_eq!(life.rig.write(STREAM, &[b'c'; CAP]), CAP);
}

/// What a mux has left, word by word: clients in 100 bytes, of which the ring has the last 64.
const PAGE: [(usize, u64); 9] = [
    // The epoch, and the clients that return.
    (0, 9),
    (1, 2),
    // Stdout: start, end, seen, announced; what is needed is the test's.
    (2, 36),
    (3, 100),
    (4, 90),
    (5, 100),
    // Stderr.
    (8, 3),
    (9, 3),
    (10, 3),
];
/// The word of PAGE with what clients of stdout need.
const NEEDED: usize = 6;

fn page() -> &'static [AtomicU64] {
    let words = Memory::new(&Stream::PLAIN, CAP).words;
    for (at, word) in PAGE {
        words[at].store(word, Ordering::Relaxed);
    }
    words
}

#[test]
fn what_a_mux_has_left_is_used() {
    let words = page();
    let hub = Hub::new(&Stream::PLAIN, CAP, Memory::again(words, &[b'x'; 2 * CAP]), Epoch(1));
    let mut rig = Rig::on(hub);
    assert_eq!(rig.hub.epoch(), Epoch(9));
    assert_eq!(rig.hub.start(STREAM), Some(36));
    assert_eq!(rig.hub.extent(STREAM), Some((100, 10)));
    assert_eq!(rig.hub.extent(Stream::Stderr), Some((3, 0)));
    rig.hub.await_clients(rig.now, PATIENCE);
    assert!(matches!(rig.hub.make_room(STREAM, rig.now), Room::Held(_)));
}

#[test]
fn what_clients_need_may_be_any_word() {
    // Offsets of zero, before the kept bytes, and after the seen ones: more is kept, or only the
    // unseen bytes.
    for (needed, free) in [(0, 0), (20, 0), (60, 24), (95, 54), (u64::MAX, 54)] {
        let words = page();
        words[NEEDED].store(needed, Ordering::Relaxed);
        let hub = Hub::new(&Stream::PLAIN, CAP, Memory::again(words, &[b'x'; 2 * CAP]), Epoch(1));
        let mut rig = Rig::on(hub);
        rig.hub.await_clients(rig.now, PATIENCE);
        let room = rig.hub.make_room(STREAM, rig.now);
        let until = Room::Held(rig.now + PATIENCE);
        assert_eq!(room, if free > 0 { Room::Free(free) } else { until }, "{needed}");
        rig.pass(1000);
        assert_eq!(rig.hub.make_room(STREAM, rig.now), Room::Free(CAP));
        assert_eq!(words[1].load(Ordering::Relaxed), 0);
    }
}

/// A mux has announced 10 bytes, read 6 of them, and was killed; or the memory is wrong.
#[test]
fn what_was_read_of_an_announcement_counts() {
    for (announced, end) in [(110, 106), (100, 100), (99, 100), (u64::MAX, 100)] {
        let words = page();
        words[5].store(announced, Ordering::Relaxed);
        // Then nothing counts as announced.
        for _ in 0..2 {
            let memory = Memory::again(words, &[0; 128]);
            let mut hub = Hub::new(&Stream::PLAIN, CAP, memory, Epoch(1));
            hub.recover(STREAM, Some(4));
            assert_eq!(hub.extent(STREAM).unwrap().0, end, "{announced}");
        }
    }
}
