//! Long batches: the experts that have no slot are copied to the device once, in their order, and multiplied there.
//!
//! Pairs are sorted by expert, so those of several groups of experts are a range of the sorted tiles. Threads copy groups to areas of
//! staging memory ([`copier`](crate::copier)); kernels move each that has arrived into a ring, and multiply the tiles of a full ring.
//! Copies run ahead of kernels: of the next groups, and then of the next layer's first groups, whose slots keep their experts until
//! then.

use crate::compute::HostLayer;
use crate::copier::Copier;
use crate::options::HostExperts;
use crate::place::{Placement, RingTiles};
use crate::slots::LayerSlots;
use gristmill_gpu::layout::PlaneRows;
use gristmill_gpu::matmul;
use gristmill_gpu::product::{Bias, PairOrder, Product, RowSelection};
use gristmill_gpu::{Device, Region, Vendor, region_of};
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::offload::HostMatrices;
use gristmill_kernels::ops::{Checked, Experts, Operation};
use gristmill_kernels::tensor::Buffer;
use std::collections::VecDeque;
use std::mem::swap;
use std::sync::{Arc, Weak};

const OP: &str = Experts::NAME;

/// Memory on the device for groups of experts, and what is being copied. Layers share it.
#[derive(Debug, Default)]
pub(super) struct Stream {
    copier: Option<Copier>,
    rings: Vec<Ring>,
    /// The tiles of a group, and their number.
    tiles: Option<[Buffer<u32>; 2]>,
    /// For each expert, its place in the ring.
    places: Option<Region>,
    /// The groups of a layer that has not finished.
    current: Option<CopyGroups>,
    /// The layer that was last multiplied, and those that came after layers of smaller numbers.
    last: Option<(u32, Weak<HostLayer>)>,
    next: Vec<(Weak<HostLayer>, Weak<HostLayer>)>,
}

/// The absent experts of a layer, in groups.
#[derive(Debug)]
struct CopyGroups {
    layer: Arc<HostLayer>,
    matrices: [Arc<HostMatrices>; 2],
    /// Experts of a group at most.
    size: usize,
    /// Groups that are being copied, and those that are not, in order.
    queued: VecDeque<Vec<usize>>,
    rest: VecDeque<Vec<usize>>,
}

/// Groups of experts in the device's layout.
#[derive(Debug)]
struct Ring {
    /// Gate, up and down, or up and down.
    parts: Vec<PlaneRows>,
    biases: Vec<Buffer<f32>>,
}

impl CopyGroups {
    /// `None` if the model is gone. From now on, the slots keep their experts.
    fn new(layer: &Arc<HostLayer>, group_bytes: usize) -> Option<Self> {
        let matrices = layer.matrices()?;
        let slots = layer.slots.as_ref()?;
        let size = (group_bytes / slots.staged_bytes()).max(1);
        let absent = slots.resident(|resident| {
            resident.hold(true);
            resident.absent()
        });
        let rest = absent.chunks(size).map(<[usize]>::to_vec).collect();
        Some(Self { layer: Arc::clone(layer), matrices, size, queued: VecDeque::new(), rest })
    }

    /// Whether these are the groups of a layer whose slots still have the same experts.
    fn are_of(&self, layer: &Arc<HostLayer>) -> bool {
        Arc::ptr_eq(&self.layer, layer)
            && self.slots().is_some_and(|slots| slots.resident(|resident| resident.is_held()))
    }

    fn slots(&self) -> Option<&LayerSlots> {
        self.layer.slots.as_ref()
    }

    /// Bytes of a group.
    fn bytes(&self) -> usize {
        self.size * self.slots().map_or(0, LayerSlots::staged_bytes)
    }

    /// Queues groups while areas are free.
    fn queue(&mut self, copier: &mut Copier) {
        while copier.has_room()
            && let Some(group) = self.rest.pop_front()
        {
            copier.queue(&self.layer, &self.matrices, group.clone());
            self.queued.push_back(group);
        }
    }

    /// Leaves experts out of the groups that are not being copied.
    fn leave_out(&mut self, left_out: impl Fn(usize) -> bool) {
        let rest: Vec<usize> = self.rest.drain(..).flatten().filter(|&expert| !left_out(expert)).collect();
        self.rest = rest.chunks(self.size).map(<[usize]>::to_vec).collect();
    }
}

impl Drop for CopyGroups {
    fn drop(&mut self) {
        self.slots().into_iter().for_each(|slots| slots.resident(|resident| resident.hold(false)));
    }
}

impl Stream {
    /// Starts to copy the experts of a layer that have no slot, unless they are being copied. Returns those whose copies have not
    /// started.
    pub(super) fn start(
        &mut self,
        device: &Device,
        host: &HostExperts,
        number: u32,
        layer: &Arc<HostLayer>,
    ) -> Result<Vec<usize>> {
        self.learn(number, layer);
        let gone = || Error::ForeignLayout { op: OP, what: "a weight that was freed" };
        let copier = match &mut self.copier {
            Some(copier) => copier,
            None => self.copier.insert(Copier::start(&host.backend, host.groups_ahead.max(1))?),
        };
        let mut groups = match self.current.take() {
            Some(groups) if groups.are_of(layer) => groups,
            other => {
                let had_some = other.is_some();
                drop(other);
                if had_some {
                    copier.discard(device)?;
                }
                CopyGroups::new(layer, host.group_bytes).ok_or_else(gone)?
            }
        };
        copier.prepare(device, groups.bytes().max(host.group_bytes))?;
        groups.queue(copier);
        let rest = groups.rest.iter().flatten().copied().collect();
        self.current = Some(groups);
        Ok(rest)
    }

    /// Remembers that a layer came after another of the same step.
    fn learn(&mut self, number: u32, layer: &Arc<HostLayer>) {
        let this = Arc::downgrade(layer);
        if let Some((_, last)) = self.last.replace((number, this.clone())).filter(|(before, _)| *before < number) {
            self.next.retain(|(from, to)| from.strong_count() > 0 && to.strong_count() > 0 && !from.ptr_eq(&last));
            self.next.push((last, this));
        }
    }

    /// The groups of the layer that comes after a layer of the same step, if they fit the areas.
    fn after(&self, layer: &Arc<HostLayer>, group_bytes: usize) -> Option<CopyGroups> {
        let this = Arc::downgrade(layer);
        let (_, next) = self.next.iter().find(|(from, _)| from.ptr_eq(&this))?;
        let groups = CopyGroups::new(&next.upgrade()?, group_bytes)?;
        let room = self.copier.as_ref().map_or(0, Copier::area_bytes);
        Some(groups).filter(|groups| groups.bytes() <= room)
    }

    /// The rows of the pairs whose experts have no slot, without those that are `left_out`, after [`Self::start`]. The pairs are
    /// grouped by expert; rows of other pairs are left as they are.
    pub(super) fn multiply<V: Vendor>(
        &mut self,
        vendor: &V,
        host: &HostExperts,
        call: &mut Checked<Experts>,
        left_out: impl Fn(usize) -> bool,
    ) -> Result<()> {
        let outcome = self.multiply_groups(vendor, host, call, left_out);
        if outcome.is_err() {
            self.current = None;
            if let Some(copier) = &mut self.copier {
                // The first error is the one to report.
                let _ = copier.discard(vendor.device());
            }
        }
        outcome
    }

    fn multiply_groups<V: Vendor>(
        &mut self,
        vendor: &V,
        host: &HostExperts,
        call: &mut Checked<Experts>,
        left_out: impl Fn(usize) -> bool,
    ) -> Result<()> {
        let gone = || Error::ForeignLayout { op: OP, what: "a weight that was freed" };
        let device = vendor.device();
        let mut groups = self.current.take().ok_or_else(gone)?;
        groups.leave_out(left_out);
        let ring = self.prepare(device, call, &groups, host.ring_groups)?;
        let mut next = self.after(&groups.layer, host.group_bytes);
        let (Some([tiles, tile_count]), Some(places)) = (&mut self.tiles, &self.places) else { return Err(gone()) };
        let (ring, Some(copier)) = (&self.rings[ring], &mut self.copier) else { return Err(gone()) };
        // Experts in the ring, and the first of them.
        let (mut filled, mut first) = (0, 0);
        loop {
            groups.queue(copier);
            next.iter_mut().for_each(|next| next.queue(copier));
            let Some(group) = groups.queued.pop_front() else { break };
            let area = copier.take()?;
            ring.place(device, groups.slots().ok_or_else(gone)?, group.len(), filled, copier.area(area))?;
            // The area is free when this copy is done.
            let marker = device.start_read_region(places, 0, size_of::<u32>())?;
            copier.release(area, Some(marker));
            if filled == 0 {
                first = group[0];
            }
            filled += group.len();
            let following = groups.queued.front().or(groups.rest.front());
            if following.is_some_and(|following| filled + following.len() <= ring.experts()) {
                continue;
            }
            filled = 0;
            let range = [first, group[group.len() - 1] + 1];
            let (_, lists) = call.lists();
            let launch = RingTiles { tiles: lists.tiles, tile_count: lists.tile_count, places, range };
            launch.launch(device.gpu(), lists.pairs.len(), [tiles, tile_count])?;
            // The products read the tiles of the ring.
            swap(lists.tiles, tiles);
            swap(lists.tile_count, tile_count);
            let multiplied = ring.multiply(vendor, call);
            let (_, lists) = call.lists();
            swap(lists.tiles, tiles);
            swap(lists.tile_count, tile_count);
            multiplied?;
        }
        self.current = next;
        Ok(())
    }

    /// Allocates what a layer needs; a ring has experts of a number of groups. Returns the number of the layer's ring.
    fn prepare(
        &mut self,
        device: &Device,
        call: &mut Checked<Experts>,
        groups: &CopyGroups,
        ring_groups: usize,
    ) -> Result<usize> {
        let gone = || Error::ForeignLayout { op: OP, what: "a weight" };
        let gpu = device.gpu();
        let size = groups.size * ring_groups.max(1);
        let like = groups.slots().ok_or_else(gone)?.parts(&groups.matrices)?;
        let found = self.rings.iter().position(|ring| ring.experts() >= size && ring.is_like(&like));
        let ring = match found {
            Some(ring) => ring,
            None => {
                let parts = like.iter().map(|part| part.empty(device, size)).collect::<Result<_>>()?;
                let bias = |part: &&PlaneRows| -> Result<Buffer<f32>> {
                    let bytes = size * part.rows * size_of::<f32>();
                    Ok(Buffer::on_device(Box::new(Region::new(gpu, bytes, "biases of experts")?)))
                };
                self.rings.push(Ring { parts, biases: like.iter().map(bias).collect::<Result<_>>()? });
                self.rings.len() - 1
            }
        };
        let experts = call.route.logits.cols();
        let mut places = vec![0_u32; experts];
        let mut filled = 0;
        for group in groups.queued.iter().chain(&groups.rest) {
            if filled + group.len() > self.rings[ring].experts() {
                filled = 0;
            }
            group.iter().zip(filled as u32..).for_each(|(&expert, place)| places[expert] = place);
            filled += group.len();
        }
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

impl Ring {
    fn is_like(&self, parts: &[&PlaneRows]) -> bool {
        let same = |(own, other): (&PlaneRows, &&PlaneRows)| {
            (own.format, own.rows, own.cols) == (other.format, other.rows, other.cols)
        };
        self.parts.len() == parts.len() && self.parts.iter().zip(parts).all(same)
    }

    /// Experts that fit.
    fn experts(&self) -> usize {
        self.parts[0].experts
    }

    /// Moves a group of `count` experts from staging memory into the ring, which has `filled` experts.
    fn place(&self, device: &Device, slots: &LayerSlots, count: usize, filled: usize, area: &Region) -> Result<()> {
        let with_bias = slots.has_biases(self.parts.len());
        let bias = |(values, has_bias)| if has_bias { region_of(values) } else { None };
        let placement = Placement {
            staged: slots.staged(),
            memory: (area, 0),
            parts: self.parts.iter().collect(),
            biases: self.biases.iter().zip(with_bias).map(bias).collect(),
            slots: filled..filled + count,
            entry: None,
        };
        placement.launch(device.gpu())
    }

    /// The products of the tiles in the call's groups, whose experts are places in the ring.
    fn multiply<V: Vendor>(&self, vendor: &V, call: &mut Checked<Experts>) -> Result<()> {
        let Experts { route, weights, x, scratch, .. } = &mut **call;
        let (Some((down, gate_up)), Some((down_bias, biases))) = (self.parts.split_last(), self.biases.split_last())
        else {
            return Err(Error::ForeignLayout { op: OP, what: "a weight in slots" });
        };
        let groups = &*scratch.groups;
        let rows = RowSelection::Pairs { groups, pairs_per_row: route.routing.top_k, order: PairOrder::ByPair };
        let bias = match (weights.gate_up_bias, biases) {
            (Some(_), [gate, up]) => Some([gate, up]),
            _ => None,
        };
        let h = scratch.h.reborrow();
        let act = Some(&mut *scratch.act);
        matmul::multiply_gated(vendor, OP, gate_up, x, rows, bias, weights.activation, h, act)?;
        let rows = RowSelection::Pairs { groups, pairs_per_row: 1, order: PairOrder::ByPair };
        let product = Product::new(OP, down, scratch.act, rows, &scratch.out);
        let down_bias = weights.down_bias.map(|_| Bias { values: down_bias, first: 0, matrix: down.rows });
        vendor.multiply(&Product { biases: [down_bias, None], ..product })
    }
}
