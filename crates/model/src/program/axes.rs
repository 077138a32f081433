//! RoPE with several positions for each token: the rows and columns of pictures.
//!
//! Each axis has a position for each token and frequencies for some pairs; the other pairs of its frequencies are 0, which
//! rotates nothing and changes no bit. So rotating by all axes is a launch of [`Rope`](gristmill_kernels::ops::Rope) for
//! each, and a token whose positions are equal gets the same bits as from one rotation.

use std::sync::Arc;

use gristmill_kernels::Backend;
use gristmill_kernels::ops::{RopeStyle, Rotary};
use gristmill_kernels::tensor::Buffer;

use crate::error::Result;

/// The rotation of one axis in a layer.
#[derive(Debug)]
pub(crate) struct AxisRotary {
    pub(crate) rotary: Rotary,
    /// Elements of a head that precede the rotated ones.
    pub(crate) first: usize,
}

/// The axes of the layers that rotate by several positions.
#[derive(Debug)]
pub(crate) struct Axes {
    /// For each layer, the rotation of each axis.
    pub(crate) layers: Vec<Option<Arc<Vec<AxisRotary>>>>,
    /// For each axis, the position of each token of the pass.
    pub(crate) positions: Vec<Buffer<u32>>,
    /// Rotates nothing: what is written to the cache has been rotated.
    pub(crate) none: Rotary,
    /// Whether the current pass uses them.
    pub(crate) is_on: bool,
}

impl Axes {
    /// For passes of up to `tokens` tokens.
    pub(crate) fn new(
        backend: &Backend,
        layers: Vec<Option<Arc<Vec<AxisRotary>>>>,
        axes: usize,
        tokens: usize,
    ) -> Result<Self> {
        let positions = (0..axes).map(|_| Ok(backend.alloc::<u32>(tokens, "positions of pictures")?));
        let frequencies = backend.alloc::<f32>(0, "RoPE frequencies")?;
        let none = Rotary { style: RopeStyle::Halves, frequencies, magnitude: 1.0 };
        Ok(Self { layers, positions: positions.collect::<Result<_>>()?, none, is_on: false })
    }

    /// Uploads the positions of the tokens of a pass, one row for each axis.
    pub(crate) fn place(&mut self, backend: &Backend, positions: &[Vec<u32>]) -> Result<()> {
        self.is_on = true;
        for (values, to) in positions.iter().zip(&mut self.positions) {
            backend.upload(values, to)?;
        }
        Ok(())
    }
}

/// A rotation on the device.
pub(crate) fn axis(
    backend: &Backend,
    style: RopeStyle,
    frequencies: &[f32],
    magnitude: f32,
    first: usize,
) -> Result<AxisRotary> {
    let mut buffer = backend.alloc::<f32>(frequencies.len(), "RoPE frequencies")?;
    backend.upload(frequencies, &mut buffer)?;
    Ok(AxisRotary { rotary: Rotary { style, frequencies: buffer, magnitude }, first })
}
