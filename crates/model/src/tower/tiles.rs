//! Keys and values of the tiles of one pass: each tile is a sequence of its own.

use gristmill_kernels::Backend;
use gristmill_kernels::kv::{BatchRuns, KV_BLOCK, KvCache, Placement};

use super::spec::TowerSpec;
use crate::error::Result;
use crate::state::{CachedLayer, FixedLayer, LayerStates};

/// Keys and values of a pass, which all layers share: a layer writes them all before it reads any.
#[derive(Debug)]
pub(super) struct TileStates {
    cache: KvCache,
    /// Each patch at its own position in its tile.
    own: Placement,
    /// Each patch at the last position of its tile.
    whole: Placement,
}

impl LayerStates for TileStates {
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

impl TileStates {
    /// For passes of up to this number of patches, each tile's rounded up to [`KV_BLOCK`] if there are several.
    pub(super) fn new(backend: &Backend, spec: &TowerSpec, patches: usize) -> Result<Self> {
        let blocks = patches.div_ceil(KV_BLOCK);
        let placement = || -> Result<Placement> {
            Ok(Placement {
                slots: backend.alloc(patches, "slots of patches")?,
                positions: backend.alloc(patches, "positions of patches")?,
                table: backend.alloc(blocks, "the block table of tiles")?,
                table_rows: 1,
                table_cols: blocks,
                context_columns: blocks,
                runs: BatchRuns::Any,
            })
        };
        Ok(Self { cache: backend.alloc_kv(spec.cache(), blocks)?, own: placement()?, whole: placement()? })
    }

    /// The largest tile of the next pass, which is not placed, has this number of patches: for a pass that only notes launches.
    pub(super) fn suppose(&mut self, patches: usize) {
        for placement in [&mut self.own, &mut self.whole] {
            placement.table_cols = patches.div_ceil(KV_BLOCK);
            placement.context_columns = placement.table_cols;
        }
    }

    /// Places tiles of these numbers of patches, one after another.
    pub(super) fn place(&mut self, backend: &Backend, tiles: &[usize]) -> Result<()> {
        let blocks = |patches: usize| patches.div_ceil(KV_BLOCK);
        let columns = tiles.iter().map(|&patches| blocks(patches)).max().unwrap_or(0);
        let mut free = 0..;
        // Entries that no position reaches are never read.
        let row = |&patches: &usize| {
            let mut row: Vec<u32> = free.by_ref().take(blocks(patches)).collect();
            row.resize(columns, 0);
            row
        };
        let table: Vec<u32> = tiles.iter().flat_map(row).collect();
        // A pass has far fewer than 2^32 patches.
        let of_patches = |value: fn(u32, u32, u32) -> u32| -> Vec<u32> {
            let of_tile = |(tile, &patches): (usize, &usize)| {
                (0..patches as u32).map(move |patch| value(tile as u32, patch, patches as u32))
            };
            tiles.iter().enumerate().flat_map(of_tile).collect()
        };
        let slots = of_patches(|tile, _, _| tile);
        let [own, last] = [of_patches(|_, patch, _| patch), of_patches(|_, _, patches| patches - 1)];
        for (placement, positions) in [(&mut self.own, own), (&mut self.whole, last)] {
            if placement.table.len() < table.len() {
                placement.table = backend.alloc(table.len(), "the block table of tiles")?;
            }
            backend.upload(&table, &mut placement.table)?;
            backend.upload(&slots, &mut placement.slots)?;
            backend.upload(&positions, &mut placement.positions)?;
            placement.table_rows = tiles.len();
            placement.table_cols = columns;
            placement.context_columns = columns;
        }
        Ok(())
    }
}
