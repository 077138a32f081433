//! Long batches: the experts that have no slot are copied to the device once, in their order, and multiplied there.
//!
//! Pairs are sorted by expert, so those of a group of experts are a range of the sorted tiles. A thread copies groups to two areas
//! of staging memory in turns; kernels move each that has arrived into a ring and multiply its tiles. Copies and kernels overlap.

use super::HostExperts;
use super::compute::HostLayer;
use super::place::{Placement, RingTiles};
use super::slots::{HostExpert, LayerSlots};
use crate::device::Device;
use crate::epilogue::ProductEpilogue;
use crate::layout::PlaneRows;
use crate::matmul::gated_output;
use crate::product::{Bias, Product, RowSelection};
use crate::seam::{Region, region_of};
use crate::storage::ActOutput;
use crate::vendor::Vendor;
use gristmill_kernels::Backend;
use gristmill_kernels::act::ACT_BLOCK;
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::ops::{Checked, Experts, Operation, PendingRead};
use gristmill_kernels::tensor::Buffer;
use std::mem::swap;
use std::slice::from_ref;
use std::sync::mpsc;
use std::thread;

const OP: &str = Experts::NAME;
/// Areas of staging memory: one is copied to while kernels read the other.
const AREAS: usize = 2;

/// Memory on the device for groups of experts. Layers share it.
#[derive(Debug, Default)]
pub(super) struct Stream {
    areas: Vec<Region>,
    /// Areas to copy to, each once the copy is done that follows the kernels that read it.
    free: Vec<(usize, Option<Box<dyn PendingRead>>)>,
    rings: Vec<Ring>,
    /// The tiles of a group, and their number.
    tiles: Option<[Buffer<u32>; 2]>,
    /// For each expert, its place in the ring.
    places: Option<Region>,
}

/// A group of experts in the device's layout.
#[derive(Debug)]
struct Ring {
    /// Gate, up and down.
    parts: [PlaneRows; 3],
    biases: [Buffer<f32>; 3],
}

impl Stream {
    /// The rows of the pairs whose experts have no slot. They are grouped by expert; rows of other pairs are left as they are.
    pub(super) fn multiply<V: Vendor>(
        &mut self,
        vendor: &V,
        host: &HostExperts,
        call: &mut Checked<Experts>,
        layer: &HostLayer,
        slots: &LayerSlots,
    ) -> Result<()> {
        let gone = || Error::ForeignLayout { op: OP, what: "a weight that was freed" };
        let (device, matrices) = (vendor.device(), layer.matrices().ok_or_else(gone)?);
        let absent = slots.resident(|resident| resident.absent());
        let size = (host.group_bytes / slots.staged_bytes()).max(1);
        let groups: Vec<&[usize]> = absent.chunks(size).collect();
        let ring = self.prepare(device, call, layer, slots, size, &absent)?;
        let (Some([tiles, tile_count]), Some(places)) = (&mut self.tiles, &self.places) else { return Err(gone()) };
        let (areas, ring, expert_of) = (&self.areas, &self.rings[ring], layer.expert(&matrices));
        let (free, next_free) = mpsc::channel();
        let (full, next_full) = mpsc::channel::<Result<usize>>();
        self.free.drain(..).for_each(|area| drop(free.send(area)));
        let (left, outcome) = thread::scope(|scope| {
            let (all, expert_of) = (groups.clone(), &expert_of);
            let copying = scope.spawn(move || {
                for group in all {
                    // The other thread stops at an error.
                    let Ok((area, marker)) = next_free.recv() else { break };
                    let copied = copy(&host.backend, slots, expert_of, group, &areas[area], marker).map(|()| area);
                    if full.send(copied).is_err() {
                        break;
                    }
                }
                next_free
            });
            let outcome = groups.iter().try_for_each(|group| {
                let area = next_full.recv().unwrap_or_else(|_| Err(gone()))?;
                ring.place(device, slots, group, &areas[area])?;
                // The area is free when this copy is done.
                let marker = device.start_read_region(places, 0, size_of::<u32>())?;
                let _ = free.send((area, Some(marker)));
                let range = [group[0], group[group.len() - 1] + 1];
                let (_, lists) = call.lists();
                let launch = RingTiles { tiles: lists.tiles, tile_count: lists.tile_count, places, range };
                launch.launch(device.gpu(), lists.pairs.len(), [tiles, tile_count])?;
                // The products read the tiles of the group.
                swap(lists.tiles, tiles);
                swap(lists.tile_count, tile_count);
                let multiplied = ring.multiply(vendor, call);
                let (_, lists) = call.lists();
                swap(lists.tiles, tiles);
                swap(lists.tile_count, tile_count);
                multiplied
            });
            drop((free, next_full));
            (copying.join(), outcome)
        });
        // The next layer waits for the kernels that still read the areas. After an error some are missing; see `prepare`.
        self.free.extend(left.iter().flat_map(|left| left.try_iter()));
        outcome
    }

    /// Allocates what a layer needs. Returns the number of its ring.
    fn prepare(
        &mut self,
        device: &Device,
        call: &mut Checked<Experts>,
        layer: &HostLayer,
        slots: &LayerSlots,
        size: usize,
        absent: &[usize],
    ) -> Result<usize> {
        let gpu = device.gpu();
        let bytes = size * slots.staged_bytes();
        if self.areas.first().is_none_or(|area| area.bytes() < bytes) {
            self.areas = (0..AREAS).map(|_| Region::new(gpu, bytes, "staging of experts")).collect::<Result<_>>()?;
            self.free.clear();
        }
        if self.free.len() < AREAS {
            device.synchronize()?;
            self.free = (0..AREAS).map(|area| (area, None)).collect();
        }
        let matrices = layer.matrices().ok_or(Error::ForeignLayout { op: OP, what: "a weight" })?;
        let like = slots.parts(&matrices)?;
        let found = self.rings.iter().position(|ring| ring.parts[0].experts >= size && ring.is_like(like));
        let ring = match found {
            Some(ring) => ring,
            None => {
                let [gate, up, down] = like.map(|part| part.empty(device, size));
                let bias = |part: &PlaneRows| -> Result<Buffer<f32>> {
                    let bytes = size * part.rows * size_of::<f32>();
                    Ok(Buffer::on_device(Box::new(Region::new(gpu, bytes, "biases of experts")?)))
                };
                let [gate_bias, up_bias, down_bias] = like.map(bias);
                self.rings.push(Ring { parts: [gate?, up?, down?], biases: [gate_bias?, up_bias?, down_bias?] });
                self.rings.len() - 1
            }
        };
        let experts = call.route.logits.cols();
        let mut places = vec![0_u32; experts];
        absent.iter().enumerate().for_each(|(i, &expert)| places[expert] = (i % size) as u32);
        if self.places.as_ref().is_none_or(|region| region.bytes() < experts * size_of::<u32>()) {
            self.places = Some(Region::new(gpu, experts * size_of::<u32>(), "places of experts")?);
        }
        if let Some(region) = &self.places {
            device.write_region(region, bytemuck::cast_slice(&places))?;
        }
        let (_, lists) = call.lists();
        // One tile more ends the list.
        let [tiles, counts] = [lists.tiles.len() + 3, lists.tile_count.len()];
        if self.tiles.as_ref().is_none_or(|[own, count]| own.len() < tiles || count.len() < counts) {
            let words = |len: usize| -> Result<Buffer<u32>> {
                let bytes = len * size_of::<u32>();
                Ok(Buffer::on_device(Box::new(Region::new(gpu, bytes, "tiles of experts")?)))
            };
            self.tiles = Some([words(tiles)?, words(counts)?]);
        }
        Ok(ring)
    }
}

/// Copies a group of experts to staging memory once it is free.
fn copy(
    host: &Backend,
    slots: &LayerSlots,
    expert_of: &HostExpert,
    group: &[usize],
    to: &Region,
    marker: Option<Box<dyn PendingRead>>,
) -> Result<()> {
    marker.map(PendingRead::wait).transpose()?;
    let mut pieces = Vec::with_capacity(6 * group.len());
    for (i, &expert) in group.iter().enumerate() {
        slots.pieces(host, expert, expert_of, i * slots.staged_bytes(), &mut pieces)?;
    }
    to.write_beside(&pieces)
}

impl Ring {
    fn is_like(&self, parts: [&PlaneRows; 3]) -> bool {
        let same = |(own, other): (&PlaneRows, &PlaneRows)| {
            (own.format, own.rows, own.cols) == (other.format, other.rows, other.cols)
        };
        self.parts.iter().zip(parts).all(same)
    }

    /// Moves a group from staging memory into the ring.
    fn place(&self, device: &Device, slots: &LayerSlots, group: &[usize], area: &Region) -> Result<()> {
        let with_bias = slots.has_biases();
        for (slot, &expert) in group.iter().enumerate() {
            let bias = |i: usize| region_of(&self.biases[i]).filter(|_| with_bias[i]);
            let placement = Placement {
                staged: slots.staged(),
                memory: (area, slot * slots.staged_bytes()),
                parts: self.parts.each_ref(),
                biases: [bias(0), bias(1), bias(2)],
                table: None,
                expert,
                slot,
                evicted: None,
            };
            placement.launch(device.gpu())?;
        }
        Ok(())
    }

    /// The products of the tiles in the call's groups, whose experts are places in the ring.
    fn multiply<V: Vendor>(&self, vendor: &V, call: &mut Checked<Experts>) -> Result<()> {
        let Experts { route, weights, x, scratch, .. } = &mut **call;
        let [gate, up, down] = &self.parts;
        let bias = |i: usize, matrix| Some(Bias { values: &self.biases[i], first: 0, matrix });
        let groups = &*scratch.groups;
        let (h, act) = gated_output::<V>(OP, weights.gate_up, scratch.h.reborrow(), Some(&mut *scratch.act))?;
        let both = Product {
            op: OP,
            parts: from_ref(gate),
            first: 0,
            up: Some(up),
            x,
            rows: RowSelection::Pairs { groups, pairs_per_row: route.routing.top_k },
            biases: match weights.gate_up_bias {
                Some(_) => [bias(0, gate.rows), bias(1, up.rows)],
                None => [None; 2],
            },
            epilogue: ProductEpilogue::Gate(weights.activation),
            y: &h,
            act,
            rounded: false,
        };
        let whole = gate.rows.is_multiple_of(ACT_BLOCK) && act.as_ref().is_some_and(ActOutput::only_bf16);
        let rounded = whole && vendor.rounds_results(&both)?;
        vendor.multiply(&Product { rounded, ..both })?;
        vendor.multiply(&Product {
            op: OP,
            parts: from_ref(down),
            first: 0,
            up: None,
            x: &*scratch.act,
            rows: RowSelection::Pairs { groups, pairs_per_row: 1 },
            biases: [weights.down_bias.and_then(|_| bias(2, down.rows)), None],
            epilogue: ProductEpilogue::Store,
            y: &scratch.out,
            act: None,
            rounded: false,
        })
    }
}
