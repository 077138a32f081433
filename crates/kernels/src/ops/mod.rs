//! Every operation, defined once: a struct with its arguments, its contract, its check and, for a composition, its
//! parts.
//!
//! [`crate::Backend::run`] is the only way to run an operation. It checks shapes, devices and ids before anything is
//! written. Then it passes the checked arguments to a backend's [`Kernels`].
//!
//! Build operations with `new`, which takes the required arguments, and set optional arguments with the methods of their
//! names. A new version can add fields with a default; then a struct literal needs a change, and `new` does not. Fields
//! are public because backends destructure the struct: the compiler reports a backend that misses a new field.
//!
//! Letters: T tokens, K inputs, N outputs, E experts, k top-k, H heads, D head width. Matrices are row-major. If two
//! arguments state the same dimension, they must agree; otherwise the operation returns [`Error::Shape`]. The caller
//! allocates outputs and scratch; no operation allocates. Every operation accepts zero rows and then does nothing.
//!
//! The reduction order of an output row depends only on that row. It does not depend on the other rows of the batch,
//! nor on the number of threads. There are two exceptions on GPUs. Attention can depend on how many tokens of its own
//! sequence are in the batch. Products of rounded activations ([`Precision::Fast`]) or with F32 weights can depend on
//! the number of rows.
//!
//! [`Error::Shape`]: crate::error::Error::Shape
//! [`Precision::Fast`]: crate::act::Precision::Fast

#[macro_use]
mod constructors;

mod attention;
pub(crate) mod check;
mod compositions;
mod elementwise;
mod experts;
#[macro_use]
mod kernels;
mod matrix;
mod norm;
mod operation;
mod positions;
mod recurrent;
mod route;
mod sample;
mod sampling;
mod scan;

pub(crate) use kernels::run;

pub use attention::*;
pub use check::{MAX_EXPERTS, PADDING, elements, require};
pub use elementwise::*;
pub use experts::*;
pub use kernels::{Checked, Dispatch, Fused, Graph, Heap, Kernels, PendingRead, Rates};
pub use matrix::*;
pub use norm::*;
pub use operation::Operation;
pub use positions::{Temperature, Window, visible};
pub use recurrent::*;
pub use route::*;
pub use sample::*;
pub use sampling::{SETTINGS, SamplingOptions, Setting};
pub use scan::*;
