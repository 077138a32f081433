//! Quantising a model: one GGUF file into another, whose weights are in smaller formats.
//!
//! [`Mix`] holds the usual mixes as data, [`choose`] applies one to the tensors of a model, and [`Quantizer`] writes
//! the file. The encoders are those of `gristmill_kernels`; [`Transcoder`](gristmill_transcode::Transcoder) runs them on all threads. Tensors are read
//! from the file's map and encoded piece by piece, so memory does not grow with the model.
//!
//! ```no_run
//! use std::ops::ControlFlow;
//!
//! use gristmill_files::gguf::GgufFile;
//! use gristmill_convert::quantize::{Mix, Quantizer};
//!
//! let file = GgufFile::open("model-f16.gguf")?;
//! let quantizer = Quantizer::new(&file, Mix::parse("Q4_K_M")?, &[])?;
//! for tensor in quantizer.tensors().iter().filter(|t| t.instead_of.is_some()) {
//!     println!("{} becomes {}", tensor.name, tensor.to);
//! }
//! quantizer.write("model-q4_k_m.gguf".as_ref(), 2, &mut |_| ControlFlow::Continue(()))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod choose;
mod error;
mod facts;
mod keep;
mod mix;
mod outer;
#[cfg(test)]
mod page;
mod pieces;
mod quantizer;
mod role;

pub use choose::{Choice, choose, unquantised};
pub use error::QuantizeError;
pub use facts::Facts;
pub use keep::Keep;
pub use mix::Mix;
pub(crate) use outer::scale_of;
pub use pieces::EncodeError;
pub(crate) use pieces::{PIECE, PieceWriter};
pub use quantizer::{FILE_TYPE_KEY, Planned, QUANTIZATION_VERSION, QUANTIZATION_VERSION_KEY, Quantizer, check_output};
