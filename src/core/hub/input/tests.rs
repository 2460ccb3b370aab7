//! Tests of the input queue.

use super::queue::InputMemory;
use super::*;
use crate::core::wire::InputId;
use crate::types::stream::Epoch;
use proptest::prelude::*;
use std::time::Duration;

const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);

fn input() -> Input {
    Input::new(InputQueue::open(InputMemory::new(), None), Instant::now())
}

fn rest(input: &Input) -> Vec<u8> {
    input.queue.bytes(input.queue.rest()).concat()
}

/// The app takes so many bytes.
fn written(input: &mut Input, len: usize, now: Instant) {
    input.queue.announce(len);
    input.queue.deliver(len);
    input.advance(now);
}

fn take(input: &mut Input, now: Instant) -> String {
    let bytes = rest(input);
    written(input, bytes.len(), now);
    String::from_utf8(bytes).unwrap()
}

fn two(merge: Merge) -> (Input, Instant) {
    let mut input = input();
    input.join(A, merge, 0, Right::Own);
    input.join(B, merge, 0, Right::Own);
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
    written(&mut input, 100, later);
    assert!(input.deadline().is_none_or(|at| at > later));
}

#[test]
fn whole_lines_in_front_of_a_half_one_do_not_end_its_turn() {
    let (mut input, now) = two(Merge::Lines);
    let mut lines = vec![b'\n'; limits::INPUT];
    lines.extend(b"half ");
    input.push(A, &lines, now);
    input.push(B, b"other\n", now);
    assert_eq!(take(&mut input, now).len(), lines.len());
    assert_eq!(take(&mut input, now), "");
    input.push(A, b"line\n", now);
    assert_eq!(take(&mut input, now), "line\nother\n");
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
    assert!(input.delivered().is_none());
    assert_eq!(take(&mut input, now), "halfwhole\n");
    assert_eq!(input.delivered().unwrap().0, A);
    assert!(input.delivered().is_none());
}

#[test]
fn the_end_of_the_apps_input_is_not_the_end_of_having_it_alone() {
    let (mut input, now) = two(Merge::Lines);
    input.reserve(Some((A, Right::Own)), now);
    input.close();
    // The app was started again, and its input begins again.
    input.join(B, Merge::Lines, 0, Right::Own);
    input.push(B, b"b", now);
    assert_eq!(take(&mut input, now), "");
    input.reserve(None, now);
    assert_eq!(take(&mut input, now), "b");
}

#[test]
fn the_next_run_of_the_app_gets_what_was_not_queued() {
    let (mut input, now) = two(Merge::Lines);
    input.push(A, b"half", now);
    input.push(B, b"waits\n", now);
    assert_eq!(input.forget_queued(now), []);
    assert_eq!(take(&mut input, now), "waits\n");
    input.end(A, now);
    assert_eq!(input.forget_queued(now), [], "it had nothing queued");
    assert_eq!(input.delivered().unwrap().0, A);
    input.push(B, b"last", now);
    input.end(B, now);
    assert_eq!(input.forget_queued(now), [B]);
    assert!(input.delivered().is_none() && input.queue.len() == 0);
}

#[test]
fn who_has_the_input_alone_types_alone() {
    let (mut input, now) = two(Merge::Lines);
    input.push(A, b"half", now);
    assert_eq!(take(&mut input, now), "half");
    input.reserve(Some((B, Right::Own)), now);
    input.push(A, b" line\n", now);
    input.push(B, b"alone", now);
    assert_eq!(take(&mut input, now), "alone");
    assert_eq!(input.room(A), limits::INPUT - " line\n".len());
    assert_eq!(input.deadline(), None);
    input.reserve(None, now);
    let later = now + limits::INPUT_TURN;
    input.advance(later);
    assert_eq!(take(&mut input, later), " line\n");
    // Input left by a client that may not type is dropped.
    input.reserve(Some((B, Right::Own)), now);
    input.push(A, b"x\n", now);
    input.leave(A, now);
    input.reserve(None, now);
    assert_eq!(take(&mut input, now), "");
}

#[test]
fn what_clients_of_one_user_have_waiting_and_leave_is_bounded() {
    let (mut input, now) = two(Merge::Lines);
    input.reserve(Some((A, Right::Own)), now);
    let mut waits = 0;
    for id in 10..1000 {
        let id = ClientId(id);
        input.join(id, Merge::Lines, 7, Right::Own);
        let room = input.room(id);
        input.push(id, &vec![b'x'; room], now);
        waits += room;
    }
    assert_eq!(waits, limits::USER_INPUT);
    // Neither who types alone nor another user waits for that.
    assert_eq!((input.room(A), input.room(B)), (limits::INPUT, limits::INPUT));
    input.reserve(None, now);
    take(&mut input, now);
    input.reserve(Some((ClientId(10), Right::Own)), now);
    input.push(ClientId(10), &vec![b'x'; limits::INPUT], now);
    assert!(rest(&input).len() >= limits::INPUT);
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
    while !input.writers.is_empty() && !input.users.is_empty() {
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
    input.join(KEYS, Merge::AsTyped, 0, Right::Own);
    input.push(A, b"half", now);
    input.push(B, b"whole\n", now);
    input.push(KEYS, b"k", now);
    assert_eq!(take(&mut input, now), "halfk");
    input.push(KEYS, b"e", now);
    input.push(A, b" line\n", now);
    assert_eq!(take(&mut input, now), "e line\nwhole\n");
    assert_eq!(input.deadline(), None);
    // A key that waits for room is not a line that waits for its turn.
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
    written(&mut input, 1000, now);
    assert_eq!(input.room(B), 1000);
}

proptest! {
    /// For any input in any pieces, each client's bytes arrive whole and in order.
    #[test]
    fn nothing_is_lost_or_reordered(
        steps in prop::collection::vec((0u64..3, "[a-c\n]{0,6}", 0u64..600), 0..60),
        lines in prop::array::uniform3(prop::bool::ANY),
    ) {
        let mut input = input();
        let mut at = Instant::now();
        let mut typed: [String; 3] = Default::default();
        let mut got: [String; 3] = Default::default();
        for (id, lines) in (0..3).zip(lines) {
            input.join(ClientId(id), if lines { Merge::Lines } else { Merge::AsTyped }, 0, Right::Own);
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

const INPUT: InputIdentity = InputIdentity { id: InputId(Epoch(7)), returns: false, once: false };
const AGAIN: InputIdentity = InputIdentity { returns: true, ..INPUT };

/// Where a client is to go on.
fn offset(input: &mut Input, id: ClientId, identity: InputIdentity) -> Option<u64> {
    input.join(id, Merge::Lines, 0, Right::Own);
    input.identify(id, 0, identity).map(|position| position.offset)
}

fn type_in(input: &mut Input, id: ClientId, bytes: &[u8], now: Instant) {
    input.receive(id, bytes.len(), 0);
    input.push(id, bytes, now);
}

#[test]
fn a_client_that_returns_goes_on_behind_what_is_queued() {
    let (mut input, now) = (input(), Instant::now());
    assert_eq!(offset(&mut input, A, AGAIN), None, "nobody knows it");
    assert_eq!(offset(&mut input, A, INPUT), Some(0));
    type_in(&mut input, A, b"one\ntw", now);
    input.leave(A, now);
    assert_eq!(offset(&mut input, B, AGAIN), Some(6));
    type_in(&mut input, B, b"o\n", now);
    assert_eq!(take(&mut input, now), "one\ntwo\n");
    // Of another user it is another input.
    input.join(A, Merge::Lines, 1, Right::Own);
    assert_eq!(input.identify(A, 1, AGAIN), None);
}

#[test]
fn what_a_client_left_waiting_is_sent_again_and_not_twice_with_the_app() {
    const C: ClientId = ClientId(3);
    let (mut input, now) = (input(), Instant::now());
    assert_eq!(offset(&mut input, A, INPUT), Some(0));
    input.join(B, Merge::Lines, 0, Right::Own);
    // It waits for the end of another client's line.
    input.push(B, b"half ", now);
    type_in(&mut input, A, b"first\nsecond\n", now);
    assert_eq!(input.leave(A, now), 0);
    assert_eq!(offset(&mut input, C, AGAIN), Some(0));
    type_in(&mut input, C, b"first\nsecond\n", now);
    input.push(B, b"line\n", now);
    assert_eq!(take(&mut input, now), "half line\nfirst\nsecond\n");
    assert_eq!(input.users.len(), 0);
}

#[test]
fn bytes_that_are_dropped_or_held_back_are_not_sent_again_or_not_lost() {
    let (mut input, now) = (input(), Instant::now());
    assert_eq!(offset(&mut input, A, INPUT), Some(0));
    // A reply of its terminal, and the beginning of one.
    input.receive(A, 6 + 3, 3);
    input.push(A, b"", now);
    input.join(B, Merge::Lines, 0, Right::Own);
    assert_eq!(input.identify(B, 0, AGAIN).map(|p| p.offset), Some(6));
    // It was none.
    input.receive(B, 3 + 2, 0);
    input.push(B, b"\x1b[1ab", now);
    assert_eq!(take(&mut input, now), "\x1b[1ab");
    assert_eq!(offset(&mut input, A, AGAIN), Some(11));
}

#[test]
fn a_client_in_a_line_has_its_turn_with_the_next_mux() {
    let (mut input, now) = (input(), Instant::now());
    assert_eq!(offset(&mut input, A, INPUT), Some(0));
    type_in(&mut input, A, b"half ", now);
    assert_eq!(take(&mut input, now), "half ");
    for returns in [true, false] {
        let mut next = Input::new(InputQueue::open(input.queue.again(), None), now);
        next.join(B, Merge::Lines, 0, Right::Own);
        next.push(B, b"other\n", now);
        assert_eq!(take(&mut next, now), "");
        if returns {
            assert_eq!(offset(&mut next, A, AGAIN), Some(5));
            type_in(&mut next, A, b"line\n", now);
            assert_eq!(take(&mut next, now), "line\nother\n");
        } else {
            let later = next.deadline().unwrap();
            assert_eq!(later, now + limits::INPUT_TURN);
            next.advance(later);
            assert_eq!(take(&mut next, later), "other\n");
        }
    }
}

#[test]
fn much_that_is_queued_is_acknowledged() {
    let (mut input, now) = (input(), Instant::now());
    assert_eq!(offset(&mut input, A, INPUT), Some(0));
    let half = vec![b'x'; usize::try_from(limits::ACKNOWLEDGED / 2).unwrap()];
    for round in 1..=6 {
        type_in(&mut input, A, &half, now);
        take(&mut input, now);
        let expected = (round % 2 == 0).then_some((A, round * limits::ACKNOWLEDGED / 2));
        assert_eq!(input.next_acknowledged(), expected);
    }
    // What waits for its turn is not.
    input.reserve(Some((B, Right::Own)), now);
    type_in(&mut input, A, &vec![b'x'; limits::INPUT], now);
    assert_eq!(input.next_acknowledged(), None);
}

#[test]
fn the_end_of_the_input_leaves_no_bytes_and_every_position() {
    let (mut input, now) = (input(), Instant::now());
    assert_eq!(offset(&mut input, A, INPUT), Some(0));
    type_in(&mut input, A, b"unread", now);
    input.close();
    assert_eq!((rest(&input), input.queue.len()), (vec![], 0));
    assert_eq!(offset(&mut input, B, AGAIN), Some(6));
}

#[test]
fn no_lock_of_an_admitted_user_binds_root() {
    let (mut input, now) = (input(), Instant::now());
    input.join(A, Merge::Lines, 1000, Right::Write);
    input.join(B, Merge::Lines, 0, Right::Own);
    input.reserve(Some((A, Right::Write)), now);
    input.push(B, b"root\n", now);
    assert_eq!(take(&mut input, now), "root\n");
    // The other way round it does.
    input.reserve(Some((B, Right::Own)), now);
    input.push(A, b"admitted\n", now);
    assert_eq!(take(&mut input, now), "");
    input.reserve(None, now);
    assert_eq!(take(&mut input, now), "admitted\n");
}

#[test]
fn what_root_types_does_not_wait_behind_a_flood_of_others() {
    const CLIENTS: u64 = 40;
    const LINE: &[u8] = b"flood\n";
    let (mut input, now) = (input(), Instant::now());
    let root = ClientId(CLIENTS);
    input.join(root, Merge::Lines, 0, Right::Own);
    for id in (0..CLIENTS).map(ClientId) {
        input.join(id, Merge::Lines, 1000, Right::Write);
        input.push(id, &LINE.repeat(1000), now);
    }
    input.push(root, b"stop\n", now);
    let mut before = 0;
    while !rest(&input).starts_with(b"stop\n") {
        // The app reads a line.
        let line = rest(&input).iter().position(|b| *b == b'\n').unwrap() + 1;
        written(&mut input, line, now);
        before += line;
        assert!(before <= limits::SHARED_INPUT + LINE.len(), "{before} bytes came first");
    }
}

#[test]
fn the_clients_of_one_user_do_not_take_the_turns_of_another() {
    const CLIENTS: u64 = 40;
    let (mut input, now) = (input(), Instant::now());
    let alone = ClientId(CLIENTS);
    input.join(alone, Merge::Lines, 1001, Right::Write);
    for id in (0..CLIENTS).map(ClientId) {
        input.join(id, Merge::Lines, 1000, Right::Write);
        input.push(id, &b"many\n".repeat(10_000), now);
    }
    input.push(alone, &b"one\n".repeat(10_000), now);
    let (mut many, mut one) = (0, 0);
    while one < 30_000 {
        let len = rest(&input).len();
        one += rest(&input).split(|b| *b == b'\n').filter(|line| line == b"one").count() * 4;
        many += rest(&input).split(|b| *b == b'\n').filter(|line| line == b"many").count() * 5;
        written(&mut input, len, now);
    }
    assert!(many < one + 2 * limits::SHARED_INPUT, "{many} bytes beside {one}");
}

/// Nobody reads a FIFO's input up to a break, so none may be kept.
#[test]
fn a_program_leaves_no_break_in_the_input_of_a_fifo() {
    let (mut input, now) = two(Merge::Lines);
    let program = Typing { is_program: true, ..Merge::Lines.into() };
    input.join(B, program, 0, Right::Own);
    input.push(A, b"half", now);
    input.end(A, now);
    input.push(B, b"whole\n", now);
    assert_eq!(take(&mut input, now), "half\nwhole\n");
    assert!(input.next_break(0).is_none());
    input.join(A, program, 0, Right::Own);
    input.push(A, b"\x03keys\n", now);
    assert!(input.next_break(0).is_none());
}
