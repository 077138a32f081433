//! Any bytes as a file of an image: pixels within the limits, or an error. What is decoded has the size that the header
//! says, and every family prepares as many patches as its layout has tokens.
#![no_main]

use gristmill_vision::{Detail, Kind, Limits, Picture};
use libfuzzer_sys::fuzz_target;

/// Small pictures, so that the fuzzer spends its time in headers and decoders.
const LIMITS: Limits = Limits { bytes: 1 << 20, pixels: 1 << 16, ratio: 200 };

fuzz_target!(|file: &[u8]| {
    let size = Picture::size_of(file, &LIMITS);
    let Ok(picture) = Picture::decode(file, &LIMITS) else { return };
    assert_eq!(size, Ok(picture.size()));
    assert_eq!(picture.pixels().len(), picture.size().width * picture.size().height * 3);
    // One family for each picture, by its size.
    let kinds = [Kind::Lfm2Vl, Kind::Qwen, Kind::Gemma4, Kind::Gemma3, Kind::Pixtral];
    let processor = kinds[picture.size().width % kinds.len()].processor();
    let layout = processor.layout(picture.size(), Detail::Low);
    let prepared = processor.prepare(&picture, Detail::Low);
    let tokens = prepared.tiles.iter().map(|tile| tile.rows.div_ceil(processor.merge) * tile.columns.div_ceil(processor.merge));
    assert_eq!(tokens.sum::<usize>(), layout.tokens());
});
