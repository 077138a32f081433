//! Folders of quantised models with random damage: each is refused with an error, or every tensor that it says it has can be
//! read in its size.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};

use gristmill_convert::{ConvertOptions, open_folder};
use serde_json::{Map, Value, json};

use super::folder::Folder;
use super::mlx::WEIGHTS;
use super::packed::{FOLDERS, packed};

/// Random numbers (SplitMix64).
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((x ^ (x >> 31)) % limit as u64) as usize
    }
}

/// Damaged copies of each folder.
const COPIES: u64 = 60;

#[test]
fn random_damage_is_refused_or_harmless() {
    let mut opened = 0;
    for (number, (name, _)) in FOLDERS.iter().enumerate() {
        let folder = packed(name, "packed-hostile");
        let originals = ["config.json", WEIGHTS].map(|file| (file, fs::read(folder.path(file)).unwrap()));
        for seed in 0..COPIES {
            let rng = &mut Rng(1000 * number as u64 + seed);
            originals.iter().for_each(|(file, bytes)| folder.write(file, bytes));
            let damage = match rng.below(4) {
                0 => settings(&folder, rng),
                1 => header(&folder, rng),
                2 => numbers(&folder, rng),
                _ => shape(&folder, rng),
            };
            let read = catch_unwind(AssertUnwindSafe(|| read(&folder)));
            opened += usize::from(read.unwrap_or_else(|_| panic!("{name}, {seed}: {damage}")));
        }
    }
    // Most of the damage is to scales and codes.
    assert!(opened > FOLDERS.len(), "{opened}");
}

/// Reads all tensors of a folder; whether it could be opened.
fn read(folder: &Folder) -> bool {
    match open_folder(&folder.0, &ConvertOptions::default(), 2) {
        Ok((file, _)) => {
            for tensor in file.tensors() {
                match file.load(tensor) {
                    Ok(data) => assert_eq!(data.as_slice().len() as u64, tensor.bytes, "{}", tensor.name),
                    Err(error) => assert!(!error.to_string().is_empty()),
                }
            }
            true
        }
        Err(error) => {
            let error = error.to_string();
            assert!(!error.is_empty() && !error.contains('\n'), "{error}");
            false
        }
    }
}

/// A value that a setting should not have, or may have.
fn strange(rng: &mut Rng) -> Value {
    match rng.below(9) {
        0 => Value::Null,
        1 => json!(rng.below(9)),
        2 => json!(-1),
        3 => json!(u64::MAX),
        4 => json!([0, 1u64 << 40]),
        5 => json!({"group_0": {"weights": {"num_bits": 3}}}),
        6 => json!(0.5),
        7 => json!(rng.below(2) == 0),
        _ => json!(["gptq", "awq", "gptq_p", "compressed-tensors", "channel", ""][rng.below(6)]),
    }
}

/// Changes a setting of the quantisation, at any depth.
fn settings(folder: &Folder, rng: &mut Rng) -> String {
    fn change(value: &mut Value, rng: &mut Rng) -> String {
        match value {
            Value::Object(entries) if !entries.is_empty() && rng.below(5) > 0 => {
                let at = rng.below(entries.len());
                let (key, value) = entries.iter_mut().nth(at).unwrap();
                format!("{key}.{}", change(value, rng))
            }
            value => {
                *value = strange(rng);
                value.to_string()
            }
        }
    }
    let mut damage = String::new();
    folder.json("config.json", |config| damage = change(&mut config["quantization_config"], rng));
    damage
}

/// Changes a record of the weights' header: removes it, renames it, or gives it another type or shape.
fn header(folder: &Folder, rng: &mut Rng) -> String {
    let mut damage = String::new();
    folder.bytes(WEIGHTS, |bytes| {
        let length = u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
        let mut records: Map<String, Value> = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
        let name = records.keys().nth(rng.below(records.len())).unwrap().clone();
        let mut record = records.remove(&name).unwrap();
        damage = name.clone();
        match rng.below(4) {
            0 => {}
            1 => drop(records.insert(format!("{name}_"), record)),
            2 => {
                record["dtype"] = json!(["I32", "I8", "U8", "F16", "BF16", "F32", "F8_E4M3", "I64"][rng.below(8)]);
                records.insert(name, record);
            }
            _ => {
                if let Some(shape) = record["shape"].as_array_mut() {
                    shape.reverse();
                }
                records.insert(name, record);
            }
        }
        let header = Value::Object(records).to_string();
        *bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &bytes[8 + length..]].concat();
    });
    damage
}

/// Fills a tensor with one byte, or with random bytes.
fn numbers(folder: &Folder, rng: &mut Rng) -> String {
    let mut damage = String::new();
    let mut count = 0;
    folder.tensors(WEIGHTS, |_, _, _| count += 1);
    let wanted = rng.below(count);
    let byte = [0, 0xff, 0x7f, 0x80, 1][rng.below(5)];
    count = 0;
    folder.tensors(WEIGHTS, |name, _, bytes| {
        if count == wanted {
            damage = format!("{name} of {byte}");
            bytes.iter_mut().for_each(|it| *it = if byte == 1 { rng.below(256) as u8 } else { byte });
        }
        count += 1;
    });
    damage
}

/// Cuts or repeats a dimension of a tensor.
fn shape(folder: &Folder, rng: &mut Rng) -> String {
    let mut damage = String::new();
    let mut count = 0;
    folder.tensors(WEIGHTS, |_, _, _| count += 1);
    let wanted = rng.below(count);
    let twice = rng.below(2) == 0;
    count = 0;
    folder.tensors(WEIGHTS, |name, shape, bytes| {
        if let Some(first) = shape.first_mut().filter(|first| count == wanted && (twice || **first > 1)) {
            let row = bytes.len() / *first;
            *first = if twice { *first * 2 } else { *first - 1 };
            bytes.resize(row * *first, 0x55);
            damage = format!("{name} {shape:?}");
        }
        count += 1;
    });
    damage
}
