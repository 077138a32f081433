//! Memory of a pass: which values share a buffer, how many bytes that takes, and the buffers themselves.

use std::cell::{Ref, RefCell, RefMut};
use std::collections::BTreeMap;
use std::sync::Arc;

use gristmill_collective::Collective;
use gristmill_kernels::Backend;
use gristmill_kernels::act::{ACT_BLOCK, Act, Precision};
use gristmill_kernels::groups::Groups;
use gristmill_kernels::tensor::{Buffer, View};

use super::axes::Axes;
use super::forced::{Forced, ForcedExperts};
use super::node::Node;
use super::{ActId, GroupedExperts, GroupsId, Program, RowsId, Unit};
use crate::error::Result;
use crate::spec::ModelSpec;

/// The buffers of all values: values that are never live at the same time share one.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    /// For each value of f32 rows, its slot of `floats`.
    rows: Vec<usize>,
    floats: Vec<Slot<Unit>>,
    acts: Vec<usize>,
    /// The unit of the rows, and `true` for activations that are f32 at any precision.
    act_slots: Vec<Slot<(Unit, bool)>>,
    groups: Vec<usize>,
    /// Grouped pairs of this number of experts.
    group_slots: Vec<Slot<GroupedExperts>>,
    /// Choices of each token, over all layers.
    choices: usize,
    /// The most heads that pairs are grouped by.
    heads: usize,
    /// For each value of f32 rows, its number among the inputs of the replay ([`Replay`](super::replay::Replay)).
    kept: Vec<Option<usize>>,
    /// Elements of each of these inputs for a token.
    kept_sizes: Vec<usize>,
}

/// A buffer: the values in it are of one kind.
#[derive(Debug)]
pub(super) struct Slot<K> {
    pub(super) kind: K,
    /// Elements for each token, or for each row of logits.
    pub(super) size: usize,
    what: &'static str,
    /// The last node of each value, by its first node.
    lives: BTreeMap<usize, usize>,
}

impl<K> Slot<K> {
    /// Whether no value of the slot is live between these nodes. Lives in a slot do not overlap, so only the last one that
    /// starts before the end is looked at.
    fn is_free(&self, (first, last): (usize, usize)) -> bool {
        self.lives.range(..=last).next_back().is_none_or(|(_, &end)| end < first)
    }
}

/// A value to be placed in a slot.
#[derive(Clone, Copy)]
pub(super) struct Placed<K> {
    pub(super) kind: K,
    pub(super) size: usize,
    pub(super) what: &'static str,
    /// The first and the last node that mention it.
    pub(super) life: (usize, usize),
}

/// The life of a value that a rewrite has made superfluous.
pub(super) const NEVER: (usize, usize) = (usize::MAX, 0);

/// Places the values, the largest first, each in the first slot of its kind in which no value is live at the same time.
/// Returns the slot of each value.
pub(super) fn place<K: PartialEq + Copy>(values: &[Placed<K>]) -> (Vec<usize>, Vec<Slot<K>>) {
    let (mut slots, mut slot_of): (Vec<Slot<K>>, _) = (Vec::new(), vec![0; values.len()]);
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(values[at].size));
    for at in order {
        let Placed { kind, size, what, life } = values[at];
        if life == NEVER {
            continue;
        }
        let found = slots.iter().position(|slot| slot.kind == kind && slot.is_free(life));
        slot_of[at] = found.unwrap_or(slots.len());
        match found {
            Some(found) => drop(slots[found].lives.insert(life.0, life.1)),
            None => slots.push(Slot { kind, size, what, lives: BTreeMap::from([life]) }),
        }
    }
    (slot_of, slots)
}

impl Program {
    /// Assigns a buffer to each value.
    pub(crate) fn find_slots(&self) -> Slots {
        let (mut rows, mut acts) = (vec![NEVER; self.rows.len()], vec![NEVER; self.acts.len()]);
        let mut groups = vec![NEVER; self.groups.len()];
        let extend = |life: &mut (usize, usize), at| *life = (life.0.min(at), life.1.max(at));
        for (at, node) in self.parts().flat_map(|part| &part.nodes).enumerate() {
            let values = node.values();
            values.rows.iter().for_each(|id| extend(&mut rows[id.0], at));
            values.acts.iter().for_each(|id| extend(&mut acts[id.0], at));
            values.groups.iter().for_each(|id| extend(&mut groups[id.0], at));
        }
        // The runner reads these after the pass.
        for kept in [self.residual, self.hidden, self.logits] {
            rows[kept.0].1 = usize::MAX;
        }
        // While a head drafts, the hidden states of the others are live. The last head runs first, so those of a later head
        // are live before their first node.
        let first = self.heads.first().map_or(0, |head| rows[head.previous.0].0);
        for head in self.heads.iter().filter(|_| self.heads.len() > 1) {
            rows[head.previous.0] = (first, usize::MAX);
        }
        let of_rows = |(shape, &life): (&super::RowsShape, _)| {
            let size = shape.per_unit.saturating_mul(shape.cols);
            Placed { kind: shape.unit, size, what: shape.what, life }
        };
        let of_act = |(shape, &life): (&super::ActShape, _)| {
            let size = shape.per_unit.saturating_mul(whole_blocks(shape.cols));
            Placed { kind: (shape.unit, shape.exact), size, what: "activations", life }
        };
        let of_groups = |(shape, &life): (&super::GroupsShape, _)| Placed {
            kind: shape.experts,
            size: shape.top_k,
            what: "the router",
            life,
        };
        let (rows, floats) = place(&self.rows.iter().zip(&rows).map(of_rows).collect::<Vec<_>>());
        let (acts, act_slots) = place(&self.acts.iter().zip(&acts).map(of_act).collect::<Vec<_>>());
        let (groups, group_slots) = place(&self.groups.iter().zip(&groups).map(of_groups).collect::<Vec<_>>());
        let heads = self.parts().flat_map(|part| &part.nodes).map(|node| match node {
            Node::GroupHeads { heads, .. } => *heads,
            _ => 0,
        });
        let heads = heads.max().unwrap_or(0);
        let inputs = &self.replay.inputs;
        let kept = (0..self.rows.len()).map(|id| inputs.iter().position(|input| input.0 == id)).collect();
        let size = |id: &RowsId| self.rows[id.0].per_unit.saturating_mul(self.rows[id.0].cols);
        let kept_sizes = inputs.iter().map(size).collect();
        let choices = self.choices;
        Slots { rows, floats, acts, act_slots, groups, group_slots, choices, heads, kept, kept_sizes }
    }
}

/// Columns of activations with those that fill the last block.
fn whole_blocks(cols: usize) -> usize {
    cols.checked_next_multiple_of(ACT_BLOCK).unwrap_or(usize::MAX)
}

/// Bytes of grouped pairs: for each pair, and for each expert. A GPU's grids of tiles have some words of their own.
const PAIR_BYTES: u128 = 16;
const EXPERT_BYTES: u128 = 16;
const GRID_BYTES: u128 = 1024;

impl Slots {
    /// The buffer of a value.
    #[cfg(test)]
    pub(super) fn of_rows(&self, id: RowsId) -> usize {
        self.rows[id.0]
    }

    /// Bytes of the inputs that a pass of up to `tokens` tokens keeps.
    pub(crate) fn kept_bytes(&self, tokens: usize) -> u64 {
        let of_token = self.kept_sizes.iter().fold(0_usize, |sum, &size| sum.saturating_add(size));
        (size_of::<f32>() as u64).saturating_mul(of_token.saturating_mul(tokens) as u64)
    }

    /// Bytes for `tokens` tokens and `rows` rows of logits, with the token that is sampled from each row.
    pub(crate) fn bytes(&self, precision: Precision, tokens: usize, rows: usize) -> u64 {
        // Activations are kept as f32; at the fast precision also as int8, 64 bytes for 32 elements, and as bfloat16,
        // which only some CPUs use.
        let act = |exact: bool| if exact || precision == Precision::Exact { 4 } else { 4 + 2 + 2 };
        let sum = |sizes: &mut dyn Iterator<Item = u128>| sizes.fold(0_u128, u128::saturating_add);
        let floats =
            |unit| sum(&mut self.floats.iter().filter(|slot| slot.kind == unit).map(|slot| 4 * slot.size as u128));
        let acts = |unit| {
            let of_unit = self.act_slots.iter().filter(|slot| slot.kind.0 == unit);
            sum(&mut of_unit.map(|slot| act(slot.kind.1) * slot.size as u128))
        };
        let pairs = sum(&mut self.group_slots.iter().map(|slot| PAIR_BYTES * slot.size as u128));
        let experts = sum(&mut self.group_slots.iter().map(|slot| EXPERT_BYTES * slot.kind.count as u128 + GRID_BYTES));
        // A token has its id, the numbers of its heads, and its choices with their weights; a row its index and its
        // sampled token.
        let token =
            4 + floats(Unit::Token) + acts(Unit::Token) + pairs + 8 * self.choices as u128 + 4 * self.heads as u128;
        let row = 8 + floats(Unit::Output) + acts(Unit::Output);
        let total = token.saturating_mul(tokens as u128).saturating_add(row.saturating_mul(rows as u128));
        u64::try_from(total.saturating_add(experts)).unwrap_or(u64::MAX)
    }
}

/// Rows of a picture that take the place of the embeddings of adjacent tokens.
#[derive(Clone, Debug)]
pub(crate) struct PictureRows {
    pub(crate) rows: Arc<Buffer<f32>>,
    /// The first row.
    pub(crate) first: usize,
    /// The first token of the batch.
    pub(crate) at: usize,
    pub(crate) tokens: usize,
    /// Rows of the model's width in a row.
    pub(crate) levels: usize,
}

/// The last position that each token of a pass sees.
#[derive(Debug)]
pub(crate) struct ImageEnds {
    pub(crate) last: Buffer<u32>,
    /// Whether the current pass has tokens of images.
    pub(crate) is_on: bool,
}

/// The buffers of a pass of up to T tokens and R rows of logits, allocated once. A cell is borrowed while a node runs:
/// the values of a node have different buffers, because they are live at the same time.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// Token ids, T.
    pub(crate) tokens: Buffer<u32>,
    /// Rows whose logits are computed, R.
    pub(crate) output_rows: Buffer<u32>,
    /// Chosen experts: T × k of each layer with experts, one layer after another. T is the number of tokens of the pass,
    /// so all choices of a pass are adjacent.
    pub(crate) ids: RefCell<Buffer<u32>>,
    /// Their weights, likewise.
    pub(crate) weights: RefCell<Buffer<f32>>,
    /// The numbers of the heads of each token, T × heads.
    head_ids: Buffer<u32>,
    /// Rows of pictures in the current pass.
    pub(crate) pictures: Vec<PictureRows>,
    /// What tokens of images see, in models in which that is the whole image.
    pub(crate) ends: Option<ImageEnds>,
    /// Positions of several axes, in models and towers that have them.
    pub(crate) axes: Option<Axes>,
    /// Forced choices of experts, which replace the routers' choices. `None` until a pass is forced.
    pub(crate) forced: Option<Forced>,
    /// The ranks that run the pass together, over which values are summed.
    pub(crate) ranks: Option<Arc<dyn Collective>>,
    /// Whether the device sums by itself.
    pub(crate) sums_on_device: bool,
    slots: Arc<Slots>,
    floats: Vec<RefCell<Buffer<f32>>>,
    acts: Vec<RefCell<Act>>,
    groups: Vec<RefCell<Groups>>,
    /// The inputs of the replay, which share no buffer.
    kept: Vec<RefCell<Buffer<f32>>>,
    /// Tokens of the largest pass that keeps its inputs.
    kept_tokens: usize,
    /// Whether the current pass keeps its inputs.
    keeps: bool,
}

impl Scratch {
    /// Allocates for `tokens` tokens and `rows` rows of logits, of which passes of up to `kept_tokens` tokens keep the
    /// inputs of the replay. The caller has checked [`Slots::bytes`] and [`Slots::kept_bytes`].
    pub(crate) fn new(
        backend: &Backend,
        slots: &Arc<Slots>,
        precision: Precision,
        [tokens, rows, kept_tokens]: [usize; 3],
    ) -> Result<Self> {
        let kept_tokens = if slots.kept_sizes.is_empty() { 0 } else { kept_tokens };
        let count = |unit| if unit == Unit::Token { tokens } else { rows };
        let precision_of = |exact| if exact { Precision::Exact } else { precision };
        let floats = slots
            .floats
            .iter()
            .map(|slot| Ok(RefCell::new(backend.alloc::<f32>(count(slot.kind).saturating_mul(slot.size), slot.what)?)));
        let acts = slots.act_slots.iter().map(|slot| {
            let (unit, exact) = slot.kind;
            Ok(RefCell::new(backend.alloc_act(precision_of(exact), count(unit), slot.size)?))
        });
        let groups = slots.group_slots.iter().map(|slot| {
            let (GroupedExperts { first, count, all }, pairs) = (slot.kind, tokens.saturating_mul(slot.size));
            Ok(RefCell::new(backend.alloc_groups_of(first..first + count, all, pairs)?))
        });
        let kept = |&size: &usize| {
            Ok(RefCell::new(backend.alloc::<f32>(kept_tokens.saturating_mul(size), "inputs of recurrent layers")?))
        };
        let choices = tokens.saturating_mul(slots.choices);
        let mut head_ids = backend.alloc::<u32>(tokens.saturating_mul(slots.heads), "the heads")?;
        let numbers: Vec<u32> = (0..tokens).flat_map(|_| 0..slots.heads as u32).collect();
        backend.upload(&numbers, &mut head_ids)?;
        Ok(Self {
            tokens: backend.alloc::<u32>(tokens, "token ids")?,
            output_rows: backend.alloc::<u32>(rows, "output rows")?,
            ids: RefCell::new(backend.alloc::<u32>(choices, "the router")?),
            weights: RefCell::new(backend.alloc::<f32>(choices, "the router")?),
            head_ids,
            pictures: Vec::new(),
            ends: None,
            axes: None,
            forced: None,
            ranks: None,
            sums_on_device: false,
            floats: floats.collect::<Result<_>>()?,
            acts: acts.collect::<Result<_>>()?,
            groups: groups.collect::<Result<_>>()?,
            kept: slots.kept_sizes.iter().map(kept).collect::<Result<_>>()?,
            kept_tokens,
            keeps: false,
            slots: slots.clone(),
        })
    }

    /// Starts a pass of this number of tokens. Returns whether it keeps the inputs of the replay.
    pub(crate) fn start_pass(&mut self, tokens: usize) -> bool {
        self.keeps = tokens <= self.kept_tokens;
        self.keeps
    }

    /// Replaces the routers' choices in the next pass, which has `padded` tokens, or not. The experts are checked.
    pub(crate) fn force(
        &mut self,
        backend: &Backend,
        spec: &ModelSpec,
        most_tokens: usize,
        experts: Option<&[ForcedExperts]>,
        padded: usize,
    ) -> Result<()> {
        if let Some(experts) = experts {
            if self.forced.is_none() {
                self.forced = Some(Forced::new(backend, spec, most_tokens)?);
            }
            self.forced.as_mut().map(|forced| forced.upload(backend, experts, padded)).transpose()?;
        }
        self.forced.iter_mut().for_each(|forced| forced.is_on = experts.is_some());
        Ok(())
    }

    pub(crate) fn rows(&self, id: RowsId) -> Ref<'_, Buffer<f32>> {
        self.cell(id).borrow()
    }

    pub(crate) fn rows_mut(&self, id: RowsId) -> RefMut<'_, Buffer<f32>> {
        self.cell(id).borrow_mut()
    }

    fn cell(&self, id: RowsId) -> &RefCell<Buffer<f32>> {
        match self.slots.kept[id.0].filter(|_| self.keeps) {
            Some(at) => &self.kept[at],
            None => &self.floats[self.slots.rows[id.0]],
        }
    }

    pub(crate) fn act(&self, id: ActId) -> Ref<'_, Act> {
        self.acts[self.slots.acts[id.0]].borrow()
    }

    pub(crate) fn act_mut(&self, id: ActId) -> RefMut<'_, Act> {
        self.acts[self.slots.acts[id.0]].borrow_mut()
    }

    /// The numbers `0..heads` for each of so many tokens.
    pub(crate) fn head_ids(&self, tokens: usize, heads: usize) -> Result<View<'_, u32>> {
        Ok(self.head_ids.view(tokens, self.slots.heads)?.columns(0..heads)?)
    }

    pub(crate) fn groups(&self, id: GroupsId) -> Ref<'_, Groups> {
        self.groups[self.slots.groups[id.0]].borrow()
    }

    pub(crate) fn groups_mut(&self, id: GroupsId) -> RefMut<'_, Groups> {
        self.groups[self.slots.groups[id.0]].borrow_mut()
    }
}
