//! The methods of [`OffloadKernels`].

use super::readers::{ReadQueue, Readers, lock};
use super::streamed::Streamed;
use crate::cpu::Cpu;
use crate::weight::{self, CpuWeight, Matrices};
use crate::{act, host, layout};
use gristmill_kernels::act::{Act, Int8Words, Precision};
use gristmill_kernels::error::Result;
use gristmill_kernels::groups::Groups;
use gristmill_kernels::offload::{OffloadKernels, SlotUsage, StreamedTensor};
use gristmill_kernels::weight::{Prepared, Role, Weight};
use std::sync::Arc;

impl OffloadKernels for Cpu {
    fn slot_usage(&self) -> Option<SlotUsage> {
        Some(lock(&self.readers).as_ref()?.queue().usage())
    }

    fn stay_awake(&self, on: bool) {
        self.pool.stay_awake(on);
    }

    fn tiles<'a>(&self, weight: &'a Weight) -> Option<Vec<&'a [u8]>> {
        let tiles = weight::tiles("tiles", weight).ok()?;
        Some(tiles.iter().map(layout::Tiles::as_bytes).collect())
    }

    fn reads_int8(&self, precision: Precision, weight: &Weight) -> bool {
        let shapes = weight::shapes("reads_int8", weight);
        // Tiles are made of f32.
        self.level.tiles().is_none()
            && precision == Precision::Fast
            && shapes.is_ok_and(|shapes| shapes.iter().all(|shape| !shape.format.is_float()))
    }

    fn import_int8(&self, blocks: &[Int8Words], act: &mut Act) -> Result<()> {
        act::import(blocks, act)
    }

    fn prepare_streamed(&self, tensors: &[StreamedTensor], role: Role, slots: usize) -> Result<Option<Prepared>> {
        let streamed = Streamed::new(tensors, role, slots, &self.read_queue()?)?;
        let owned_bytes = streamed.bytes();
        let weight = CpuWeight { table: None, matrices: Matrices::Streamed(streamed) };
        Ok(Some(self.prepared(weight, owned_bytes)))
    }

    fn request_experts(&self, weights: [&Weight; 2], groups: &Groups) -> Result<()> {
        let op = "request_experts";
        for weight in weights {
            if let Matrices::Streamed(streamed) = weight::matrices(op, weight)? {
                streamed.request(host::slice(op, groups.counts())?);
            }
        }
        Ok(())
    }
}

impl Cpu {
    /// The queue of the threads that read experts. The first call starts the threads.
    fn read_queue(&self) -> Result<Arc<ReadQueue>> {
        let mut readers = lock(&self.readers);
        if readers.is_none() {
            *readers = Some(Readers::new()?);
        }
        Ok(readers.as_ref().map(|readers| Arc::clone(readers.queue())).unwrap_or_default())
    }
}
