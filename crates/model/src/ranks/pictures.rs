//! Pictures of a batch, as rank 0 sends them to ranks that have no tower.

use serde::{Deserialize, Serialize};

use crate::runner::Grid;
use crate::state::SequenceId;

/// The pictures of a batch.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Pictures {
    pub(crate) rows: Vec<PictureValues>,
    pub(crate) grids: Vec<(SequenceId, Vec<Grid>)>,
}

/// The rows of adjacent tokens, as in [`PictureRows`](crate::program::scratch::PictureRows).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PictureValues {
    pub(crate) values: Vec<f32>,
    pub(crate) at: usize,
    pub(crate) tokens: usize,
    pub(crate) levels: usize,
}
