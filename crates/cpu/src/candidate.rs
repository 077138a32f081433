//! A candidate of sampling.

/// A candidate token with its logit, later with its probability.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) logit: f32,
    pub(crate) token: u32,
}
