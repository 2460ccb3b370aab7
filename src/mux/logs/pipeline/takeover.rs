//! What a log takes over from an earlier mux. No I/O, no clock.

use super::log_memory::Left;
use crate::core::logfmt::chunk::Lost;
use crate::types::stream::{Epoch, Stream};

/// Judges what an earlier mux left for a log, now that the backlog is of this epoch. Returns what is
/// used of it, and the offsets at which the log continues.
pub(super) fn take_over(
    left: Option<Left>,
    epoch: Epoch,
) -> (Left, Option<[u64; Stream::ALL.len()]>) {
    let Some(mut left) = left else { return (Left::default(), None) };
    if left.snapshot.epoch != epoch {
        forget_offsets(&mut left);
        return (left, None);
    }
    let at = left.snapshot.at;
    (left, Some(at))
}

/// The backlog is a new one: what is encoded is still to be written, but means no offsets.
fn forget_offsets(left: &mut Left) {
    let filling = std::mem::take(&mut left.filling);
    if filling.bytes.capacity() > 0 {
        left.full.push(filling);
    }
    for (half, _) in std::mem::take(&mut left.halves) {
        left.snapshot.lost.add(Lost { lines: 0, bytes: half.len() as u64 });
    }
    left.snapshot.app_ends = Default::default();
}
