//! Which format of a model a machine runs, and how fast.

mod candidates;
mod report;
mod table;

pub use candidates::{Candidates, candidates, experts};
pub use report::{Report, assumption};
pub use table::{Beyond, Candidate, Conditions, Offload, Row, SlotPlan, recommend};
