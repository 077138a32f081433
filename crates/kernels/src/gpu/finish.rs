//! What becomes of products, as kernels get it.

use super::Arg;
use super::activation::ActivationParams;
use crate::gpu::twin::twin;
use crate::ops::{self, Activation};
use crate::tensor::ViewMut;

/// What becomes of a product.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Finish {
    /// Y is the product.
    Store,
    /// Y is the activation of the gate that is there with the product.
    Gate(Activation),
    /// Y gets so many times the product more.
    Add(f32),
}

impl Finish {
    /// Y as an argument.
    pub(crate) fn output<'a>(self, y: &'a ViewMut<f32>) -> Arg<'a> {
        if let Self::Store = self { Arg::write(y) } else { Arg::change(y) }
    }
}

impl From<ops::Finish<'_>> for Finish {
    fn from(finish: ops::Finish) -> Self {
        match finish {
            ops::Finish::Store => Self::Store,
            ops::Finish::Add { scale, .. } => Self::Add(scale),
        }
    }
}

twin! {
    #[derive(Clone, Copy, Debug, bytemuck::Zeroable, bytemuck::Pod)]
    #[repr(C)]
    pub(crate) struct FinishParams as Finish in "finish.h" {
        kind: u32,
        scale: f32,
        activation: ActivationParams,
    }
}

impl From<Finish> for FinishParams {
    fn from(finish: Finish) -> Self {
        let (kind, scale, activation) = match finish {
            Finish::Store => (0, 1.0, Activation::SwiGlu),
            Finish::Gate(activation) => (1, 1.0, activation),
            Finish::Add(scale) => (2, scale, Activation::SwiGlu),
        };
        Self { kind, scale, activation: activation.into() }
    }
}
