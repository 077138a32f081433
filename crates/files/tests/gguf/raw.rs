//! Writes any bytes, true or not, in the manner of a GGUF file.

/// A file in the making.
#[derive(Clone, Default)]
pub(crate) struct Raw(pub(crate) Vec<u8>);

impl Raw {
    /// A version 3 header with these counts.
    pub(crate) fn header(tensors: u64, pairs: u64) -> Raw {
        Raw(b"GGUF".to_vec()).u32(3).u64(tensors).u64(pairs)
    }

    /// The offset of the next byte.
    pub(crate) fn here(&self) -> u64 {
        self.0.len() as u64
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Raw {
        self.0.extend(bytes);
        self
    }

    pub(crate) fn u32(self, v: u32) -> Raw {
        self.bytes(&v.to_le_bytes())
    }

    pub(crate) fn u64(self, v: u64) -> Raw {
        self.bytes(&v.to_le_bytes())
    }

    pub(crate) fn string(self, s: &str) -> Raw {
        self.u64(s.len() as u64).bytes(s.as_bytes())
    }

    /// A tensor record. Its fields take 8 + name, 4, 8 per dimension, 4 and 8 bytes.
    pub(crate) fn tensor(self, name: &str, shape: &[u64], ty: u32, offset: u64) -> Raw {
        let raw = self.string(name).u32(shape.len() as u32);
        shape.iter().fold(raw, |raw, &n| raw.u64(n)).u32(ty).u64(offset)
    }

    /// Padding to 32 bytes, then `data` zero bytes.
    pub(crate) fn data(mut self, data: usize) -> Raw {
        let start = self.0.len().next_multiple_of(32);
        self.0.resize(start + data, 0);
        self
    }
}
