//! Layers whose experts are in host memory. [`OffloadBackend`] is the backend of a GPU with them: the CPU computes the rows of the chosen experts; the device routes before and adds
//! the rows up after, in the router's order. So a sum has the same order wherever its experts are.
//!
//! Some experts can have [`slots`] in the device's memory. Then the device looks the chosen experts up, multiplies those in slots as
//! a layer whose experts are slots, and the CPU computes the others meanwhile. An [`inserter`] copies missed experts to slots, where
//! they replace the least recently chosen ones ([`resident`]). In a deterministic backend, slots keep the first experts. The other
//! experts of a long batch are copied to the device, which multiplies them ([`stream`]); the CPU computes those of few tokens
//! ([`cpu_split`]).
//!
//! A step stays one stream of launches, which a graph can capture: a kernel posts activations and choices to a [`mailbox`], a
//! [`worker`] thread [`compute`]s the rows, and a kernel polls for them. Of the ways to wait it is the fastest, and the only one
//! with a deadline (docs/performance-notes.md). After the deadline the step is an error.

#![deny(unsafe_code)]

mod admission;
mod backend;
mod compute;
mod copier;
mod cpu_split;
mod inserter;
mod mailbox;
mod options;
mod path;
mod pinned;
mod place;
mod request;
mod resident;
mod slots;
mod sources;
mod stream;
mod vendor;
mod weights;
mod worker;

pub use backend::OffloadBackend;
pub use options::{HostExperts, STAGING_BYTES};
pub use sources::{SOURCES, units};
pub use vendor::{OffloadVendor, Post, Receive};
