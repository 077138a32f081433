//! Receipts: all that produces the texts of a reply again, and hashes that show whether they are the same.
//!
//! A [`Recorder`] records the requests of a reply and their pieces, and returns the [`Receipt`]. On a CPU, the same
//! build, model, [`Conditions`] and request generate the same bytes, independent of other requests and of the number of
//! threads.

mod conditions;
mod document;
mod recorder;

pub use conditions::Conditions;
pub use document::{FORMAT, Receipt, ReceiptError, RecordedChoice, build};
pub use recorder::Recorder;
