//! What a kernel does with a product before it is stored.

use super::Arg;
use super::activation::ActivationParams;
use crate::ops::{Activation, Epilogue};
use crate::tensor::ViewMut;

/// What a kernel does with a product.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProductEpilogue {
    /// y = product.
    Store,
    /// y = activation(y, product): y holds the gate.
    Gate(Activation),
    /// y += scale · product.
    Add(f32),
}

impl ProductEpilogue {
    /// Y as an argument.
    pub(crate) fn output<'a>(self, y: &'a ViewMut<f32>) -> Arg<'a> {
        if let Self::Store = self { Arg::write(y) } else { Arg::change(y) }
    }
}

impl From<Epilogue> for ProductEpilogue {
    fn from(epilogue: Epilogue) -> Self {
        match epilogue {
            Epilogue::Store => Self::Store,
            Epilogue::Add { scale } => Self::Add(scale),
        }
    }
}

shared_struct! {
    #[derive(Clone, Copy, Debug, bytemuck::Zeroable, bytemuck::Pod)]
    #[repr(C)]
    pub(crate) struct EpilogueParams as Finish in "finish.h" {
        kind: u32,
        scale: f32,
        activation: ActivationParams,
    }
}

impl From<ProductEpilogue> for EpilogueParams {
    fn from(epilogue: ProductEpilogue) -> Self {
        let (kind, scale, activation) = match epilogue {
            ProductEpilogue::Store => (0, 1.0, Activation::SwiGlu),
            ProductEpilogue::Gate(activation) => (1, 1.0, activation),
            ProductEpilogue::Add(scale) => (2, scale, Activation::SwiGlu),
        };
        Self { kind, scale, activation: activation.into() }
    }
}
