//! A synthetic vision tower: random weights in the shapes of Qwen3-VL's and Qwen 3.5's, in F16.

use std::path::Path;

use gristmill_files::gguf::{GgufWriter, write_atomically};
use gristmill_kernels::format::Format;

use super::error::SyntheticError;
use crate::random::Random;

/// The published shape.
const LAYERS: usize = 27;
const WIDTH: usize = 1152;
const INNER: usize = 4304;
const HEADS: u32 = 16;
const PATCH: usize = 16;
const MERGE: usize = 2;
/// Rows of the square table of positions.
const POSITIONS: usize = 48 * 48;

/// Numbers of the pool from which matrices are filled: a prime, so that rows differ.
const POOL: usize = 65_537;

/// Writes an `mmproj` file for a text model of this width.
///
/// # Errors
/// If the file cannot be written.
pub fn write_tower(path: &Path, text_width: usize) -> Result<(), SyntheticError> {
    let tensors = tensors(text_width);
    let mut header = GgufWriter::new();
    header.set("general.architecture", "clip")?;
    header.set("general.type", "mmproj")?;
    header.set("clip.has_vision_encoder", true)?;
    header.set("clip.projector_type", "qwen3vl_merger")?;
    for (key, value) in [
        ("image_size", 768),
        ("patch_size", PATCH as u32),
        ("embedding_length", WIDTH as u32),
        ("feed_forward_length", INNER as u32),
        ("projection_dim", text_width as u32),
        ("block_count", LAYERS as u32),
        ("attention.head_count", HEADS),
        ("spatial_merge_size", MERGE as u32),
    ] {
        header.set(&format!("clip.vision.{key}"), value)?;
    }
    header.set("clip.vision.attention.layer_norm_epsilon", 1e-6_f32)?;
    header.set("clip.vision.image_mean", vec![0.5_f32; 3])?;
    header.set("clip.vision.image_std", vec![0.5_f32; 3])?;
    header.set("clip.use_gelu", true)?;
    for (name, shape, format) in &tensors {
        header.tensor(name, *format, shape)?;
    }
    let mut random = Random::named("tower");
    let pool: Vec<f32> = (0..POOL).map(|_| random.normal()).collect();
    write_atomically(path, |out| {
        let mut out = header.begin(out)?;
        for (name, shape, format) in &tensors {
            out.write_tensor(name, &bytes(name, shape, *format, &pool))?;
        }
        out.finish()?;
        Ok(())
    })
}

/// The bytes of a tensor: norms of 1, and else numbers whose products keep the size of their inputs.
fn bytes(name: &str, shape: &[u64], format: Format, pool: &[f32]) -> Vec<u8> {
    let count = shape.iter().product::<u64>() as usize;
    let inputs = shape.split_last().map_or(1, |(_, inputs)| inputs.iter().product::<u64>().max(1));
    let scale = if shape.len() > 1 { (inputs as f32).powf(-0.5) } else { 0.1 };
    let is_norm = (name.contains("ln") || name.contains("norm")) && name.ends_with("weight");
    let value = |at: usize| if is_norm { 1.0 } else { pool[at % pool.len()] * scale };
    let values: Vec<f32> = (0..count).map(value).collect();
    let mut bytes = vec![0; count * format.block_bytes()];
    format.encode(&values, &mut bytes);
    bytes
}

/// Name, shape and format of each tensor.
fn tensors(text_width: usize) -> Vec<(String, Vec<u64>, Format)> {
    let mut all = Vec::new();
    let mut add = |name: String, shape: &[usize], format| {
        all.push((name, shape.iter().map(|&n| n as u64).collect(), format));
    };
    let joined = WIDTH * MERGE * MERGE;
    for kernel in ["weight", "weight.1"] {
        add(format!("v.patch_embd.{kernel}"), &[PATCH, PATCH, 3, WIDTH], Format::F32);
    }
    add("v.patch_embd.bias".to_owned(), &[WIDTH], Format::F32);
    add("v.position_embd.weight".to_owned(), &[WIDTH, POSITIONS], Format::F32);
    let mut linear = |name: String, inputs: usize, outputs: usize| {
        add(format!("{name}.weight"), &[inputs, outputs], Format::F16);
        add(format!("{name}.bias"), &[outputs], Format::F32);
    };
    for layer in 0..LAYERS {
        let of = |part: &str| format!("v.blk.{layer}.{part}");
        linear(of("attn_qkv"), WIDTH, 3 * WIDTH);
        linear(of("attn_out"), WIDTH, WIDTH);
        linear(of("ffn_up"), WIDTH, INNER);
        linear(of("ffn_down"), INNER, WIDTH);
    }
    linear("mm.0".to_owned(), joined, joined);
    linear("mm.2".to_owned(), joined, text_width);
    let norms = (0..LAYERS).flat_map(|layer| ["ln1", "ln2"].map(|part| format!("v.blk.{layer}.{part}")));
    for norm in norms.chain(["v.post_ln".to_owned()]) {
        for part in ["weight", "bias"] {
            add(format!("{norm}.{part}"), &[WIDTH], Format::F32);
        }
    }
    all
}
