//! Words of a step on the device, which are uploaded only where they have changed.

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

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_cpu::{Cpu, Level};

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
