//! What `config.json` says of the quantisation of each module, and the values of MLX's affine codes.
//!
//! value = scale · code + bias. The codes of a row are one bit stream, lowest bits first, viewed as 32-bit numbers;
//! `{module}.scales` and `{module}.biases` have one number for each group of columns. Checked with mlx 0.32.4.

use std::path::Path;

use gristmill_files::safetensors::Tensor;
use gristmill_kernels::format::{Format, affine};
use half::f16;
use serde_json::Value;

use super::checkpoint::Checkpoint;
use super::config::Config;
use super::error::ConvertError;
use super::family::Family;
use super::floats::FloatMode;
use super::packed::{self, Packed};

/// The setting with the widths of codes and groups, and with those of single modules.
const SETTING: &str = "quantization";

/// The program that quantised a folder otherwise.
const METHOD: &str = "quant_method";

/// The settings of FP8: rows and columns of a block with one scale (`null`: a matrix has one), and the kind of float.
const BLOCK_SIZE: &str = "weight_block_size";
const FP8_KIND: &str = "fmt";

/// Bits of a code, and columns of a group.
pub(super) const BITS: [usize; 6] = [2, 3, 4, 5, 6, 8];
pub(super) const GROUPS: [usize; 3] = [32, 64, 128];

/// The columns of a block of `Q4_1` and `Q5_1`.
const BLOCK: usize = 32;

/// The use that tensors are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A GGUF file.
    File,
    /// The engine, which reads affine codes too.
    Engine,
}

/// The quantisation that `config.json` declares.
pub(super) struct Quantization {
    settings: Option<Config>,
    /// Tensors may be named, stacked and split as MLX has them.
    pub(super) form: bool,
    pub(super) target: Target,
    /// The settings of weights that GPTQ, AWQ, compressed-tensors or ModelOpt have quantised.
    pub(super) packed: Option<Packed>,
    /// What has one scale in FP8, if the folder may have such weights.
    pub(super) fp8: Option<Scaled>,
    /// Weights in FP8 become F32, because they get another format; otherwise BF16.
    pub(super) fp8_exact: bool,
}

/// What has one scale in FP8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scaled {
    /// A block of these rows and columns.
    Block([usize; 2]),
    /// A matrix.
    Matrix,
}

/// How the codes of a module are to be read.
#[derive(Clone, Copy)]
pub(super) enum Mode {
    Affine(Widths),
    Floats(FloatMode),
}

/// Widths of codes and groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Widths {
    pub(super) bits: usize,
    pub(super) group: usize,
}

/// A matrix, or a stack of them, in affine codes.
#[derive(Clone)]
pub(super) struct Affine {
    pub(super) codes: Tensor,
    pub(super) scales: Tensor,
    pub(super) biases: Tensor,
    /// The format of the numbers of `scales` and `biases`.
    pub(super) numbers: Format,
    pub(super) widths: Widths,
}

impl Quantization {
    /// Reads the settings, and refuses quantised folders that are not read, by name. `model_type` is that of the folder,
    /// where a text model is within another. `mixed`: weights get other formats.
    pub(super) fn read(
        folder: &Path,
        model_type: &str,
        config: &Config,
        target: Target,
        mixed: bool,
    ) -> Result<Quantization, ConvertError> {
        let other = packed::config(folder, config)?;
        let packed = other.as_ref().map(Packed::read).transpose()?.flatten();
        let mut fp8 = None;
        if let Some(packed) = &packed {
            fp8 = Some(packed.block.map_or(Scaled::Matrix, Scaled::Block));
        } else if let Some(other) = other.as_ref().filter(|other| other.value(METHOD) == Some(&"fp8".into())) {
            fp8 = Some(scaled_of_fp8(other)?);
        }
        let found = config.object(SETTING)?;
        if let (Some(_), Some(other), Some(_)) = (&found, &other, &packed) {
            let method = other.value(METHOD).cloned().unwrap_or_default();
            return Err(other.wrong(METHOD, &method, format!("none, because `{SETTING}` has the codes of MLX")));
        }
        let form = Family::read_of_mlx().any(|known| known == model_type);
        if found.is_some() && !form {
            let known = Family::read_of_mlx().collect::<Vec<_>>().join(", ");
            let expected = format!("one of {known} in a folder quantised by MLX");
            return Err(config.wrong("model_type", &model_type.into(), expected));
        }
        // Every module may have widths of its own.
        found.as_ref().map(Mode::read).transpose()?;
        Ok(Quantization { settings: found, form, target, packed, fp8, fp8_exact: mixed })
    }

    /// Whether the folder is quantised by MLX, or in codes of another program.
    pub(super) fn is_there(&self) -> bool {
        self.settings.is_some() || self.packed.is_some()
    }

    /// The mode of a module whose weight is quantised in the file or not; `None`: it is not quantised.
    pub(super) fn mode(&self, module: &str, quantised: bool) -> Result<Option<Mode>, ConvertError> {
        let Some(all) = &self.settings else { return Ok(None) };
        let own = match all.value(module) {
            Some(own @ Value::Bool(false)) if quantised => {
                return Err(all.wrong(module, own, "the widths of its codes, because the file has codes"));
            }
            Some(own @ (Value::Object(_) | Value::Bool(true))) if !quantised => {
                return Err(all.wrong(module, own, "false, because the file has floats"));
            }
            Some(Value::Bool(_)) | None => None,
            Some(_) => all.object(module)?,
        };
        if !quantised {
            return Ok(None);
        }
        Mode::read(own.as_ref().unwrap_or(all)).map(Some)
    }
}

/// What has one scale in FP8.
fn scaled_of_fp8(settings: &Config) -> Result<Scaled, ConvertError> {
    if let Some(kind) = settings.text(FP8_KIND)?.filter(|kind| !["e4m3", "float8_e4m3fn"].contains(kind)) {
        return Err(settings.wrong(FP8_KIND, &kind.into(), "e4m3"));
    }
    // transformers declares the setting as optional.
    let settings = settings.clone().without_nulls(&[BLOCK_SIZE]);
    let Some(sizes) = settings.numbers(BLOCK_SIZE)? else { return Ok(Scaled::Matrix) };
    match *sizes {
        [rows, columns] if rows >= 1.0 && columns >= 1.0 && rows.fract() == 0.0 && columns.fract() == 0.0 => {
            Ok(Scaled::Block([rows as usize, columns as usize]))
        }
        _ => Err(settings.wrong(BLOCK_SIZE, &sizes.into(), "rows and columns of a block, as [128, 128]")),
    }
}

impl Mode {
    fn read(settings: &Config) -> Result<Mode, ConvertError> {
        let mode = settings.text("mode")?.unwrap_or("affine");
        let floats = FloatMode::NAMES.iter().find(|(name, _)| *name == mode);
        match floats {
            Some(&(_, floats)) => {
                for (key, wanted) in [("bits", floats.bits()), ("group_size", floats.group())] {
                    if let Some(found) = settings.count(key)?.filter(|&found| found as usize != wanted) {
                        return Err(settings.wrong(key, &found.into(), format!("{wanted}, as {mode} has it")));
                    }
                }
                Ok(Mode::Floats(floats))
            }
            None if mode == "affine" => Widths::read(settings).map(Mode::Affine),
            None => Err(settings.wrong("mode", &mode.into(), "affine, mxfp4, mxfp8 or nvfp4")),
        }
    }
}

impl Widths {
    fn read(settings: &Config) -> Result<Widths, ConvertError> {
        let one_of = |key: &str, known: &[usize]| {
            let found = settings.count(key)?.ok_or_else(|| settings.missing(key))?;
            let expected = || known.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
            let known = Some(found as usize).filter(|found| known.contains(found));
            known.ok_or_else(|| settings.wrong(key, &found.into(), expected()))
        };
        let (bits, group) = (one_of("bits", &BITS)?, one_of("group_size", &GROUPS)?);
        Ok(Widths { bits, group })
    }
}

impl Affine {
    /// The smallest format that holds all values of rows of `columns`, or F32. GGUF files have `Q4_1` and `Q5_1` for codes of
    /// that width whose scales and biases are F16 numbers; the engine also puts narrower codes into wider ones.
    ///
    /// # Errors
    /// If the engine is to read a scale or bias that is not finite. (A file is checked when it is written.)
    pub(super) fn format(&self, checkpoint: &Checkpoint, target: Target, columns: u64) -> Result<Format, ConvertError> {
        let Widths { bits, group } = self.widths;
        let files = match bits {
            4 => Some(Format::Q4_1),
            5 => Some(Format::Q5_1),
            _ => None,
        };
        if target == Target::File && files.is_none() {
            return Ok(Format::F32);
        }
        let (scales, biases) = (self.numbers_of(checkpoint, &self.scales), self.numbers_of(checkpoint, &self.biases));
        let half = scales == Numbers::Half && biases == Numbers::Half;
        if target == Target::File {
            return Ok(files.filter(|_| half).unwrap_or(Format::F32));
        }
        for (tensor, numbers) in [(&self.scales, scales), (&self.biases, biases)] {
            if numbers == Numbers::NotFinite {
                return Err(ConvertError::NotFinite(tensor.name.clone()));
            }
        }
        let blocks = match (bits, group) {
            (5, _) | (..=4, 32) if half => Some(if bits == 5 { Format::Q5_1 } else { Format::Q4_1 }),
            _ => Format::affine(bits, !half || group == 32),
        };
        Ok(blocks.filter(|format| columns.is_multiple_of(format.block_len() as u64)).unwrap_or(Format::F32))
    }

    /// The kind of all numbers of `scales` or `biases`.
    fn numbers_of(&self, checkpoint: &Checkpoint, tensor: &Tensor) -> Numbers {
        let mut found = Numbers::Half;
        let mut numbers = [0.0; 1024];
        for part in checkpoint.data(tensor).chunks(numbers.len() * self.numbers.block_bytes()) {
            let numbers = &mut numbers[..part.len() / self.numbers.block_bytes()];
            let decoded = self.numbers.decode(part, numbers);
            if decoded.is_none() || !numbers.iter().all(|number| number.is_finite()) {
                return Numbers::NotFinite;
            }
            if numbers.iter().any(|&number| f16::from_f32(number).to_f32() != number) {
                found = Numbers::Single;
            }
        }
        found
    }

    /// Numbers `first .. first + count` of `scales` or `biases`.
    fn some_numbers(&self, data: &[u8], first: usize, count: usize) -> Vec<f32> {
        let bytes = self.numbers.block_bytes();
        let mut numbers = vec![f32::NAN; count];
        let _ =
            data.get(first * bytes..).and_then(|rest| self.numbers.decode(rest.get(..count * bytes)?, &mut numbers));
        numbers
    }

    /// Appends elements in `format`, one that [`Affine::format`] returns or F32; `first` and `count` are multiples of the
    /// format's blocks.
    pub(super) fn append(
        &self,
        checkpoint: &Checkpoint,
        first: usize,
        count: usize,
        format: Format,
        out: &mut Vec<u8>,
    ) {
        let Widths { bits, group } = self.widths;
        let codes = checkpoint.data(&self.codes);
        let end = first + count;
        let groups = first / group..(first + count).div_ceil(group);
        let numbers = |tensor| self.some_numbers(checkpoint.data(tensor), groups.start, groups.len());
        let (scales, biases) = (numbers(&self.scales), numbers(&self.biases));
        let head = |start: usize| [scales[start / group - groups.start], biases[start / group - groups.start]];
        if format.ggml_type().is_none() {
            for start in (first..end).step_by(affine::BLOCK) {
                let halves = [start, start + BLOCK];
                let mut both = [0; affine::BLOCK];
                let parts = both.as_chunks_mut::<BLOCK>().0;
                parts.iter_mut().zip(halves).for_each(|(part, start)| *part = block_of_codes(codes, start, bits));
                let end = out.len();
                out.resize(end + format.block_bytes(), 0);
                let put = affine::put_block(format, halves.map(head), &both, &mut out[end..]);
                debug_assert!(put.is_some(), "an affine format");
            }
            return;
        }
        for start in (first / BLOCK * BLOCK..end).step_by(BLOCK) {
            let codes = block_of_codes(codes, start, bits);
            let [scale, bias] = head(start);
            if format == Format::F32 {
                // Heads of other widths may start and end within a block.
                let codes = &codes[first.saturating_sub(start)..BLOCK.min(end - start)];
                codes.iter().for_each(|&q| out.extend((scale * f32::from(q) + bias).to_le_bytes()));
                continue;
            }
            out.extend(f16::from_f32(scale).to_le_bytes());
            out.extend(f16::from_f32(bias).to_le_bytes());
            if format == Format::Q5_1 {
                let high = codes.iter().enumerate().fold(0, |high, (i, &q)| high | u32::from(q >> 4) << i);
                out.extend(high.to_le_bytes());
            }
            let (low, high) = codes.split_at(BLOCK / 2);
            out.extend(low.iter().zip(high).map(|(&low, &high)| low & 15 | high << 4));
        }
    }
}

/// The smallest kind of numbers that scales or biases are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Numbers {
    /// All are those of F16.
    Half,
    /// All are finite.
    Single,
    NotFinite,
}

/// Codes `start .. start + 32` of a stream, `start` a multiple of 8; zeros past its end.
fn block_of_codes(stream: &[u8], start: usize, bits: usize) -> [u8; BLOCK] {
    let mut codes = [0; BLOCK];
    // Eight codes take `bits` bytes.
    let bytes = stream.get(start / 8 * bits..).unwrap_or_default().chunks(bits);
    for (eight, bytes) in codes.as_chunks_mut::<8>().0.iter_mut().zip(bytes) {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        let word = u64::from_le_bytes(word);
        for (i, code) in eight.iter_mut().enumerate() {
            *code = (word >> (i * bits)) as u8 & (0xff >> (8 - bits));
        }
    }
    codes
}

#[cfg(test)]
mod tests {
    use super::block_of_codes;

    #[test]
    fn codes_straddle_bytes() {
        // 5, 2, 7, 1, 6, 0, 3, 4 in three bits each.
        let stream = [0b1101_0101, 0b0110_0011, 0b1000_1100];
        assert_eq!(block_of_codes(&stream, 0, 3)[..8], [5, 2, 7, 1, 6, 0, 3, 4]);
        assert_eq!(block_of_codes(&stream, 0, 8)[..3], stream);
        assert_eq!(block_of_codes(&stream, 8, 3), [0; 32]);
    }
}
