//! How often draft tokens are accepted, by place.

use crate::output::PLACES;

/// Draft tokens at each place whose predecessors were accepted, and how many of them were accepted too. The counts fade,
/// so that they describe the recent text.
#[derive(Debug, Clone, Default)]
pub(crate) struct Acceptance {
    drafted: [f64; PLACES],
    accepted: [f64; PLACES],
}

impl Acceptance {
    /// Counts a draft of this number of tokens. Each earlier draft counts `fade` times as much as before.
    pub(super) fn count(&mut self, drafted: usize, accepted: usize, fade: f64) {
        // The first rejected token is counted; those after it were never checked.
        for place in 0..drafted.min(PLACES).min(accepted + 1) {
            self.drafted[place] = self.drafted[place] * fade + 1.0;
            self.accepted[place] = self.accepted[place] * fade + f64::from(u8::from(place < accepted));
        }
    }

    /// The chance of the token at a place, if those before it are accepted. Before anything is counted there, it is
    /// `prior`, which has the weight of this number of drafts.
    pub(super) fn chance(&self, place: usize, prior: f64, weight: f64) -> f64 {
        let place = place.min(PLACES - 1);
        (self.accepted[place] + weight * prior) / (self.drafted[place] + weight)
    }

    /// Lets the counts so far weigh only this share.
    pub(super) fn fade(&mut self, share: f64) {
        self.drafted.iter_mut().chain(&mut self.accepted).for_each(|count| *count *= share);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_counted_only_if_those_before_it_were_accepted() {
        let mut found = Acceptance::default();
        for accepted in [3, 1, 0, 1] {
            found.count(3, accepted, 1.0);
        }
        assert_eq!(found.drafted[..4], [4.0, 3.0, 1.0, 0.0]);
        assert_eq!(found.accepted[..4], [3.0, 1.0, 1.0, 0.0]);
        assert_eq!(found.chance(0, 0.5, 0.0), 0.75);
        assert_eq!(found.chance(3, 0.3, 2.0), 0.3);
        assert_eq!(found.chance(1, 0.0, 1.0), 0.25);
        found.count(12, 12, 0.5);
        assert_eq!((found.drafted[0], found.accepted[0], found.drafted[7]), (3.0, 2.5, 1.0));
        assert_eq!(found.chance(20, 0.0, 1.0), 0.5);
    }
}
