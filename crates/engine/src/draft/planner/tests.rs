//! The planner in simulated engines: what it plans, and what the plans cost.

use super::*;

/// A device and a text: the time of a step in microseconds, and the chance of each place.
struct Simulated<'a> {
    time: &'a dyn Fn(usize, usize) -> f64,
    chance: &'a dyn Fn(usize) -> f64,
    random: u64,
    /// What the first and the second step with each number of sequences and draft tokens take longer.
    start_up: f64,
    /// Times vary by this share.
    noise: f64,
    met: HashMap<(usize, usize), u32>,
}

/// The result of a simulation.
struct Ran {
    tokens: usize,
    /// Microseconds.
    time: f64,
    steps: usize,
    /// The draft tokens of the last steps, for each sequence.
    last: f64,
}

impl<'a> Simulated<'a> {
    fn new(time: &'a dyn Fn(usize, usize) -> f64, chance: &'a dyn Fn(usize) -> f64, random: u64) -> Self {
        Simulated { time, chance, random, start_up: 0.0, noise: 0.0, met: HashMap::new() }
    }

    /// The time of the next step.
    fn take(&mut self, sequences: usize, drafts: usize) -> f64 {
        let met = self.met.entry((sequences, drafts)).or_default();
        *met += 1;
        let start_up = if *met <= 2 { self.start_up } else { 0.0 };
        let varies = if self.noise > 0.0 { 1.0 + self.noise * (2.0 * self.next() - 1.0) } else { 1.0 };
        (self.time)(sequences, drafts) * varies + start_up
    }

    fn next(&mut self) -> f64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Steps until each of these sequences has this number of tokens in the mean.
    fn run(&mut self, planner: &mut Planner, sequences: usize, most: usize, tokens: usize) -> Ran {
        let mut own = vec![Acceptance::default(); sequences];
        (0..sequences).for_each(|_| planner.start_request());
        let mut ran = Ran { tokens: 0, time: 0.0, steps: 0, last: 0.0 };
        let mut counts = Vec::new();
        while ran.tokens < tokens * sequences {
            let candidates: Vec<_> = own.iter().map(|acceptance| Candidate { acceptance, most }).collect();
            let plan = planner.plan(sequences, usize::MAX, &candidates);
            let drafted: usize = plan.iter().sum();
            let time = self.take(sequences, drafted);
            let mut all = 0;
            for (own, &count) in own.iter_mut().zip(&plan) {
                let accepted = (0..count).take_while(|&place| self.next() < (self.chance)(place)).count();
                if count > 0 {
                    planner.count(own, count, accepted);
                }
                all += accepted;
            }
            let time_of_step = Duration::from_nanos((time * 1000.0) as u64);
            planner.measure(Measured { sequences, planned: drafted, drafted, accepted: all, time: time_of_step });
            ran = Ran { tokens: ran.tokens + sequences + all, time: ran.time + time, steps: ran.steps + 1, ..ran };
            counts.push(drafted);
        }
        let last = counts.len().min(50);
        ran.last = counts[counts.len() - last..].iter().sum::<usize>() as f64 / (last * sequences) as f64;
        ran
    }
}

/// The speed with draft tokens as a multiple of that without, in an engine that has served some requests.
fn gain(
    time: &dyn Fn(usize, usize) -> f64,
    chance: &dyn Fn(usize) -> f64,
    sequences: usize,
    most: usize,
) -> (f64, Ran) {
    let mut planner = Planner::default();
    let mut simulated = Simulated::new(time, chance, 7);
    simulated.run(&mut planner, sequences, most, 300);
    let ran = simulated.run(&mut planner, sequences, most, 1000);
    let speed = ran.tokens as f64 / ran.time;
    (speed * time(sequences, 0) / sequences as f64, ran)
}

/// Rows that cost this share of a plain step of one sequence.
fn each(share: f64) -> impl Fn(usize, usize) -> f64 {
    move |sequences, drafts| 1000.0 * (1.0 + share * (sequences - 1 + drafts) as f64)
}

#[test]
fn if_nothing_is_accepted_drafts_cost_less_than_three_percent() {
    for share in [0.0, 0.02, 0.1, 0.5, 1.0] {
        for (sequences, most) in [(1, 1), (1, 3), (1, 8), (4, 4), (32, 4)] {
            let (gain, ran) = gain(&each(share), &|_| 0.0, sequences, most);
            assert!(gain > 0.97, "{share} {sequences} {most}: {gain}");
            assert!(share < 0.1 || ran.last < 0.1, "{share} {sequences} {most}: {}", ran.last);
        }
    }
    // The first request of an engine pays for what it learns.
    let time = each(0.5);
    let mut planner = Planner::default();
    let mut simulated = Simulated::new(&time, &|_| 0.0, 3);
    let ran = simulated.run(&mut planner, 1, 3, 300);
    assert!(ran.tokens as f64 * 1000.0 / ran.time > 0.97, "{} in {}", ran.tokens, ran.time);
}

/// The first text of an engine, of any length, on a device that needs time once for each new kind of step.
#[test]
fn if_nothing_is_accepted_a_short_text_costs_less_than_three_percent() {
    for share in [0.05, 0.3, 1.0] {
        for start_up in [0.0, 0.5, 3.0, 30.0] {
            for (sequences, most) in [(1, 2), (1, 3), (4, 2), (4, 3), (16, 3)] {
                for tokens in [10, 40, 90, 200, 600] {
                    let time = each(share);
                    let mut simulated = Simulated::new(&time, &|_| 0.0, 5);
                    simulated.start_up = 1000.0 * start_up;
                    let ran = simulated.run(&mut Planner::default(), sequences, most, tokens);
                    let plain = ran.steps as f64 * time(sequences, 0) + 2.0 * simulated.start_up;
                    let cost = ran.time / plain;
                    assert!(cost < 1.03, "{share} {start_up} {sequences} {most} {tokens}: {cost}");
                }
            }
        }
    }
}

/// Times that vary neither hide what drafts cost nor keep them from a text that is predictable.
#[test]
fn times_that_vary_mislead_little() {
    for seed in 0..20 {
        for (sequences, most) in [(1, 3), (4, 3)] {
            let time = each(0.1);
            let mut simulated = Simulated::new(&time, &|_| 0.0, seed);
            simulated.noise = 0.15;
            let ran = simulated.run(&mut Planner::default(), sequences, most, 2000);
            let cost = ran.time / (ran.steps as f64 * time(sequences, 0));
            assert!(cost < 1.03, "{seed} {sequences}: {cost}");
            simulated.chance = &|_| 0.8;
            let mut planner = Planner::default();
            simulated.run(&mut planner, sequences, most, 200);
            let ran = simulated.run(&mut planner, sequences, most, 1000);
            assert!(ran.last > 0.9, "{seed} {sequences}: {}", ran.last);
        }
    }
}

/// A device that captures steps pays for it before drafts gain.
#[test]
fn a_predictable_text_soon_gets_drafts() {
    let time = each(0.2);
    for (start_up, most_tokens) in [(0.0, 80), (1.0, 250)] {
        let mut simulated = Simulated::new(&time, &|_| 0.9, 11);
        simulated.start_up = 1000.0 * start_up;
        let mut planner = Planner::default();
        let mut tokens = 0;
        while simulated.run(&mut planner, 1, 3, 10).last == 0.0 {
            tokens += 10;
            assert!(tokens < most_tokens, "{start_up}");
        }
    }
}

#[test]
fn the_number_of_drafts_is_near_the_best_fixed_one() {
    for share in [0.01, 0.05, 0.2, 0.45] {
        for chance in [0.3, 0.6, 0.8, 0.95] {
            let (found, ran) = gain(&each(share), &|_| chance, 1, 4);
            let of = |n: usize| (0..=n).map(|k| chance.powi(k as i32)).sum::<f64>() / (1.0 + share * n as f64);
            let best = (0..=4).map(of).fold(0.0, f64::max);
            assert!(found > 0.94 * best, "{share} {chance}: {found} of {best}, {} drafts", ran.last);
        }
    }
}

#[test]
fn a_larger_batch_gets_fewer_drafts() {
    // A device that computes up to 24 rows in the time of one.
    let time = |sequences: usize, drafts: usize| 1000.0 * ((sequences + drafts) as f64 / 24.0).max(1.0);
    let found = [1, 4, 8, 16, 32].map(|sequences| gain(&time, &|_| 0.8, sequences, 4));
    let drafts: Vec<f64> = found.iter().map(|(_, ran)| ran.last).collect();
    assert!(drafts[0] > 3.5 && drafts[1] > 3.0, "{drafts:?}");
    // One step in 64 has none: it may be among the last 50.
    assert!(drafts.is_sorted_by(|a, b| *a >= b - 0.1) && drafts[4] < 0.1, "{drafts:?}");
    assert!(found.iter().all(|(gain, _)| *gain > 0.97), "{:?}", found.map(|(gain, _)| gain));
}

#[test]
fn sequences_that_accept_more_get_more() {
    let mut planner = Planner::default();
    let time = |drafted| Duration::from_micros(1000 + 400 * drafted);
    let [mut good, mut bad] = [Acceptance::default(), Acceptance::default()];
    for _ in 0..30 {
        planner.count(&mut good, 3, 3);
        planner.count(&mut bad, 3, 0);
    }
    for drafted in [0, 0, 1, 2, 4, 6].repeat(3) {
        let step = Measured { sequences: 2, planned: drafted, drafted, accepted: drafted, time: time(drafted as u64) };
        planner.measure(step);
    }
    let candidates = [&bad, &good].map(|acceptance| Candidate { acceptance, most: 3 });
    assert_eq!(planner.plan(2, 99, &candidates), [0, 3]);
    assert_eq!(planner.plan(2, 2, &candidates), [0, 2]);
    let candidates = [Candidate { acceptance: &good, most: 1 }, Candidate { acceptance: &good, most: 0 }];
    assert_eq!(planner.plan(2, 99, &candidates), [1, 0]);
}

#[test]
fn tries_become_rare_and_a_success_brings_drafts_back() {
    let time = each(0.4);
    let mut planner = Planner::default();
    let mut simulated = Simulated::new(&time, &|_| 0.0, 1);
    simulated.run(&mut planner, 1, 2, 3000);
    assert_eq!(planner.retry, MAX_RETRY);
    planner.start_request();
    assert_eq!(planner.retry, RETRY);
    // The text becomes predictable.
    simulated.chance = &|_| 0.95;
    let ran = simulated.run(&mut planner, 1, 2, 600);
    assert!(ran.last > 1.5 && ran.steps < 500, "{} drafts in {} steps", ran.last, ran.steps);
}

#[test]
fn a_growing_context_is_measured_again() {
    let mut planner = Planner::default();
    let own = Acceptance::default();
    let mut plain = 0;
    for at in 0..2000u64 {
        let drafted = planner.plan(1, 9, &[Candidate { acceptance: &own, most: 2 }])[0];
        // The first tries follow some steps without draft tokens.
        plain += usize::from(drafted == 0 && at >= 100);
        // Draft tokens cost a tenth of a step of any length.
        let time = Duration::from_micros((1000 + 10 * at) * (10 + drafted as u64) / 10);
        planner.measure(Measured { sequences: 1, planned: drafted, drafted, accepted: drafted, time });
    }
    assert!((20..60).contains(&plain), "{plain} steps without draft tokens");
}

#[test]
fn the_groups_of_numbers() {
    assert_eq!([1, 2, 7, 8, 9, 10, 16, 17, 20, 21, 33].map(group), [1, 2, 7, 8, 10, 10, 16, 20, 20, 24, 40]);
    assert!((1..500).all(|n| group(n) >= n && grain(group(n)) == grain(n)));
}
