//! Generated choices of experts, with the locality of published models.
//!
//! Expert e has at token t the score
//!
//! ```text
//! popularity · P(e) + topic · S(e, t) + phrase · F(e, t) + n(e, t)
//! ```
//!
//! of standard normals: P is the same in all texts, S and F are autoregressive (AR(1)) in t, n is new at each token. The experts with
//! the largest scores are chosen.

use std::cmp::Ordering;

use gristmill_engine::ForcedExperts;
use gristmill_engine::model::spec::RouterSize;

use crate::random::Random;

/// How much the next tokens of a text use the experts of the last ones.
#[derive(Debug, PartialEq)]
pub struct Locality {
    /// On the command line.
    pub name: &'static str,
    popularity: f32,
    topic: f32,
    phrase: f32,
    /// Tokens after which a topic, and a phrase, is forgotten by 1 − 1 / e.
    topic_tokens: f32,
    phrase_tokens: f32,
}

/// All localities. `weak` and `strong` are fitted to hit rates of caches that keep the experts that were chosen last, of models with
/// 8 of 128 experts: Gemma 4 26B (jundot/omlx#2595), and Qwen3-30B-A3B (kekzl/imp#1359, #1374).
pub const LOCALITIES: [Locality; 3] = [
    Locality { name: "uniform", popularity: 0.0, topic: 0.0, phrase: 0.0, topic_tokens: 1.0, phrase_tokens: 1.0 },
    Locality { name: "weak", popularity: 0.390, topic: 1.101, phrase: 0.022, topic_tokens: 17.0, phrase_tokens: 3.01 },
    Locality {
        name: "strong",
        popularity: 0.978,
        topic: 2.392,
        phrase: 1.940,
        topic_tokens: 103.7,
        phrase_tokens: 2.43,
    },
];

/// The experts of a text, token by token.
pub struct Text {
    layers: Vec<Layer>,
}

impl Locality {
    /// A text of a model with these routers. Texts with the same seed share the popularity of experts.
    pub fn text(&'static self, routers: &[RouterSize], seed: u64, number: usize) -> Text {
        let layer = |(at, &router): (usize, &RouterSize)| {
            let named = |part: &str| Random::named(&format!("routing {seed}, layer {at}, {part}"));
            Layer::new(self, router, named("popularity"), named(&format!("text {number}")))
        };
        Text { layers: routers.iter().enumerate().map(layer).collect() }
    }

    /// The share of choices that are among the experts of a layer that were chosen last, as many as there are slots, after the first
    /// tokens of a text.
    pub fn hits(&'static self, router: RouterSize, slots: usize) -> f64 {
        const TEXTS: usize = 2;
        if slots >= router.experts {
            return 1.0;
        }
        let hits = |number| hits_of(&mut self.text(&[router], 0, number), slots, [128, 384]);
        (0..TEXTS).map(hits).sum::<f64>() / TEXTS as f64
    }
}

/// The share of choices that are among the last ones of a text's layers, of `counted` tokens after `skipped` ones.
fn hits_of(text: &mut Text, slots: usize, [skipped, counted]: [usize; 2]) -> f64 {
    // The experts that were chosen last, the oldest first.
    let (mut last, mut hits, mut choices): (Vec<u32>, _, _) = (Vec::new(), 0, 0);
    for token in 0..skipped + counted {
        for id in text.next().ids {
            let found = last.iter().position(|&other| other == id);
            if token >= skipped {
                choices += 1;
                hits += usize::from(found.is_some_and(|at| last.len() - at <= slots));
            }
            if let Some(at) = found {
                last.remove(at);
            }
            last.push(id);
        }
    }
    hits as f64 / choices.max(1) as f64
}

impl Text {
    /// The experts of the next token, with equal weights.
    pub fn next(&mut self) -> ForcedExperts {
        let mut ids = Vec::new();
        self.layers.iter_mut().for_each(|layer| layer.choose(&mut ids));
        ForcedExperts { ids, weights: Vec::new() }
    }
}

struct Layer {
    locality: &'static Locality,
    top_k: usize,
    popularity: Vec<f32>,
    topic: Vec<f32>,
    phrase: Vec<f32>,
    random: Random,
    scores: Vec<(f32, u32)>,
}

impl Layer {
    fn new(locality: &'static Locality, router: RouterSize, mut popular: Random, mut random: Random) -> Self {
        let normals = |random: &mut Random| (0..router.experts).map(|_| random.normal()).collect();
        Self {
            locality,
            top_k: router.top_k,
            popularity: normals(&mut popular),
            topic: normals(&mut random),
            phrase: normals(&mut random),
            random,
            scores: Vec::new(),
        }
    }

    /// Chooses the experts of the next token, the best first.
    fn choose(&mut self, ids: &mut Vec<u32>) {
        let Self { locality, top_k, popularity, topic, phrase, random, scores } = self;
        let mut step = |values: &mut [f32], tokens: f32| {
            let kept = (-1.0 / tokens).exp();
            values.iter_mut().for_each(|x| *x = kept * *x + (1.0 - kept * kept).sqrt() * random.normal());
        };
        step(topic, locality.topic_tokens);
        step(phrase, locality.phrase_tokens);
        scores.clear();
        let parts = popularity.iter().zip(topic).zip(phrase).zip(0..);
        scores.extend(parts.map(|(((p, s), f), id)| {
            (locality.popularity * *p + locality.topic * *s + locality.phrase * *f + random.normal(), id)
        }));
        let order = |a: &(f32, u32), b: &(f32, u32)| -> Ordering { b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)) };
        if *top_k < scores.len() {
            scores.select_nth_unstable_by(*top_k, order);
            scores.truncate(*top_k);
        }
        scores.sort_unstable_by(order);
        ids.extend(scores.iter().map(|score| score.1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router(experts: usize, top_k: usize) -> RouterSize {
        let mut router = RouterSize::default();
        (router.experts, router.top_k) = (experts, top_k);
        router
    }

    /// Published hit rates by slots, of texts of about 256 tokens from an empty cache.
    const PUBLISHED: [(&str, &[(usize, f64)]); 2] = [
        ("weak", &[(16, 0.45), (32, 0.67), (64, 0.89)]),
        ("strong", &[(8, 0.366), (24, 0.741), (49, 0.894), (81, 0.962)]),
    ];

    #[test]
    fn hit_rates_are_those_of_published_models() {
        for (name, rates) in PUBLISHED {
            let locality = LOCALITIES.iter().find(|locality| locality.name == name).unwrap();
            for &(slots, published) in rates {
                let of = |number| hits_of(&mut locality.text(&[router(128, 8)], 5, number), slots, [0, 256]);
                let found = (0..6).map(of).sum::<f64>() / 6.0;
                println!("{name}, {slots} slots: {found:.3} ({published})");
                // The fit has 0.02 to 0.03; texts differ.
                assert!((found - published).abs() < 0.07, "{name}, {slots} slots: {found:.3} ({published})");
            }
        }
        let uniform = LOCALITIES[0].hits(router(128, 8), 32);
        assert!((uniform - 0.25).abs() < 0.03, "{uniform}");
        assert_eq!(LOCALITIES[1].hits(router(128, 8), 128), 1.0);
        assert_eq!(LOCALITIES[1].hits(router(128, 8), 0), 0.0);
    }

    #[test]
    fn texts_have_experts_that_models_accept_and_differ_by_seed_and_number() {
        let routers = [router(16, 4), router(0, 0), router(64, 64)];
        let first = |seed, number| -> Vec<ForcedExperts> {
            let mut text = LOCALITIES[2].text(&routers, seed, number);
            (0..20).map(|_| text.next()).collect()
        };
        first(1, 0).iter().for_each(|experts| experts.check(&routers).unwrap());
        assert_eq!(first(1, 0), first(1, 0));
        assert_ne!(first(1, 0), first(1, 1));
        assert_ne!(first(1, 0), first(2, 0));
    }
}
