//! Runs a tower: the memory of a runner's passes, and the rows of pictures that were encoded.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use gristmill_kernels::Backend;
use gristmill_kernels::kv::KV_BLOCK;
use gristmill_kernels::ops::{RopeStyle, Rotary};
use gristmill_kernels::tensor::{Buffer, DeviceId};
use gristmill_vision::{Limits as ImageLimits, Patches, Prepared};

use super::build::Ends;
use super::info::{KEPT_BYTES, TowerInfo};
use super::loaded::Tower;
use super::positions::{block_order, resized};
use super::spec::PatchRope;
use super::tiles::TileStates;
use crate::error::{Error, Result};
use crate::program::axes::{Axes, AxisRotary, axis as axis_rotary};
use crate::program::run::encode;
use crate::program::scratch::Scratch;

/// A tile of a picture, by its content.
type Key = ([u8; 32], usize);

/// The most patches of a pass of several tiles, on a CPU and on a GPU: products of this number of rows are as fast as of more,
/// and a longer pass only delays the first of its images.
const JOINT_PATCHES: [usize; 2] = [256, 4096];

/// A tile whose rows are wanted.
pub(crate) type WantedTile<'a> = (&'a Prepared, usize);

fn key((image, tile): WantedTile) -> Key {
    (image.hash, tile)
}

/// Runs a tower, as a part of a runner or alone.
#[derive(Debug)]
pub struct Encoder {
    tower: Arc<Tower>,
    memory: Option<Memory>,
    /// The pass that has started.
    pass: Option<Pass>,
    /// The most patches of a pass of several tiles.
    most_joint: usize,
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
    /// Each tile with its number of patches, in the order of their rows.
    tiles: Vec<(Key, usize)>,
    /// The first part that is not computed.
    next: usize,
}

/// The memory of passes of up to `patches` patches.
#[derive(Debug)]
struct Memory {
    patches: usize,
    scratch: Scratch,
    states: TileStates,
    rotaries: Vec<Arc<Rotary>>,
}

impl Encoder {
    /// An encoder that has computed nothing, and has no memory.
    pub fn new(tower: Arc<Tower>) -> Self {
        let [cpu, gpu] = JOINT_PATCHES;
        let most_joint = if tower.backend.device() == DeviceId::Cpu { cpu } else { gpu };
        Self { most_kept: KEPT_BYTES, most_joint, tower, memory: None, pass: None, kept: VecDeque::new(), encoded: 0 }
    }

    /// The encoder of a runner with contexts of this length and images within limits, as the memory plan counts it.
    pub(crate) fn of_context(tower: Arc<Tower>, context: usize, images: &ImageLimits) -> Self {
        let (most, most_kept) = (tower.info.most_patches(context, images), tower.info.kept_bytes(context));
        let alone = Self::new(tower);
        Self { most_joint: alone.most_joint.min(most), most_kept, ..alone }
    }

    /// Computes the rows of tiles' tokens, and keeps none. Tiles with few patches are computed together. It blocks until the
    /// device has computed them.
    ///
    /// # Errors
    /// [`Error::Picture`] for a tile that the tower cannot read, [`Error::Memory`] if memory is too little.
    pub fn encode(&mut self, tiles: &[(&Prepared, usize)]) -> Result<Vec<Vec<f32>>> {
        let tower = self.tower.clone();
        let _exclusive = tower.backend.exclusive();
        self.kept.clear();
        let mut all = Vec::with_capacity(tiles.len());
        for at in 0..tiles.len() {
            let rows = self.rows(&tiles[at..])?;
            let mut values = vec![0.0; rows.len()];
            tower.backend.download(rows.view(1, rows.len())?, &mut values)?;
            all.push(values);
        }
        self.kept.clear();
        Ok(all)
    }

    pub(crate) fn tower(&self) -> &Tower {
        &self.tower
    }

    /// Tiles that were encoded. A tile whose rows are kept is not encoded again.
    pub(crate) fn encoded(&self) -> usize {
        self.encoded
    }

    /// The rows of the first tile's tokens. The others, which are wanted next, can be computed with it.
    pub(crate) fn rows(&mut self, wanted: &[WantedTile]) -> Result<Arc<Buffer<f32>>> {
        let first = key(*wanted.first().ok_or(Error::UnknownSequence)?);
        loop {
            if let Some(at) = self.kept.iter().position(|(kept, _)| *kept == first) {
                let (key, rows) = self.kept.remove(at).ok_or(Error::UnknownSequence)?;
                self.kept.push_back((key, rows.clone()));
                return Ok(rows);
            }
            self.advance(wanted, usize::MAX)?;
        }
    }

    /// Whether the rows of a tile are kept.
    pub(crate) fn has_rows(&self, wanted: WantedTile) -> bool {
        self.kept.iter().any(|(kept, _)| *kept == key(wanted))
    }

    /// Whether the rows of this number of tokens can be kept at a time, each tile with all of its tokens.
    pub(crate) fn keeps(&self, tokens: usize) -> bool {
        tokens.saturating_mul(self.token_bytes()) <= self.most_kept
    }

    fn token_bytes(&self) -> usize {
        self.tower.info.spec.out * self.tower.info.spec.levels() * size_of::<f32>()
    }

    /// Computes up to this number of further parts of a pass for the wanted tiles whose rows are not kept: of the pass that has
    /// started if it has one of them, else of a new one, which has the first and as many others as there is room for.
    pub(crate) fn advance(&mut self, wanted: &[WantedTile], parts: usize) -> Result<()> {
        // Rows that are wanted are evicted last.
        let (wanted_rows, others): (Vec<_>, Vec<_>) =
            self.kept.drain(..).partition(|(kept, _)| wanted.iter().any(|tile| key(*tile) == *kept));
        self.kept.extend(others.into_iter().chain(wanted_rows));
        let Some(first) = wanted.iter().position(|tile| !self.has_rows(*tile)) else { return Ok(()) };
        let has_wanted = |pass: &Pass| wanted.iter().any(|tile| pass.tiles.iter().any(|(of, _)| *of == key(*tile)));
        let mut pass = match self.pass.take().filter(has_wanted) {
            Some(pass) => pass,
            None => self.start(wanted, first)?,
        };
        let Some(memory) = &mut self.memory else { return Err(Error::UnknownSequence) };
        let all = self.tower.info.program.parts().count();
        let end = pass.next.saturating_add(parts).min(all);
        let of_token = self.tower.info.spec.merge.pow(2);
        let patches: usize = pass.tiles.iter().map(|(_, patches)| patches).sum();
        memory.run(&self.tower, &self.tower.backend, pass.next..end, [patches, patches / of_token])?;
        if end < all {
            pass.next = end;
            self.pass = Some(pass);
            return Ok(());
        }
        let mut start = 0;
        for (key, patches) in pass.tiles {
            let tokens = patches / of_token;
            let rows = memory.output(&self.tower, start..start + tokens)?;
            start += tokens;
            self.encoded += 1;
            self.kept.push_back((key, Arc::new(rows)));
        }
        self.evict();
        Ok(())
    }

    /// Evicts the rows that were used first while all are too many.
    fn evict(&mut self) {
        let bytes = |rows: &Buffer<f32>| rows.len() * size_of::<f32>();
        let mut all: usize = self.kept.iter().map(|(_, rows)| bytes(rows)).sum();
        while self.kept.len() > 1 && all > self.most_kept {
            all -= self.kept.pop_front().map_or(0, |(_, rows)| bytes(&rows));
        }
    }

    /// Uploads the tiles of a new pass, of which nothing is computed yet: the first tile that lacks its rows, and those after it
    /// that the pass has room for and whose rows can be kept with all that are wanted before.
    fn start(&mut self, wanted: &[WantedTile], first: usize) -> Result<Pass> {
        let tower = self.tower.clone();
        let of_token = tower.info.spec.merge.pow(2);
        let mut tiles = vec![(key(wanted[first]), self.patches(wanted[first])?)];
        let patches = |tile: &Patches| tile.rows * tile.columns;
        let rounded = |patches: usize| patches.next_multiple_of(KV_BLOCK);
        let mut room = patches(tiles[0].1);
        let mut tokens: usize = 0;
        let mut met = Vec::new();
        for (at, tile) in wanted.iter().enumerate() {
            let key = key(*tile);
            if met.contains(&key) {
                continue;
            }
            let Ok(of_tile) = self.patches(*tile) else { continue };
            tokens += patches(of_tile) / of_token;
            met.push(key);
            if at <= first || self.has_rows(*tile) {
                continue;
            }
            let joint = rounded(room) + rounded(patches(of_tile));
            if joint > self.most_joint || !self.keeps(tokens) || !self.has_memory(joint) {
                break;
            }
            room = joint;
            tiles.push((key, of_tile));
        }
        if self.memory.as_ref().is_none_or(|memory| memory.patches < room) {
            // The old memory is freed first.
            self.memory = None;
            tower.check_memory(room)?;
            self.memory = Some(Memory::new(&tower, &tower.backend, room)?);
        }
        let Some(memory) = &mut self.memory else { return Err(Error::UnknownSequence) };
        memory.upload(&tower, &tiles.iter().map(|(_, tile)| *tile).collect::<Vec<_>>())?;
        Ok(Pass { tiles: tiles.iter().map(|(key, tile)| (*key, patches(tile))).collect(), next: 0 })
    }

    fn has_memory(&self, patches: usize) -> bool {
        self.memory.as_ref().is_some_and(|memory| memory.patches >= patches) || self.tower.check_memory(patches).is_ok()
    }

    /// The patches of a tile that the tower can read.
    fn patches<'a>(&self, (image, tile): WantedTile<'a>) -> Result<&'a Patches> {
        let patches = image.tiles.get(tile).ok_or_else(|| Error::Picture {
            reason: format!("tile {tile} of a picture of {} tiles; use the tower's preprocessing", image.tiles.len()),
        })?;
        self.tower.tokens(patches)?;
        Ok(patches)
    }
}

impl Memory {
    /// Uploads the patches and the positions of tiles.
    fn upload(&mut self, tower: &Tower, tiles: &[&Patches]) -> Result<()> {
        let Tower { info: TowerInfo { spec, program, .. }, backend, table, standard, .. } = tower;
        let ends = Ends::of(program).ok_or(Error::UnknownSequence)?;
        let (mut values, mut positions, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for Patches { rows, columns, values: of_tile } in tiles {
            let order = block_order(*rows, *columns, spec.merge);
            let of_patch = of_tile.len() / order.len().max(1);
            values.extend(order.iter().flat_map(|&[y, x]| &of_tile[(y * columns + x) * of_patch..][..of_patch]));
            positions.extend(resized(spec.positions, table, spec.width, [*rows, *columns], &order));
            places.extend(order);
        }
        if spec.is_centred {
            values.iter_mut().for_each(|value| *value = 2.0 * (*value - 0.5));
        }
        backend.upload(&values, &mut self.scratch.rows_mut(ends.patches))?;
        backend.upload(&positions, &mut self.scratch.rows_mut(ends.residual))?;
        if let (Some(ends), Some([bias, scale])) = (ends.standard, standard) {
            let tokens = places.len() / (spec.merge * spec.merge);
            let shift: Vec<f32> = bias.iter().map(|bias| -bias).collect();
            for (rows, values) in ends.into_iter().zip([&shift, scale]) {
                backend.upload(&values.repeat(tokens), &mut self.scratch.rows_mut(rows))?;
            }
        }
        let sizes: Vec<usize> = tiles.iter().map(|tile| tile.rows * tile.columns).collect();
        self.states.place(backend, &sizes)?;
        if let Some(axes) = &mut self.scratch.axes {
            let of_axis = |axis: usize| places.iter().map(|place| place[axis] as u32).collect();
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

    /// The rows of these tokens after a pass.
    fn output(&self, tower: &Tower, tokens: Range<usize>) -> Result<Buffer<f32>> {
        let Tower { info: TowerInfo { spec, program, .. }, backend, .. } = tower;
        let cols = spec.out * spec.levels();
        let mut out = backend.alloc::<f32>(tokens.len() * cols, "rows of a picture")?;
        let all = self.scratch.rows(program.hidden);
        let rows = all.view(1, tokens.end * cols)?.columns(tokens.start * cols..tokens.end * cols)?;
        backend.copy(rows, &mut out, 0)?;
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
        Ok(Self { patches, scratch, states: TileStates::new(backend, spec, patches)?, rotaries })
    }
}

/// Runs passes of these numbers of patches on a device that only notes launches.
pub(crate) fn walk(tower: &Tower, backend: &Backend, most: usize, sizes: impl Iterator<Item = usize>) -> Result<()> {
    let mut memory = Memory::new(tower, backend, most)?;
    let (all, of_token) = (tower.info.program.parts().count(), tower.info.spec.merge.pow(2));
    for patches in sizes {
        // One tile, and many small ones.
        for of_tile in [patches, of_token] {
            memory.states.suppose(of_tile);
            memory.run(tower, backend, 0..all, [patches, patches / of_token])?;
        }
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
