//! The kernels by which a kind of GPU exchanges experts' inputs and rows with the host.

use gristmill_gpu::{Arg, Vendor};
use gristmill_kernels::error::Result;
use std::time::Duration;

/// A kind of GPU whose kernels wait for the host.
pub trait OffloadVendor: Vendor {
    /// Hands a layer's activations and choices to the host.
    fn post_experts(&self, post: &Post) -> Result<()>;
    /// Writes the slots of a batch's chosen experts. `missed` gets the experts without a slot, unless it is null.
    fn find_slots(&self, post: &Post, missed: Arg) -> Result<()>;
    /// Waits for the rows of the newest request to the host, and copies them. Without rows, the flag is raised.
    fn receive_experts(&self, receive: &Receive) -> Result<()>;
}

/// A request to the host: activations and choices of some tokens of a layer.
#[derive(Clone, Copy, Debug)]
pub struct Post<'a> {
    /// Activations: rows of f32, or of `Int8Words`.
    pub x: Arg<'a>,
    /// Chosen experts.
    pub ids: Arg<'a>,
    /// Elements from a token's ids to the next token's.
    pub ids_stride: usize,
    /// The slot of each expert, and where the slots of the chosen experts go; both are null without slots.
    pub slots: [Arg<'a>; 2],
    /// Device words, control words, ids and activations of the mailbox.
    pub mailbox: [Arg<'a>; 4],
    /// The layer's number in the worker's list.
    pub layer: u32,
    /// Tokens.
    pub tokens: usize,
    /// Experts of each token.
    pub top_k: usize,
    /// Words of 32 bits of an activation row.
    pub words: usize,
}

/// The wait for the rows of a request.
#[derive(Clone, Copy, Debug)]
pub struct Receive<'a> {
    /// Device words, control words and rows of the mailbox.
    pub mailbox: [Arg<'a>; 3],
    /// Chosen experts, as in [`Post`].
    pub ids: Arg<'a>,
    /// Elements from a token's ids to the next token's.
    pub ids_stride: usize,
    /// The slots of the chosen experts: rows of experts in slots are not sent. Null without slots.
    pub slots: Arg<'a>,
    /// Experts of each token.
    pub top_k: usize,
    /// Receives the rows.
    pub out: Arg<'a>,
    /// Elements from row to row.
    pub out_stride: usize,
    /// The layer's number, for the flag.
    pub layer: u32,
    /// Rows.
    pub rows: usize,
    /// Elements of a row.
    pub cols: usize,
    /// How long to wait.
    pub deadline: Duration,
}
