//! Pictures of a model on several devices: rank 0 has the tower, and the other ranks get the rows of a batch.

use std::sync::Arc;

use super::Runner;
use crate::batch::Batch;
use crate::error::Result;
use crate::program::scratch::PictureRows;
use crate::ranks::{PictureValues, Pictures};

impl Runner {
    /// The pictures of a batch that was encoded.
    pub(super) fn pictures(&self, batch: &Batch) -> Result<Pictures> {
        let backend = &*self.model.backend;
        let values = |picture: &PictureRows| {
            let PictureRows { ref rows, first, at, tokens, levels } = *picture;
            let width = levels * self.model.spec.hidden;
            let mut values = vec![0.0; tokens * width];
            let own = rows.view(1, (first + tokens) * width)?.columns(first * width..(first + tokens) * width)?;
            backend.download(own, &mut values)?;
            Ok(PictureValues { values, at, tokens, levels })
        };
        let rows = self.scratch.pictures.iter().map(values).collect::<Result<_>>()?;
        Ok(Pictures { rows, grids: self.grids.of(batch.sequence_images.iter().map(|images| images.sequence)) })
    }

    /// Takes the pictures of a batch of rank 0.
    pub(super) fn take_pictures(&mut self, pictures: &Pictures) -> Result<()> {
        let backend = &*self.model.backend;
        self.grids.take(&pictures.grids);
        self.scratch.pictures.clear();
        for PictureValues { values, at, tokens, levels } in &pictures.rows {
            let mut rows = backend.alloc::<f32>(values.len(), "rows of a picture")?;
            backend.upload(values, &mut rows)?;
            let (at, tokens, levels) = (*at, *tokens, *levels);
            self.scratch.pictures.push(PictureRows { rows: Arc::new(rows), first: 0, at, tokens, levels });
        }
        Ok(())
    }
}
