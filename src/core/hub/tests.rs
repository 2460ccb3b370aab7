//! The promises of the hub, by examples and by properties.

use super::*;
use crate::types::stream::Position;
use proptest::prelude::*;
use std::sync::atomic::Ordering;

pub(super) const CAP: usize = 64;
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

pub(super) struct Rig {
    pub(super) hub: Hub,
    pub(super) now: Instant,
    pub(super) wrote: u64,
}

impl Rig {
    pub(super) fn new() -> Self {
        Self::keeping(CAP)
    }

    fn keeping(backlog: usize) -> Self {
        let memory = Memory::new(&Stream::PLAIN, backlog);
        let hub = Hub::new(&Stream::PLAIN, backlog, memory, Epoch(1));
        Self::on(hub)
    }

    pub(super) fn on(hub: Hub) -> Self {
        Self { hub, now: Instant::now(), wrote: 0 }
    }

    pub(super) fn pass(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }

    /// The app writes; returns the number of bytes that the room allowed.
    pub(super) fn write(&mut self, stream: Stream, bytes: &[u8]) -> usize {
        let Room::Free(room) = self.hub.make_room(stream, self.now) else { return 0 };
        let len = room.min(bytes.len());
        let [a, b] = self.hub.space(stream, len);
        let (head, tail) = bytes[..len].split_at(a.len());
        a.copy_from_slice(head);
        b.copy_from_slice(tail);
        let now = Now { at: self.now, stamp: crate::types::time::Stamp(self.wrote) };
        self.hub.commit(stream, len, now).unwrap();
        self.wrote += len as u64;
        len
    }

    pub(super) fn client(&mut self, streams: &[Stream], from: Position) -> ClientId {
        let id = self.hub.join(PATIENCE);
        for stream in streams {
            self.hub.subscribe(id, *stream, from).unwrap();
        }
        id
    }

    /// A client of whom it is known that it reads.
    pub(super) fn proven(&mut self, streams: &[Stream], from: Position) -> ClientId {
        let id = self.client(streams, from);
        self.hub.clients.get_mut(&id).unwrap().unproven = 0;
        id
    }

    /// A client takes at most `max` bytes; gaps are shown as `[from-to]`.
    pub(super) fn take(&mut self, id: ClientId, mut max: usize) -> String {
        let mut got = String::new();
        while max > 0 {
            match self.hub.next(id, max) {
                None => break,
                Some(Next::Gap(_, range)) => {
                    got = format!("{got}[{}-{}]", range.start, range.end);
                }
                Some(Next::Bytes(stream, range)) => {
                    let bytes = self.hub.bytes(stream, range).concat();
                    self.hub.accepted(id, stream, bytes.len());
                    max -= bytes.len();
                    got += std::str::from_utf8(&bytes).unwrap();
                }
            }
        }
        got
    }
}

#[test]
fn unseen_is_what_no_client_was_given() {
    let mut rig = Rig::new();
    rig.write(Stream::Stdout, b"before ");
    let first = rig.client(&[Stream::Stdout], Position::Unseen);
    assert_eq!(rig.take(first, 99), "before ");
    rig.write(Stream::Stdout, b"between ");
    rig.hub.leave(first);
    rig.write(Stream::Stdout, b"after");
    let second = rig.client(&[Stream::Stdout], Position::Unseen);
    assert_eq!(rig.take(second, 99), "between after");
    for (from, want) in [
        (Position::Now, ""),
        (Position::Start, "before between after"),
        (Position::Offset(15), "after"),
        (Position::Offset(999), ""),
        (Position::Unseen, ""),
    ] {
        let id = rig.client(&[Stream::Stdout], from);
        assert_eq!(rig.take(id, 99), want, "{from:?}");
    }
}

#[test]
fn the_next_mux_goes_on_with_what_is_kept() {
    let Memory { words, rings } = Memory::new(&Stream::PLAIN, CAP);
    let hub = Hub::new(&Stream::PLAIN, CAP, Memory { words, rings }, Epoch(1));
    let mut rig = Rig { hub, now: Instant::now(), wrote: 0 };
    rig.write(Stream::Stdout, b"seen ");
    let id = rig.client(&[Stream::Stdout], Position::Unseen);
    assert_eq!(rig.take(id, 99), "seen ");
    rig.write(Stream::Stdout, b"unseen");
    let ring = rig.hub.bytes(Stream::Stdout, 0..99).concat();
    let rings = [&ring[..], &[0; 2 * CAP][ring.len()..]].concat();
    rig.hub = Hub::new(&Stream::PLAIN, CAP, Memory::again(words, &rings), Epoch(2));
    assert_eq!(rig.hub.epoch(), Epoch(1));
    for (from, want) in [(Position::Unseen, "unseen"), (Position::Start, "seen unseen")] {
        let id = rig.client(&[Stream::Stdout], from);
        assert_eq!(rig.take(id, 99), want);
    }
    rig.write(Stream::Stdout, b" more");
    assert_eq!(rig.hub.extent(Stream::Stdout), Some((16, 5)));
    // For other streams, or of another size, it is of no use.
    let layout = memory::layout(&Stream::PLAIN, CAP);
    for (streams, backlog) in [(&[Stream::Stdout][..], CAP), (&Stream::PLAIN, CAP / 2)] {
        assert_ne!(memory::layout(streams, backlog), layout);
    }
}

#[test]
fn the_next_mux_waits_a_moment_for_clients_to_come_back() {
    for returns in [true, false] {
        let mut rig = Rig::new();
        let id = rig.client(&[Stream::Stdout], Position::Unseen);
        rig.write(Stream::Stdout, b"seen");
        rig.take(id, 99);
        rig.hub.will_return(id);
        assert_eq!(rig.hub.make_room(Stream::Stdout, rig.now), Room::Free(CAP));
        // One who leaves by itself is not waited for.
        let other = rig.client(&[Stream::Stdout], Position::Now);
        rig.hub.will_return(other);
        rig.hub.leave(other);
        rig.hub.end();
        rig.hub.leave(id);
        rig.hub.await_clients(rig.now, PATIENCE);
        assert_eq!(rig.write(Stream::Stdout, &[b'a'; CAP]), CAP);
        assert_eq!(rig.hub.make_room(Stream::Stdout, rig.now), Room::Held(rig.now + PATIENCE));
        rig.pass(900);
        if returns {
            let id = rig.hub.join(PATIENCE);
            rig.hub.subscribe(id, Stream::Stdout, Position::Offset(4));
            rig.hub.will_return(id);
            rig.hub.welcome_back(id, rig.now);
            rig.pass(100);
            // From here on it is as patient as any.
            assert_eq!(rig.hub.make_room(Stream::Stdout, rig.now), Room::Held(rig.now + PATIENCE));
            assert_eq!(rig.take(id, 999), "a".repeat(CAP));
            assert_eq!(rig.write(Stream::Stdout, &[b'b'; CAP]), CAP);
            assert_eq!(rig.take(id, 999), "b".repeat(CAP));
        } else {
            rig.pass(100);
            assert_eq!(rig.write(Stream::Stdout, &[b'b'; CAP]), CAP);
            // A later client has no earlier patience.
            let id = rig.client(&[Stream::Stdout], Position::Offset(4));
            rig.hub.will_return(id);
            rig.hub.welcome_back(id, rig.now);
            assert_eq!(rig.hub.make_room(Stream::Stdout, rig.now), Room::Free(CAP));
        }
    }
}

#[test]
fn a_position_no_longer_kept_begins_with_a_gap() {
    let mut rig = Rig::new();
    assert_eq!(rig.write(Stream::Stdout, &[b'a'; CAP]), CAP);
    assert_eq!(rig.write(Stream::Stdout, &[b'b'; 4]), 4);
    let id = rig.client(&[Stream::Stdout], Position::Offset(1));
    assert_eq!(rig.take(id, 3), "[1-4]aaa");
    assert_eq!(rig.hub.lost(id), 3);
}

#[test]
fn the_app_waits_for_a_client_that_kept_up_but_only_for_its_patience() {
    let mut rig = Rig::new();
    let stalled = rig.proven(&[Stream::Stdout], Position::Unseen);
    assert_eq!(rig.write(Stream::Stdout, &[b'a'; CAP]), CAP);
    let Room::Held(until) = rig.hub.make_room(Stream::Stdout, rig.now) else { panic!("not held") };
    assert_eq!(until, rig.now + PATIENCE);
    rig.pass(999);
    assert_eq!(rig.hub.make_room(Stream::Stdout, rig.now), Room::Held(until));
    rig.pass(1);
    assert_eq!(rig.write(Stream::Stdout, b"xyz"), 3);
    assert_eq!(rig.take(stalled, 5), "[0-3]aaaaa");
    // Without patience it delays nothing before it has caught up.
    assert_eq!(rig.write(Stream::Stdout, &[b'c'; CAP]), CAP);
    let all = rig.take(stalled, 999);
    assert_eq!(all, "[8-67]".to_owned() + &"c".repeat(CAP));
    assert_eq!(rig.write(Stream::Stdout, &[b'd'; CAP]), CAP);
    assert!(matches!(rig.hub.make_room(Stream::Stdout, rig.now), Room::Held(_)));
}

#[test]
fn a_trickle_is_no_progress_but_a_quarter_of_the_ring_is() {
    for (bytes, held) in [(1, false), (4, true)] {
        let mut rig = Rig::new();
        let slow = rig.proven(&[Stream::Stdout], Position::Unseen);
        for _ in 0..20 {
            rig.write(Stream::Stdout, &[b'a'; CAP]);
            rig.pass(200);
            rig.take(slow, bytes);
        }
        rig.write(Stream::Stdout, &[b'a'; CAP]);
        assert_eq!(rig.hub.lost(slow) == 0, held, "{bytes} bytes each 200 ms");
    }
}

#[test]
fn a_client_that_comes_behind_has_no_patience_yet() {
    let mut rig = Rig::new();
    rig.write(Stream::Stdout, &[b'a'; CAP]);
    rig.client(&[Stream::Stdout], Position::Unseen);
    assert_eq!(rig.write(Stream::Stdout, &[b'b'; CAP]), CAP);
}

#[test]
fn one_stalled_stream_does_not_hold_the_other() {
    let mut rig = Rig::new();
    rig.client(&[Stream::Stdout, Stream::Stderr], Position::Unseen);
    rig.write(Stream::Stdout, &[b'a'; CAP]);
    assert!(matches!(rig.hub.make_room(Stream::Stdout, rig.now), Room::Held(_)));
    assert_eq!(rig.hub.make_room(Stream::Stderr, rig.now), Room::Free(CAP));
}

#[test]
fn two_streams_come_in_the_order_of_reading() {
    let mut rig = Rig::new();
    let id = rig.client(&[Stream::Stdout, Stream::Stderr], Position::Unseen);
    for (stream, text) in [
        (Stream::Stdout, "1"),
        (Stream::Stdout, "2"),
        (Stream::Stderr, "3"),
        (Stream::Stdout, "4"),
        (Stream::Stderr, "5"),
    ] {
        rig.write(stream, text.as_bytes());
    }
    assert_eq!(rig.take(id, 2), "12");
    assert_eq!(rig.take(id, 99), "345");
    assert_eq!(
        rig.hub.marks.from(3).map(|m| (m.sequence, m.offset, m.len)).collect::<Vec<_>>(),
        [(3, 2, 1), (4, 1, 1)]
    );
}

#[test]
fn endangered_are_those_whose_next_byte_would_go() {
    let mut rig = Rig::new();
    let a = rig.client(&[Stream::Stdout], Position::Unseen);
    rig.write(Stream::Stdout, &[b'a'; 60]);
    assert_eq!(rig.hub.endangered(Stream::Stdout, 4).count(), 0);
    assert_eq!(rig.hub.endangered(Stream::Stdout, 5).collect::<Vec<_>>(), [a]);
}

#[test]
fn marks_are_bounded_and_their_loss_loses_no_byte() {
    let memory = Memory::new(&Stream::PLAIN, 1 << 16);
    let mut hub = Hub::new(&Stream::PLAIN, 1 << 16, memory, Epoch(1));
    let id = hub.join(PATIENCE);
    hub.subscribe(id, Stream::Stdout, Position::Now);
    hub.subscribe(id, Stream::Stderr, Position::Now);
    for n in 0..limits::MARKS + 100 {
        let stream = if n % 2 == 0 { Stream::Stdout } else { Stream::Stderr };
        hub.space(stream, 1)[0][0] = b'x';
        hub.commit(stream, 1, Now::read());
    }
    assert_eq!(hub.marks.from(0).count(), limits::MARKS);
    let mut total = 0;
    while let Some(Next::Bytes(stream, range)) = hub.next(id, 4096) {
        let len = hub.bytes(stream, range).concat().len();
        hub.accepted(id, stream, len);
        total += len;
    }
    assert_eq!(total, limits::MARKS + 100);
}

#[test]
fn who_has_not_read_yet_holds_the_app_back_for_half_as_long() {
    let half = PATIENCE / limits::UNPROVEN_PART;
    let mut rig = Rig::new();
    rig.client(&[Stream::Stdout], Position::Unseen);
    rig.write(Stream::Stdout, &[b'a'; CAP]);
    let until = Room::Held(rig.now + half);
    assert_eq!(rig.hub.make_room(Stream::Stdout, rig.now), until);
    rig.pass(400);
    // One that comes now has no more than is left.
    rig.client(&[Stream::Stdout], Position::Now);
    assert_eq!(rig.hub.make_room(Stream::Stdout, rig.now), until);
    rig.pass(100);
    assert_eq!(rig.write(Stream::Stdout, &[b'b'; CAP]), CAP);
    // It comes back as time goes by.
    assert_eq!(rig.hub.make_room(Stream::Stdout, rig.now), Room::Free(CAP));
    rig.pass(2000);
    rig.client(&[Stream::Stdout], Position::Now);
    assert_eq!(rig.write(Stream::Stdout, &[b'c'; CAP]), CAP);
    let back = Duration::from_secs(2) / limits::CREDIT_PART;
    assert_eq!(rig.hub.make_room(Stream::Stdout, rig.now), Room::Held(rig.now + back));
}

#[test]
fn who_has_accepted_more_than_a_socket_holds_is_waited_for_in_full() {
    for (bytes, waits) in
        [(limits::PROOF - 1, PATIENCE / limits::UNPROVEN_PART), (limits::PROOF, PATIENCE)]
    {
        let mut rig = Rig::new();
        let id = rig.client(&[Stream::Stdout], Position::Unseen);
        while rig.wrote < bytes {
            let len = CAP.min(usize::try_from(bytes - rig.wrote).unwrap());
            assert_eq!(rig.write(Stream::Stdout, &[b'a'; CAP][..len]), len);
            assert_eq!(rig.take(id, CAP).len(), len);
        }
        assert_eq!(rig.write(Stream::Stdout, &[b'b'; CAP]), CAP);
        assert_eq!(rig.hub.make_room(Stream::Stdout, rig.now), Room::Held(rig.now + waits));
    }
}

/// Clients of one admitted user that accept just enough, or that stop by turns.
#[test]
fn the_app_waits_for_all_clients_of_a_user_as_for_one() {
    for (count, is_admitted) in [(1, true), (2, true), (10, true), (1, false)] {
        let mut rig = Rig::new();
        let honest = rig.proven(&[Stream::Stdout], Position::Unseen);
        let slow: Vec<_> =
            (0..count).map(|_| rig.proven(&[Stream::Stdout], Position::Unseen)).collect();
        for id in slow.iter().filter(|_| is_admitted) {
            rig.hub.share_patience(*id, 1000);
        }
        let (began, mut held) = (rig.now, Duration::ZERO);
        for ms in 1..60_000 {
            rig.pass(1);
            rig.write(Stream::Stdout, &[b'a'; CAP / 4]);
            rig.take(honest, CAP);
            if ms % 900 == 0 {
                // It has caught up, or accepts what keeps the app waiting.
                let id = slow[ms / 900 % count];
                rig.take(id, if count == 1 { CAP / 4 } else { 100 * CAP });
            }
            if let Room::Held(_) = rig.hub.make_room(Stream::Stdout, rig.now) {
                held += Duration::from_millis(1);
            }
        }
        assert_eq!(rig.hub.lost(honest), 0);
        let most = PATIENCE + (rig.now - began) / limits::CREDIT_PART;
        assert_eq!(held <= most + Duration::from_millis(1), is_admitted, "{count}: {held:?}");
    }
}

proptest! {
    // Each case is half a minute of the app's time.
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// With any number of clients that read nothing, and sockets of any size, the app waits for
    /// them half a patience and a twentieth of the time, and a client that reads misses nothing.
    #[test]
    fn coming_again_buys_nothing(
        steps in prop::collection::vec((0usize..4, 0usize..200, 0u64..300), 1..200),
    ) {
        let mut rig = Rig::new();
        let honest = rig.proven(&[Stream::Stdout], Position::Unseen);
        let (mut there, mut held) = (Vec::new(), Duration::ZERO);
        let began = rig.now;
        for (what, len, ms) in steps {
            match what {
                0 => there.push(rig.client(&[Stream::Stdout], Position::Now)),
                1 if !there.is_empty() => rig.hub.leave(there.swap_remove(len % there.len())),
                // The bytes that their sockets still accept, far fewer than a proof.
                2 => there.iter().for_each(|id| drop(rig.take(*id, len))),
                _ => {}
            }
            for _ in 0..ms {
                rig.pass(1);
                // As much as it can, but no more than a ring.
                for _ in 0..4 {
                    rig.write(Stream::Stdout, &[b'a'; CAP / 4]);
                    rig.take(honest, CAP);
                }
                if let Room::Held(_) = rig.hub.make_room(Stream::Stdout, rig.now) {
                    held += Duration::from_millis(1);
                }
            }
        }
        prop_assert_eq!(rig.hub.lost(honest), 0);
        let most = PATIENCE / limits::UNPROVEN_PART + (rig.now - began) / limits::CREDIT_PART;
        prop_assert!(held <= most + Duration::from_millis(1), "{held:?} of {most:?}");
    }
}

proptest! {
    /// Received bytes and reported gaps are exactly the written bytes, in order, for any behaviour
    /// and any patience of the clients.
    #[test]
    fn received_and_missing_are_all(
        steps in prop::collection::vec((0usize..4, 1usize..100, 0u64..700), 1..120),
    ) {
        let mut rig = Rig::new();
        let ids: Vec<ClientId> = (0..3).map(|_| rig.client(&[Stream::Stdout], Position::Unseen)).collect();
        let mut at = [0u64; 3];
        let take = |rig: &mut Rig, n: usize, max: usize, at: &mut [u64; 3]| -> Result<(), TestCaseError> {
            let mut left = max;
            while left > 0 && let Some(next) = rig.hub.next(ids[n], left) {
                match next {
                    Next::Gap(_, range) => {
                        prop_assert_eq!(range.start, at[n]);
                        at[n] = range.end;
                    }
                    Next::Bytes(stream, range) => {
                        prop_assert_eq!(range.start, at[n]);
                        let bytes = rig.hub.bytes(stream, range).concat();
                        for (i, b) in bytes.iter().enumerate() {
                            prop_assert_eq!(u64::from(*b), (at[n] + i as u64) % 251);
                        }
                        rig.hub.accepted(ids[n], stream, bytes.len());
                        at[n] += bytes.len() as u64;
                        left -= bytes.len();
                    }
                }
            }
            Ok(())
        };
        for (who, len, ms) in steps {
            rig.pass(ms);
            if who == 3 {
                let bytes: Vec<u8> = (0..len as u64).map(|i| u8::try_from((rig.wrote + i) % 251).unwrap()).collect();
                rig.write(Stream::Stdout, &bytes);
            } else {
                take(&mut rig, who, len, &mut at)?;
            }
        }
        for n in 0..3 {
            take(&mut rig, n, usize::MAX, &mut at)?;
            prop_assert_eq!(at[n], rig.wrote);
        }
    }
    /// For any bytes in the memory: the hub uses them only if they can be valid, and then works
    /// like any other.
    #[test]
    fn any_memory_is_consistent_or_not_used(
        changes in prop::collection::vec((0usize..20, prop_oneof![0u64..200, any::<u64>()]), 0..12),
        wrote in 0usize..200,
        unread in 0usize..200,
    ) {
        let words = Memory::new(&Stream::PLAIN, CAP).words;
        let open = |fresh| Hub::new(&Stream::PLAIN, CAP, Memory::again(words, &[b'x'; 2 * CAP]), fresh);
        let mut hub = open(Epoch(1));
        hub.space(Stream::Stdout, CAP);
        hub.commit(Stream::Stdout, wrote.min(CAP), Now::read());
        for (at, value) in changes {
            words[at].store(value, Ordering::Relaxed);
        }
        let mut hub = open(Epoch(2));
        hub.recover(Stream::Stdout, Some(unread));
        let mut rig = Rig { hub, now: Instant::now(), wrote: 0 };
        for stream in [Stream::Stdout, Stream::Stderr] {
            let (end, unseen) = rig.hub.extent(stream).unwrap();
            prop_assert!(unseen <= CAP as u64 && unseen <= end);
            let id = rig.client(&[stream], Position::Start);
            prop_assert!(rig.take(id, usize::MAX).len() <= CAP);
            prop_assert_eq!(rig.write(stream, b"more"), 4);
            prop_assert_eq!(rig.take(id, usize::MAX), "more");
            prop_assert_eq!(rig.hub.extent(stream).unwrap(), (end + 4, 0));
        }
    }

    /// Killed at any moment, the next one has every byte that it says it has, at its offset.
    #[test]
    fn what_is_said_of_the_ring_is_there_at_any_instant(
        reads in prop::collection::vec((1usize..=CAP, 0usize..=CAP), 1..30),
    ) {
        let streams = [Stream::Stdout];
        let Memory { words, rings } = Memory::new(&streams, CAP);
        let mut hub = Hub::new(&streams, CAP, Memory { words, rings }, Epoch(1));
        // The app's output, and the ring's bytes as another process sees them.
        let (mut wrote, mut ring) = (Vec::new(), [0; CAP]);
        let left = |ring: &[u8], unread| {
            // A copy, since the next hub changes it.
            let copy = Memory::new(&streams, CAP).words;
            copy.iter().zip(words).for_each(|(to, from)| to.store(from.load(Ordering::Relaxed), Ordering::Relaxed));
            let mut next = Hub::new(&streams, CAP, Memory::again(copy, ring), Epoch(2));
            assert_eq!(next.epoch(), Epoch(1));
            next.recover(Stream::Stdout, unread);
            let id = next.join(PATIENCE);
            let start = next.subscribe(id, Stream::Stdout, Position::Start).unwrap();
            let end = next.extent(Stream::Stdout).unwrap().0;
            (start, end, next.bytes(Stream::Stdout, start..end).concat())
        };
        for (asked, came) in reads {
            let came = came.min(asked);
            let before = wrote.len();
            // There, and not announced; then announced, and not read.
            prop_assert_eq!(left(&ring, Some(came)).1, before as u64);
            hub.announce(Stream::Stdout, came);
            prop_assert_eq!(left(&ring, Some(came)).1, before as u64);
            for slot in hub.space(Stream::Stdout, asked).into_iter().flatten().take(came) {
                *slot = u8::try_from(wrote.len() % 251).unwrap();
                ring[wrote.len() % CAP] = *slot;
                wrote.push(*slot);
            }
            // Bytes that are not known to be read count as unread.
            for (unread, to) in [(None, before), (Some(0), wrote.len())] {
                let (start, end, bytes) = left(&ring, unread);
                prop_assert_eq!(end, to as u64);
                prop_assert_eq!(bytes, &wrote[usize::try_from(start).unwrap()..to]);
            }
            hub.commit(Stream::Stdout, came, Now::read());
            for unread in [None, Some(0)] {
                let (start, end, bytes) = left(&ring, unread);
                let (from, to) = (wrote.len().saturating_sub(CAP), wrote.len());
                prop_assert_eq!((start, end), (from as u64, to as u64));
                prop_assert_eq!(bytes, &wrote[from..]);
            }
        }
    }
}

/// Everything that a log reads in the order of reading: stream, when, bytes.
fn read_log(rig: &mut Rig, log: LogId, most: usize) -> Vec<(Stream, u64, Vec<u8>)> {
    let mut got = Vec::new();
    while let Some(stream) = rig.hub.unread_first(log) {
        let (stamp, range) = rig.hub.unread(log, stream).unwrap();
        let bytes = rig.hub.bytes(stream, range).concat();
        let len = bytes.len().min(most);
        got.push((stream, stamp.0, bytes[..len].to_vec()));
        rig.hub.read_on(log, stream, len);
    }
    got
}

#[test]
fn a_log_reads_all_streams_in_order_and_the_app_waits_for_it() {
    let mut rig = Rig::new();
    assert_eq!(rig.write(Stream::Stdout, b"before"), 6);
    let (log, ..) = rig.hub.follow(crate::types::time::Stamp(0), None);
    assert_eq!(rig.hub.unread_first(log), None);
    rig.write(Stream::Stderr, b"one");
    rig.write(Stream::Stdout, b"two");
    rig.write(Stream::Stderr, b"three");
    // One stream may be read before its turn; the other is not forgotten.
    let (stamp, range) = rig.hub.unread(log, Stream::Stdout).unwrap();
    assert_eq!((stamp.0, range), (9, 6..9));
    rig.hub.read_on(log, Stream::Stdout, 3);
    let got = read_log(&mut rig, log, 2);
    let want: [(Stream, u64, &[u8]); 5] = [
        (Stream::Stderr, 6, b"on"),
        (Stream::Stderr, 6, b"e"),
        (Stream::Stderr, 12, b"th"),
        (Stream::Stderr, 12, b"re"),
        (Stream::Stderr, 12, b"e"),
    ];
    assert_eq!(got, want.map(|(s, t, b)| (s, t, b.to_vec())));
    // A whole ring that is not read holds the app back, however long that takes.
    while rig.write(Stream::Stdout, &[b'x'; 16]) > 0 {}
    assert!(rig.hub.is_pressed(log, Stream::Stdout) && !rig.hub.is_pressed(log, Stream::Stderr));
    rig.pass(3_600_000);
    assert_eq!(rig.write(Stream::Stdout, b"x"), 0);
    let all: usize = read_log(&mut rig, log, CAP).iter().map(|(_, _, bytes)| bytes.len()).sum();
    assert_eq!(all, CAP);
    assert_eq!(rig.write(Stream::Stdout, b"x"), 1);
}

#[test]
fn no_mark_that_a_log_needs_is_forgotten() {
    let mut rig = Rig::keeping(2 * limits::MARKS);
    let (log, ..) = rig.hub.follow(crate::types::time::Stamp(0), None);
    let mut written = 0;
    while rig.write(Stream::Stderr, b"e") > 0 {
        written += 1;
        assert!(written <= limits::MARKS);
    }
    assert_eq!(written, limits::MARKS);
    let stamps: Vec<u64> = read_log(&mut rig, log, 1).into_iter().map(|(_, at, _)| at).collect();
    assert!(stamps.into_iter().eq(0..limits::MARKS as u64));
    // A stream that says nothing keeps no marks.
    for _ in 0..2 * limits::MARKS {
        assert_eq!(rig.write(Stream::Stdout, b"o"), 1);
        assert_eq!(read_log(&mut rig, log, 1).len(), 1);
    }
}

/// The next mux's log continues where this one stopped, and knows which bytes are no
/// longer kept.
#[test]
fn a_log_goes_on_where_it_stopped() {
    let mut rig = Rig::new();
    let words = Memory::new(&Stream::PLAIN, CAP).words;
    let open = |rings: &[u8]| Hub::new(&Stream::PLAIN, CAP, Memory::again(words, rings), Epoch(1));
    rig.hub = open(&[b'x'; 2 * CAP]);
    let (log, begins, lost) = rig.hub.follow(crate::types::time::Stamp(0), None);
    assert_eq!((begins, lost), ([0; STREAMS], 0));
    rig.write(Stream::Stdout, &[b'x'; 40]);
    rig.write(Stream::Stderr, &[b'x'; 5]);
    read_log(&mut rig, log, CAP);
    let mut ends = [0; STREAMS];
    ends[Stream::Stdout as usize] = 30;

    rig.hub = open(&[b'x'; 2 * CAP]);
    let (log, begins, lost) = rig.hub.follow(crate::types::time::Stamp(9), Some(ends));
    assert_eq!((begins, lost), (ends, 0));
    let got = read_log(&mut rig, log, CAP);
    let lens: Vec<_> = got.iter().map(|(stream, at, bytes)| (*stream, *at, bytes.len())).collect();
    assert_eq!(lens, [(Stream::Stdout, 9, 10), (Stream::Stderr, 9, 5)]);
    // One that has kept nothing begins with the next byte.
    rig.hub = open(&[b'x'; 2 * CAP]);
    let (log, begins, lost) = rig.hub.follow(crate::types::time::Stamp(9), None);
    assert_eq!((begins[Stream::Stdout as usize], lost), (40, 0));
    // Bytes overwritten before the next mux comes are lost to it.
    rig.write(Stream::Stdout, &[b'x'; CAP]);
    assert_eq!(rig.hub.unread_first(log), Some(Stream::Stdout));
    read_log(&mut rig, log, CAP);
    rig.write(Stream::Stdout, &[b'x'; 10]);
    rig.hub = open(&[b'x'; 2 * CAP]);
    ends[Stream::Stdout as usize] = 40;
    let (_, begins, lost) = rig.hub.follow(crate::types::time::Stamp(9), Some(ends));
    assert_eq!((begins[Stream::Stdout as usize], lost), (50, 10));
}

/// Whichever word of the memory is damaged, the next hub works, with clients and a log that come
/// back.
#[test]
fn a_damaged_word_of_the_memory_hinders_nothing() {
    let stamp = crate::types::time::Stamp;
    for at in 0..memory::WORDS {
        for flip in [1, 1 << 12, 1 << 63, u64::MAX] {
            let words = Memory::new(&Stream::PLAIN, CAP).words;
            let open = || {
                let memory = Memory::again(words, &[b'x'; 2 * CAP]);
                Rig { hub: Hub::new(&Stream::PLAIN, CAP, memory, Epoch(2)), ..Rig::new() }
            };
            let mut rig = open();
            let client = rig.proven(&[Stream::Stdout, Stream::Stderr], Position::Start);
            rig.hub.will_return(client);
            let (log, _, _) = rig.hub.follow(stamp(0), None);
            rig.write(Stream::Stdout, &[b'x'; 5]);
            rig.write(Stream::Stderr, &[b'x'; 9]);
            read_log(&mut rig, log, CAP);
            rig.hub.announce(Stream::Stdout, 3);
            words[at].fetch_xor(flip, Ordering::Relaxed);

            let mut rig = open();
            rig.hub.recover(Stream::Stdout, Some(0));
            rig.hub.await_clients(rig.now, PATIENCE);
            let (log, _, _) = rig.hub.follow(stamp(9), Some([4; STREAMS]));
            let client = rig.client(&[Stream::Stdout, Stream::Stderr], Position::Offset(5));
            rig.hub.welcome_back(client, rig.now);
            rig.pass(2 * u64::try_from(PATIENCE.as_millis()).unwrap());
            rig.take(client, usize::MAX);
            read_log(&mut rig, log, CAP);
            for stream in [Stream::Stdout, Stream::Stderr] {
                assert_eq!(rig.write(stream, b"more"), 4, "word {at}, flipped by {flip:x}");
                assert_eq!(rig.take(client, usize::MAX), "more", "word {at}, flipped by {flip:x}");
                let logged = read_log(&mut rig, log, CAP);
                let bytes: Vec<u8> = logged.into_iter().flat_map(|(_, _, bytes)| bytes).collect();
                assert_eq!(bytes, b"more", "word {at}, flipped by {flip:x}");
            }
        }
    }
}
