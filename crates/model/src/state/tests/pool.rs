//! Fewer blocks than all sequences can have.

use std::cell::Cell;

use proptest::test_runner::{Config, TestRunner};

use super::*;

fn pool(tokens: usize) -> Limits {
    Limits { kv_tokens: Some(tokens), ..limits() }
}

fn state(windows: &[Option<usize>], tokens: usize) -> State {
    State::new(&Reference::backend(), &spec(windows), &pool(tokens), CONTEXT, Reuse::Prefixes).unwrap()
}

#[test]
fn a_pool_has_the_blocks_that_are_asked_for() {
    let windows = [Some(9), None, Some(200)];
    let block = (2 + 2) * KV_BLOCK as u64 * 2;
    // Three sequences have 4, 19 and 16 blocks each at most, which bounds the groups with a window.
    for (tokens, blocks) in [(300, [12, 19, 19]), (500, [12, 32, 32]), (900, [12, 57, 48]), (2000, [12, 125, 48])] {
        let found = cache_blocks(&mut state(&windows, tokens));
        assert_eq!(found, blocks, "{tokens} tokens");
        let bytes = State::bytes(&Reference::backend(), &spec(&windows), &pool(tokens), CONTEXT, Reuse::Prefixes);
        assert_eq!(bytes, blocks.iter().sum::<usize>() as u64 * block);
    }
}

#[test]
fn a_sequence_that_does_not_fit_stays_as_it_is() {
    let backend = Reference::backend();
    let mut state = state(&[None, Some(20)], CONTEXT);
    let [a, b] = [(); 2].map(|()| state.open().unwrap());
    (0..5).for_each(|_| state.append(&backend, a, 40).unwrap());
    (0..2).for_each(|_| state.append(&backend, b, 40).unwrap());
    // 13 and 5 of 19 blocks are taken.
    assert!(state.fits(&[(a, 224), (b, 80)]).unwrap() && state.fits(&[(a, 208), (b, 96)]).unwrap());
    assert!(!state.fits(&[(a, 224), (b, 96)]).unwrap() && !state.fits(&[(a, 225)]).unwrap());
    let error = state.append(&backend, a, 25).unwrap_err();
    assert!(matches!(error, Error::OutOfBlocks { needed: 2, free: 1 }), "{error}");
    assert_eq!(state.len(a).unwrap(), 200);
    // The prefix cache gives way.
    state.retire(b, &text(1)).unwrap();
    assert!(state.fits(&[(a, CONTEXT)]).unwrap());
    state.append(&backend, a, 40).unwrap();
    state.append(&backend, a, 40).unwrap();
    state.append(&backend, a, 20).unwrap();
    assert!(matches!(state.fits(&[(b, 1)]), Err(Error::UnknownSequence)));
}

/// A fork shares blocks until it is written to: what it copies is counted.
#[test]
fn a_fork_needs_a_block_of_its_own() {
    let backend = Reference::backend();
    let mut state = state(&[None], CONTEXT);
    let a = state.open().unwrap();
    (0..7).for_each(|_| state.append(&backend, a, 40).unwrap());
    state.append(&backend, a, 13).unwrap();
    let b = state.fork(a).unwrap();
    assert!(!state.fits(&[(b, 294)]).unwrap());
    assert!(matches!(state.append(&backend, b, 1), Err(Error::OutOfBlocks { needed: 1, free: 0 })));
    state.truncate(a, 256).unwrap();
    assert!(state.fits(&[(b, CONTEXT)]).unwrap());
    state.append(&backend, b, 7).unwrap();
}

impl Shadow {
    /// The lengths of sequences that grow by this number of tokens each.
    fn lengths(&self, more: &[usize]) -> Vec<(SequenceId, usize)> {
        let grown = |(&(id, ..), more): (&(SequenceId, u64, usize), &usize)| {
            (id, (self.state.len(id).unwrap() + more).min(CONTEXT))
        };
        self.open.iter().zip(more).map(grown).collect()
    }
}

/// Sequences that fit can grow, in batches of whatever size and order, and no sequence sees another's tokens; one that
/// does not fit is refused, and a lone sequence always fits.
#[test]
fn what_fits_can_grow() {
    let windows = prop::sample::select(vec![vec![None], vec![None, Some(20)], vec![Some(33)], vec![Some(90), None]]);
    let step = (0usize..8, 0usize..3, 1usize..6, prop::collection::vec(1usize..120, 3), 1usize..=TOKENS);
    let cases = (windows, CONTEXT..2 * CONTEXT, prop::collection::vec(step, 1..60));
    let (fitted, refused) = (Cell::new(0), Cell::new(0));
    type Case = (Vec<Option<usize>>, usize, Vec<(usize, usize, usize, Vec<usize>, usize)>);
    let run = |(windows, tokens, steps): Case| {
        let mut shadow = Shadow::of(state(&windows, tokens));
        for (what, at, variant, more, batch) in steps {
            if at >= shadow.open.len() {
                shadow.open((variant % 2) as u64, variant);
            }
            let at = at.min(shadow.open.len() - 1);
            let (id, tenant, variant) = shadow.open[at];
            match what {
                0 => shadow.retire(at),
                1 => shadow.close(at),
                2 if shadow.open.len() < 3 => {
                    let fork = shadow.state.fork(id).unwrap();
                    shadow.open.push((fork, tenant, variant));
                }
                _ => {}
            }
            let lengths = shadow.lengths(&more);
            if shadow.state.fits(&lengths).unwrap() {
                fitted.set(fitted.get() + 1);
                // In turns, in an order that is not that of the check.
                let mut turn =
                    || (0..lengths.len()).rev().filter(|&at| grow(&mut shadow, at, lengths[at], batch)).count();
                while turn() > 0 {}
                (0..lengths.len()).for_each(|at| shadow.keep(at));
            } else {
                assert!(lengths.len() > 1, "a lone sequence has all blocks");
                refused.set(refused.get() + 1);
            }
            shadow.check();
        }
        while !shadow.open.is_empty() {
            shadow.retire(0);
        }
        shadow.state.groups.iter().for_each(|group| assert_eq!(group.blocks.available(), group.block_count()));
        Ok(())
    };
    TestRunner::new(Config::with_cases(200)).run(&cases, run).unwrap();
    let (fitted, refused) = (fitted.get(), refused.get());
    assert!(fitted > 1000 && refused > 300, "{fitted} fitted, {refused} did not");
}

/// Grows a sequence by one batch towards a length. Returns whether it was shorter.
fn grow(shadow: &mut Shadow, at: usize, (id, len): (SequenceId, usize), batch: usize) -> bool {
    let more = (len - shadow.state.len(id).unwrap()).min(batch);
    if more > 0 {
        shadow.append(at, more);
    }
    more > 0
}
