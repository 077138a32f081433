//! The weights of a program on a device, and what of RoPE is made of them.

use std::sync::Arc;

use gristmill_kernels::Backend;
use gristmill_kernels::ops::{RopeStyle, Rotary};
use gristmill_kernels::tensor::Buffer;
use gristmill_kernels::weight::Weight;

use crate::error::Result;
use crate::program::axes::{Axes, AxisRotary, axis as axis_rotary};
use crate::program::{MatrixId, OrderId, ScalarId, VectorId};
use crate::rope;
use crate::spec::{LayerSpec, ModelSpec, RopeScaling};

/// The weights of a program on a device.
#[derive(Debug)]
pub(crate) struct Weights {
    pub(super) matrices: Vec<Weight>,
    pub(super) vectors: Vec<Buffer<f32>>,
    pub(super) scalars: Vec<f32>,
    pub(super) orders: Vec<Buffer<u32>>,
    pub(super) rope_factors: Option<VectorId>,
    pub(super) long_rope_factors: Option<[VectorId; 2]>,
}

impl Weights {
    pub(crate) fn matrix(&self, id: MatrixId) -> &Weight {
        &self.matrices[id.0]
    }

    pub(crate) fn vector(&self, id: VectorId) -> &Buffer<f32> {
        &self.vectors[id.0]
    }

    pub(crate) fn scalar(&self, id: ScalarId) -> f32 {
        self.scalars[id.0]
    }

    pub(crate) fn order(&self, id: OrderId) -> &Buffer<u32> {
        &self.orders[id.0]
    }

    /// RoPE of every layer for sequences of up to `context` tokens; layers with the same spec share one, and a layer
    /// without RoPE has no frequencies.
    pub(crate) fn rotaries(&self, spec: &ModelSpec, context: usize, backend: &Backend) -> Result<Vec<Arc<Rotary>>> {
        let mut ropes: Vec<Arc<Rotary>> = Vec::new();
        let layers: Vec<&LayerSpec> = spec.all_layers().collect();
        for (index, layer) in layers.iter().enumerate() {
            let Some(wanted) = layer.rope() else {
                let frequencies = backend.alloc::<f32>(0, "RoPE frequencies")?;
                ropes.push(Arc::new(Rotary { style: RopeStyle::Halves, frequencies, magnitude: 1.0 }));
                continue;
            };
            let same = |layer: &&LayerSpec| layer.rope() == Some(wanted);
            ropes.push(match layers[..index].iter().position(same) {
                Some(known) => ropes[known].clone(),
                None => {
                    let factors = match (wanted.scaling, self.long_rope_factors) {
                        (RopeScaling::Long { original_context, .. }, Some([short, long])) => {
                            Some(if context > original_context { long } else { short })
                        }
                        _ => self.rope_factors.filter(|_| wanted.factors),
                    };
                    let factors = factors.map(|factors| self.vector(factors));
                    let mut divisors = vec![1.0; factors.map_or(0, Buffer::len)];
                    if let Some(buffer) = factors {
                        backend.download(buffer.view(1, buffer.len())?, &mut divisors)?;
                    }
                    let (frequencies, magnitude) = rope::frequencies(wanted, factors.and(Some(&divisors)));
                    let mut buffer = backend.alloc::<f32>(frequencies.len(), "RoPE frequencies")?;
                    backend.upload(&frequencies, &mut buffer)?;
                    Arc::new(Rotary { style: wanted.style, frequencies: buffer, magnitude })
                }
            });
        }
        Ok(ropes)
    }

    /// The axes of the layers that have several, from the RoPE of every layer.
    pub(crate) fn axes(
        &self,
        spec: &ModelSpec,
        rotaries: &[Arc<Rotary>],
        tokens: usize,
        backend: &Backend,
    ) -> Result<Option<Axes>> {
        let mut layers: Vec<Option<Arc<Vec<AxisRotary>>>> = Vec::new();
        let ropes: Vec<_> = spec.all_layers().map(LayerSpec::rope).collect();
        for (index, (rope, rotary)) in ropes.iter().zip(rotaries).enumerate() {
            let Some(axes) = rope.and_then(|rope| rope.axes) else {
                layers.push(None);
                continue;
            };
            if let Some(known) = ropes[..index].iter().position(|before| before == rope) {
                layers.push(layers[known].clone());
                continue;
            }
            let mut frequencies = vec![0.0; rotary.frequencies.len()];
            backend.download(rotary.frequencies.view(1, frequencies.len())?, &mut frequencies)?;
            let of_axis = |axis: usize| {
                let own = |(pair, &f): (usize, &f32)| if axes.of_pair(pair) == axis { f } else { 0.0 };
                let frequencies: Vec<f32> = frequencies.iter().enumerate().map(own).collect();
                axis_rotary(backend, rotary.style, &frequencies, rotary.magnitude, 0)
            };
            layers.push(Some(Arc::new((0..3).map(of_axis).collect::<Result<_>>()?)));
        }
        match layers.iter().any(Option::is_some) {
            true => Ok(Some(Axes::new(backend, layers, 3, tokens)?)),
            false => Ok(None),
        }
    }

    /// Bytes of prepared weights, without the mapped file.
    pub(crate) fn owned_bytes(&self) -> u64 {
        self.matrices.iter().map(|weight| weight.owned_bytes() as u64).sum()
    }
}
