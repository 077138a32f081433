//! Any bytes as the files of a model's folder: no panic, and every tensor of a folder that opens has its size, or is
//! refused.
#![no_main]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use gristmill_convert::quantize::Mix;
use gristmill_convert::{ConvertOptions, open_folder};
use libfuzzer_sys::fuzz_target;

/// The parts of an input, with a zero byte after each but the last. An empty one is no file, but for the tokenizer.
/// Behind them are the headers of the files of weights, as JSON.
const FILES: [&str; 4] = ["config.json", TOKENIZER, "tokenizer_config.json", INDEX];
const TOKENIZER: &str = "tokenizer.json";
const INDEX: &str = "model.safetensors.index.json";

/// The tokenizer of inputs without one.
static GOOD_TOKENIZER: &[u8] = include_bytes!("../../crates/conformance/golden/convert/llama3/tokenizer.json");

/// Bytes of a file of weights, at most; they are zeros.
const MOST: u64 = 1 << 20;
/// Files of weights, at most.
const SHARDS: usize = 3;

/// An empty folder of this process.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("gristmill-fuzz-folders-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a temporary folder");
    folder
});

fuzz_target!(|input: &[u8]| {
    write(&FOLDER, input);
    for mix in [None, Mix::named("Q4_0")] {
        let options = ConvertOptions { mix, ..ConvertOptions::default() };
        match open_folder(&FOLDER, &options, 1) {
            Ok((file, _)) => {
                for tensor in file.tensors() {
                    match file.load(tensor) {
                        Ok(data) => assert_eq!(data.as_slice().len() as u64, tensor.bytes, "{}", tensor.name),
                        Err(error) => assert!(!error.to_string().is_empty()),
                    }
                }
                assert_eq!(file.fingerprint(), file.fingerprint());
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
});

/// Replaces the files of the folder by those of an input.
fn write(folder: &Path, input: &[u8]) {
    let mut parts = input.split(|&byte| byte == 0);
    let mut sharded = false;
    for name in FILES {
        let part = parts.next().unwrap_or_default();
        let part = if name == TOKENIZER && part.is_empty() { GOOD_TOKENIZER } else { part };
        let _ = fs::remove_file(folder.join(name));
        if !part.is_empty() {
            fs::write(folder.join(name), part).expect("a written file");
        }
        sharded |= name == INDEX && !part.is_empty();
    }
    for shard in 1..=SHARDS {
        let name = match sharded {
            true => format!("model-0000{shard}-of-0000{SHARDS}.safetensors"),
            false if shard == 1 => "model.safetensors".to_owned(),
            false => break,
        };
        let header = parts.next().unwrap_or_default();
        let file = [&(header.len() as u64).to_le_bytes(), header, &vec![0; data_bytes(header)]].concat();
        fs::write(folder.join(name), file).expect("a written file");
    }
}

/// Bytes of data that a header asks for.
fn data_bytes(header: &[u8]) -> usize {
    let header: serde_json::Value = serde_json::from_slice(header).unwrap_or_default();
    let records = header.as_object().into_iter().flat_map(|records| records.values());
    let ends = records.filter_map(|record| record["data_offsets"][1].as_u64());
    usize::try_from(ends.max().unwrap_or_default().min(MOST)).unwrap_or_default()
}
