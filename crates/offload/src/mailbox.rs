//! The memory by which a device and threads of the host exchange activations, choices and rows.
//!
//! | bytes from | what | written by |
//! | --- | --- | --- |
//! | 0 | [`ControlWords`]: the number of the newest request with its layer and tokens, the number of the newest answer | both |
//! | 256 | ids of the chosen experts, tokens × top-k, u32, with a mark if the expert is in a slot | device |
//! | `x` | activations, tokens × hidden, f32 or [`Int8Words`](gristmill_kernels::act::Int8Words) | device |
//! | `rows` | the experts' rows, tokens · top-k × hidden, f32 | host |
//!
//! There is one mailbox for each backend and one request at a time: a device runs its launches in order, and a layer waits for
//! its answer. Requests have consecutive numbers, modulo 2³². The device counts them itself, so a captured graph needs no
//! number of the host.

use crate::pinned::{HostSide, Pinned};
use gristmill_gpu::{Access, Arg, Gpu, Region, shared_struct};
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::ops::{Experts, Operation};
use std::mem::offset_of;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

shared_struct! {
    /// The first words of the mailbox. The words of the device and those of the host have cache lines of their own.
    #[derive(Debug)]
    pub struct ControlWords {
        // Of the device: the number of the newest request, written last, then what it asks for.
        request: u32,
        layer: u32,
        tokens: u32,
        padding: [u32; 29],
        // Of the host: the number of the newest answer, and in the upper half whether the host failed.
        answer: u64,
        end_padding: [u32; 30],
    }
}

shared_struct! {
    /// Words in the device's memory.
    #[derive(Debug)]
    pub struct DeviceWords {
        // The number of the newest request, and whether an answer has failed to come: then no kernel waits again.
        request: u32,
        failed: u32,
    }
}

/// In the upper half of `answer`: the host has failed.
const FAILED: u64 = 1 << 32;

/// In an id that the device has posted: the expert was in a slot.
pub(super) const HIT: u32 = 1 << 31;

/// In the number of a layer: the other experts of the batch are not in slots, but copied for it.
pub(super) const SHARED: u32 = 1 << 31;

const WHAT: &str = "the mailbox of the experts on the CPU";

/// Where the parts are, in bytes.
#[derive(Clone, Copy, Debug)]
struct Layout {
    ids: usize,
    x: usize,
    rows: usize,
    end: usize,
}

impl Layout {
    /// For this number of bytes of rows. A token has at most as many bytes of activations as of rows, and one id for each row.
    fn new(rows_bytes: usize) -> Self {
        // More cannot be addressed, so pinning it fails.
        let rows_bytes = rows_bytes.min(1 << 60);
        let part = |bytes: usize| bytes.next_multiple_of(256);
        let ids = size_of::<ControlWords>();
        let x = ids + part(rows_bytes / 16);
        let rows = x + part(rows_bytes / 2);
        Self { ids, x, rows, end: rows + part(rows_bytes) }
    }
}

/// The device's side of the mailbox.
#[derive(Debug)]
pub(crate) struct Mailbox {
    memory: Arc<Pinned>,
    words: Region,
    layout: Layout,
}

/// A request that the host has seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) number: u32,
    pub(super) layer: usize,
    pub(super) tokens: usize,
    /// Whether it is for a part of the experts of a batch that has [`SHARED`].
    pub(super) is_shared: bool,
}

/// The host's side of the mailbox.
#[derive(Debug)]
pub(super) struct HostEnd {
    side: HostSide,
    layout: Layout,
}

impl Mailbox {
    /// Both sides of a mailbox that has this number of bytes for rows.
    pub(super) fn new(gpu: &Arc<dyn Gpu>, rows_bytes: usize) -> Result<(Self, HostEnd)> {
        let layout = Layout::new(rows_bytes);
        let (memory, side) = Pinned::new(gpu, layout.end, WHAT)?;
        let words = Region::zeroed(gpu, size_of::<DeviceWords>(), WHAT)?;
        Ok((Self { memory, words, layout }, HostEnd { side, layout }))
    }

    /// Tokens of a request in a layer with this number of experts for each token, of words of an activation row, and of elements
    /// of an expert's row.
    pub(super) fn tokens(&self, top_k: usize, words: usize, width: usize) -> Result<usize> {
        let Layout { ids, x, rows, end } = self.layout;
        let size = size_of::<u32>();
        let fits = |part: Range<usize>, bytes: usize| part.len() / bytes.max(1);
        let least = [fits(ids..x, size * top_k), fits(x..rows, size * words), fits(rows..end, size * width * top_k)];
        match least.into_iter().min() {
            Some(tokens) if tokens > 0 => Ok(tokens),
            _ => {
                let what = "bytes of a token's rows";
                let found = (size * width * top_k).to_string();
                Err(Error::Range {
                    op: Experts::NAME,
                    what,
                    found,
                    rule: "must fit the mailbox of the experts on the CPU",
                })
            }
        }
    }

    /// The words in the device's memory.
    pub(super) fn words(&self) -> Arg<'_> {
        Arg::region(&self.words, Access::ReadWrite)
    }

    /// The control words.
    pub(super) fn control(&self, access: Access) -> Arg<'_> {
        self.part(0..self.layout.ids, access)
    }

    /// Ids, activations and rows.
    pub(super) fn ids(&self) -> Arg<'_> {
        self.part(self.layout.ids..self.layout.x, Access::Write)
    }
    pub(super) fn x(&self) -> Arg<'_> {
        self.part(self.layout.x..self.layout.rows, Access::Write)
    }
    pub(super) fn rows(&self) -> Arg<'_> {
        self.part(self.layout.rows..self.layout.end, Access::Read)
    }

    fn part(&self, bytes: Range<usize>, access: Access) -> Arg<'_> {
        Arg::Buffer { region: self.memory.region(), offset: bytes.start, bytes: bytes.len(), access }
    }
}

impl HostEnd {
    /// The newest request. What the device wrote before it is visible.
    pub(super) fn request(&self) -> Result<Request> {
        let word = |offset| self.side.word(offset);
        let number = word(offset_of!(ControlWords, request))?.load(Ordering::Acquire);
        let [layer, tokens] = [offset_of!(ControlWords, layer), offset_of!(ControlWords, tokens)];
        let [layer, tokens] = [word(layer)?, word(tokens)?].map(|word| word.load(Ordering::Relaxed));
        let is_shared = layer & SHARED != 0;
        let layer = (layer & !SHARED) as usize;
        Ok(Request { number, layer, tokens: tokens as usize, is_shared })
    }

    /// Copies the ids of a request, of tokens · top-k experts. Those in slots have [`HIT`].
    pub(super) fn read_ids(&mut self, ids: &mut [u32]) -> Result<()> {
        self.side.read(self.layout.ids, bytemuck::cast_slice_mut(ids))
    }

    /// Copies the activations of a request.
    pub(super) fn read_x(&mut self, x: &mut [u8]) -> Result<()> {
        self.side.read(self.layout.x, x)
    }

    /// Copies the row of a pair.
    pub(super) fn write_row(&mut self, pair: usize, row: &[f32]) -> Result<()> {
        self.side.write(self.layout.rows + pair * size_of_val(row), bytemuck::cast_slice(row))
    }

    /// Answers a request.
    pub(super) fn answer(&mut self, number: u32) -> Result<()> {
        self.store(u64::from(number))
    }

    /// Ends all waits of the device, now and later.
    pub(super) fn fail(&mut self) -> Result<()> {
        self.store(FAILED)
    }

    fn store(&self, answer: u64) -> Result<()> {
        self.side.long_word(offset_of!(ControlWords, answer))?.store(answer, Ordering::Release);
        Ok(())
    }
}
