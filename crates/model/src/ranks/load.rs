//! How often each expert of a model is chosen, and which experts a rank has so that all ranks multiply as many rows.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use crate::error::{Error, Result};
use crate::spec::ModelSpec;

/// How often each expert of each layer was chosen for a text that is like those to come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpertLoad {
    /// For each layer of the model, the choices of each of its experts; empty for a layer without experts, or that was not counted.
    pub layers: Vec<Vec<u64>>,
}

/// A rank has at most this multiple of the experts that it would have in equal parts: experts that are never chosen take memory too.
const MOST: usize = 2;

impl ExpertLoad {
    /// Refuses the load of another model.
    pub(crate) fn check(&self, spec: &ModelSpec) -> Result<()> {
        let refuse = |reason: String| {
            let reason = format!("load of experts: {reason}; count the experts of this model");
            Err(Error::Split { reason })
        };
        for (layer, router) in spec.routers().iter().enumerate().filter(|(_, router)| router.experts > 0) {
            let found = self.layers.get(layer).map_or(0, Vec::len);
            if found != router.experts {
                return refuse(format!(
                    "layer {layer} has another number of experts (found {found}, expected {})",
                    router.experts
                ));
            }
        }
        match spec.routers().iter().any(|router| router.experts > 0) {
            true => Ok(()),
            false => refuse("the model has no experts (found a load, expected none)".to_owned()),
        }
    }

    /// Differs for other loads.
    pub(crate) fn fingerprint(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.layers.hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    }

    /// The experts of each rank, adjacent ones, so that the most choices of a rank are as few as they can be. `None` if the layer has
    /// other experts, or fewer than ranks.
    pub(crate) fn parts(&self, layer: usize, experts: usize, ranks: usize) -> Option<Vec<Range<usize>>> {
        let load = self.layers.get(layer).filter(|load| load.len() == experts && experts >= ranks)?;
        let most_experts = MOST * experts.div_ceil(ranks);
        let fits = |most: u64| fill(load, ranks, most, most_experts);
        // The least bound for which the ranks suffice.
        let (mut low, mut high) = (load.iter().copied().max()?, load.iter().copied().fold(0, u64::saturating_add));
        while low < high {
            let middle = low + (high - low) / 2;
            if fits(middle).is_some() { high = middle } else { low = middle + 1 }
        }
        fits(low)
    }
}

/// Parts of adjacent experts with at most this load and so many experts each, as many as ranks; `None` if they are too few.
fn fill(load: &[u64], ranks: usize, most: u64, most_experts: usize) -> Option<Vec<Range<usize>>> {
    let (mut parts, mut start, mut sum) = (Vec::with_capacity(ranks), 0, 0_u64);
    for (expert, own) in load.iter().enumerate() {
        let is_full = sum.saturating_add(*own) > most || expert - start == most_experts;
        // Each of the other ranks must get one.
        let is_needed = load.len() - expert < ranks - parts.len();
        if expert > start && (is_full || is_needed) {
            parts.push(start..expert);
            if parts.len() == ranks {
                return None;
            }
            (start, sum) = (expert, 0);
        }
        sum = sum.saturating_add(*own);
    }
    parts.push(start..load.len());
    (parts.len() == ranks).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parts(load: &[u64], ranks: usize) -> Vec<Range<usize>> {
        let load = ExpertLoad { layers: vec![Vec::new(), load.to_vec()] };
        let experts = load.layers[1].len();
        load.parts(1, experts, ranks).expect("enough experts")
    }

    #[test]
    fn a_busy_expert_has_few_others_beside_it() {
        assert_eq!(parts(&[90, 1, 1, 1, 1, 1, 1, 4], 2), [0..1, 1..8]);
        assert_eq!(parts(&[1, 1, 1, 1, 1, 1, 1, 93], 2), [0..7, 7..8]);
        assert_eq!(parts(&[5; 8], 4), [0..2, 2..4, 4..6, 6..8]);
    }

    #[test]
    fn experts_that_are_never_chosen_are_shared_out_too() {
        let found = parts(&[0; 16], 4);
        assert!(found.iter().all(|part| (1..=8).contains(&part.len())), "{found:?}");
        let found = parts(&[9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9], 4);
        assert!(found.iter().all(|part| (1..=8).contains(&part.len())), "{found:?}");
    }

    #[test]
    fn another_layer_or_number_of_experts_is_no_load() {
        let load = ExpertLoad { layers: vec![Vec::new(), vec![1; 4]] };
        assert_eq!(load.parts(0, 4, 2), None);
        assert_eq!(load.parts(1, 8, 2), None);
        assert_eq!(load.parts(1, 4, 5), None);
        assert_eq!(load.parts(2, 4, 2), None);
    }

    /// The best bound of all divisions, by trying each.
    fn least(load: &[u64], ranks: usize, most_experts: usize) -> u64 {
        if ranks == 1 {
            return if load.len() <= most_experts { load.iter().sum() } else { u64::MAX };
        }
        let first =
            |count: usize| load[..count].iter().sum::<u64>().max(least(&load[count..], ranks - 1, most_experts));
        (1..=most_experts.min(load.len() - (ranks - 1))).map(first).min().unwrap_or(u64::MAX)
    }

    proptest! {
        #[test]
        fn no_division_has_a_less_busy_rank(load in prop::collection::vec(0_u64..100, 4..12), ranks in 1_usize..5) {
            let found = parts(&load, ranks);
            prop_assert_eq!(found.len(), ranks);
            prop_assert_eq!((found[0].start, found[ranks - 1].end), (0, load.len()));
            prop_assert!(found.windows(2).all(|pair| pair[0].end == pair[1].start && !pair[0].is_empty()));
            let busiest = found.iter().map(|part| load[part.clone()].iter().sum::<u64>()).max();
            prop_assert_eq!(busiest, Some(least(&load, ranks, MOST * load.len().div_ceil(ranks))));
        }
    }
}
