//! The fingerprint of a model: which weights a text was generated with.

use sha2::{Digest, Sha256};

use super::GgufFile;

/// Bytes at each end of a tensor's data.
const END: usize = 4 << 10;

impl GgufFile {
    /// Tells models apart in milliseconds, whatever their size: 64 hexadecimal digits.
    ///
    /// It is the SHA-256 of the header of each file (metadata and tensor table), and of the first and last 4 KiB of
    /// each tensor's data, each header and tensor after its length in 8 bytes, little-endian. So it detects other
    /// metadata, another quantisation and other training, but not a change only within a tensor. It does not protect
    /// against models that were made equal on purpose. For a folder of safetensors, it is computed from the folder's
    /// metadata and tensor table, and from each tensor in the files. Prediction heads of another file are not part of it.
    pub fn fingerprint(&self) -> String {
        if let Some(base) = self.base() {
            return base.fingerprint();
        }
        let mut hash = Sha256::new();
        for header in self.headers() {
            hash.update((header.len() as u64).to_le_bytes());
            hash.update(header);
        }
        for tensor in self.tensors().iter().filter(|_| self.is_gguf()) {
            let data = self.stored(tensor);
            hash.update((data.len() as u64).to_le_bytes());
            hash.update(&data[..data.len().min(END)]);
            hash.update(&data[data.len().saturating_sub(END)..]);
        }
        self.sample(&mut |bytes| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        });
        format!("{:x}", hash.finalize())
    }
}
