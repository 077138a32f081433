//! Runs a tower: the memory of a runner's passes, and the rows of pictures that were encoded.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use gristmill_kernels::Backend;
use gristmill_kernels::kv::{BatchRuns, KV_BLOCK, KvCache, Placement};
use gristmill_kernels::ops::{RopeStyle, Rotary};
use gristmill_kernels::tensor::Buffer;
use gristmill_vision::{Patches, Prepared};

use super::build::Ends;
use super::info::{KEPT_BYTES, TowerInfo};
use super::loaded::Tower;
use super::positions::{block_order, resized};
use super::spec::{PatchRope, TowerSpec};
use crate::error::{Error, Result};
use crate::program::axes::{Axes, AxisRotary, axis as axis_rotary};
use crate::program::run::encode;
use crate::program::scratch::Scratch;
use crate::state::{CachedLayer, FixedLayer, LayerStates};

/// A tile of a picture, by its content.
type Key = ([u8; 32], usize);

/// Runs a tower, as a part of a runner or alone.
#[derive(Debug)]
pub struct Encoder {
    tower: Arc<Tower>,
    memory: Option<Memory>,
    /// The pass that has started.
    pass: Option<Pass>,
    /// The most bytes of rows that are kept.
    most_kept: usize,
    /// Rows of tiles, the last used ones last.
    kept: VecDeque<(Key, Arc<Buffer<f32>>)>,
    /// Tiles that were encoded.
    encoded: usize,
}

/// A pass of which parts are computed.
#[derive(Debug)]
struct Pass {
    key: Key,
    patches: usize,
    tokens: usize,
    /// The first part that is not computed.
    next: usize,
}

/// The memory of passes of up to `patches` patches.
#[derive(Debug)]
struct Memory {
    patches: usize,
    scratch: Scratch,
    states: States,
    rotaries: Vec<Arc<Rotary>>,
}

/// Keys and values of a picture, which all layers share: a layer writes them all before it reads any.
#[derive(Debug)]
struct States {
    cache: KvCache,
    /// Each patch at its own position.
    own: Placement,
    /// Each patch at the last position.
    whole: Placement,
}

impl LayerStates for States {
    fn cache(&mut self, _: usize) -> Option<CachedLayer<'_>> {
        Some(CachedLayer { cache: &mut self.cache, placement: &self.own })
    }

    fn fixed(&mut self, _: usize) -> Option<FixedLayer<'_>> {
        None
    }

    fn last_hidden(&mut self, _: usize) -> Option<FixedLayer<'_>> {
        None
    }

    fn whole(&self, _: usize) -> Option<(&KvCache, &Placement)> {
        Some((&self.cache, &self.whole))
    }
}

impl Encoder {
    /// An encoder that has computed nothing, and has no memory.
    pub fn new(tower: Arc<Tower>) -> Self {
        Self { tower, memory: None, pass: None, most_kept: KEPT_BYTES, kept: VecDeque::new(), encoded: 0 }
    }

    /// The encoder of a runner with contexts of this length, as the memory plan counts it.
    pub(crate) fn of_context(tower: Arc<Tower>, context: usize) -> Self {
        Self { most_kept: tower.info.kept_bytes(context), ..Self::new(tower) }
    }

    /// Computes the rows of a tile's tokens, and keeps none. It blocks until the device has computed them.
    ///
    /// # Errors
    /// [`Error::Picture`] for a tile that the tower cannot read, [`Error::Memory`] if memory is too little.
    pub fn encode(&mut self, image: &Prepared, tile: usize) -> Result<Vec<f32>> {
        let tower = self.tower.clone();
        let _exclusive = tower.backend.exclusive();
        self.kept.clear();
        let rows = self.rows(image, tile)?;
        self.kept.clear();
        let mut values = vec![0.0; rows.len()];
        tower.backend.download(rows.view(1, rows.len())?, &mut values)?;
        Ok(values)
    }

    pub(crate) fn tower(&self) -> &Tower {
        &self.tower
    }

    /// Tiles that were encoded. A tile whose rows are kept is not encoded again.
    pub(crate) fn encoded(&self) -> usize {
        self.encoded
    }

    /// The rows of a tile's tokens.
    pub(crate) fn rows(&mut self, image: &Prepared, tile: usize) -> Result<Arc<Buffer<f32>>> {
        while !self.advance(image, tile, usize::MAX)? {}
        let key = (image.hash, tile);
        let at = self.kept.iter().position(|(kept, _)| *kept == key).ok_or(Error::UnknownSequence)?;
        let (key, rows) = self.kept.remove(at).ok_or(Error::UnknownSequence)?;
        self.kept.push_back((key, rows.clone()));
        Ok(rows)
    }

    /// Whether the rows of a tile are kept.
    pub(crate) fn has_rows(&self, image: &Prepared, tile: usize) -> bool {
        self.kept.iter().any(|(kept, _)| *kept == (image.hash, tile))
    }

    /// Whether the rows of this number of tokens can be kept at a time, each tile with all of its tokens.
    pub(crate) fn keeps(&self, tokens: usize) -> bool {
        let TowerSpec { out, .. } = self.tower.info.spec;
        tokens.saturating_mul(out * self.tower.info.spec.levels() * size_of::<f32>()) <= self.most_kept
    }

    /// Computes up to this number of further parts of a tile's pass. Returns whether its rows are kept. A pass of another tile
    /// that is not finished is discarded.
    pub(crate) fn advance(&mut self, image: &Prepared, tile: usize, parts: usize) -> Result<bool> {
        let key = (image.hash, tile);
        if self.has_rows(image, tile) {
            return Ok(true);
        }
        let patches = image.tiles.get(tile).ok_or_else(|| Error::Picture {
            reason: format!("tile {tile} of a picture of {} tiles; use the tower's preprocessing", image.tiles.len()),
        })?;
        let mut pass = match self.pass.take().filter(|pass| pass.key == key) {
            Some(pass) => pass,
            None => self.start(key, patches)?,
        };
        let Some(memory) = &mut self.memory else { return Err(Error::UnknownSequence) };
        let all = self.tower.info.program.parts().count();
        let end = pass.next.saturating_add(parts).min(all);
        memory.run(&self.tower, &self.tower.backend, pass.next..end, [pass.patches, pass.tokens])?;
        if end < all {
            pass.next = end;
            self.pass = Some(pass);
            return Ok(false);
        }
        let rows = Arc::new(memory.output(&self.tower, pass.tokens)?);
        self.encoded += 1;
        self.keep(key, rows);
        Ok(true)
    }

    /// Keeps the rows of a tile, and forgets those that were used first while all are too many.
    fn keep(&mut self, key: Key, rows: Arc<Buffer<f32>>) {
        let bytes = |rows: &Buffer<f32>| rows.len() * size_of::<f32>();
        let mut all = bytes(&rows) + self.kept.iter().map(|(_, rows)| bytes(rows)).sum::<usize>();
        while let Some((_, oldest)) = self.kept.front().filter(|_| all > self.most_kept) {
            all -= bytes(oldest);
            self.kept.pop_front();
        }
        self.kept.push_back((key, rows));
    }

    /// Uploads a tile, of which nothing is computed yet.
    fn start(&mut self, key: Key, tile: &Patches) -> Result<Pass> {
        let tokens = self.tower.tokens(tile)?;
        let tower = self.tower.clone();
        let &Patches { rows, columns, ref values } = tile;
        let order = block_order(rows, columns, tower.info.spec.merge);
        let patches = order.len();
        if self.memory.as_ref().is_none_or(|memory| memory.patches < patches) {
            // The old memory is freed first.
            self.memory = None;
            tower.check_memory(patches)?;
            self.memory = Some(Memory::new(&tower, &tower.backend, patches)?);
        }
        let Some(memory) = &mut self.memory else { return Err(Error::UnknownSequence) };
        memory.upload(&tower, [rows, columns], values, &order)?;
        Ok(Pass { key, patches, tokens, next: 0 })
    }
}

impl Memory {
    /// Uploads the patches and the positions of a tile, in the given order of its places.
    fn upload(&mut self, tower: &Tower, size: [usize; 2], values: &[f32], order: &[[usize; 2]]) -> Result<()> {
        let Tower { info: TowerInfo { spec, program, .. }, backend, table, standard, .. } = tower;
        let (ends, of_patch) = (Ends::of(program).ok_or(Error::UnknownSequence)?, values.len() / order.len().max(1));
        let patch = |&[y, x]: &[usize; 2]| &values[(y * size[1] + x) * of_patch..][..of_patch];
        let mut ordered: Vec<f32> = order.iter().flat_map(patch).copied().collect();
        if spec.is_centred {
            ordered.iter_mut().for_each(|value| *value = 2.0 * (*value - 0.5));
        }
        let positions = resized(spec.positions, table, spec.width, size, order);
        backend.upload(&ordered, &mut self.scratch.rows_mut(ends.patches))?;
        backend.upload(&positions, &mut self.scratch.rows_mut(ends.residual))?;
        if let (Some(ends), Some([bias, scale])) = (ends.standard, standard) {
            let tokens = order.len() / (spec.merge * spec.merge);
            let shift: Vec<f32> = bias.iter().map(|bias| -bias).collect();
            for (rows, values) in ends.into_iter().zip([&shift, scale]) {
                backend.upload(&values.repeat(tokens), &mut self.scratch.rows_mut(rows))?;
            }
        }
        self.states.place(backend, order.len())?;
        if let Some(axes) = &mut self.scratch.axes {
            let of_axis = |axis: usize| order.iter().map(|place| place[axis] as u32).collect();
            axes.place(backend, &[of_axis(0), of_axis(1)])?;
        }
        Ok(())
    }

    /// Runs parts of the tower for these numbers of patches and tokens, on the tower's backend or on the one of
    /// [`Backend::make_ready`].
    fn run(&mut self, tower: &Tower, backend: &Backend, parts: Range<usize>, sizes: [usize; 2]) -> Result<()> {
        let Tower { info: TowerInfo { program, .. }, weights, attention_precision, .. } = tower;
        let Self { scratch, states, rotaries, .. } = self;
        encode(backend, (program, weights), parts, rotaries, states, scratch, sizes, *attention_precision)
    }

    /// The rows of tokens after a pass.
    fn output(&self, tower: &Tower, tokens: usize) -> Result<Buffer<f32>> {
        let Tower { info: TowerInfo { spec, program, .. }, backend, .. } = tower;
        let cols = spec.out * spec.levels();
        let mut out = backend.alloc::<f32>(tokens * cols, "rows of a picture")?;
        backend.copy(self.scratch.rows(program.hidden).view(tokens, cols)?, &mut out, 0)?;
        Ok(out)
    }

    fn new(tower: &Tower, backend: &Backend, patches: usize) -> Result<Self> {
        let Tower { info: TowerInfo { spec, program, .. }, precision, .. } = tower;
        let tokens = patches / (spec.merge * spec.merge);
        let mut scratch = Scratch::new(backend, &program.slots, *precision, [patches, tokens, 0])?;
        if let Some(rope) = spec.rope {
            let axes = Arc::new(rope_axes(backend, rope, spec.width / spec.heads)?);
            let axes = Axes::new(backend, vec![Some(axes); spec.layers], 2, patches)?;
            scratch.axes = Some(Axes { is_on: true, ..axes });
        }
        let frequencies = backend.alloc::<f32>(0, "RoPE frequencies")?;
        let rotary = Arc::new(Rotary { style: RopeStyle::Halves, frequencies, magnitude: 1.0 });
        let rotaries = vec![rotary; spec.layers];
        Ok(Self { patches, scratch, states: States::new(backend, spec, patches)?, rotaries })
    }
}

/// Runs passes of these numbers of patches on a device that only notes launches.
pub(crate) fn walk(tower: &Tower, backend: &Backend, most: usize, sizes: impl Iterator<Item = usize>) -> Result<()> {
    let mut memory = Memory::new(tower, backend, most)?;
    let (all, of_token) = (tower.info.program.parts().count(), tower.info.spec.merge.pow(2));
    for patches in sizes {
        memory.run(tower, backend, 0..all, [patches, patches / of_token])?;
    }
    Ok(())
}

/// The rotations by rows and by columns.
fn rope_axes(backend: &Backend, rope: PatchRope, width: usize) -> Result<Vec<AxisRotary>> {
    let (base, style, odd) = match rope {
        PatchRope::ColumnsThenRows { base } => {
            let frequency = |pair: usize| f64::from(base).powf(-((4 * pair) as f64) / width as f64) as f32;
            let frequencies: Vec<f32> = (0..width / 4).map(frequency).collect();
            let from = |first: usize| axis_rotary(backend, RopeStyle::Halves, &frequencies, 1.0, first);
            return Ok(vec![from(width / 2)?, from(0)?]);
        }
        PatchRope::RowsThenColumns { base } => (base, RopeStyle::Halves, 0.0),
        PatchRope::EvenRowsOddColumns { base } => (base, RopeStyle::Interleaved, 2.0),
    };
    let (pairs, of_axis) = (width / 2, (width / 4).max(1));
    let of_axis = |axis: usize| {
        let exponent = |pair: usize| (4 * (pair % of_axis)) as f64 + odd * axis as f64;
        let frequency = |pair: usize| match pair / of_axis == axis {
            true => f64::from(base).powf(-exponent(pair) / width as f64) as f32,
            false => 0.0,
        };
        axis_rotary(backend, style, &(0..pairs).map(frequency).collect::<Vec<_>>(), 1.0, 0)
    };
    Ok(vec![of_axis(0)?, of_axis(1)?])
}

impl States {
    fn new(backend: &Backend, spec: &TowerSpec, patches: usize) -> Result<Self> {
        let blocks = patches.div_ceil(KV_BLOCK);
        let table: Vec<u32> = (0..blocks as u32).collect();
        let placement = || -> Result<Placement> {
            let mut placement = Placement {
                slots: backend.alloc(patches, "slots of patches")?,
                positions: backend.alloc(patches, "positions of patches")?,
                table: backend.alloc(blocks, "the block table of a picture")?,
                table_rows: 1,
                table_cols: blocks,
                context_columns: blocks,
                runs: BatchRuns::Any,
            };
            backend.upload(&table, &mut placement.table)?;
            Ok(placement)
        };
        Ok(Self { cache: backend.alloc_kv(spec.cache(), blocks)?, own: placement()?, whole: placement()? })
    }

    fn place(&mut self, backend: &Backend, patches: usize) -> Result<()> {
        // A picture has far fewer than 2^32 patches.
        let own: Vec<u32> = (0..patches as u32).collect();
        let whole = vec![patches.saturating_sub(1) as u32; patches];
        backend.upload(&own, &mut self.own.positions)?;
        backend.upload(&whole, &mut self.whole.positions)?;
        Ok(())
    }
}
