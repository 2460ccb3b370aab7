//! Tests of the queue in memory that outlives its mux: a process is killed between any two stores.

use std::collections::BTreeSet;
use std::time::Instant;

use super::*;
use crate::core::hub::ClientId;
use crate::core::hub::input::{Input, Merge};
use crate::core::wire::InputIdentity;
use crate::types::record::kills;
use crate::types::rights::Right;
use proptest::prelude::*;

/// Bytes of the ring of the model.
const SMALL: usize = 8;
/// Records of the model.
const FEW: usize = 3;
const USER: u32 = 7;

/// Memory as the next process finds it.
#[derive(Clone, Debug)]
struct KeptQueue {
    words: Vec<u64>,
    ring: Vec<u8>,
}

/// What this does with the queue in this memory, and what its words were before and after each of
/// its stores.
fn recorded<T>(words: &'static [AtomicU64], work: impl FnOnce() -> T) -> (T, Vec<Vec<u64>>) {
    let before = kills::values(words);
    kills::record(words);
    let done = work();
    let stores = [before].into_iter().chain(kills::recorded()).collect();
    kills::record(&[]);
    (done, stores)
}

impl InputQueue {
    /// Its memory as the next process finds it.
    pub(crate) fn again(&self) -> InputMemory {
        self.memory.snapshot().again()
    }
}

impl InputMemory {
    /// Memory that is not kept.
    pub(crate) fn new() -> Self {
        KeptQueue { words: vec![0; WORDS], ring: vec![0; RING] }.again()
    }

    fn snapshot(&self) -> KeptQueue {
        KeptQueue { words: kills::values(self.words), ring: self.ring.to_vec() }
    }
}

impl KeptQueue {
    fn small() -> Self {
        Self { words: vec![0; HEAD + FEW * RECORD], ring: vec![0; SMALL] }
    }

    fn again(&self) -> InputMemory {
        let words: Vec<AtomicU64> = self.words.iter().copied().map(AtomicU64::new).collect();
        InputMemory { words: words.leak(), ring: self.ring.clone().leak() }
    }
}

/// The input of client `n`: its bytes count, and are no other client's.
fn typed(n: usize, from: u64, len: usize) -> Vec<u8> {
    (from..from + len as u64).map(|at| u8::try_from(n * 64 + (at % 64) as usize).unwrap()).collect()
}

fn id(n: usize) -> InputId {
    InputId(Epoch(n as u64 + 1))
}

/// What outlives a mux: its memory, the stage, and what the app has read.
#[derive(Clone, Debug)]
struct QueueWorld {
    memory: KeptQueue,
    stage: Option<Vec<u8>>,
    app: Vec<u8>,
}

/// One thing that a mux does.
#[derive(Clone, Copy, Debug)]
enum QueueStep {
    /// Queues so many bytes of this client.
    Type(usize, usize),
    /// Puts what is queued into the stage, at most so many bytes; or announces that it will be
    /// written.
    Announce(usize),
    /// Moves so many bytes on to the app.
    Give(usize),
}

impl QueueWorld {
    fn new(has_stage: bool) -> Self {
        Self { memory: KeptQueue::small(), stage: has_stage.then(Vec::new), app: Vec::new() }
    }

    fn open(&self) -> InputQueue {
        InputQueue::open(self.memory.again(), self.stage.as_ref().map(Vec::len))
    }

    /// Does this step, and returns the worlds that a kill during it may leave.
    fn take(&mut self, queue: &mut InputQueue, step: QueueStep) -> Vec<Self> {
        let mut left = Vec::new();
        match step {
            QueueStep::Type(n, len) => {
                let Some(record) =
                    queue.find(id(n), USER).or_else(|| queue.add(id(n), USER, |_| true))
                else {
                    return left;
                };
                let from = queue.position(record).offset;
                let bytes = typed(n, from, len.min(queue.free()));
                let client = Some((record, from + bytes.len() as u64));
                let words = queue.memory.words;
                let ((), stores) = recorded(words, || queue.append([&bytes, &[]], client));
                left.extend(self.with(stores, queue));
            }
            QueueStep::Announce(most) => {
                let bytes = queue.bytes(queue.rest()).concat();
                let bytes = bytes[..most.min(bytes.len())].to_vec();
                match &mut self.stage {
                    Some(stage) if !stage.is_empty() => return left,
                    Some(stage) => stage.clone_from(&bytes),
                    None => {}
                }
                self.memory = queue.memory.snapshot();
                left.push(self.clone());
                let words = queue.memory.words;
                let ((), stores) = recorded(words, || queue.announce(bytes.len()));
                left.extend(self.with(stores, queue));
            }
            QueueStep::Give(len) => {
                let way = queue.bytes(queue.delivered..queue.announced).concat();
                let len = if let Some(stage) = &mut self.stage {
                    let len = len.min(stage.len());
                    if len == 0 {
                        return left;
                    }
                    self.app.extend(stage.drain(..len));
                    len
                } else {
                    let len = len.min(way.len());
                    self.app.extend(&way[..len]);
                    len
                };
                self.memory = queue.memory.snapshot();
                left.push(self.clone());
                let has_stage = self.stage.is_some();
                let words = queue.memory.words;
                let give = || if has_stage { queue.deliver(len) } else { queue.deliver_only(len) };
                let ((), stores) = recorded(words, give);
                left.extend(self.with(stores, queue));
            }
        }
        self.memory = queue.memory.snapshot();
        left.push(self.clone());
        left
    }

    /// With what the memory of this queue was. Its ring changes before the words do.
    fn with(&self, stores: Vec<Vec<u64>>, queue: &InputQueue) -> Vec<Self> {
        let ring = queue.memory.ring.to_vec();
        let memory = |words| KeptQueue { words, ring: ring.clone() };
        stores.into_iter().map(|words| Self { memory: memory(words), ..self.clone() }).collect()
    }

    /// The next mux: its queue, and what a kill during its start may leave.
    fn recover(&self) -> (InputQueue, Vec<Self>) {
        let memory = self.memory.again();
        let staged = self.stage.as_ref().map(Vec::len);
        let (queue, stores) = recorded(memory.words, || InputQueue::open(memory, staged));
        let left = self.with(stores, &queue);
        (queue, left)
    }

    /// The clients return and send what is not queued, up to these lengths, and the app reads it
    /// all. What it has then, and how many bytes are unknown.
    fn finish(mut self, mut queue: InputQueue, lengths: [u64; 2]) -> (Vec<u8>, u64) {
        let drain = |world: &mut Self, queue: &mut InputQueue| {
            while queue.len() > 0 {
                world.take(queue, QueueStep::Announce(SMALL));
                world.take(queue, QueueStep::Give(SMALL));
            }
        };
        drain(&mut self, &mut queue);
        let mut unknown = 0;
        for (n, length) in lengths.into_iter().enumerate() {
            let position = queue.find(id(n), USER).map(|record| queue.position(record));
            let (mut at, lost) = position.map_or((0, 0), |p| (p.offset, p.unknown));
            unknown += lost;
            while at < length {
                self.take(&mut queue, QueueStep::Type(n, 1));
                at += 1;
                drain(&mut self, &mut queue);
            }
        }
        (self.app, unknown)
    }
}

/// The app has the bytes of each client once and in order; all of them, but for so many that are
/// unknown.
fn assert_exact(app: &[u8], lengths: [u64; 2], unknown: u64) {
    let mut missing = 0;
    for (n, length) in lengths.into_iter().enumerate() {
        let got: Vec<u8> = app.iter().copied().filter(|b| usize::from(*b) / 64 == n).collect();
        let all = typed(n, 0, usize::try_from(length).unwrap());
        let mut rest = all.iter();
        assert!(got.iter().all(|byte| rest.any(|b| b == byte)), "{n}: {got:?} of {all:?}");
        missing += (all.len() - got.len()) as u64;
    }
    assert!(missing <= unknown, "{missing} bytes are missing, {unknown} are unknown");
}

fn steps() -> impl Strategy<Value = Vec<QueueStep>> {
    let step = prop_oneof![
        (0..2usize, 0..6usize).prop_map(|(n, len)| QueueStep::Type(n, len)),
        (1..SMALL).prop_map(QueueStep::Announce),
        (0..SMALL).prop_map(QueueStep::Give),
    ];
    prop::collection::vec(step, 1..12)
}

/// Takes these steps, kills the mux at every moment of them, and the next one at every moment of
/// its start.
fn kill_everywhere(steps: &[QueueStep], has_stage: bool) {
    let mut world = QueueWorld::new(has_stage);
    let mut queue = world.open();
    for step in steps {
        // An announcement is followed by the write, in which there is nothing else.
        let is_on_way = !has_stage && queue.delivered < queue.announced;
        if is_on_way && !matches!(step, QueueStep::Give(_)) {
            continue;
        }
        let left = world.take(&mut queue, *step);
        let lengths = [0, 1]
            .map(|n| queue.find(id(n), USER).map_or(0, |record| queue.position(record).offset) + 2);
        for killed in left {
            let (next, again) = killed.recover();
            let (app, unknown) = killed.clone().finish(next, lengths);
            assert!(unknown == 0 || !has_stage, "{unknown}");
            assert_exact(&app, lengths, unknown);
            // The next mux is killed as well: at its start, or in what it does then.
            let (mut world, mut queue) = (killed.clone(), killed.open());
            world.memory = queue.memory.snapshot();
            let next = [
                QueueStep::Give(1),
                QueueStep::Announce(2),
                QueueStep::Give(1),
                QueueStep::Give(SMALL),
            ];
            let next = next.into_iter().chain([
                QueueStep::Type(0, 1),
                QueueStep::Announce(2),
                QueueStep::Give(1),
            ]);
            let later: Vec<_> = next.flat_map(|step| world.take(&mut queue, step)).collect();
            for killed in again.into_iter().chain(later) {
                let (app, unknown) = killed.clone().finish(killed.open(), lengths);
                assert_exact(&app, lengths, unknown);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn with_a_stage_each_byte_is_with_the_app_exactly_once(steps in steps()) {
        kill_everywhere(&steps, true);
    }

    #[test]
    fn without_a_stage_no_byte_is_repeated_and_what_is_missing_is_known(steps in steps()) {
        kill_everywhere(&steps, false);
    }

    /// Damaged memory is refused or consistent.
    #[test]
    fn any_memory_gives_a_queue(
        damage in prop::collection::vec((0..HEAD + FEW * RECORD, any::<u64>()), 1..4),
        steps in steps(),
        staged in prop::option::of(0..20usize),
    ) {
        let mut world = QueueWorld::new(true);
        let mut queue = world.open();
        for step in steps {
            world.take(&mut queue, step);
        }
        let mut memory = queue.memory.snapshot();
        for (at, value) in damage {
            memory.words[at] = value;
        }
        let mut queue = InputQueue::open(memory.again(), staged);
        prop_assert!(queue.free() <= SMALL);
        queue.bytes(queue.rest());
        queue.append([&vec![1; queue.free()], &[]], None);
        queue.announce(SMALL);
        queue.deliver(SMALL);
    }
}

#[test]
fn nobody_takes_the_place_of_a_client_that_is_connected_or_of_another_user() {
    let memory = KeptQueue { words: vec![0; HEAD + 100 * RECORD], ring: vec![0; SMALL] };
    let mut queue = InputQueue::open(memory.again(), None);
    let own = queue.add(id(0), 1, |_| true).unwrap();
    for n in 1..1000 {
        assert!(queue.add(id(n), 2, |record| record != own).is_some(), "{n}");
    }
    assert!(queue.find(id(0), 1).is_some());
    assert_eq!(queue.records.len(), 1 + limits::USER_RECORDS);
    // The latest of them are there, and the next mux finds the same.
    assert!(queue.find(id(999), 2).is_some() && queue.find(id(1), 2).is_none());
    assert!(queue.find(id(999), 1).is_none());
    let next = InputQueue::open(queue.again(), None);
    assert_eq!(next.records, queue.records);
    // All are connected.
    assert_eq!(queue.add(id(5000), 2, |_| false), None);
    // Without room a third user takes the place of an idle one.
    for n in 2000..2035 {
        queue.add(id(n), 3, |_| false).unwrap();
    }
    assert_eq!(queue.add(id(3000), 4, |_| false), None);
    assert!(queue.add(id(3000), 4, |record| record != own).is_some());
}

/// Otherwise the next mux would put another client's line into it.
#[test]
fn half_a_line_has_its_turn_whenever_the_mux_is_killed() {
    let now = Instant::now();
    let mut input = Input::new(InputQueue::open(InputMemory::new(), None), now);
    let client = ClientId(1);
    input.join(client, Merge::Lines, USER, Right::Own);
    let identity = InputIdentity { id: id(1), returns: false, once: false };
    assert!(input.identify(client, USER, identity).is_some());
    let ((), stores) = recorded(input.queue.memory.words, || {
        for part in ["one ", "line\ntw", "o\n", "three\n", "fo", "ur"] {
            input.push(client, part.as_bytes(), now);
        }
    });
    let mut texts = BTreeSet::new();
    let ring = input.queue.memory.ring.to_vec();
    for words in stores {
        let left = KeptQueue { words, ring: ring.clone() };
        let queue = InputQueue::open(left.again(), None);
        let text = queue.bytes(queue.rest()).concat();
        let is_half = text.last().is_some_and(|last| *last != b'\n');
        assert!(!is_half || queue.turn().is_some(), "{}", text.escape_ascii());
        texts.insert(text);
    }
    assert!(texts.len() > 5, "{texts:?}");
}
