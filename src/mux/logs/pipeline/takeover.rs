//! What a log takes over from an earlier mux. Pure.

use super::memory::Left;
use crate::core::hub::Hub;
use crate::core::hub::follow::LogOffsets;
use crate::logfmt::chunk::{Chunk, Lost};
use crate::types::stream::Stream;

/// Judges what an earlier mux left for the next log of this number. Returns what is used of it, and
/// the offsets at which the log continues; chunks that are not used become spare.
pub(super) fn take_over(
    left: Option<Left>,
    hub: &Hub,
    number: u64,
    spare: &mut Vec<Chunk>,
) -> (Left, Option<LogOffsets>) {
    let Some(mut left) = left else { return (Left::default(), None) };
    let (written, at) = (left.snapshot.written, left.snapshot.at);
    if left.snapshot.epoch != hub.epoch() {
        forget_offsets(&mut left);
        return (left, None);
    }
    if is_current(&left, hub, number) {
        return (left, Some(LogOffsets { written, at }));
    }
    // A mux that does not know this memory ran meanwhile, and has written this output itself.
    let unused = left.full.into_iter().chain([left.filling]);
    spare.extend(unused.filter(|chunk| chunk.bytes.capacity() > 0).map(|mut chunk| {
        chunk.reset();
        chunk
    }));
    (Left::default(), None)
}

/// The backlog is a new one: what is encoded is still to be written, but means no offsets.
fn forget_offsets(left: &mut Left) {
    let filling = std::mem::take(&mut left.filling);
    if filling.bytes.capacity() > 0 {
        left.full.push(filling);
    }
    for chunk in &mut left.full {
        chunk.ends = Default::default();
    }
    for (half, _) in std::mem::take(&mut left.halves) {
        left.snapshot.lost.add(Lost { lines: 0, bytes: half.len() as u64 });
    }
    left.snapshot.app_ends = Default::default();
}

/// Whether the checkpoint in the hub's memory is that of the mux that left this.
fn is_current(left: &Left, hub: &Hub, number: u64) -> bool {
    let (written, at) = (left.snapshot.written, left.snapshot.at);
    // The checkpoint may have moved, stream by stream, before the chunk was given up.
    let first = left.full.iter().find(|chunk| !chunk.is_marker()).map_or(written, |c| c.ends);
    let checkpoint = hub.log_checkpoint(number);
    Stream::ALL.into_iter().filter(|stream| stream.is_output()).all(|stream| {
        let s = stream as usize;
        let end = hub.extent(stream).map_or(0, |(end, _)| end);
        let is_same = |checkpoint: [u64; _]| [written[s], first[s]].contains(&checkpoint[s]);
        at[s] <= end && checkpoint.is_none_or(is_same)
    })
}
