//! Which part of a model a rank has.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use super::ExpertLoad;
use crate::load::LoadOptions;
use crate::spec::{AttentionSpec, ModelSpec};

/// How a model is split over devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Split {
    /// Attention by heads, dense MLPs and shared experts by columns, routed experts by their index.
    Tensor,
    /// Routed experts by their index. Everything else is on every device.
    Experts,
    /// Each device has some of the layers, and computes them after those of the device before it: for memory, not for speed.
    Layers,
}

impl FromStr for Split {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "tensor" => Ok(Self::Tensor),
            "experts" => Ok(Self::Experts),
            "layers" => Ok(Self::Layers),
            _ => Err("expected tensor, experts or layers".to_owned()),
        }
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tensor => "tensor",
            Self::Experts => "experts",
            Self::Layers => "layers",
        })
    }
}

/// A rank and its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RankPart {
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
    pub(crate) split: Split,
    /// The load that experts are placed by; without, each rank has as many.
    pub(crate) load: Option<Arc<ExpertLoad>>,
}

impl RankPart {
    /// A device that has all of a model.
    pub(crate) const WHOLE: Self = Self { rank: 0, ranks: 1, split: Split::Experts, load: None };

    /// Rank 0 of a model on so many devices, or the rank of this process. Without a split by the options, experts are split if the
    /// model has some.
    pub(crate) fn own(devices: usize, spec: &ModelSpec, options: &LoadOptions) -> Self {
        let (rank, ranks) = options.group.as_ref().map_or((0, devices), |group| (group.rank(), group.size()));
        let of_model = || if spec.routers().is_empty() { Split::Tensor } else { Split::Experts };
        Self { rank, ranks, split: options.split.unwrap_or_else(of_model), load: options.expert_load.clone() }
    }

    /// Another rank of the group.
    pub(crate) fn of_rank(&self, rank: usize) -> Self {
        Self { rank, ..self.clone() }
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.ranks == 1
    }

    /// The layers of the rank, of a model with so many; all without a split of layers.
    pub(crate) fn layers(&self, count: usize) -> Range<usize> {
        match self.split {
            Split::Layers => self.of(count, 1).unwrap_or(0..0),
            Split::Tensor | Split::Experts => 0..count,
        }
    }

    /// Whether layers are split.
    pub(crate) fn is_in_a_row(&self) -> bool {
        self.split == Split::Layers && !self.is_whole()
    }

    /// The rank's part of `count` items in blocks of adjacent ones, which are not divided. `None` if there are fewer blocks than
    /// ranks.
    pub(crate) fn of(&self, count: usize, block: usize) -> Option<Range<usize>> {
        let blocks = count.div_ceil(block.max(1));
        let border = |rank: usize| (blocks * rank / self.ranks * block).min(count);
        (blocks >= self.ranks).then(|| border(self.rank)..border(self.rank + 1))
    }

    /// The rank's experts of a layer. `None` if there are fewer than ranks.
    pub(crate) fn experts(&self, layer: usize, count: usize) -> Option<Range<usize>> {
        let by_load = self.load.as_ref().and_then(|load| load.parts(layer, count, self.ranks));
        by_load.and_then(|parts| parts.get(self.rank).cloned()).or_else(|| self.of(count, 1))
    }

    /// The heads of the rank: those of queries, and those of keys and values that these read. If there are fewer of the latter than
    /// ranks, several ranks have the same one. `None` if the heads cannot be divided.
    pub(crate) fn heads(&self, spec: &AttentionSpec) -> Option<[Range<usize>; 2]> {
        let AttentionSpec { heads, kv_heads, .. } = *spec;
        let Self { rank, ranks, .. } = *self;
        let queries = || heads / ranks * rank..heads / ranks * (rank + 1);
        if !heads.is_multiple_of(ranks) || kv_heads == 0 {
            None
        } else if kv_heads.is_multiple_of(ranks) {
            Some([queries(), kv_heads / ranks * rank..kv_heads / ranks * (rank + 1)])
        } else if ranks.is_multiple_of(kv_heads) {
            let head = rank / (ranks / kv_heads);
            Some([queries(), head..head + 1])
        } else {
            None
        }
    }
}
