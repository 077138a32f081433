//! The activation of an MLP as kernels get it.

use gristmill_kernels::ops::Activation;

shared_struct! {
    /// The activation of an MLP.
    #[derive(Debug)]
    pub struct ActivationParams as Activation {
        kind: u32,
        alpha: f32,
        limit: f32,
    }
}

impl ActivationParams {
    /// Which activation it is.
    pub(crate) fn kind(&self) -> u32 {
        self.kind
    }
}

impl From<Activation> for ActivationParams {
    fn from(activation: Activation) -> Self {
        let (kind, alpha, limit) = match activation {
            Activation::SwiGlu => (0, 0.0, 0.0),
            Activation::GeGlu => (1, 0.0, 0.0),
            Activation::ClampedSwiGlu { alpha, limit } => (2, alpha, limit),
            Activation::LimitedSwiGlu { limit } => (3, 0.0, limit),
            Activation::SquaredRelu => (4, 0.0, 0.0),
        };
        Self { kind, alpha, limit }
    }
}
