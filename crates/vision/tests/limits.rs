//! What is refused, and with which words; low detail, hashes, and the keys of GGUF files.

use gristmill_vision::{Configs, Detail, Kind, Limits, Picture, PictureError, Piece, ProjectorKeys, Size};
use serde_json::json;

/// A GIF of one pixel whose header declares another size.
fn gif(width: u16, height: u16) -> Vec<u8> {
    let mut file = b"GIF89a".to_vec();
    file.extend(width.to_le_bytes().into_iter().chain(height.to_le_bytes()));
    file.extend(b"\x80\0\0\xff\0\0\0\0\0,");
    file.extend([0, 0, 0, 0].into_iter().chain(width.to_le_bytes()).chain(height.to_le_bytes()));
    file.extend(b"\0\x02\x02\x44\x01\0;");
    file
}

/// A BMP whose header declares a size, with no pixels.
fn bmp(width: i32, height: i32) -> Vec<u8> {
    let mut file = b"BM\0\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0".to_vec();
    file.extend(width.to_le_bytes().into_iter().chain(height.to_le_bytes()));
    file.extend(b"\x01\0\x18\0");
    file.resize(54, 0);
    file
}

#[test]
fn limits_are_checked_on_the_header() {
    let limits = Limits { bytes: 1000, pixels: 10_000, ratio: 200 };
    let refused = |file: &[u8]| {
        let error = Picture::decode(file, &limits).unwrap_err();
        assert_eq!(Picture::size_of(file, &limits), Err(error.clone()));
        error
    };
    assert_eq!(refused(&[0; 1001]), PictureError::Bytes { found: 1001, limit: 1000 });
    // 4 gigapixels would be 12 GB.
    for file in [gif(65535, 65535), bmp(65535, 65535)] {
        assert_eq!(refused(&file), PictureError::Pixels { width: 65535, height: 65535, limit: 10_000 });
    }
    assert_eq!(refused(&gif(201, 1)), PictureError::Ratio { width: 201, height: 1, limit: 200 });
    assert_eq!(refused(&gif(3, 601)), PictureError::Ratio { width: 3, height: 601, limit: 200 });
    assert!(Picture::size_of(&gif(200, 1), &limits).is_ok());
    assert_eq!(Picture::decode(&gif(1, 1), &limits).unwrap().pixels(), [255, 0, 0]);
}

#[test]
fn files_of_other_formats_are_named() {
    for (file, found) in [
        (&b""[..], "no bytes"),
        (b"hello, this is text", "other bytes"),
        (b"%PDF-1.7 and so on", "PDF"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "SVG"),
        (b"\0\0\0\x18ftypheic\0\0\0\0", "HEIC"),
        (b"\0\0\0\x18ftypavif\0\0\0\0", "AVIF"),
        (b"II*\0\x08\0\0\0", "TIFF"),
    ] {
        assert_eq!(Picture::decode(file, &Limits::default()), Err(PictureError::Format { found }));
    }
}

#[test]
fn damaged_files_are_errors() {
    let whole = gif(64, 64);
    let error = Picture::decode(&whole[..20], &Limits::default()).unwrap_err();
    assert!(matches!(error, PictureError::Damaged { format: "GIF", .. }), "{error}");
    let error = Picture::decode(&bmp(4, 4), &Limits::default()).unwrap_err();
    assert!(matches!(error, PictureError::Damaged { format: "BMP", .. }), "{error}");
    for mark in [&b"\x89PNG\r\n\x1a\n"[..], b"\xff\xd8\xff\xe0", b"RIFF\x10\0\0\0WEBPVP8 "] {
        let error = Picture::decode(mark, &Limits::default()).unwrap_err();
        assert!(matches!(error, PictureError::Damaged { .. }), "{error}");
        assert!(!error.to_string().contains('\n'));
    }
}

fn plain(size: Size, byte: u8) -> Picture {
    Picture::new(size, vec![byte; size.width * size.height * 3]).unwrap()
}

#[test]
fn low_detail_has_fewer_tokens_in_every_family() {
    let size = Size { width: 3000, height: 2000 };
    for (kind, high, low) in [
        (Kind::Lfm2Vl, 6 * 256 + 13 * 19, 13 * 19),
        (Kind::Qwen, 29 * 43, 14 * 22),
        (Kind::Gemma4, 13 * 20, 8 * 13),
        (Kind::Gemma4Unified, 13 * 20, 8 * 13),
        (Kind::Gemma3, 256, 256),
        (Kind::Pixtral, 43 * 64, 22 * 32),
    ] {
        let own = kind.processor();
        assert_eq!(own.layout(size, Detail::High).tokens(), high, "{kind:?}");
        assert_eq!(own.layout(size, Detail::Low).tokens(), low, "{kind:?}");
    }
}

/// No picture within limits has more patches than the largest tile that is counted, and the largest has not many fewer.
#[test]
fn the_largest_tile_within_limits_is_counted() {
    let side = 1..=24_u64;
    let kinds = [
        Kind::Lfm2Vl,
        Kind::Qwen,
        Kind::Glm4v,
        Kind::Gemma4,
        Kind::Gemma4Unified,
        Kind::Gemma3,
        Kind::Pixtral,
        Kind::Idefics3,
    ];
    for (kind, pixels) in kinds.into_iter().flat_map(|kind| [1, 500, 40_000, 250_000, 1 << 30].map(|n| (kind, n))) {
        let (own, limits) = (kind.processor(), Limits { pixels, ..Limits::default() });
        let counted = own.most_patches_of(&limits);
        // Sides of many ratios whose product is the limit or less, so that sides round up and down.
        let longest = (pixels * u64::from(limits.ratio)).isqrt();
        let sizes = (1..=2000).map(|step| (longest * step).div_ceil(2000)).flat_map(|width| {
            let most = pixels / width;
            side.clone().map(move |less| (width, (most + 1).saturating_sub(less)))
        });
        let of_sizes = sizes.filter(|&(width, height)| height > 0 && width.max(height) <= 200 * width.min(height));
        let patches = |(width, height): (u64, u64)| {
            let layout = own.layout(Size { width: width as usize, height: height as usize }, Detail::High);
            let tiles = layout.tiles.into_iter();
            tiles.map(|tile| (tile.width / own.patch) * (tile.height / own.patch)).max().unwrap()
        };
        let found = of_sizes.map(patches).max().unwrap();
        assert!(found <= counted, "{kind:?}, {pixels} pixels: {found} patches, counted {counted}");
        assert!(counted <= own.most_patches());
        let is_cut = own.tiling.is_some();
        assert!(is_cut || 2 * found + 500 >= counted, "{kind:?}, {pixels} pixels: {found} patches, counted {counted}");
    }
    let of = |pixels| Kind::Qwen.processor().most_patches_of(&Limits { pixels, ..Limits::default() });
    assert!(of(250_000) * 2 < of(50_000_000), "{} {}", of(250_000), of(50_000_000));
}

#[test]
fn a_hash_is_of_what_the_tower_reads() {
    let own = Kind::Lfm2Vl.processor();
    let size = Size { width: 256, height: 256 };
    let hash = |picture, own: &gristmill_vision::Processor| own.prepare(picture, Detail::High).hash;
    let (grey, other) = (plain(size, 7), plain(size, 8));
    assert_eq!(hash(&grey, &own), hash(&grey, &own));
    assert_ne!(hash(&grey, &own), hash(&other, &own));
    assert_ne!(hash(&grey, &own), hash(&grey, &gristmill_vision::Processor { mean: [0.25; 3], ..own.clone() }));
    // The same bytes in another shape.
    let (wide, high) = (Size { width: 512, height: 256 }, Size { width: 256, height: 512 });
    assert_ne!(hash(&plain(wide, 7), &own), hash(&plain(high, 7), &own));
}

#[test]
fn every_patch_is_a_piece_of_the_picture() {
    // Rows of tokens of Pixtral are pieces of their own, in order.
    let own = Kind::Pixtral.processor();
    let pieces = own.layout(Size { width: 40, height: 33 }, Detail::High).pieces;
    let tokens = |first| Piece::Tokens { tile: 0, first, count: 3 };
    let text = |text: &str| Piece::Text(text.to_owned());
    let expected = [tokens(0), text("[IMG_BREAK]"), tokens(3), text("[IMG_BREAK]"), tokens(6), text("[IMG_END]")];
    assert_eq!(pieces, expected);
}

#[test]
fn keys_of_gguf_files_make_the_processor_of_the_folder() {
    let halves = Some([0.5; 3]);
    let keys = |projector: &str, patch, image_size, merge| ProjectorKeys {
        projector: projector.to_owned(),
        patch,
        image_size,
        merge: Some(merge),
        mean: halves,
        std: halves,
        ..ProjectorKeys::default()
    };
    let folder = |preprocessor: serde_json::Value, model: serde_json::Value| {
        let map = |value: serde_json::Value| value.as_object().cloned();
        Configs { preprocessor: map(preprocessor), processor: None, model: map(model).unwrap() }.read().unwrap()
    };
    let lfm2 = folder(json!({"image_processor_type": "Lfm2VlImageProcessorFast"}), json!({}));
    assert_eq!(keys("lfm2", 16, 256, 2).read().unwrap(), lfm2);
    let qwen = json!({
        "image_processor_type": "Qwen2VLImageProcessorFast", "patch_size": 16, "merge_size": 2,
        "size": {"shortest_edge": 65536, "longest_edge": 16777216}, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
    });
    assert_eq!(keys("qwen3vl_merger", 16, 768, 2).read().unwrap(), folder(qwen, json!({})));
    let glm = json!({
        "image_processor_type": "Glm46VImageProcessorFast", "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
    });
    assert_eq!(keys("glm4v", 14, 336, 2).read().unwrap(), folder(glm, json!({})));
    let gemma4 = folder(json!({"image_processor_type": "Gemma4ImageProcessor", "do_normalize": false}), json!({}));
    assert_eq!(keys("gemma4v", 16, 224, 3).read().unwrap(), gemma4);
    let gemma3 = json!({"image_processor_type": "Gemma3ImageProcessor", "size": {"height": 896, "width": 896}});
    let model = json!({"mm_tokens_per_image": 256, "vision_config": {"patch_size": 14}});
    assert_eq!(keys("gemma3", 14, 896, 4).read().unwrap(), folder(gemma3, model));
    let pixtral = json!({
        "image_processor_type": "PixtralImageProcessorFast", "size": {"longest_edge": 1540}, "patch_size": 14,
        "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
    });
    let model = json!({"spatial_merge_size": 2, "vision_config": {"patch_size": 14}});
    assert_eq!(keys("pixtral", 14, 1540, 2).read().unwrap(), folder(pixtral, model));
    let mut limited = keys("lfm2", 16, 256, 2);
    limited.projector = "kimivl".to_owned();
    assert_eq!(
        limited.read().unwrap_err().to_string(),
        "clip.projector_type: the image processor `kimivl` is not supported; expected one of lfm2, qwen3vl_merger, \
         qwen2.5vl_merger, qwen2vl_merger, glm4v, gemma4v, gemma4uv, gemma3, pixtral, idefics3"
    );
}

#[test]
fn settings_that_change_the_picture_are_refused() {
    for (key, value, part) in [
        ("do_resize", json!(false), "do_resize: false is not supported"),
        ("do_pan_and_scan", json!(true), "do_pan_and_scan: true is not supported"),
        ("resample", json!(0), "resample: the value is not valid (found 0, expected 1 (Lanczos), 2 (bilinear)"),
        ("image_std", json!([0.5, 0, 0.5]), "image_std: the value is not valid (found 0,"),
        ("image_mean", json!([0.5]), "image_mean: the value is not valid (found [0.5], expected three numbers)"),
        ("size", json!({"height": 1e9, "width": 896}), "height: the value is not valid (found 1000000000.0,"),
        ("image_processor_type", json!("CLIPImageProcessor"), "`CLIPImageProcessor` is not supported"),
    ] {
        let mut own = json!({"image_processor_type": "Gemma3ImageProcessor"});
        own[key] = value;
        let configs = Configs { preprocessor: own.as_object().cloned(), ..Configs::default() };
        let error = configs.read().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let own =
        json!({"image_processor_type": "Lfm2VlImageProcessor", "min_image_tokens": 65536, "encoder_patch_size": 256});
    let large =
        Configs { preprocessor: own.as_object().cloned(), ..Configs::default() }.read().unwrap_err().to_string();
    assert!(large.contains("17179869184 pixels"), "{large}");
    let missing = Configs::default().read().unwrap_err().to_string();
    assert!(missing.starts_with("preprocessor_config.json: the key is missing"), "{missing}");
}
