//! Positions of tokens in models whose pictures have rows and columns of positions.
//!
//! # Positions are not cache indices
//!
//! A picture of w × h tokens has all of its tokens at one place in time, and the next text starts max(w, h) positions
//! later. So the position of a token is less than its index in the cache. The runner keeps the pictures of a sequence,
//! from which both follow; a sequence without pictures has equal positions.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::batch::{Batch, SequenceImages};
use crate::error::{Error, Result};
use crate::state::SequenceId;
use crate::tower::Tower;

/// A picture in a sequence: its first token, and rows and columns of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Grid {
    start: usize,
    rows: usize,
    columns: usize,
}

/// The pictures of the open sequences.
#[derive(Debug, Default)]
pub(super) struct Grids(HashMap<SequenceId, Vec<Grid>>);

impl Grids {
    /// Notes the pictures of a batch.
    pub(super) fn note(&mut self, batch: &Batch, tower: &Tower) -> Result<()> {
        for SequenceImages { sequence, spans } in &batch.sequence_images {
            let grid = |span: &gristmill_vision::ImageSpan| {
                let wrong = |reason: &str| Error::Picture { reason: reason.to_owned() };
                let tile = span.image.tiles.get(span.tile).ok_or_else(|| wrong("there is no such tile"))?;
                let merge = tower.spec().merge;
                let grid = Grid { start: span.start, rows: tile.rows / merge, columns: tile.columns / merge };
                match span.first == 0 && span.tokens == grid.rows * grid.columns {
                    true => Ok(grid),
                    false => Err(wrong("a part of a tile; this model needs all of its tokens in one span")),
                }
            };
            self.0.insert(*sequence, spans.iter().map(grid).collect::<Result<_>>()?);
        }
        Ok(())
    }

    /// The pictures of these sequences, as [`Self::note`] has noted them.
    pub(super) fn of(&self, sequences: impl Iterator<Item = SequenceId>) -> Vec<(SequenceId, Vec<Grid>)> {
        sequences.filter_map(|sequence| Some((sequence, self.0.get(&sequence)?.clone()))).collect()
    }

    /// Notes pictures of another rank's sequences.
    pub(super) fn take(&mut self, grids: &[(SequenceId, Vec<Grid>)]) {
        self.0.extend(grids.iter().cloned());
    }

    pub(super) fn forget(&mut self, sequence: SequenceId) {
        self.0.remove(&sequence);
    }

    pub(super) fn fork(&mut self, from: SequenceId, to: SequenceId) {
        if let Some(grids) = self.0.get(&from).cloned() {
            self.0.insert(to, grids);
        }
    }

    /// Forgets pictures from this length on.
    pub(super) fn truncate(&mut self, sequence: SequenceId, len: usize) {
        self.0.entry(sequence).and_modify(|grids| grids.retain(|grid| grid.start < len));
    }

    /// Whether any of these tokens belongs to a sequence with pictures.
    pub(super) fn concern(&self, places: &[(SequenceId, u32)]) -> bool {
        !self.0.is_empty() && places.iter().any(|(id, _)| self.0.get(id).is_some_and(|grids| !grids.is_empty()))
    }

    /// The positions of tokens in time, in rows and in columns.
    pub(super) fn positions(&self, places: &[(SequenceId, u32)]) -> Vec<Vec<u32>> {
        let of =
            |&(id, index): &(SequenceId, u32)| position(self.0.get(&id).map_or(&[], Vec::as_slice), index as usize);
        let all: Vec<[usize; 3]> = places.iter().map(of).collect();
        (0..3).map(|axis| all.iter().map(|position| position[axis] as u32).collect()).collect()
    }
}

/// Position in time, row and column of the token at an index.
fn position(grids: &[Grid], index: usize) -> [usize; 3] {
    // Tokens of pictures, less the positions that they take.
    let mut saved = 0;
    for &Grid { start, rows, columns } in grids.iter().take_while(|grid| grid.start <= index) {
        let first = start - saved;
        match index - start {
            at if at < rows * columns => return [first, first + at / columns.max(1), first + at % columns.max(1)],
            _ => saved += (rows * columns).saturating_sub(rows.max(columns)),
        }
    }
    [index - saved; 3]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_those_of_transformers() {
        let grids = [Grid { start: 2, rows: 2, columns: 3 }, Grid { start: 9, rows: 3, columns: 1 }];
        let found: Vec<_> = (0..14).map(|index| position(&grids, index)).collect();
        let picture = [[2, 2, 2], [2, 2, 3], [2, 2, 4], [2, 3, 2], [2, 3, 3], [2, 3, 4]];
        let second = [[6, 6, 6], [6, 7, 6], [6, 8, 6]];
        let text = |at: usize| [at; 3];
        let expected: Vec<_> = [text(0), text(1)]
            .into_iter()
            .chain(picture)
            .chain([text(5)])
            .chain(second)
            .chain([text(9), text(10)])
            .collect();
        assert_eq!(found, expected);
    }
}
