//! Receipts: all that produces the texts of a reply again, and hashes that show whether they are the same.
//!
//! A [`Recorder`] records the requests of a reply and their pieces, and returns the [`Receipt`]. On a CPU, the same
//! build, model, [`Conditions`] and request generate the same bytes, independent of other requests and of the number of
//! threads.
//!
//! # A receipt consists of the engine's requests after rendering
//!
//! It also contains everything else that bytes depend on (`Conditions`), and a hash of each text. So one format serves
//! all interfaces and `run`. `Request` refuses unknown fields when it is read, and a property test generates each of
//! its fields. A change that makes bytes depend on something new adds it to `Conditions` or to the request, and raises
//! `FORMAT`.

mod conditions;
mod document;
mod recorder;

pub use conditions::Conditions;
pub use document::{FORMAT, Receipt, ReceiptError, RecordedChoice, build};
pub use recorder::Recorder;
