//! Words of a step on the device, which are uploaded only where they have changed.

use std::collections::VecDeque;

use gristmill_kernels::Backend;
use gristmill_kernels::tensor::Buffer;

use crate::error::Result;

/// The words that the start of a buffer has from the last upload. Each upload costs a step some microseconds, and
/// from one decode step to the next slots, output rows and most often block tables are the same.
#[derive(Debug, Default)]
pub(crate) struct Uploaded(Vec<u32>);

impl Uploaded {
    /// Uploads words to the start of the buffer, which is always the same and has no other writer.
    pub(crate) fn bring(&mut self, backend: &Backend, words: &[u32], to: &mut Buffer<u32>) -> Result<()> {
        if self.0.starts_with(words) {
            return Ok(());
        }
        // Unknown if the upload fails.
        self.0.clear();
        backend.upload(words, to)?;
        self.0.extend_from_slice(words);
        Ok(())
    }
}

/// The rows that a block table has from the last uploads. A table has entries for all sequences at their full context;
/// a decode step changes few of them, and a copy that is too large for pinned pages may wait for the device.
#[derive(Debug)]
pub(super) struct UploadedTable(Vec<UploadedRow>);

/// The entries of a row from the `first` on. Other entries are of no block, and no operation reads them.
#[derive(Clone, Debug, Default)]
struct UploadedRow {
    first: usize,
    entries: Vec<u32>,
}

impl UploadedTable {
    /// For this number of rows, of which nothing is uploaded.
    pub(super) fn new(rows: usize) -> Self {
        Self(vec![UploadedRow::default(); rows])
    }

    /// Uploads the entries of a row, which are those from `first` on, to a table of this number of columns. The table is
    /// always the same and has no other writer.
    pub(super) fn bring(
        &mut self,
        backend: &Backend,
        row: usize,
        (first, entries): (usize, &VecDeque<u32>),
        table: &mut Buffer<u32>,
        columns: usize,
    ) -> Result<()> {
        let Some(uploaded) = self.0.get_mut(row) else { return Ok(()) };
        // Blocks that a window has left are behind the others.
        let skipped = first.checked_sub(uploaded.first).filter(|&skipped| skipped <= uploaded.entries.len());
        match skipped {
            Some(skipped) => drop(uploaded.entries.drain(..skipped)),
            None => uploaded.entries.clear(),
        }
        uploaded.first = first;
        let same = uploaded.entries.iter().zip(entries).take_while(|(a, b)| a == b).count();
        // Unknown if the upload fails.
        uploaded.entries.truncate(same);
        if same < entries.len() {
            let new: Vec<u32> = entries.iter().skip(same).copied().collect();
            backend.upload_at(&new, table, row * columns + first + same)?;
            uploaded.entries.extend(new);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_cpu::{Cpu, Level};
    use proptest::prelude::*;

    proptest! {
        /// Whatever a slot's blocks become, its row of the table has them, and only what has changed is uploaded.
        #[test]
        fn a_table_has_the_blocks_of_each_slot(
            steps in prop::collection::vec((0usize..3, 0usize..6, prop::collection::vec(0u32..3, 0..6)), 1..20),
        ) {
            let (backend, columns) = (Cpu::backend(Level::best(), 1).unwrap(), 12);
            let mut buffer = backend.alloc::<u32>(3 * columns, "a test").unwrap();
            let mut table = UploadedTable::new(3);
            for (row, first, blocks) in steps {
                let entries: VecDeque<u32> = blocks.iter().copied().collect();
                table.bring(&backend, row, (first, &entries), &mut buffer, columns).unwrap();
                prop_assert_eq!(&buffer.as_host().unwrap()[row * columns + first..][..blocks.len()], &blocks[..]);
                // A second time there is nothing to upload, not even to a buffer that has no place for it.
                let mut none = backend.alloc::<u32>(1, "a test").unwrap();
                table.bring(&backend, row, (first, &entries), &mut none, columns).unwrap();
            }
        }
    }

    #[test]
    fn the_buffer_has_the_words_of_the_last_call() {
        let backend = Cpu::backend(Level::best(), 1).unwrap();
        let (mut buffer, mut uploaded) = (backend.alloc::<u32>(4, "a test").unwrap(), Uploaded::default());
        let calls: [&[u32]; 6] = [&[1, 2, 3], &[1, 2], &[1, 2, 3], &[4], &[4, 2], &[]];
        for words in calls {
            uploaded.bring(&backend, words, &mut buffer).unwrap();
            assert_eq!(&buffer.as_host().unwrap()[..words.len()], words);
        }
        assert!(uploaded.bring(&backend, &[0; 5], &mut buffer).is_err());
        uploaded.bring(&backend, &[4], &mut buffer).unwrap();
        assert_eq!(buffer.as_host().unwrap()[0], 4);
    }
}
