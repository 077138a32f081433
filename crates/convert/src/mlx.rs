//! Affine codes of MLX: what `config.json` says of each module, and the values.
//!
//! value = scale · code + bias. The codes of a row are one bit stream, lowest bits first, viewed as 32-bit numbers;
//! `{module}.scales` and `{module}.biases` have one number for each group of columns. Checked with mlx 0.32.4.

use gristmill_files::safetensors::Tensor;
use gristmill_kernels::format::Format;
use half::f16;
use serde_json::Value;

use super::checkpoint::Checkpoint;
use super::config::Config;
use super::error::ConvertError;
use super::family::{Family, MLX};

/// The setting with the widths of codes and groups, and with those of single modules.
const SETTING: &str = "quantization";

/// The columns of a block of `Q4_1` and `Q5_1`.
const BLOCK: usize = 32;

/// The quantisation that `config.json` declares.
pub(super) struct Quantization(Option<Config>);

/// Widths of codes and groups.
#[derive(Clone, Copy)]
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
    /// Reads the settings, and refuses quantised folders that are not read, by name.
    pub(super) fn read(family: &Family, config: &Config) -> Result<Quantization, ConvertError> {
        // transformers declares the setting as optional.
        let other = config.clone().without_nulls(&["quantization_config"]);
        if let Some(other) = other.object("quantization_config")?
            && let Some(method) = other.text("quant_method")?
            && method != "mxfp4"
        {
            let expected = "mxfp4 (gpt-oss), or no quant_method and MLX's affine codes; convert the unquantised model";
            return Err(other.wrong("quant_method", &method.into(), expected));
        }
        let found = config.object(SETTING)?;
        let model_type = config.text("model_type")?.unwrap_or_default();
        if found.is_some() && !(MLX.contains(&model_type) && family.model_types.contains(&model_type)) {
            let expected = format!("one of {} in a folder quantised by MLX", MLX.join(", "));
            return Err(config.wrong("model_type", &model_type.into(), expected));
        }
        // Every module may have widths of its own.
        found.as_ref().map(Widths::read).transpose()?;
        Ok(Quantization(found))
    }

    /// The widths of a module whose weight is quantised in the file or not; `None`: it is not quantised.
    pub(super) fn widths(&self, module: &str, quantised: bool) -> Result<Option<Widths>, ConvertError> {
        let Some(all) = &self.0 else { return Ok(None) };
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
        Widths::read(own.as_ref().unwrap_or(all)).map(Some)
    }
}

impl Widths {
    fn read(settings: &Config) -> Result<Widths, ConvertError> {
        if let Some(mode) = settings.text("mode")?.filter(|&mode| mode != "affine") {
            return Err(settings.wrong("mode", &mode.into(), "affine, the only one that is read"));
        }
        let one_of = |key: &str, known: &[u32]| {
            let found = settings.count(key)?.ok_or_else(|| settings.missing(key))?;
            let expected = || known.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            let known = known.contains(&found).then_some(found as usize);
            known.ok_or_else(|| settings.wrong(key, &found.into(), expected()))
        };
        let (bits, group) = (one_of("bits", &[2, 3, 4, 5, 6, 8])?, one_of("group_size", &[32, 64, 128])?);
        Ok(Widths { bits, group })
    }
}

impl Affine {
    /// The format that holds all values: `Q4_1` or `Q5_1` for codes of that width whose scales and biases are F16
    /// numbers, else F32.
    pub(super) fn format(&self, checkpoint: &Checkpoint) -> Format {
        let format = match self.widths.bits {
            4 => Format::Q4_1,
            5 => Format::Q5_1,
            _ => return Format::F32,
        };
        let exact = |tensor| {
            let (data, bytes) = (checkpoint.data(tensor), self.numbers.block_bytes());
            (0..data.len() / bytes).all(|i| {
                let number = self.number(data, i);
                number.is_finite() && f16::from_f32(number).to_f32() == number
            })
        };
        if exact(&self.scales) && exact(&self.biases) { format } else { Format::F32 }
    }

    fn number(&self, data: &[u8], i: usize) -> f32 {
        let (bytes, mut number) = (self.numbers.block_bytes(), [f32::NAN]);
        let _ = data.get(i * bytes..).and_then(|rest| self.numbers.decode(rest.get(..bytes)?, &mut number));
        number[0]
    }

    /// Appends elements in `format`, one that [`Affine::format`] returns or F32; `first` and `count` are multiples of
    /// the width of a group.
    pub(super) fn append(
        &self,
        checkpoint: &Checkpoint,
        first: usize,
        count: usize,
        format: Format,
        out: &mut Vec<u8>,
    ) {
        let Widths { bits, group } = self.widths;
        let (codes, scales) = (checkpoint.data(&self.codes), checkpoint.data(&self.scales));
        let biases = checkpoint.data(&self.biases);
        for start in (first..first + count).step_by(BLOCK) {
            let codes: [u8; BLOCK] = std::array::from_fn(|i| code(codes, start + i, bits));
            let (scale, bias) = (self.number(scales, start / group), self.number(biases, start / group));
            if format == Format::F32 {
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

/// Code `i` of a stream.
fn code(stream: &[u8], i: usize, bits: usize) -> u8 {
    let (byte, shift) = (i * bits / 8, i * bits % 8);
    let [low, high] = [byte, byte + 1].map(|at| stream.get(at).copied().unwrap_or_default());
    (u16::from_le_bytes([low, high]) >> shift) as u8 & (0xff >> (8 - bits))
}

#[cfg(test)]
mod tests {
    use super::code;

    #[test]
    fn codes_straddle_bytes() {
        // 5, 2, 7, 1, 6, 0, 3, 4 in three bits each.
        let stream = [0b1101_0101, 0b0110_0011, 0b1000_1100];
        assert_eq!((0..8).map(|i| code(&stream, i, 3)).collect::<Vec<_>>(), [5, 2, 7, 1, 6, 0, 3, 4]);
        assert_eq!((0..3).map(|i| code(&stream, i, 8)).collect::<Vec<_>>(), stream);
    }
}
