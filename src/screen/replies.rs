//! Separates the replies of a client's terminal from typed input.
//!
//! An expected reply is dropped or passed on, in any number of reads. Everything else is input and
//! stays unchanged. Memory and waiting are bounded; the time is an argument.

use std::collections::VecDeque;
use std::iter;
use std::time::{Duration, Instant};

use memchr::memchr;

use super::query::{Query, ReplyPattern};
use super::scan::{Control, ESC, number};

/// Outstanding replies of one client's terminal. Equal ones in sequence count once.
const REPLIES: usize = 1024;
/// How long a terminal may take to reply. Later the same bytes are keys.
const REPLY: Duration = Duration::from_secs(5);
/// How long the app waits for what every terminal answers, before this one counts as one that cannot
/// now: it is suspended, its connection hangs, or it understands no sequences. Programs wait for up to
/// 10 s, and a slow connection takes half a second.
pub(crate) const REPLY_LATE: Duration = Duration::from_secs(1);
/// How long the possible beginning of a reply is held back: a reply mostly comes in one piece, and
/// an ESC may be the key.
const REPLY_HOLD: Duration = Duration::from_millis(50);
/// Bytes of a reply before it is recognised.
const REPLY_HEAD: usize = 64;
/// Longest reply, bytes: a clipboard. Bytes after that are input.
const REPLY_LEN: usize = 1024 * 1024;

/// See the module.
#[derive(Debug, Default)]
pub struct Replies {
    expected: VecDeque<Expected>,
    state: ReplyState,
    /// The possible beginning of a reply.
    head: Vec<u8>,
    /// Until when it is held back.
    until: Option<Instant>,
}

#[derive(Debug)]
struct Expected {
    query: Query,
    head: ReplyPattern,
    passes: bool,
    /// When it was asked last.
    asked: Instant,
    /// How many in sequence.
    count: u32,
    /// A later query had its reply: this terminal does not reply to the query.
    is_overtaken: bool,
}

impl Expected {
    /// Until when its reply may come.
    fn until(&self) -> Instant {
        self.asked + REPLY
    }

    /// When an answer that the app waits for is late, and every terminal has one.
    fn late_at(&self) -> Option<Instant> {
        let all_have = matches!(self.query, Query::Attributes | Query::Status | Query::Cursor);
        (all_have && self.passes && !self.is_overtaken).then(|| self.asked + REPLY_LATE)
    }
}

/// The position in the input.
#[derive(Clone, Copy, Debug, Default)]
enum ReplyState {
    #[default]
    Typed,
    /// In the head of a possible reply.
    Head,
    /// In a reply that is a string: whether it passes, how many bytes may follow and until when,
    /// and whether the last byte was an ESC.
    Reply { passes: bool, left: usize, until: Instant, escape: bool },
}

/// The meaning of the head of a sequence.
enum ReplyVerdict {
    Unknown,
    Typed,
    /// A complete reply.
    Whole(ReplyPattern),
    /// The beginning of a reply.
    Begun(ReplyPattern),
}

impl Replies {
    /// This client's terminal gets a query. Its reply `passes` on to the app, or is dropped. Beyond
    /// [`REPLIES`] the oldest is no longer expected.
    pub fn expect(&mut self, query: Query, passes: bool, now: Instant) {
        let Some(head) = query.reply() else { return };
        if let Some(last) = self.expected.back_mut()
            && (last.query, last.passes, last.is_overtaken) == (query, passes, false)
        {
            (last.asked, last.count) = (now, last.count.saturating_add(1));
            return;
        }
        if self.expected.len() == REPLIES {
            self.expected.pop_front();
        }
        let is_overtaken = false;
        self.expected.push_back(Expected {
            query,
            head,
            passes,
            asked: now,
            count: 1,
            is_overtaken,
        });
    }

    /// The queries whose replies would pass, and may still come, the newest first.
    pub(crate) fn unanswered(&self, now: Instant) -> impl Iterator<Item = Query> + '_ {
        let waits = move |expected: &&Expected| {
            expected.passes && !expected.is_overtaken && now < expected.until()
        };
        let queries = |expected: &Expected| iter::repeat_n(expected.query, expected.count as usize);
        self.expected.iter().rev().filter(waits).flat_map(queries)
    }

    /// The queries that this terminal was to answer, and that are to be answered in its place, oldest
    /// first: it has not answered in time what every terminal answers. What it still replies is dropped.
    pub(crate) fn late(&mut self, now: Instant) -> Vec<Query> {
        let is_late = |expected: &Expected| expected.late_at().is_some_and(|late| late <= now);
        let Some(last) = self.expected.iter().rposition(is_late) else { return Vec::new() };
        let mut queries = Vec::new();
        for expected in self.expected.range_mut(..=last) {
            if std::mem::take(&mut expected.passes) && !expected.is_overtaken {
                queries.extend(iter::repeat_n(expected.query, expected.count as usize));
            }
        }
        queries
    }

    /// When to call [`Replies::late`].
    pub(crate) fn late_at(&self) -> Option<Instant> {
        self.expected.iter().filter_map(Expected::late_at).min()
    }

    /// Appends to `out` the part of `typed` that is input.
    pub fn filter(&mut self, typed: &[u8], now: Instant, out: &mut Vec<u8>) {
        self.expire(now, out);
        let mut rest = typed;
        while !rest.is_empty() {
            rest = match self.state {
                ReplyState::Typed if self.expected.is_empty() => {
                    out.extend_from_slice(rest);
                    return;
                }
                ReplyState::Typed => {
                    let len = memchr(ESC, rest).unwrap_or(rest.len());
                    out.extend_from_slice(&rest[..len]);
                    if len < rest.len() {
                        self.state = ReplyState::Head;
                    }
                    &rest[len..]
                }
                ReplyState::Head => {
                    self.read_head(rest[0], now, out);
                    &rest[1..]
                }
                ReplyState::Reply { .. } => self.read_string(rest, out),
            };
        }
        let holds = matches!(self.state, ReplyState::Head);
        self.until = holds.then(|| self.until.unwrap_or(now + REPLY_HOLD));
    }

    /// When to call [`Replies::expire`] if nothing is typed before.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.until
    }

    /// Bytes that are held back.
    pub(crate) fn held(&self) -> usize {
        self.head.len()
    }

    /// Appends to `out` input that was held back too long, and forgets replies that are late.
    pub(crate) fn expire(&mut self, now: Instant, out: &mut Vec<u8>) {
        if self.until.is_some_and(|until| until <= now) {
            self.release(out);
            self.state = ReplyState::Typed;
        }
        if matches!(self.state, ReplyState::Reply { until, .. } if until <= now) {
            self.state = ReplyState::Typed;
        }
        while self.expected.front().is_some_and(|expected| expected.until() <= now) {
            self.expected.pop_front();
        }
    }

    fn release(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.head);
        self.until = None;
    }

    /// Reads one more byte of a possible reply.
    fn read_head(&mut self, byte: u8, now: Instant, out: &mut Vec<u8>) {
        if byte == ESC {
            self.release(out);
        }
        self.head.push(byte);
        let found = match classify(&self.head) {
            ReplyVerdict::Unknown if self.head.len() < REPLY_HEAD && self.is_expected_kind() => {
                return;
            }
            ReplyVerdict::Unknown | ReplyVerdict::Typed => None,
            ReplyVerdict::Whole(head) => self.take(head).map(|(p, until)| (p, until, false)),
            ReplyVerdict::Begun(head) => self.take(head).map(|(p, until)| (p, until, true)),
        };
        self.state = ReplyState::Typed;
        if let Some((passes, until, begun)) = found {
            if begun {
                let (until, left) = (until.max(now), REPLY_LEN);
                self.state = ReplyState::Reply { passes, left, until, escape: false };
            }
            if !passes {
                self.head.clear();
            }
        }
        self.release(out);
    }

    /// Reads more of a reply that is a string. Returns the rest.
    fn read_string<'a>(&mut self, rest: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
        let ReplyState::Reply { passes, left, until, mut escape } = self.state else { return rest };
        let mut len = 0;
        let mut ends = false;
        for byte in rest.iter().take(left) {
            if escape && *byte != b'\\' {
                // Another sequence has broken it off.
                if passes {
                    out.extend_from_slice(&rest[..len]);
                    self.state = ReplyState::Typed;
                } else {
                    self.head = vec![ESC];
                    self.state = ReplyState::Head;
                }
                return &rest[len..];
            }
            len += 1;
            ends = escape || matches!(byte, 0x07 | 0x18 | 0x1a);
            escape = *byte == ESC;
            if ends {
                break;
            }
        }
        if passes {
            out.extend_from_slice(&rest[..len]);
        }
        let left = left - len;
        self.state = if ends || left == 0 {
            ReplyState::Typed
        } else {
            ReplyState::Reply { passes, left, until, escape }
        };
        &rest[len..]
    }

    /// Whether a reply of this kind is expected: other keys are not held back.
    fn is_expected_kind(&self) -> bool {
        let kind = self.head.get(1);
        kind.is_none_or(|kind| self.expected.iter().any(|expected| expected.head.kind == *kind))
    }

    /// Whether an expected reply passes, and until when it may come.
    fn take(&mut self, head: ReplyPattern) -> Option<(bool, Instant)> {
        let at = self.expected.iter().position(|expected| expected.head.fits(head))?;
        self.expected.range_mut(..at).for_each(|earlier| earlier.is_overtaken = true);
        let expected = self.expected.get_mut(at)?;
        let found = (expected.passes, expected.until());
        expected.count -= 1;
        if expected.count == 0 {
            self.expected.remove(at);
        }
        Some(found)
    }
}

fn classify(head: &[u8]) -> ReplyVerdict {
    let [ESC, kind, body @ ..] = head else { return ReplyVerdict::Unknown };
    let string = |last, first| ReplyPattern { kind: *kind, marker: 0, mark: 0, last, first };
    match (kind, body) {
        (b'[' | b']' | b'P' | b'_', []) => ReplyVerdict::Unknown,
        (b'[' | b'P', [.., 0x20..=0x3f]) => ReplyVerdict::Unknown,
        (b'[' | b'P', [.., 0x40..=0x7e]) => {
            let raw = [&[ESC, b'['], body].concat();
            let Some(control) = Control::parse(&raw) else { return ReplyVerdict::Typed };
            let Control { marker, mark, last, .. } = control;
            let found =
                ReplyPattern { kind: *kind, marker, mark, last, first: Some(control.value(0)) };
            if *kind == b'[' { ReplyVerdict::Whole(found) } else { ReplyVerdict::Begun(found) }
        }
        (b']', [letter @ (b'l' | b'L')]) => ReplyVerdict::Begun(string(*letter, Some(0))),
        (b']', [digits @ .., b';']) => ReplyVerdict::Begun(string(0, Some(number(digits)))),
        (b']', [.., b'0'..=b'9']) => ReplyVerdict::Unknown,
        (b'_', [letter]) => ReplyVerdict::Begun(string(*letter, Some(0))),
        _ => ReplyVerdict::Typed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    /// The part of `typed` that is input, with these queries outstanding; in pieces of `size`.
    fn input(queries: &[(Query, bool)], typed: &[u8], size: usize) -> String {
        let now = Instant::now();
        let mut replies = Replies::default();
        for (query, passes) in queries {
            replies.expect(*query, *passes, now);
        }
        let mut out = Vec::new();
        typed.chunks(size.max(1)).for_each(|piece| replies.filter(piece, now, &mut out));
        replies.expire(now + REPLY_HOLD, &mut out);
        assert_eq!(replies.deadline(), None);
        out.escape_ascii().to_string()
    }

    #[test]
    fn replies_and_keys() {
        use Query as Q;
        const CURSOR: &[(Q, bool)] = &[(Q::Cursor, false)];
        for (queries, typed, want) in [
            (&[][..], "\x1b[1;2R", "\x1b[1;2R"),
            (CURSOR, "a\x1b[12;40Rb", "ab"),
            (CURSOR, "\x1b[12;40R\x1b[1;2R", "\x1b[1;2R"),
            (
                CURSOR,
                "\x1b[A\x1b[1;5C\x1bOP\x1bx\x1b[3~\x1b",
                "\x1b[A\x1b[1;5C\x1bOP\x1bx\x1b[3~\x1b",
            ),
            (CURSOR, "\x1b[<0;10;10M", "\x1b[<0;10;10M"),
            (CURSOR, "\x1b\x1b[2;2R", "\x1b"),
            (&[(Q::Cursor, true), (Q::Cursor, false)], "\x1b[1;1R\x1b[2;2R", "\x1b[1;1R"),
            (&[(Q::Attributes, false)], "\x1b[?62;22cx", "x"),
            (&[(Q::Attributes, true)], "\x1b[?62;22cx", "\x1b[?62;22cx"),
            (&[(Q::Attributes, false)], "\x1b[>0;0;0c", "\x1b[>0;0;0c"),
            (&[(Q::Status, false)], "\x1b[0n", ""),
            (&[(Q::Window(18), false)], "\x1b[8;24;80t", ""),
            (&[(Q::Window(14), false)], "\x1b[8;24;80t", "\x1b[8;24;80t"),
            (&[(Q::Value(11), false)], "x\x1b]11;rgb:0/0/0\x1b\\y", "xy"),
            (&[(Q::Value(11), false)], "x\x1b]11;rgb:0/0/0\x07y", "xy"),
            (&[(Q::Value(11), false)], "\x1b]10;rgb:0/0/0\x07", "\x1b]10;rgb:0/0/0\x07"),
            (&[(Q::Value(11), true)], "\x1b]11;rgb:0/0/0\x1b\\y", "\x1b]11;rgb:0/0/0\x1b\\y"),
            (&[(Q::Value(11), false)], "\x1b]11;rgb\x1b[Ay", "\x1b[Ay"),
            (&[(Q::Value(11), true)], "\x1b]11;rgb\x1b[Ay", "\x1b]11;rgb\x1b[Ay"),
            (&[(Q::Setting, false)], "\x1bP1$r0m\x1b\\y", "y"),
            (&[(Q::Name, false)], "\x1bP>|XTerm(390)\x1b\\y", "y"),
            (&[(Q::Mode(true, 2026), false)], "\x1b[?2026;2$y", ""),
            (&[(Q::Mode(true, 2026), false)], "\x1b[?2004;2$y", "\x1b[?2004;2$y"),
            (&[(Q::Keyboard, false)], "\x1b[97;5u\x1b[?0u", "\x1b[97;5u"),
            (&[(Q::Picture, false)], "\x1b_Gi=1;OK\x1b\\", ""),
            (&[(Q::Window(21), false)], "\x1b]ltitle\x1b\\", ""),
        ] {
            let want = want.as_bytes().escape_ascii().to_string();
            for size in 1..=typed.len() {
                assert_eq!(input(queries, typed.as_bytes(), size), want, "{typed:?} by {size}");
            }
        }
    }

    #[test]
    fn waiting_for_replies_is_limited() {
        let now = Instant::now();
        let mut replies = Replies::default();
        let mut out = Vec::new();
        replies.expect(Query::Cursor, false, now);
        replies.filter(b"\x1b[1", now, &mut out);
        assert_eq!((replies.deadline(), out.len()), (Some(now + REPLY_HOLD), 0));
        replies.filter(b"2", now + REPLY_HOLD / 2, &mut out);
        assert_eq!(replies.deadline(), Some(now + REPLY_HOLD));
        replies.expire(now + REPLY_HOLD, &mut out);
        assert_eq!((replies.deadline(), &out[..]), (None, &b"\x1b[12"[..]));
        out.clear();
        replies.filter(b"\x1b[1;1R", now + REPLY, &mut out);
        assert_eq!(out, b"\x1b[1;1R");
        // A string without an end.
        out.clear();
        replies.expect(Query::Value(11), false, now);
        replies.filter(b"\x1b]11;rgb", now, &mut out);
        replies.filter(&vec![b'x'; REPLY_LEN - 3], now, &mut out);
        assert_eq!(out, b"");
        replies.filter(b"keys", now, &mut out);
        assert_eq!(out, b"keys");
        replies.expect(Query::Value(11), false, now);
        replies.filter(b"\x1b]11;rgb", now, &mut out);
        replies.filter(b"later", now + REPLY + Duration::from_secs(1), &mut out);
        assert_eq!(out, b"keyslater");
        // The number of expected replies is limited.
        for number in 0..2 * REPLIES {
            replies.expect(Query::Value(u16::try_from(number).unwrap()), false, now);
        }
        assert_eq!(replies.expected.len(), REPLIES);
    }

    #[test]
    fn the_queries_that_may_still_be_answered() {
        use Query as Q;
        let now = Instant::now();
        let mut replies = Replies::default();
        for (query, passes) in [
            (Q::Name, true),
            (Q::Cursor, true),
            (Q::Cursor, true),
            (Q::Cursor, true),
            (Q::Status, false),
            (Q::Attributes, true),
        ] {
            replies.expect(query, passes, now);
        }
        let mut out = Vec::new();
        replies.filter(b"\x1b[1;1R", now, &mut out);
        assert_eq!(out, b"\x1b[1;1R");
        // This terminal has no name.
        let left = [Q::Attributes, Q::Cursor, Q::Cursor];
        assert_eq!(replies.unanswered(now).collect::<Vec<_>>(), left);
        assert_eq!(replies.unanswered(now + REPLY).count(), 0);
    }

    proptest! {
        #[test]
        fn any_bytes_are_input_without_a_query_and_any_cut_is_the_same(
            typed in prop::collection::vec(prop_oneof![
                any::<u8>(),
                prop::sample::select(&b"\x1b[]P\\;?0123Rcntu\x07"[..]),
            ], 0..300),
            size in 1usize..40,
        ) {
            prop_assert_eq!(input(&[], &typed, size), typed.escape_ascii().to_string());
            let queries =
                [(Query::Cursor, false), (Query::Value(1), true), (Query::Attributes, false), (Query::Setting, false)];
            prop_assert_eq!(input(&queries, &typed, size), input(&queries, &typed, typed.len()));
        }
    }
}
