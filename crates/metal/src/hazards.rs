//! Barriers between launches, from the accesses that launches declare.

use gristmill_gpu::Access;
use std::ops::Range;

/// Memory that launches have accessed since the last barrier. Launches without conflicts can overlap.
#[derive(Debug, Default)]
pub(super) struct Hazards {
    read: Vec<Range<u64>>,
    written: Vec<Range<u64>>,
}

impl Hazards {
    /// Records the memory ranges that a launch accesses. Returns whether a barrier must precede the launch: it reads
    /// what was written, or writes what was accessed.
    pub(super) fn meet(&mut self, touches: &[(Range<u64>, Access)]) -> bool {
        let meets =
            |known: &[Range<u64>], new: &Range<u64>| known.iter().any(|k| k.start < new.end && new.start < k.end);
        let conflict = touches
            .iter()
            .any(|(range, access)| meets(&self.written, range) || *access != Access::Read && meets(&self.read, range));
        if conflict {
            self.read.clear();
            self.written.clear();
        }
        for (range, access) in touches {
            let list = if *access == Access::Read { &mut self.read } else { &mut self.written };
            list.push(range.clone());
        }
        conflict
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Access::{Read, ReadWrite, Write};

    #[test]
    fn only_conflicts_wait() {
        let mut hazards = Hazards::default();
        let mut meet = |touches: &[(Range<u64>, Access)]| hazards.meet(touches);
        assert!(!meet(&[(0..16, Read), (16..32, Write)]));
        // Reads of the same range do not conflict, nor do writes of adjacent ranges.
        assert!(!meet(&[(0..16, Read), (32..48, Write), (48..48, Write)]));
        // A read after a write; after the barrier only this launch is recorded.
        assert!(meet(&[(31..33, Read), (64..80, Write)]));
        assert!(!meet(&[(16..31, ReadWrite)]));
        // A write after a read; the launch also reads.
        assert!(meet(&[(32..40, ReadWrite)]));
        // A write after a write.
        assert!(meet(&[(39..41, Write)]));
        assert!(!meet(&[(64..80, Write), (0..8, Read)]));
    }
}
