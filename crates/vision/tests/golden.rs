//! Pictures against Pillow and the processors of transformers (`scripts/golden/pictures.py`).

use gristmill_vision::{Configs, Detail, Filter, Limits, Patches, Picture, Piece, Processor, Size, resized};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

fn cases(name: &str) -> Vec<Value> {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The pixels of the script's `noise`.
fn noise(size: Size, seed: u64) -> Vec<u8> {
    let byte = |i: u64| {
        let mut x = (i + (seed << 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((x ^ (x >> 31)) >> 56) as u8
    };
    (0..(size.width * size.height * 3) as u64).map(byte).collect()
}

fn size(value: &Value) -> Size {
    let side = |index: usize| value[index].as_u64().unwrap() as usize;
    Size { width: side(0), height: side(1) }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &Value) -> Vec<u8> {
    let digits = hex.as_str().unwrap().as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

#[test]
fn resizing_is_pillows_to_the_byte() {
    for case in cases("resize.json") {
        let (from, to) = (size(&case["from"]), size(&case["to"]));
        let filter = match case["filter"].as_str().unwrap() {
            "bilinear" => Filter::Bilinear,
            "bicubic" => Filter::Bicubic,
            _ => Filter::Lanczos,
        };
        let pixels = noise(from, case["seed"].as_u64().unwrap());
        let out = resized(&pixels, (from.width, from.height), (to.width, to.height), filter);
        assert_eq!(hex(&Sha256::digest(&out)), case["sha256"], "{case}");
    }
}

#[test]
fn files_decode_to_pillows_pixels() {
    let mut failures = Vec::new();
    for case in cases("files.json") {
        let (file, expected) = (bytes(&case["file"]), bytes(&case["rgb"]));
        let own =
            Size { width: case["width"].as_u64().unwrap() as usize, height: case["height"].as_u64().unwrap() as usize };
        let name = &case["name"];
        let picture = match Picture::decode(&file, &Limits::default()) {
            Ok(picture) => picture,
            Err(error) => {
                failures.push(format!("{name}: {error}"));
                continue;
            }
        };
        if picture.size() != own || Picture::size_of(&file, &Limits::default()).unwrap() != own {
            failures.push(format!("{name}: {:?} instead of {own:?}", picture.size()));
            continue;
        }
        let differences = picture.pixels().iter().zip(&expected).map(|(a, b)| u64::from(a.abs_diff(*b)));
        let largest = differences.max().unwrap();
        if largest > case["tolerance"].as_u64().unwrap() {
            failures.push(format!("{name}: a pixel differs by {largest}"));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// The bytes before normalising, in the order of the patches.
fn unnormalised(own: &Processor, tile: &Patches) -> Vec<u8> {
    let plane = own.patch * own.patch;
    let byte = |(index, value): (usize, &f32)| {
        let channel = index / plane % 3;
        ((f64::from(*value) * f64::from(own.std[channel]) + f64::from(own.mean[channel])) / own.scale).round() as u8
    };
    tile.values.iter().enumerate().map(byte).collect()
}

fn written(own: &Processor, pieces: &[Piece]) -> String {
    let text = |piece: &Piece| match piece {
        Piece::Text(text) => text.clone(),
        Piece::Tokens { count, .. } => format!("{}*{count}", own.marks.token),
    };
    pieces.iter().map(text).collect()
}

#[test]
fn processors_prepare_what_transformers_prepares() {
    let map = |value: &Value| -> Option<Map<String, Value>> { value.as_object().cloned() };
    for case in cases("processors.json") {
        let configs = Configs {
            preprocessor: map(&case["preprocessor"]),
            processor: map(&case["processor"]),
            model: map(&case["model"]).unwrap(),
        };
        let own = configs.read().unwrap();
        let from = size(&case["size"]);
        let place = format!("{} {} {from:?}", case["preprocessor"], case["processor"]);
        let layout = own.layout(from, Detail::High);
        assert_eq!(written(&own, &layout.pieces), case["text"], "{place}");
        let picture = Picture::new(from, noise(from, case["seed"].as_u64().unwrap())).unwrap();
        let prepared = own.prepare(&picture, Detail::High);
        let tiles = case["tiles"].as_array().unwrap();
        assert_eq!(prepared.tiles.len(), tiles.len(), "{place}");
        for ((tile, expected), of_layout) in prepared.tiles.iter().zip(tiles).zip(&layout.tiles) {
            assert_eq!(
                (tile.rows as u64, tile.columns as u64),
                (expected["rows"].as_u64().unwrap(), expected["columns"].as_u64().unwrap()),
                "{place}"
            );
            assert_eq!((tile.rows * own.patch, tile.columns * own.patch), (of_layout.height, of_layout.width));
            assert_eq!(hex(&Sha256::digest(unnormalised(&own, tile))), expected["sha256"], "{place}");
            for sample in expected["samples"].as_array().unwrap() {
                let (found, value) = (tile.values[sample[0].as_u64().unwrap() as usize], sample[1].as_f64().unwrap());
                // transformers normalises in two orders of operations, with f32 roundings.
                assert!((f64::from(found) - value).abs() <= 5e-7 * value.abs().max(1.0), "{place}: {found} {value}");
            }
        }
    }
}

/// Damaged files are errors, or pictures of the size that their header says. The fuzz target `images` goes on with this.
#[test]
fn damaged_files_do_not_panic() {
    let limits = Limits { bytes: 1 << 20, pixels: 1 << 16, ratio: 200 };
    let mut random = noise(Size { width: 1 << 16, height: 1 }, std::process::id().into()).into_iter().cycle();
    let mut number = |below: usize| (0..3).fold(0, |n, _| n << 8 | usize::from(random.next().unwrap())) % below.max(1);
    let mut decoded = 0;
    for case in cases("files.json") {
        let whole = bytes(&case["file"]);
        for _ in 0..40 {
            let mut file = whole.clone();
            for _ in 0..=number(3) {
                let at = number(file.len());
                match number(3) {
                    0 => file.truncate(at),
                    1 => file[at] = number(256) as u8,
                    _ => file[at] ^= 1 << number(8),
                }
                if file.is_empty() {
                    break;
                }
            }
            let size = Picture::size_of(&file, &limits);
            if let Ok(picture) = Picture::decode(&file, &limits) {
                assert_eq!(size, Ok(picture.size()), "{}: {file:?}", case["name"]);
                decoded += 1;
            }
        }
    }
    assert!(decoded > 0, "no damaged file is decoded");
}
