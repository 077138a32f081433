//! Where the codes and zero points of a matrix are: unsigned integers of 1 to 8 bits.

use std::ops::Range;

/// How codes and zero points are packed into words of 32 bits, lowest bits first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    /// compressed-tensors: the codes of a row follow each other. Zero points are packed over rows: a word of each group,
    /// which has those of consecutive rows. (`compressed_tensors` 0.20, `pack_to_int32`.)
    Rows,
    /// GPTQ: codes are packed over inputs, a word of each row, and zero points over rows. (`auto_gptq` 0.7.1,
    /// `qlinear_cuda_old.py`.)
    Inputs {
        /// Zero points are stored less one.
        less_one: bool,
    },
    /// `gptq_p` of GPTQModel: as GPTQ, but 32 codes are split into parts of 4, 2 and 1 bits, which have words of their own.
    /// (`gptqmodel` 7.7, `planar_packing.py`.)
    Planes,
    /// AWQ: codes and zero points are packed over rows, in the order [`AWQ_PLACES`]. (`autoawq` 0.2.9, `packing_utils.py`;
    /// 5 to 7 bits by `auto_round` 0.16, `bit_packing.py`.)
    Awq,
    /// A signed byte for each code, and for each zero point.
    Bytes,
}

/// The place of each of eight rows among those that AWQ packs together.
const AWQ_PLACES: [usize; 8] = [0, 4, 1, 5, 2, 6, 3, 7];

/// What a packing needs to find codes: a matrix of `rows` and `columns`, whose rows have `groups` groups.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    pub(super) packing: Packing,
    pub(super) bits: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) groups: usize,
}

impl Layout {
    /// Words of 32 bits of a row of codes that [`Packing::Rows`] packs.
    pub(super) fn words(self) -> usize {
        (self.columns * self.bits).div_ceil(32)
    }

    /// Appends codes of a row, from column `first` on. Data that is too short has zeros; shapes are checked before.
    pub(super) fn codes(self, data: &[u8], row: usize, first: usize, count: usize, out: &mut Vec<u8>) {
        let bits = self.bits;
        let all = first..first + count;
        match self.packing {
            Packing::Rows => {
                let start = row * self.words();
                codes_of_stream(data, bits, all, |word| start + word, out);
            }
            Packing::Inputs { .. } => codes_of_stream(data, bits, all, |word| word * self.rows + row, out),
            Packing::Planes => {
                all.for_each(|column| out.push(code_of_planes(data, bits, column, |word| word * self.rows + row)));
            }
            Packing::Awq => {
                let (words, place) = (self.rows * bits / 32, awq_place(row));
                out.extend(all.map(|column| code(data, bits, place, |word| column * words + word)));
            }
            Packing::Bytes => {
                let bytes = data.get(row * self.columns + first..).unwrap_or_default();
                out.extend(bytes.iter().take(count).map(|byte| byte ^ 0x80));
            }
        }
    }

    /// The zero point of a group of a row, as unsigned as the codes.
    pub(super) fn zero(self, data: &[u8], row: usize, group: usize) -> u8 {
        let bits = self.bits;
        match self.packing {
            Packing::Rows => code(data, bits, row, |word| word * self.groups + group),
            Packing::Inputs { less_one } => {
                let start = group * (self.rows * bits / 32);
                if less_one && 32 % bits == 0 {
                    // GPTQModel adds 1 to all fields of a word at once. A field that overflows carries into the next, as
                    // zero points of 0 borrowed from it when they were stored.
                    let (at, shift) = (start + row * bits / 32, row * bits % 32);
                    let ones = (0..32).step_by(bits).fold(0u32, |ones, bit| ones | 1 << bit);
                    return (word(data, at).wrapping_add(ones) >> shift) as u8 & mask(bits);
                }
                let stored = code(data, bits, row, |word| start + word);
                if less_one { stored.wrapping_add(1) & mask(bits) } else { stored }
            }
            Packing::Planes => code_of_planes(data, bits, row, |word| group * (self.rows * bits / 32) + word),
            Packing::Awq => code(data, bits, awq_place(row), |word| group * (self.rows * bits / 32) + word),
            Packing::Bytes => data.get(row * self.groups + group).copied().unwrap_or_default() ^ 0x80,
        }
    }
}

/// The place of a row in AWQ's stream of bits.
fn awq_place(row: usize) -> usize {
    row / 8 * 8 + AWQ_PLACES[row % 8]
}

#[inline]
fn mask(bits: usize) -> u8 {
    (0xff_u16 >> (8 - bits)) as u8
}

#[inline]
fn word(data: &[u8], at: usize) -> u32 {
    data.get(4 * at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Some codes of a stream of bits: a word at a time where words have whole codes.
#[inline]
fn codes_of_stream(data: &[u8], bits: usize, all: Range<usize>, place: impl Fn(usize) -> usize, out: &mut Vec<u8>) {
    let each = 32 / bits;
    if 32 % bits != 0 || !all.start.is_multiple_of(each) {
        return all.for_each(|i| out.push(code(data, bits, i, &place)));
    }
    let end = out.len() + all.len();
    out.reserve(all.len() + each);
    for at in all.step_by(each) {
        let mut word = word(data, place(at / each));
        let mut codes = [0; 32];
        for code in &mut codes[..each] {
            *code = word as u8 & mask(bits);
            word = word.unbounded_shr(bits as u32);
        }
        out.extend_from_slice(&codes[..each]);
    }
    out.truncate(end);
}

/// Code `i` of a stream of bits, in words of which `place` says where each is.
#[inline]
fn code(data: &[u8], bits: usize, i: usize, place: impl Fn(usize) -> usize) -> u8 {
    let (at, shift) = (i * bits / 32, i * bits % 32);
    let low = word(data, place(at)) >> shift;
    let high = if shift + bits > 32 { word(data, place(at + 1)) << (32 - shift) } else { 0 };
    (low | high) as u8 & mask(bits)
}

/// Code `i` of codes in planes.
#[inline]
fn code_of_planes(data: &[u8], bits: usize, i: usize, place: impl Fn(usize) -> usize) -> u8 {
    let mut start = i / 32 * bits;
    let mut code = 0;
    let mut offset = 0;
    for width in [8, 4, 2, 1].into_iter().filter(|width| bits & width != 0) {
        let bit = i % 32 * width;
        code |= ((word(data, place(start + bit / 32)) >> (bit % 32)) as u8 & mask(width)) << offset;
        (start, offset) = (start + width, offset + width);
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(packing: Packing, bits: usize, rows: usize, columns: usize) -> Layout {
        Layout { packing, bits, rows, columns, groups: 1 }
    }

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn codes_straddle_words() {
        // Code i of three bits is i mod 8; the eleventh has two bits in the first word.
        let stream = (0..32u128).fold(0, |stream, i| stream | (i % 8) << (3 * i));
        let words = [0, 32, 64].map(|shift| (stream >> shift) as u32);
        let mut rows = Vec::new();
        layout(Packing::Rows, 3, 1, 32).codes(&bytes(&words), 0, 0, 32, &mut rows);
        assert_eq!(rows, (0..32).map(|i| i % 8).collect::<Vec<u8>>());
        // Two rows whose words alternate.
        let both: Vec<u32> = words.iter().flat_map(|&word| [0, word]).collect();
        let mut inputs = Vec::new();
        layout(Packing::Inputs { less_one: false }, 3, 2, 32).codes(&bytes(&both), 1, 5, 20, &mut inputs);
        assert_eq!(inputs, rows[5..25]);
    }

    #[test]
    fn codes_in_planes() {
        // Code i of seven bits is 3 · i: low nibbles, then two bits of each, then one.
        let code = |i: u32| 3 * i;
        let plane = |width: u32, offset: u32| {
            let field = move |i: u32| (code(i) >> offset & ((1 << width) - 1)) << (i * width % 32);
            (0..width).map(move |word| (0..32 / width).map(|i| field(word * (32 / width) + i)).sum::<u32>())
        };
        let words: Vec<u32> = plane(4, 0).chain(plane(2, 4)).chain(plane(1, 6)).collect();
        let planes = Layout { packing: Packing::Planes, bits: 7, rows: 32, columns: 32, groups: 1 };
        assert_eq!(
            (0..32).map(|row| planes.zero(&bytes(&words), row, 0)).collect::<Vec<u8>>(),
            (0..32).map(|i| 3 * i).collect::<Vec<u8>>()
        );
        let both: Vec<u32> = words.iter().flat_map(|&word| [0, word]).collect();
        let mut found = Vec::new();
        Layout { rows: 2, ..planes }.codes(&bytes(&both), 1, 0, 32, &mut found);
        assert_eq!(found, (0..32).map(|i| 3 * i).collect::<Vec<u8>>());
    }

    #[test]
    fn nibbles_of_awq() {
        // Nibble n of the word has n.
        let mut found = Vec::new();
        for row in 0..8 {
            layout(Packing::Awq, 4, 8, 1).codes(&bytes(&[0x7654_3210]), row, 0, 1, &mut found);
        }
        assert_eq!(found, [0, 4, 1, 5, 2, 6, 3, 7]);
        // Place n of 32 places of five bits has n.
        let stream = (0..32).map(|n| [n & 1, n >> 1 & 1, n >> 2 & 1, n >> 3 & 1, n >> 4]).collect::<Vec<_>>().concat();
        let words: Vec<u32> =
            stream.chunks(32).map(|bits| bits.iter().rev().fold(0, |all, bit| 2 * all + bit)).collect();
        let five = layout(Packing::Awq, 5, 32, 1);
        found.clear();
        (0..32).for_each(|row| five.codes(&bytes(&words), row, 0, 1, &mut found));
        assert_eq!(found[..16], [0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15]);
        assert_eq!(found, (0..32).map(|row| five.zero(&bytes(&words), row, 0)).collect::<Vec<u8>>());
    }

    #[test]
    fn zero_points_stored_less_one() {
        let zero = |bits, word, row| {
            layout(Packing::Inputs { less_one: true }, bits, 32 / bits, 8).zero(&bytes(&[word]), row, 0)
        };
        assert_eq!([zero(4, 0x7777_7737, 0), zero(4, 0x7777_7737, 1)], [8, 4]);
        // 0 borrowed from the next, which is 3.
        assert_eq!([zero(4, 0x3333_332f, 0), zero(4, 0x3333_332f, 1), zero(4, 0x3333_332f, 2)], [0, 4, 4]);
        assert_eq!(zero(8, 0x7f, 0), 128);
    }
}
