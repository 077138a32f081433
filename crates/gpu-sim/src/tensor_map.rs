//! Maps of matrices in global memory, by which tiles are copied (CUDA driver API, `cuTensorMapEncodeTiled`).

/// How 16-byte pieces of a tile are permuted in shared memory, so that columns of it are in different banks: within so
/// many bytes, by the address of the 128 bytes in which they lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Swizzle {
    /// The order of global memory, one row after another.
    #[default]
    None,
    /// Within 128 bytes.
    Bytes128,
}

impl Swizzle {
    /// Where the byte with an offset in shared memory lies.
    pub(crate) fn place(self, offset: usize) -> usize {
        match self {
            Swizzle::None => offset,
            Swizzle::Bytes128 => offset ^ (offset >> 7 & 7) << 4,
        }
    }
}

/// A matrix of rows in global memory and the tile of it that one copy brings. An argument of a kernel that has a
/// `TensorMap` as parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorMap {
    /// The first row.
    pub address: *const u8,
    /// Bytes of an element.
    pub element: usize,
    /// Elements of a row, and rows.
    pub size: [usize; 2],
    /// Bytes from a row to the next.
    pub stride: usize,
    /// Elements of a row of a tile, and its rows. What of a tile is outside of the matrix becomes zero.
    pub tile: [usize; 2],
    /// How it is in shared memory.
    pub swizzle: Swizzle,
}

/// Marks 128 bytes as a map.
const MARK: u64 = 0x7469_6c65_206d_6170;

impl TensorMap {
    /// The fault of the map, if any: the driver would refuse it.
    pub(crate) fn wrong(&self) -> Option<String> {
        let Self { address, element, size, stride, tile, swizzle } = self;
        let inner = tile[0].saturating_mul(*element);
        Some(match () {
            () if !matches!(element, 1 | 2 | 4 | 8) => format!("elements have 1, 2, 4 or 8 bytes, not {element}"),
            () if !address.addr().is_multiple_of(16) => format!("{address:p} is not aligned to 16 bytes"),
            () if !stride.is_multiple_of(16) || *stride >= 1 << 40 => {
                format!("a stride of {stride} bytes: it is a multiple of 16 below 2^40")
            }
            () if size.iter().any(|&size| size == 0 || size > 1 << 32) => {
                format!("a matrix of {size:?}: each is from 1 to 2^32")
            }
            () if *stride < size[0] * element => {
                format!("rows of {} elements overlap at a stride of {stride}", size[0])
            }
            () if tile.iter().any(|&tile| tile == 0 || tile > 256) => {
                format!("a tile of {tile:?}: each is from 1 to 256")
            }
            () if !inner.is_multiple_of(16) => format!("rows of a tile have {inner} bytes, not a multiple of 16"),
            // The device also takes less; how that lies has not been tried.
            () if *swizzle == Swizzle::Bytes128 && inner != 128 => {
                format!("rows of a tile have {inner} bytes, not the 128 of the swizzle")
            }
            () => return None,
        })
    }

    /// Bytes of the matrix, from its first to its last.
    pub(crate) fn bytes(&self) -> usize {
        (self.size[1] - 1) * self.stride + self.size[0] * self.element
    }

    /// Bytes of a tile.
    pub(crate) fn tile_bytes(&self) -> usize {
        self.tile[0] * self.tile[1] * self.element
    }

    /// A kernel's parameter. The layout of the driver's own 128 bytes is not public, and no kernel depends on it.
    pub(crate) fn write(&self) -> [u64; 16] {
        let mut words = [0; 16];
        let sizes = [self.element, self.size[0], self.size[1], self.stride, self.tile[0], self.tile[1]];
        words[0] = MARK;
        words[1] = self.address.expose_provenance() as u64;
        words[2..8].copy_from_slice(&sizes.map(|size| size as u64));
        words[8] = u64::from(self.swizzle == Swizzle::Bytes128);
        words
    }

    /// The same back.
    pub(crate) fn read(words: [u64; 16]) -> Option<Self> {
        let at = |i: usize| words[i] as usize;
        (words[0] == MARK).then(|| Self {
            address: std::ptr::with_exposed_provenance(at(1)),
            element: at(2),
            size: [at(3), at(4)],
            stride: at(5),
            tile: [at(6), at(7)],
            swizzle: if words[8] == 1 { Swizzle::Bytes128 } else { Swizzle::None },
        })
    }

    /// A row of the tile at an element of the matrix: which of its elements are inside of the matrix, and where the
    /// first of them is in global memory.
    fn row(&self, column: i32, row: i64) -> Option<(std::ops::Range<usize>, *const u8)> {
        let row = usize::try_from(row).ok().filter(|&row| row < self.size[1])?;
        let first = i64::from(column).max(0);
        let last = (i64::from(column) + self.tile[0] as i64).min(self.size[0] as i64);
        let inside =
            (first < last).then(|| (first - i64::from(column)) as usize..(last - i64::from(column)) as usize)?;
        Some((inside, self.address.wrapping_add(row * self.stride + first as usize * self.element)))
    }

    /// The part of global memory that the tile at an element reads: addresses and bytes.
    pub(crate) fn reads(&self, column: i32, row: i32) -> Vec<(usize, usize)> {
        let rows = (0..self.tile[1]).filter_map(|i| self.row(column, i64::from(row) + i as i64));
        rows.map(|(inside, from)| (from.addr(), inside.len() * self.element)).collect()
    }

    /// Copies the tile at an element to its place in shared memory, which starts at `offset` there.
    ///
    /// # Safety
    /// The matrix can be read.
    pub(crate) unsafe fn gather(&self, column: i32, row: i32, offset: usize, to: &mut [u8]) {
        let bytes = self.tile[0] * self.element;
        let mut line = vec![0_u8; bytes];
        for i in 0..self.tile[1] {
            line.fill(0);
            if let Some((inside, from)) = self.row(column, i64::from(row) + i as i64) {
                let inside = inside.start * self.element..inside.end * self.element;
                // SAFETY: as the caller says.
                let from = unsafe { std::slice::from_raw_parts(from, inside.len()) };
                line[inside].copy_from_slice(from);
            }
            for (piece, bytes) in line.chunks(16).enumerate() {
                let at = self.swizzle.place(offset + i * line.len() + 16 * piece) - offset;
                to[at..at + bytes.len()].copy_from_slice(bytes);
            }
        }
    }
}
