//! Experts in host memory: the host side of `kernels/host_experts.cu`.

use super::Cuda;
use gristmill_gpu::product::word;
use gristmill_gpu::{Arg, Kernel, Launch, shared_struct};
use gristmill_kernels::error::Result;
use gristmill_kernels::ops::{Experts, Operation};
use gristmill_offload::{OffloadVendor, Post, Receive};

const FILE: &str = "host_experts.cu";
const OP: &str = Experts::NAME;
/// Threads of the one block that posts, and of the blocks that receive.
const POST_THREADS: u32 = 512;
const RECEIVE_THREADS: u32 = 256;
/// Elements that a thread receives, and the most blocks. Every block polls over PCIe, so there are few.
const RECEIVED: usize = 8;
const MOST_BLOCKS: usize = 32;

shared_struct! {
    pub(super) struct PostParams {
        ids_stride: u64,
        layer: u32,
        tokens: u32,
        top_k: u32,
        // Words of a row of activations.
        words: u32,
    }
}

shared_struct! {
    pub(super) struct ReceiveParams {
        out_stride: u64,
        ids_stride: u64,
        // Nanoseconds.
        deadline: u64,
        layer: u32,
        rows: u32,
        cols: u32,
        top_k: u32,
    }
}

/// Launches a kernel that does not overlap its neighbours: kernels before it have ended, so all of its blocks are resident and
/// what it waits for does not wait for it.
fn launch(cuda: &Cuda, entry: &'static str, blocks: u32, threads: u32, args: &[Arg]) -> Result<()> {
    let kernel = Kernel::plain(FILE, entry);
    cuda.device.launch(&Launch { overlap: false, ..Launch::new(kernel, [blocks, 1, 1], threads, args) })
}

impl OffloadVendor for Cuda {
    fn post_experts(&self, post: &Post) -> Result<()> {
        let Post {
            x,
            ids,
            ids_stride,
            slots: [table, slots],
            mailbox: [words, control, mail_ids, mail_x],
            layer,
            tokens,
            top_k,
            words: row_words,
        } = *post;
        let params = PostParams {
            ids_stride: ids_stride as u64,
            layer,
            tokens: word(OP, "tokens", tokens)?,
            top_k: word(OP, "top-k", top_k)?,
            words: word(OP, "words of a row of activations", row_words)?,
        };
        let args = [x, ids, table, slots, words, control, mail_ids, mail_x, Arg::params(&params)];
        launch(self, "host_experts_post", 1, POST_THREADS, &args)
    }

    fn find_slots(&self, post: &Post, missed: Arg) -> Result<()> {
        let Post { ids, ids_stride, slots: [table, slots], layer, tokens, top_k, .. } = *post;
        let params = PostParams {
            ids_stride: ids_stride as u64,
            layer,
            tokens: word(OP, "tokens", tokens)?,
            top_k: word(OP, "top-k", top_k)?,
            words: 0,
        };
        let blocks = tokens.saturating_mul(top_k).div_ceil(POST_THREADS as usize).clamp(1, MOST_BLOCKS);
        launch(
            self,
            "host_experts_find",
            blocks as u32,
            POST_THREADS,
            &[ids, table, slots, missed, Arg::params(&params)],
        )
    }

    fn receive_experts(&self, receive: &Receive) -> Result<()> {
        let Receive { mailbox: [words, control, mail_rows], out, out_stride, layer, rows, cols, deadline, .. } =
            *receive;
        let Receive { ids, ids_stride, slots, top_k, .. } = *receive;
        let params = ReceiveParams {
            out_stride: out_stride as u64,
            ids_stride: ids_stride as u64,
            deadline: u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX),
            layer,
            rows: word(OP, "rows", rows)?,
            cols: word(OP, "columns", cols)?,
            top_k: word(OP, "top-k", top_k)?,
        };
        let blocks = rows.saturating_mul(cols).div_ceil(RECEIVED * RECEIVE_THREADS as usize).clamp(1, MOST_BLOCKS);
        let args = [words, control, mail_rows, ids, slots, out, self.device.flag(), Arg::params(&params)];
        launch(self, "host_experts_receive", blocks as u32, RECEIVE_THREADS, &args)
    }
}
