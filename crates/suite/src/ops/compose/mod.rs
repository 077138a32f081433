//! Compositions that a backend may fuse, against the reference, which runs their parts one after another.

mod attention;
mod experts;
mod latent;
mod norm;

pub use attention::{attend, qkv_write};
pub use experts::{experts, route_and_group};
pub use latent::latent_write;
pub use norm::{add_norm, add_norm_act, add_norms, multiply_act, norm_act, norm_matmul};
