//! Which experts of a layer are in its slots, as the host has decided: the least recently chosen one is replaced.

use std::collections::VecDeque;

/// Tokens after a copy for which the choices of the copied expert and of the replaced one are compared.
pub(super) const TOKENS: u64 = 32;

/// The experts of a layer. A time is the number of a request of the device; 0 is before all.
#[derive(Debug)]
pub(super) struct Resident {
    slot_of: Vec<Option<usize>>,
    expert_of: Vec<usize>,
    /// When the expert of each slot was last chosen.
    used: Vec<u64>,
    /// When each expert was last chosen without being in a slot.
    missed: Vec<u64>,
    /// Whether an expert is being copied, or waits for its slot.
    in_flight: Vec<bool>,
    /// Whether slots keep their experts for now.
    is_held: bool,
    /// Tokens so far, and how many of them have chosen each expert.
    tokens: u64,
    choices: Vec<u32>,
    trials: VecDeque<Trial>,
}

/// A copy whose gain is not known yet.
#[derive(Debug)]
struct Trial {
    /// The copied expert and the replaced one, with their choices until then.
    experts: [(usize, u32); 2],
    /// The number of tokens from which on the gain is known.
    end: u64,
}

/// A slot's old expert and its new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Replaced {
    pub(super) slot: usize,
    pub(super) evicted: usize,
}

impl Resident {
    /// Slots with the first experts. There are at most as many slots as experts.
    pub(super) fn new(experts: usize, slots: usize) -> Self {
        Self {
            slot_of: (0..experts).map(|expert| (expert < slots).then_some(expert)).collect(),
            expert_of: (0..slots).collect(),
            used: vec![0; slots],
            missed: vec![0; experts],
            in_flight: vec![false; experts],
            is_held: false,
            tokens: 0,
            choices: vec![0; experts],
            trials: VecDeque::new(),
        }
    }

    /// Counts tokens. Returns the gains of the copies that ended [`TOKENS`] tokens ago: how much more often each copied expert was
    /// chosen since then than the one that it replaced.
    pub(super) fn count(&mut self, tokens: u64) -> Vec<i64> {
        self.tokens += tokens;
        let now = self.tokens;
        let mut gains = Vec::new();
        while let Some(trial) = self.trials.pop_front_if(|trial| trial.end <= now) {
            let [copied, replaced] = trial.experts.map(|(expert, before)| self.choices[expert].wrapping_sub(before));
            gains.push(i64::from(copied) - i64::from(replaced));
        }
        gains
    }

    /// Records that a token has chosen an expert. True if the expert should be copied to a slot.
    pub(super) fn choose(&mut self, expert: usize, now: u64) -> bool {
        self.choices.get_mut(expert).into_iter().for_each(|choices| *choices = choices.wrapping_add(1));
        match self.slot_of.get(expert) {
            Some(&Some(slot)) => {
                self.used[slot] = now;
                false
            }
            Some(None) => {
                self.missed[expert] = now;
                !self.in_flight[expert]
            }
            None => false,
        }
    }

    /// The experts that are in no slot, in order.
    pub(super) fn absent(&self) -> Vec<usize> {
        (0..self.slot_of.len()).filter(|&expert| self.slot_of[expert].is_none()).collect()
    }

    /// Sets whether slots keep their experts for now.
    pub(super) fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// Whether slots keep their experts, since [`Self::hold`].
    pub(super) fn is_held(&self) -> bool {
        self.is_held
    }

    /// Empties the slots, and has none from now on.
    pub(super) fn clear(&mut self) {
        self.is_held = false;
        self.slot_of.fill(None);
        self.expert_of.clear();
        self.used.clear();
    }

    /// Whether to copy an expert now.
    pub(super) fn wants(&self, expert: usize) -> bool {
        self.slot_of[expert].is_none() && !self.in_flight[expert] && self.has_place(expert)
    }

    /// The same. If so, it is in flight from now on.
    pub(super) fn start(&mut self, expert: usize) -> bool {
        let wanted = self.wants(expert);
        self.in_flight[expert] |= wanted;
        wanted
    }

    /// Gives a copied expert the slot of the least recently chosen one. `None` if all slots have experts that were chosen later.
    pub(super) fn replace(&mut self, expert: usize) -> Option<Replaced> {
        self.in_flight[expert] = false;
        let slot = self.oldest().filter(|_| self.has_place(expert))?;
        let evicted = std::mem::replace(&mut self.expert_of[slot], expert);
        (self.slot_of[evicted], self.slot_of[expert]) = (None, Some(slot));
        self.used[slot] = self.missed[expert];
        let experts = [expert, evicted].map(|expert| (expert, self.choices[expert]));
        self.trials.push_back(Trial { experts, end: self.tokens + TOKENS });
        Some(Replaced { slot, evicted })
    }

    fn oldest(&self) -> Option<usize> {
        (0..self.used.len()).min_by_key(|&slot| self.used[slot])
    }

    fn has_place(&self, expert: usize) -> bool {
        self.oldest().is_some_and(|slot| self.used[slot] < self.missed[expert])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_chosen_expert_is_replaced() {
        let mut resident = Resident::new(6, 3);
        assert!(!resident.choose(0, 1) && !resident.choose(2, 2) && resident.choose(5, 3));
        assert!(resident.start(5) && !resident.start(5) && !resident.choose(5, 3));
        assert_eq!(resident.replace(5), Some(Replaced { slot: 1, evicted: 1 }));
        assert!(!resident.choose(5, 4) && resident.choose(1, 4) && resident.start(1));
        assert_eq!(resident.replace(1), Some(Replaced { slot: 0, evicted: 0 }));
    }

    #[test]
    fn an_expert_does_not_replace_those_of_its_own_request() {
        let mut resident = Resident::new(4, 1);
        assert!(!resident.choose(0, 7) && resident.choose(1, 7));
        assert!(!resident.start(1));
        assert!(resident.choose(1, 8) && resident.start(1) && !resident.choose(0, 9));
        assert_eq!(resident.replace(1), None);
        assert!(!resident.choose(9, 10));
    }

    /// The gain counts what was chosen after the copy, wherever the experts are then.
    #[test]
    fn copied_experts_are_compared_with_those_that_they_replaced() {
        let mut resident = Resident::new(4, 1);
        assert!(resident.choose(3, 1) && resident.start(3));
        assert_eq!(resident.replace(3), Some(Replaced { slot: 0, evicted: 0 }));
        for now in 2..7 {
            resident.choose(3, now);
        }
        resident.choose(0, 7);
        assert!(resident.choose(0, 8) && resident.start(0) && resident.replace(0).is_some());
        assert_eq!(resident.count(TOKENS - 1), []);
        assert_eq!(resident.count(1), [5 - 2, 0]);
        assert_eq!(resident.count(TOKENS), []);
    }

    /// Without slots, every expert is computed by the host, also one that was being copied.
    #[test]
    fn cleared_slots_get_no_expert() {
        let mut resident = Resident::new(4, 2);
        assert!(resident.choose(3, 1) && resident.start(3));
        resident.clear();
        assert_eq!((resident.replace(3), resident.absent()), (None, vec![0, 1, 2, 3]));
        assert!(resident.choose(0, 2) && !resident.start(0));
    }

    /// Slots and experts always name each other, and every slot has an expert.
    #[test]
    fn slots_and_experts_agree() {
        for slots in 0..6 {
            let mut resident = Resident::new(6, slots);
            let mut seed = slots as u32;
            for now in 1..500 {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let expert = (seed >> 16) as usize % 6;
                let copies = seed >> 30 > 0;
                if resident.choose(expert, now) && copies && resident.start(expert) {
                    let replaced = resident.replace(expert);
                    assert!(replaced.is_some_and(|replaced| replaced.evicted != expert));
                }
                assert_eq!(resident.absent().len(), 6 - slots);
                for (slot, &expert) in resident.expert_of.iter().enumerate() {
                    assert_eq!(resident.slot_of[expert], Some(slot));
                }
            }
        }
    }
}
