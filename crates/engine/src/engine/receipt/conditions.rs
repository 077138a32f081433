//! What bytes depend on beside request, model and build.

use gristmill_kernels::act::Precision;
use gristmill_kernels::kv::KvFormat;
use gristmill_kernels::tensor::DeviceId;
use serde::{Deserialize, Serialize};

use crate::Model;

/// What the bytes of a text depend on beside its request, the model and the build. On a GPU, texts that are generated at
/// the same time also count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conditions {
    /// `cpu`, `cuda` or `metal`.
    pub device: String,
    /// Of the CPU its level, and `bf16` if it multiplies pairs of bfloat16; of a GPU its name, and `deterministic` if it was
    /// opened so.
    pub arithmetic: Vec<String>,
    /// How precisely activations are kept: `fast` or `exact`.
    #[serde(with = "PrecisionName")]
    pub precision: Precision,
    /// How keys and values are kept: `f16` or `q8_0`.
    #[serde(with = "KvFormatName")]
    pub kv_format: KvFormat,
    /// Tokens of the context. A text ends where it is full, and some models stretch their positions by it.
    pub context: usize,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Precision", rename_all = "snake_case")]
enum PrecisionName {
    Exact,
    Fast,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "KvFormat")]
enum KvFormatName {
    #[serde(rename = "f16")]
    F16,
    #[serde(rename = "q8_0")]
    Q8_0,
}

impl Conditions {
    /// Whether a GPU was opened with [`LoadOptions::deterministic`](crate::LoadOptions::deterministic).
    pub fn is_deterministic(&self) -> bool {
        self.arithmetic.iter().any(|part| part == "deterministic")
    }

    pub(in super::super) fn new(model: &Model, kv_format: KvFormat, context: usize) -> Conditions {
        let device = match model.backend.device() {
            DeviceId::Cpu => "cpu",
            DeviceId::Cuda(_) => "cuda",
            DeviceId::Metal(_) => "metal",
        };
        let (device, arithmetic) = (device.to_owned(), model.backend.arithmetic());
        Conditions { device, arithmetic, precision: model.precision(), kv_format, context }
    }
}
