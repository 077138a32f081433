//! Rows of a table, decoded: `kernels/embed.gpu`.

use crate::layout::single;
use crate::product::word;
use gristmill_kernels::error::Result;

use crate::{Arg, Device, Kernel, Launch};
use gristmill_kernels::ops::{Embed, Operation};

shared_struct! {
    pub(super) struct EmbedParams {
        // Bytes of a row of the table; elements from an id to the next and from a row of the output to the next.
        row_bytes: u64,
        ids_stride: u64,
        out_stride: u64,
        // Rows of the table and blocks of the format in one; columns.
        rows: u32,
        blocks: u32,
        cols: u32,
        scale: f32,
    }
}

on_device! { embed(Embed) }

pub(crate) fn embed(device: &Device, call: Embed) -> Result<()> {
    let Embed { table, rows, scale, out } = call;
    let op = Embed::NAME;
    let table = single(op, table)?;
    if out.rows() == 0 {
        return Ok(());
    }
    let params = EmbedParams {
        row_bytes: table.row_bytes as u64,
        ids_stride: rows.layout().stride() as u64,
        out_stride: out.layout().stride() as u64,
        rows: word(op, "rows of the table", table.rows)?,
        blocks: word(op, "blocks in a row", table.blocks())?,
        cols: word(op, "columns", table.cols)?,
        scale,
    };
    let kernel = Kernel { file: "embed.gpu", entry: "embed", defines: &[("FORMAT", table.format.name())] };
    let args = [table.arg(), Arg::read(&rows), Arg::write(&out), device.flag(), Arg::params(&params)];
    device.launch(&Launch::new(kernel, [word(op, "rows", out.rows())?, 1, 1], 128, &args))
}
