//! Layers whose state has a fixed size.

use super::*;
use crate::spec::ConvolutionSpec;
use crate::state::checkpoints::OPENING;

/// [`spec`], with a convolution after each layer.
fn with_convolutions(windows: &[Option<usize>]) -> ModelSpec {
    let mut spec = spec(windows);
    let convolution = |layer: &LayerSpec| LayerSpec {
        mixer: Mixer::Convolution(ConvolutionSpec { taps: 3 }),
        mlp: layer.mlp.clone(),
    };
    spec.layers = spec.layers.iter().flat_map(|layer| [layer.clone(), convolution(layer)]).collect();
    spec
}

#[test]
fn states_of_fixed_size_are_counted() {
    let backend = Reference::backend();
    let [without, with] = [spec(&[None]), with_convolutions(&[None])]
        .map(|spec| State::bytes(&backend, &spec, &limits(), CONTEXT, Reuse::Prefixes));
    // Two slots for each of three sequences and six for the prefix cache, of two inputs of two channels.
    assert_eq!(with - without, (2 * 3 + 6) * 2 * 2 * 4);
    assert_eq!(State::bytes(&backend, &with_convolutions(&[]), &limits(), CONTEXT, Reuse::Prefixes), 0);
    // A draft model has none for the prefix cache.
    let own = State::bytes(&backend, &with_convolutions(&[None]), &limits(), CONTEXT, Reuse::Nothing);
    assert_eq!(own - without, (2 * 3) * 2 * 2 * 4);
}

proptest! {
    /// A sequence can be truncated to the state before its last batch and to nothing, whatever others do; slots are
    /// counted right, and there are always enough.
    #[test]
    fn states_of_fixed_size_have_checkpoints(
        steps in prop::collection::vec((0usize..3, 0usize..6, 0usize..CONTEXT), 1..200),
    ) {
        let backend = Reference::backend();
        let spec = with_convolutions(&[Some(60), None]);
        let mut state = State::new(&backend, &spec, &limits(), CONTEXT, Reuse::Prefixes).unwrap();
        // Each sequence with its length before its last batch.
        let mut open: Vec<Option<(SequenceId, usize)>> = vec![None; 3];
        for (at, what, n) in steps {
            match (open[at], what) {
                (None, _) => {
                    let other = open.iter().flatten().next().copied().filter(|_| what > 2);
                    open[at] = Some(match other {
                        Some((other, before)) => (state.fork(other).unwrap(), before),
                        None => (state.open().unwrap(), 0),
                    });
                }
                (Some((id, _)), 0) => {
                    state.retire(id, &[7; CONTEXT]).unwrap();
                    open[at] = None;
                }
                (Some((id, before)), 1 | 2) => {
                    let len = state.len(id).unwrap();
                    let asked = if what == 1 { n } else { before };
                    let allowed = [0, before].contains(&asked) || asked >= len;
                    let nearest = state.checkpoint(id, asked).unwrap();
                    prop_assert_eq!(nearest, if asked >= len { len } else if asked >= before { before } else { 0 });
                    let done = state.truncate(id, asked);
                    prop_assert_eq!(done.is_ok(), allowed);
                    if done.is_ok() && asked < len {
                        open[at] = Some((id, 0));
                        prop_assert_eq!(state.len(id).unwrap(), asked);
                    }
                }
                (Some((id, _)), _) => {
                    let len = state.len(id).unwrap();
                    let more = 1 + n % TOKENS;
                    let done = state.append(&backend, id, more);
                    prop_assert_eq!(done.is_ok(), len + more <= CONTEXT);
                    if done.is_ok() {
                        open[at] = Some((id, len));
                    }
                }
            }
            let lens = state.slots.iter().map(|slot| if slot.open { slot.len } else { 0 }).collect::<Vec<_>>();
            state.groups.iter().for_each(|group| group.check(&lens));
            state.fixed.as_ref().unwrap().check(&lens);
        }
    }
}

/// A state of these groups and of convolutions, with checkpoints at each block that is requested.
fn shadow(windows: &[Option<usize>]) -> Shadow {
    let spec = with_convolutions(windows);
    let mut state = State::new(&Reference::backend(), &spec, &limits(), CONTEXT, Reuse::Prefixes).unwrap();
    state.spacing = KV_BLOCK;
    Shadow::of(state)
}

impl Shadow {
    /// Grows a sequence to a length, in batches that end where checkpoints are planned.
    fn read(&mut self, at: usize, len: usize) {
        let id = self.open[at].0;
        loop {
            let have = self.state.len(id).unwrap();
            let end = self.state.next_checkpoint(id).unwrap().unwrap_or(len).min(len).min(have + TOKENS);
            if end == have {
                return;
            }
            self.append(at, end - have);
            self.keep(at);
        }
    }
}

#[test]
fn a_sequence_starts_where_another_left_its_state() {
    let mut shadow = shadow(&[None]);
    // The texts of 4 and 3 have 72 tokens in common: whole blocks of 64.
    assert_eq!(shadow.open(0, 4), 0);
    shadow.read(0, 123);
    shadow.retire(0);
    // A text continues at its end.
    assert_eq!(shadow.open(0, 4), 123);
    shadow.read(0, 200);
    shadow.check();
    // The first to differ leaves its state there, the second starts with it, and so does the one that went first.
    assert_eq!((shadow.open(0, 3), shadow.state.next_checkpoint(shadow.open[1].0).unwrap()), (0, Some(64)));
    shadow.read(1, 90);
    assert_eq!(shadow.open(0, 5), 64);
    shadow.check();
    // Near the end of a text as it was asked for: 8 tokens before its 300.
    shadow.read(0, CONTEXT);
    shadow.close(2);
    shadow.retire(0);
    assert_eq!(shadow.open(0, 4), CONTEXT);
    let (id, len) = shadow.state.open_with(0, &text(4)[..295]).unwrap();
    assert_eq!(len, 288);
    shadow.state.close(id).unwrap();
    let (id, len) = shadow.state.open_with(1, &text(4)).unwrap();
    assert_eq!((len, shadow.state.next_checkpoint(id).unwrap()), (0, Some(288)));
}

/// A length within a batch whose inputs are kept, until the next batch.
#[test]
fn a_batch_with_kept_inputs_is_shortened_to_any_length() {
    let mut shadow = shadow(&[None]);
    shadow.open(0, 4);
    shadow.append(0, 30);
    shadow.append(0, 6);
    let id = shadow.open[0].0;
    assert_eq!(shadow.state.checkpoint(id, 34).unwrap(), 30);
    shadow.keep_inputs(0, 6);
    assert_eq!([40, 36, 34, 30, 29].map(|len| shadow.state.checkpoint(id, len).unwrap()), [36, 36, 34, 30, 0]);
    shadow.state.truncate(id, 34).unwrap();
    assert!(shadow.state.is_due(id).unwrap());
    // The prefix cache does not get a state that is not computed.
    assert_eq!(shadow.state.fixed.as_ref().unwrap().slot_at(0, 34), None);
    shadow.replay();
    assert!(shadow.state.fixed.as_ref().unwrap().slot_at(0, 34).is_some());
    shadow.state.truncate(id, 33).unwrap();
    shadow.check();
    shadow.replay();
    // The state before the batch needs no replay.
    shadow.state.truncate(id, 30).unwrap();
    assert!(!shadow.state.needs_replay());
    shadow.check();
    shadow.append(0, 3);
    shadow.keep_inputs(0, 3);
    let other = shadow.open(0, 2);
    shadow.append(1, other + 2);
    shadow.keep_inputs(1, 2);
    // The inputs of the batch before are overwritten.
    assert_eq!(shadow.state.checkpoint(id, 32).unwrap(), 30);
    shadow.check();
}

#[test]
fn checkpoints_are_apart() {
    let spec = with_convolutions(&[None]);
    let mut state = State::new(&Reference::backend(), &spec, &limits(), CONTEXT, Reuse::Prefixes).unwrap();
    let (id, _) = state.open_with(0, &text(1)[..SPACING + OPENING - 1]).unwrap();
    assert_eq!(state.next_checkpoint(id).unwrap(), None);
    for (len, next) in [(SPACING - 1, None), (260, Some(256)), (144, Some(256)), (130, Some(128)), (136, Some(128))] {
        state.plan_checkpoint(id, len).unwrap();
        assert_eq!(state.next_checkpoint(id).unwrap(), next, "{len}");
    }
    assert_eq!([127, 128, 255, 256].map(|len| state.leaves(id, len).unwrap()), [0, 128, 128, 256]);
    // A model without such layers leaves all blocks, and no batch must end anywhere.
    let mut state =
        State::new(&Reference::backend(), &self::spec(&[None]), &limits(), CONTEXT, Reuse::Prefixes).unwrap();
    let (id, _) = state.open_with(0, &text(1)).unwrap();
    state.plan_checkpoint(id, 256).unwrap();
    assert_eq!((state.next_checkpoint(id).unwrap(), state.leaves(id, 127).unwrap()), (None, 112));
}

/// Draft tokens that nobody requested any more are no part of a text.
#[test]
fn a_text_ends_before_its_state() {
    let mut shadow = shadow(&[None]);
    shadow.open(0, 2);
    shadow.append(0, 30);
    shadow.append(0, 5);
    let (id, ..) = shadow.open.remove(0);
    shadow.state.retire(id, &text(2)[..33]).unwrap();
    assert_eq!(shadow.open(0, 2), 30);
    shadow.check();
}

proptest! {
    /// Whatever is done, no sequence continues from another text's state, and slots never run out.
    #[test]
    fn shared_states_are_those_of_the_text(
        windows in prop::sample::select(vec![vec![None], vec![], vec![None, Some(20)], vec![Some(33)]]),
        steps in prop::collection::vec((0usize..9, 0usize..3, 1usize..6, 1usize..=TOKENS), 1..150),
    ) {
        let mut shadow = shadow(&[&windows[..], &[None]].concat());
        for (what, at, variant, n) in steps {
            if at >= shadow.open.len() {
                shadow.open((variant % 2) as u64, variant);
                shadow.check();
                continue;
            }
            let (id, tenant, variant) = shadow.open[at];
            let len = shadow.state.len(id).unwrap();
            if ![0, 2, 4].contains(&what) {
                shadow.replay();
            }
            match what {
                0 if n % 2 == 0 => shadow.close(at),
                0 | 1 => shadow.retire(at),
                2 => {
                    let asked = shadow.state.checkpoint(id, len * n / TOKENS).unwrap();
                    shadow.state.truncate(id, asked).unwrap();
                }
                3 if n == 1 => shadow.state.evict_prefix(id).unwrap(),
                3 if shadow.open.len() < 3 => {
                    let fork = shadow.state.fork(id).unwrap();
                    shadow.open.push((fork, tenant, variant));
                }
                4 => shadow.state.plan_checkpoint(id, len + n).unwrap(),
                5 => shadow.append(at, n),
                6 if len + n <= CONTEXT => {
                    shadow.append(at, n);
                    shadow.keep_inputs(at, n);
                    shadow.check();
                    // Some tokens are rejected, perhaps more of them later.
                    for rejected in [n / 2, n / 3].into_iter().filter(|_| n % 3 > 0) {
                        let len = shadow.state.len(id).unwrap() - rejected.min(shadow.state.len(id).unwrap() - len);
                        shadow.state.truncate(id, len).unwrap();
                        shadow.check();
                    }
                }
                _ => shadow.read(at, (len + n).min(CONTEXT)),
            }
            shadow.check();
        }
        while !shadow.open.is_empty() {
            shadow.close(0);
        }
        let slots = &shadow.state.fixed.as_ref().unwrap().slots;
        prop_assert_eq!(slots.available(), slots.count());
    }
}
