//! Work of a kernel on a product before it is stored.

use crate::Arg;
use crate::activation::ActivationParams;
use gristmill_kernels::ops::{Activation, Epilogue};
use gristmill_kernels::tensor::ViewMut;
use gristmill_kernels::weight::Role;

/// A kernel's work on a product.
#[derive(Clone, Copy, Debug)]
pub enum ProductEpilogue {
    /// y = product.
    Store,
    /// y = activation(y, product): y holds the gate.
    Gate(Activation),
    /// y += scale · product.
    Add(f32),
    /// y = activation(product), which has no gate.
    Activate(Activation),
}

impl ProductEpilogue {
    /// The activation of gate and up, or of up without a gate.
    pub fn of_activation(activation: Activation) -> Self {
        if activation.role() == Role::Up { Self::Activate(activation) } else { Self::Gate(activation) }
    }

    /// Y as an argument.
    pub fn output<'a>(self, y: &'a ViewMut<f32>) -> Arg<'a> {
        match self {
            Self::Store | Self::Activate(_) => Arg::write(y),
            Self::Gate(_) | Self::Add(_) => Arg::change(y),
        }
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
    /// [`ProductEpilogue`].
    #[derive(Debug)]
    pub struct EpilogueParams as Epilogue {
        kind: u32,
        scale: f32,
        activation: ActivationParams,
    }
}

impl EpilogueParams {
    /// The kind, and that of the activation, for kernels that are compiled for one of each.
    pub fn kinds(&self) -> [u32; 2] {
        [self.kind, self.activation.kind()]
    }
}

impl From<ProductEpilogue> for EpilogueParams {
    fn from(epilogue: ProductEpilogue) -> Self {
        let (kind, scale, activation) = match epilogue {
            ProductEpilogue::Store => (0, 1.0, Activation::SwiGlu),
            ProductEpilogue::Gate(activation) => (1, 1.0, activation),
            ProductEpilogue::Add(scale) => (2, scale, Activation::SwiGlu),
            ProductEpilogue::Activate(activation) => (3, 1.0, activation),
        };
        Self { kind, scale, activation: activation.into() }
    }
}
