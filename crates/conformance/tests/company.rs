//! On a CPU, a text's logits are the same bits alone and in company: whatever shares its batches, however its tokens are
//! cut into batches, and whoever computed its beginning.

use std::path::Path;
use std::sync::Arc;

use gristmill_cpu::{Cpu, Level};
use gristmill_engine::gguf::GgufFile;
use gristmill_engine::{Batch, Limits, LoadOptions, Model, Outputs, Precision, Runner, SequenceId};
use gristmill_kernels::kv::KvFormat;

const LENGTH: usize = 45;
/// Tokens that all texts begin with.
const SHARED: usize = 25;
const TEXTS: usize = 4;

/// Splitmix64, seeded by the time.
struct Random(u64);

impl Random {
    fn fresh() -> Random {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        println!("seed {}", now.as_nanos() as u64);
        Random(now.as_nanos() as u64)
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) % end as u64) as usize
    }
}

fn runner(model: &Arc<Model>, kv_format: KvFormat, sequences: usize, batch_tokens: usize) -> Runner {
    let output_rows = Some(batch_tokens);
    let limits = Limits { context: Some(LENGTH), sequences, batch_tokens, output_rows, kv_format };
    Runner::new(model.clone(), limits).unwrap()
}

/// The bits of the logits of each token that a batch adds, by sequence.
fn forward(runner: &mut Runner, parts: &[(SequenceId, &[u32])]) -> Vec<Vec<Vec<u32>>> {
    let mut batch = Batch::new();
    for (id, tokens) in parts {
        batch.push(*id, tokens, Outputs::All);
    }
    let mut logits = runner.forward(&batch).unwrap();
    let vocab = logits.vocab();
    let bits: Vec<u32> = logits.to_vec().unwrap().into_iter().map(f32::to_bits).collect();
    let mut rows = bits.chunks(vocab).map(<[u32]>::to_vec);
    parts.iter().map(|(_, tokens)| rows.by_ref().take(tokens.len()).collect()).collect()
}

fn check(model: &Arc<Model>, kv_format: KvFormat, random: &mut Random, case: &str) {
    let vocab = model.spec().vocab;
    let mut text = |n: usize| (0..n).map(|_| random.below(vocab) as u32).collect::<Vec<u32>>();
    let shared = text(SHARED);
    let texts: Vec<Vec<u32>> = (0..TEXTS).map(|_| [&shared[..], &text(LENGTH - SHARED)].concat()).collect();
    let alone = texts.iter().map(|text| {
        let mut runner = runner(model, kv_format, 1, LENGTH);
        let id = runner.open_sequence().unwrap();
        forward(&mut runner, &[(id, text)]).remove(0)
    });
    let alone: Vec<Vec<Vec<u32>>> = alone.collect();

    let mut runner = runner(model, kv_format, TEXTS, 32);
    let mut reused = 0;
    for round in 0..3 {
        // The first opens alone, so that the others find its beginning.
        let mut open: Vec<(usize, SequenceId, usize)> = Vec::new();
        let mut waiting: Vec<usize> = (0..TEXTS).collect();
        while !open.is_empty() || !waiting.is_empty() {
            if let Some(text) = waiting.pop() {
                let (id, have) = runner.open_sequence_with(0, &texts[text][..LENGTH - 1]).unwrap();
                reused += have;
                open.push((text, id, have));
            }
            let chunks: Vec<_> = open.iter().map(|&(_, _, at)| (1 + random.below(8)).min(LENGTH - at)).collect();
            let parts = open.iter().zip(&chunks).map(|(&(text, id, at), n)| (id, &texts[text][at..at + n]));
            let found = forward(&mut runner, &parts.collect::<Vec<_>>());
            for (((text, id, at), n), rows) in open.iter_mut().zip(chunks).zip(found) {
                for (row, expected) in rows.iter().zip(&alone[*text][*at..]) {
                    assert!(row == expected, "{case}: text {text} from token {at} differs in round {round}");
                }
                *at += n;
                runner.keep_prefix(*id, &texts[*text]).unwrap();
            }
            open.retain(|&(text, id, at)| {
                if at == LENGTH {
                    runner.retire_sequence(id, &texts[text]).unwrap();
                }
                at < LENGTH
            });
        }
    }
    assert!(reused > LENGTH, "{case}: {reused} tokens were reused");
}

#[test]
fn logits_do_not_depend_on_company() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_model = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.ends_with(".gguf") && !name.ends_with(".logits.gguf")
    };
    let models: Vec<_> = names.filter(is_model).collect();
    assert!(models.len() > 30, "{} golden models", models.len());
    let mut random = Random::fresh();
    for level in Level::NAMES.iter().filter_map(|name| Level::named(name).ok()) {
        for (path, number) in models.iter().zip(0..) {
            let precision = if number % 4 == 0 { Precision::Exact } else { Precision::Fast };
            let kv_format = if number % 3 == 0 { KvFormat::Q8_0 } else { KvFormat::F16 };
            let options = LoadOptions { precision, ..LoadOptions::default() };
            let backend = Arc::new(Cpu::backend(level, 2).unwrap());
            let file = GgufFile::open(path).unwrap();
            let model = Arc::new(Model::with_backend(file, backend, options).unwrap());
            let case = format!("{} on {}", path.file_name().unwrap().to_string_lossy(), level.name());
            check(&model, kv_format, &mut random, &case);
        }
    }
}
