//! A layer's slots: device memory for some of its experts, the device's table of them, and the host's mirror.
//!
//! # Slots for experts in host memory
//!
//! See `gpu/src/host_experts`: `slots.rs`, `resident.rs`, `inserter.rs`, `place.rs`. With `--experts-on slots:N`, each
//! layer has an ordinary weight of N matrices in the device's memory, and two tables:
//!
//! - the device's `table`: for each expert its slot, or padding. `host_experts_post` looks the chosen experts up. The
//!   kernels of products get slots where they get experts otherwise. A missed expert is padding, whose row is zero
//!   until the CPU's row comes.
//! - the host's mirror (`Resident`): the expert of each slot, when it was last chosen, and which experts are in flight.
//!   The worker feeds it with the choices that the mailbox transports. The least recently chosen expert is evicted.
//!
//! Insertion has two phases. A thread copies missed experts, the newest first, from pinned tiles of the CPU to staging
//! memory while steps run. Before a step, or a layer that is not captured, the submitting thread launches
//! `place_expert` for each expert that has arrived: the kernel brings tiles into the layout of the device, and changes
//! the table.
//!
//! A copy reads as much host memory as the product that it can save. `worth.rs` compares how often a copied expert and
//! the one that it replaced were chosen in the 32 tokens after the copy. While the mean difference is below 1, one of
//! 16 missed experts is copied.
//!
//! - *Invariant: a captured step reads one table; because only `place_expert` changes it, in the order of the stream,
//!   before a replay.*
//! - *Invariant: no slot changes while a kernel reads it; because `place_expert` and `host_experts_post` overlap no
//!   other launch.*
//! - *Invariant: the worker needs no lock that is held while the device's memory is freed; freeing waits for the
//!   device, which can be waiting for the worker (test `memory_is_freed_while_the_state_is_unlocked`).*
//! - *Invariant: staging memory is reused only after its kernel has run; because the worker has seen a later request.
//!   No test checks it: the simulator runs a launch at once. Copies that arrive late or never check only that nothing
//!   is placed before it arrives (tests `slots_change_no_tokens`, `lost_copies_are_noticed`).*
//! - *In a deterministic backend slots keep the first experts: where a row is computed depends on layer and expert only
//!   (test `fixed_slots_are_deterministic`).*
//!
//! A batch of 25 tokens or more (`stream.rs`) is not captured in a model with slots. Experts in slots are multiplied
//! first. Then the pairs of the others are sorted by expert, and two threads copy these experts in order, 24 MiB at a
//! time, to areas of staging memory (`copier.rs`). `place_expert` moves groups into a ring, and the products read the
//! range of the sorted tiles that a full ring has (`ring_tiles`). Copies and products overlap. Every absent expert is
//! copied once for each batch. The choices of the last tokens count as chosen, so slots then get the experts of the end
//! of the prompt.
//!
//! - *Invariant: a product of a group leaves the rows of other groups; because an empty tile after all pairs ends its
//!   list, and kernels zero the rows of pairs after the last tile (test `prompts_are_streamed`).*
//! - *Invariant: an area is written only after its kernels have run; because the copying thread waits for a read that
//!   follows them.*
//!
//! `place_experts` (`model/src/placement.rs`) gives a model that does not fit as many slots as fit, after the other
//! weights, the KV cache and the intermediate results.

use crate::place::{PADDING, Placement, Staged, TableEntry};
use crate::resident::Resident;
use crate::weights::on_host;
use gristmill_gpu::layout::{self, PlaneRows, single};
use gristmill_gpu::{Access, Arg, Gpu, Region, region_of};
use gristmill_kernels::Backend;
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::offload::HostMatrices;
use gristmill_kernels::ops::{ExpertWeights, Experts, Operation};
use gristmill_kernels::tensor::Buffer;
use gristmill_kernels::weight::Weight;
use std::sync::{Arc, Mutex, PoisonError};

const OP: &str = Experts::NAME;

/// The slots of a layer. They start with the first experts.
#[derive(Debug)]
pub(super) struct LayerSlots {
    /// The slot of each expert on the device, or [`PADDING`]. A step reads it; only [`LayerSlots::place`] changes it.
    table: Region,
    resident: Mutex<Resident>,
    staged: Staged,
    /// Biases of the slots, as in [`ExpertWeights`].
    gate_up_bias: Option<[Buffer<f32>; 2]>,
    down_bias: Option<Buffer<f32>>,
}

impl LayerSlots {
    /// The slots of a layer whose weights are in host memory. `None` if it has none.
    pub(super) fn new(gpu: &Arc<dyn Gpu>, weights: &ExpertWeights) -> Result<Option<Self>> {
        let [gate_up, down] = [&on_host(weights.gate_up)?.0, &on_host(weights.down)?.0];
        let (Some(gate_up), Some(down)) = (&gate_up.slots, &down.slots) else { return Ok(None) };
        let parts = parts(gate_up, down)?;
        let (experts, slots) = (weights.gate_up.experts(), gate_up.experts());
        let filled = if parts[0].is_freed() { 0 } else { slots };
        let table = Region::new(gpu, experts * size_of::<u32>(), "the table of experts in slots")?;
        let first: Vec<u32> = (0..experts).map(|id| if id < filled { id as u32 } else { PADDING }).collect();
        table.write(0, bytemuck::cast_slice(&first))?;
        let bias = |bias: &Buffer<f32>| -> Result<Buffer<f32>> {
            let from = region_of(bias).ok_or(Error::ForeignLayout { op: OP, what: "a bias" })?;
            let bytes = from.bytes() / experts * slots;
            let region = Region::new(gpu, bytes, "biases of experts in slots")?;
            gpu.copy(from.range(0, bytes)?, region.range(0, bytes)?, bytes)?;
            Ok(Buffer::on_device(Box::new(region)))
        };
        let gate_up_bias = match weights.gate_up_bias {
            Some([gate, up]) => Some([bias(gate)?, bias(up)?]),
            None => None,
        };
        Ok(Some(Self {
            table,
            resident: Mutex::new(Resident::new(experts, filled)),
            staged: Staged::new(gpu, &parts)?,
            gate_up_bias,
            down_bias: weights.down_bias.map(bias).transpose()?,
        }))
    }

    /// Empties the slots for good. Later work finds no expert in them.
    pub(super) fn clear(&self) -> Result<()> {
        self.resident(Resident::clear);
        self.table.write(0, &vec![0xff; self.table.bytes()])
    }

    /// The table, for the kernel that looks experts up.
    pub(super) fn table(&self) -> Arg<'_> {
        Arg::region(&self.table, Access::Read)
    }

    /// The slots as weights of a layer, whose experts are slots.
    pub(super) fn weights<'a>(&'a self, weights: &ExpertWeights<'a>) -> Result<ExpertWeights<'a>> {
        let slots = |weight: &'a Weight| -> Result<&'a Weight> {
            on_host(weight)?.0.slots.as_ref().ok_or(Error::ForeignLayout { op: OP, what: "a weight without slots" })
        };
        Ok(ExpertWeights {
            gate_up: slots(weights.gate_up)?,
            down: slots(weights.down)?,
            activation: weights.activation,
            gate_up_bias: self.gate_up_bias.as_ref().map(|biases| biases.each_ref()),
            down_bias: self.down_bias.as_ref(),
        })
    }

    /// Runs `with` on the host's mirror.
    pub(super) fn resident<T>(&self, with: impl FnOnce(&mut Resident) -> T) -> T {
        with(&mut self.resident.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Bytes of a staged expert.
    pub(super) fn staged_bytes(&self) -> usize {
        self.staged.bytes
    }

    /// How an expert is staged.
    pub(super) fn staged(&self) -> &Staged {
        &self.staged
    }

    /// Whether each of this number of parts has a bias.
    pub(super) fn has_biases(&self, parts: usize) -> Vec<bool> {
        of_parts(parts, self.gate_up_bias.as_ref().map(|_| [true; 2]), self.down_bias.is_some())
    }

    /// The matrices of gate, up and down, or of up and down, in slots.
    pub(super) fn parts<'a>(&self, [gate_up, down]: &'a [Arc<HostMatrices>; 2]) -> Result<Vec<&'a PlaneRows>> {
        match [&gate_up.slots, &down.slots] {
            [Some(gate_up), Some(down)] => parts(gate_up, down),
            _ => Err(Error::ForeignLayout { op: OP, what: "a weight without slots" }),
        }
    }

    /// What of an expert is copied from host memory to which byte of staging memory, and the first byte of the expert there.
    pub(super) fn pieces<'a>(
        &self,
        host: &Backend,
        expert: usize,
        of: &HostExpert<'a>,
        (memory, at): (&'a Region, usize),
        pieces: &mut Vec<(&'a Region, usize, &'a [u8])>,
    ) -> Result<()> {
        let foreign = || Error::ForeignLayout { op: OP, what: "a weight in host memory" };
        let tensors = [&of.gate_up.weight, &of.down.weight].map(|weight| host.offload().tiles(weight));
        let [Some(gate_up), Some(down)] = tensors else { return Err(foreign()) };
        for (tiles, &(start, bytes)) in gate_up.into_iter().chain(down).zip(&self.staged.tiles) {
            let own = tiles.get(expert * bytes..(expert + 1) * bytes).ok_or_else(foreign)?;
            pieces.push((memory, at + start, own));
        }
        for (bias, &start) in of.biases.iter().zip(&self.staged.biases) {
            let Some((values, rows)) = *bias else { continue };
            let own = values.get(expert * rows..(expert + 1) * rows).ok_or_else(foreign)?;
            pieces.push((memory, at + start, bytemuck::cast_slice(own)));
        }
        Ok(())
    }

    /// Gives a staged expert a slot: submits the launch that copies it there and changes the table. False if it gets none.
    pub(super) fn place(
        &self,
        gpu: &Arc<dyn Gpu>,
        expert: usize,
        matrices: &[Arc<HostMatrices>; 2],
        memory: &Region,
    ) -> Result<bool> {
        let Some(replaced) = self.resident(|resident| resident.replace(expert)) else { return Ok(false) };
        let [Some(gate_up), Some(down)] = [&matrices[0].slots, &matrices[1].slots] else { return Ok(false) };
        let parts = parts(gate_up, down)?;
        let gate_up_bias = self.gate_up_bias.as_ref().map(|biases| biases.each_ref().map(region_of));
        let placement = Placement {
            staged: &self.staged,
            memory: (memory, 0),
            biases: of_parts(parts.len(), gate_up_bias, self.down_bias.as_ref().and_then(region_of)),
            parts,
            slots: replaced.slot..replaced.slot + 1,
            entry: Some(TableEntry { table: &self.table, expert, evicted: replaced.evicted }),
        };
        placement.launch(gpu)?;
        Ok(true)
    }
}

/// An expert's tensors in host memory.
pub(super) struct HostExpert<'a> {
    pub(super) gate_up: &'a HostMatrices,
    pub(super) down: &'a HostMatrices,
    /// Biases of each part with the rows of one expert.
    pub(super) biases: Vec<Option<(&'a [f32], usize)>>,
}

/// The matrices of gate, up and down, or of up and down, in slots.
pub(super) fn parts<'a>(gate_up: &'a Weight, down: &'a Weight) -> Result<Vec<&'a PlaneRows>> {
    Ok(layout::parts(OP, gate_up)?.iter().chain([single(OP, down)?]).collect())
}

/// What the parts of an expert have, in their order; without a gate there are two parts.
pub(super) fn of_parts<T: Default>(parts: usize, gate_up: Option<[T; 2]>, down: T) -> Vec<T> {
    let absent = (1..parts).map(|_| T::default());
    match gate_up {
        Some(both) => both.into_iter().chain([down]).collect(),
        None => absent.chain([down]).collect(),
    }
}
