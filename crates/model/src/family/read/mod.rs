//! Reads metadata into parts of a spec, and notes which keys are read, so that unused ones can be listed.

mod attention;
mod latent;
mod mlp;
mod recurrent;

pub(in crate::family) use attention::Sections;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Display;

use gristmill_files::gguf::{FromValue, GgufFile, Value};

use crate::error::{Error, Result};
use crate::limits::MAX_CONTEXT;
use crate::spec::{AttentionSpec, BlockInputs, LayerSpec, Mixer, MlpSpec, ModelSpec, NormKind, Pooling};

/// The largest width or head count; products of two fit 64 bits.
const MAX_WIDTH: usize = 1 << 24;
/// The most experts that the router supports.
const MAX_EXPERTS: usize = 1024;
/// How many of the layers, the last, predict further tokens (next-token prediction, MTP).
const PREDICTION_LAYERS: &str = "nextn_predict_layers";

/// A file whose metadata keys are remembered once they are read.
pub(crate) struct Source<'a> {
    file: &'a GgufFile,
    seen: RefCell<BTreeSet<String>>,
}

impl<'a> Source<'a> {
    pub(crate) fn new(file: &'a GgufFile) -> Self {
        Self { file, seen: RefCell::default() }
    }

    pub(crate) fn optional<T: FromValue<'a>>(&self, key: &str) -> Result<Option<T>> {
        self.seen.borrow_mut().insert(key.to_owned());
        Ok(self.file.metadata().optional(key)?)
    }

    pub(crate) fn required<T: FromValue<'a>>(&self, key: &str) -> Result<T> {
        self.seen.borrow_mut().insert(key.to_owned());
        Ok(self.file.metadata().required(key)?)
    }

    /// Keys that were not read, in file order, without `general.` (which describes the file) and `split.` (its parts).
    pub(crate) fn unused_keys(&self) -> Vec<String> {
        let seen = self.seen.borrow();
        let unused = |key: &&str| !(seen.contains(*key) || key.starts_with("general.") || key.starts_with("split."));
        self.file.metadata().iter().map(|(key, _)| key).filter(unused).map(str::to_owned).collect()
    }
}

/// The message of a limit of gristmill itself.
fn supported(max: usize) -> String {
    format!("is more than the {max} that gristmill supports")
}

/// The keys of one architecture: `{arch}.{suffix}`.
pub(super) struct KeyReader<'a> {
    source: &'a Source<'a>,
    arch: &'static str,
}

impl<'a> KeyReader<'a> {
    pub(super) fn new(source: &'a Source<'a>, arch: &'static str) -> Self {
        Self { source, arch }
    }

    fn key(&self, suffix: &str) -> String {
        format!("{}.{suffix}", self.arch)
    }

    fn wrong<T>(&self, suffix: &str, found: impl Display, rule: impl Into<String>) -> Result<T> {
        Err(Error::Value { key: self.key(suffix), found: found.to_string(), rule: rule.into() })
    }

    pub(super) fn tensor(&self, name: &str) -> bool {
        self.source.file.tensor(name).is_some()
    }

    /// A count of at least 1. Zero, where converters write it for "none", is `None`.
    fn optional_count(&self, suffix: &str, max: usize) -> Result<Option<usize>> {
        match self.source.optional::<usize>(&self.key(suffix))? {
            None | Some(0) => Ok(None),
            Some(n) if n <= max => Ok(Some(n)),
            Some(n) => self.wrong(suffix, n, supported(max)),
        }
    }

    /// A count of at least 1 and at most what gristmill supports.
    fn count(&self, suffix: &str, max: usize) -> Result<usize> {
        self.count_within(suffix, max, || supported(max))
    }

    /// A count of at least 1 and at most `max`; `rule` says what sets that limit, as a phrase that follows the number.
    fn count_within(&self, suffix: &str, max: usize, rule: impl Fn() -> String) -> Result<usize> {
        match self.source.required::<usize>(&self.key(suffix))? {
            0 => self.wrong(suffix, 0, "must be at least 1"),
            n if n <= max => Ok(n),
            n => self.wrong(suffix, n, rule()),
        }
    }

    /// A finite number above zero.
    fn optional_number(&self, suffix: &str) -> Result<Option<f32>> {
        match self.source.optional::<f32>(&self.key(suffix))? {
            Some(v) if !(v.is_finite() && v > 0.0) => self.wrong(suffix, v, "must be finite and above 0"),
            v => Ok(v),
        }
    }

    /// The value of [`Self::optional_number`]; zero stands for "none".
    pub(super) fn number_or_zero(&self, suffix: &str) -> Result<Option<f32>> {
        match self.source.optional::<f32>(&self.key(suffix))? {
            Some(0.0) => Ok(None),
            _ => self.optional_number(suffix),
        }
    }

    /// A cap of logits; 0 stands for none, and `default` for a file that does not say.
    pub(super) fn cap(&self, suffix: &str, default: Option<f32>) -> Result<Option<f32>> {
        match self.source.optional::<f32>(&self.key(suffix))? {
            None => Ok(default),
            Some(_) => self.number_or_zero(suffix),
        }
    }

    /// A factor; 1 if the file does not say.
    pub(super) fn factor(&self, suffix: &str) -> Result<f32> {
        Ok(self.number_or_zero(suffix)?.unwrap_or(1.0))
    }

    /// 1 / a divisor; 1 if the file does not say.
    pub(super) fn divisor(&self, suffix: &str) -> Result<f32> {
        let divisor = self.factor(suffix)?;
        let factor = 1.0 / divisor;
        if factor.is_finite() { Ok(factor) } else { self.wrong(suffix, divisor, "is too small to divide by") }
    }

    /// A count that is 0 if the file does not say.
    pub(super) fn count_or_zero(&self, suffix: &str) -> Result<usize> {
        Ok(self.optional_count(suffix, MAX_WIDTH)?.unwrap_or(0))
    }

    /// Whether a count is there and not zero.
    pub(super) fn has(&self, suffix: &str) -> Result<bool> {
        Ok(self.optional_count(suffix, usize::MAX)?.is_some())
    }

    /// Whether the file has a key, whatever its value.
    pub(super) fn has_key(&self, suffix: &str) -> bool {
        self.source.file.metadata().value(&self.key(suffix)).is_some()
    }

    /// Width of the residual stream.
    pub(super) fn hidden(&self) -> Result<usize> {
        self.count("embedding_length", MAX_WIDTH)
    }

    fn context_length(&self) -> Result<usize> {
        self.count("context_length", MAX_CONTEXT)
    }

    /// The number of layers without those that predict further tokens. Each has tensors of its own, so that a count
    /// which the file cannot hold is refused before it is used.
    pub(super) fn layers(&self) -> Result<usize> {
        let tensors = self.source.file.tensors().len();
        let rule = || {
            format!(
                "layers need at least as many tensors, but the file has {tensors}; the key is wrong or the file is \
                 incomplete, convert the model again"
            )
        };
        let (blocks, predicting) = (self.count_within("block_count", tensors, rule)?, self.prediction_layers()?);
        if predicting >= blocks {
            let rule =
                format!("leaves none of the {blocks} layers of `{}` for the model itself", self.key("block_count"));
            return self.wrong(PREDICTION_LAYERS, predicting, rule);
        }
        Ok(blocks - predicting)
    }

    /// The number of layers after the others that predict further tokens.
    fn prediction_layers(&self) -> Result<usize> {
        self.count_or_zero(PREDICTION_LAYERS)
    }

    /// Checks that the file has the layers of the model, and every layer that predicts further tokens which it
    /// declares.
    fn check_prediction_layers(&self, layers: usize, hidden: usize) -> Result<usize> {
        let predicting = self.prediction_layers()?;
        for layer in layers..layers + predicting {
            let n = hidden as u64;
            for (part, shape) in [("eh_proj", vec![2 * n, n]), ("enorm", vec![n]), ("hnorm", vec![n])] {
                let name = format!("blk.{layer}.nextn.{part}.weight");
                if !self.tensor(&name) {
                    return Err(Error::MissingTensor { name, shape });
                }
            }
        }
        if predicting > 0 && !self.source.file.tensors().iter().any(|tensor| tensor.name.starts_with("blk.0.")) {
            let rule =
                "layers that predict further tokens are all that the file has; open the file of the model itself";
            return self.wrong(PREDICTION_LAYERS, predicting, rule);
        }
        Ok(predicting)
    }

    /// A model whose layers are all alike.
    pub(super) fn uniform(&self, attention: AttentionSpec, mlp: MlpSpec) -> Result<ModelSpec> {
        self.model(vec![LayerSpec { mixer: Mixer::Attention(attention), mlp: Some(mlp) }; self.layers()?])
    }

    pub(super) fn model(&self, layers: Vec<LayerSpec>) -> Result<ModelSpec> {
        self.model_with_epsilon("attention.layer_norm_rms_epsilon", layers)
    }

    /// A model whose norms have the epsilon of this key.
    pub(super) fn model_with_epsilon(&self, suffix: &str, layers: Vec<LayerSpec>) -> Result<ModelSpec> {
        let eps = self.source.required::<f32>(&self.key(suffix))?;
        if !(eps.is_finite() && eps >= 0.0) {
            return self.wrong(suffix, eps, "must be finite and not negative");
        }
        self.insist("attention.causal", "true (a token sees those before it)")?;
        let hidden = self.hidden()?;
        let prediction_layers = self.check_prediction_layers(layers.len(), hidden)?;
        Ok(ModelSpec {
            architecture: self.arch.to_owned(),
            name: self.source.optional::<&str>("general.name")?.map(str::to_owned),
            vocab: self.vocab(hidden)?,
            hidden,
            context_length: self.context_length()?,
            norm: NormKind::Rms,
            norm_eps: eps,
            inputs: BlockInputs::Normed,
            mlp_norm: "ffn_norm",
            output_norm: "output_norm",
            post_norms: false,
            post_norm_eps: None,
            embedding_norm: false,
            embedding_scale: 1.0,
            residual_scale: 1.0,
            logit_scale: 1.0,
            layer_scales: false,
            layer_inputs: None,
            logit_cap: None,
            tied_embeddings: !self.tensor("output.weight"),
            output_bias: self.tensor("output.bias"),
            pooling: self.pooling()?,
            layers,
            prediction_layers,
        })
    }

    /// The pooling of hidden states; that of the last token if the file does not say.
    fn pooling(&self) -> Result<Option<Pooling>> {
        match self.source.optional::<u32>(&self.key("pooling_type"))? {
            None | Some(3) => Ok(Some(Pooling::Last)),
            Some(1) => Ok(Some(Pooling::Mean)),
            Some(2) => Ok(Some(Pooling::First)),
            // No pooling, and the score of a ranker.
            Some(0 | 4) => Ok(None),
            Some(found) => {
                self.wrong("pooling_type", found, "must be 0 (none), 1 (mean), 2 (CLS), 3 (last) or 4 (rank)")
            }
        }
    }

    /// The values of the model's layers in an array that has one for each, and may have one for each layer that
    /// predicts further tokens too.
    fn of_layers<'v, T>(&self, suffix: &str, values: &'v [T], noun: &str) -> Result<&'v [T]> {
        let (layers, found) = (self.layers()?, values.len());
        match values.get(..layers) {
            Some(own) if found == layers || found == layers + self.prediction_layers()? => Ok(own),
            _ => self.wrong(suffix, format!("{found} {noun}"), format!("are not the {layers} layers")),
        }
    }

    /// A number of each layer, first to last: one for all, or one for each.
    fn of_each_layer(&self, suffix: &str) -> Result<Vec<usize>> {
        let key = self.key(suffix);
        let Some(Value::Array(_)) = self.source.file.metadata().value(&key) else {
            return Ok(vec![self.count(suffix, MAX_WIDTH)?; self.layers()?]);
        };
        let all: Vec<usize> = self.source.required(&key)?;
        let numbers = self.of_layers(suffix, &all, "numbers")?;
        match numbers.iter().find(|&&number| number > MAX_WIDTH) {
            None => Ok(numbers.to_vec()),
            Some(number) => self.wrong(suffix, number, supported(MAX_WIDTH)),
        }
    }

    /// Whether each layer has a window: see [`Self::window_pattern`]. The file must give the width of the window.
    pub(super) fn windowed(&self, period: usize) -> Result<Vec<bool>> {
        self.count("attention.sliding_window", MAX_CONTEXT)?;
        self.window_pattern(period)
    }

    /// The same for a file that may give no window: then no layer has one.
    pub(super) fn windowed_if_any(&self, period: usize) -> Result<Vec<bool>> {
        match self.has("attention.sliding_window")? {
            true => self.windowed(period),
            false => Ok(vec![false; self.layers()?]),
        }
    }

    /// The same where the file must have a flag for each layer.
    pub(super) fn windowed_by_flags(&self) -> Result<Vec<bool>> {
        self.count("attention.sliding_window", MAX_CONTEXT)?;
        let suffix = "attention.sliding_window_pattern";
        let windowed = self.source.required::<&[bool]>(&self.key(suffix))?;
        Ok(self.of_layers(suffix, windowed, "flags")?.to_vec())
    }

    /// Whether each layer has a window, first to last: of every `period` layers all but the last, unless the file has
    /// another period or a flag for each layer.
    pub(super) fn window_pattern(&self, period: usize) -> Result<Vec<bool>> {
        self.pattern(period, |layer, period| layer % period < period - 1)
    }

    /// The same where all but the first of every `period` layers have a window, if the file gives one.
    pub(super) fn windowed_after_first(&self, period: usize) -> Result<Vec<bool>> {
        match self.has("attention.sliding_window")? {
            true => self.pattern(period, |layer, period| layer % period > 0),
            false => Ok(vec![false; self.layers()?]),
        }
    }

    fn pattern(&self, period: usize, windowed: fn(usize, usize) -> bool) -> Result<Vec<bool>> {
        let (layers, suffix) = (self.layers()?, "attention.sliding_window_pattern");
        let key = self.key(suffix);
        if let Some(Value::Array(_)) = self.source.file.metadata().value(&key) {
            let windowed = self.source.required::<&[bool]>(&key)?;
            return Ok(self.of_layers(suffix, windowed, "flags")?.to_vec());
        }
        let period = self.optional_count(suffix, MAX_CONTEXT)?.unwrap_or(period);
        Ok((0..layers).map(|layer| windowed(layer, period)).collect())
    }

    /// The vocabulary is as large as the embedding table; a key that says otherwise is wrong.
    fn vocab(&self, hidden: usize) -> Result<usize> {
        let name = "token_embd.weight";
        let rows = |shape: &[u64]| match *shape {
            [_, rows] => i32::try_from(rows).ok().and_then(|n| usize::try_from(n).ok()),
            _ => None,
        };
        let key = self.source.optional::<usize>(&self.key("vocab_size"))?;
        let expected = || vec![hidden as u64, key.unwrap_or(0) as u64];
        let Some(tensor) = self.source.file.tensor(name) else {
            return Err(Error::MissingTensor { name: name.to_owned(), shape: expected() });
        };
        match rows(&tensor.shape) {
            Some(rows) if key.is_none_or(|n| n == rows) => Ok(rows),
            _ => Err(Error::TensorShape {
                name: name.to_owned(),
                offset: tensor.offset,
                found: tensor.shape.clone(),
                expected: expected(),
            }),
        }
    }

    /// Refuses a number other than zero, whose maths is not implemented.
    pub(super) fn refuse(&self, suffix: &str, known: &'static str) -> Result<()> {
        match self.source.optional::<f32>(&self.key(suffix))? {
            None | Some(0.0) => Ok(()),
            Some(found) => Err(Error::Unsupported { key: self.key(suffix), found: found.to_string(), known }),
        }
    }

    /// Refuses a count other than zero, whose maths is not implemented.
    pub(super) fn refuse_count(&self, suffix: &str, known: &'static str) -> Result<()> {
        match self.source.optional::<u64>(&self.key(suffix))? {
            None | Some(0) => Ok(()),
            Some(found) => Err(Error::Unsupported { key: self.key(suffix), found: found.to_string(), known }),
        }
    }

    /// Refuses a key of files that are made for other programs, and may say things by other names.
    pub(super) fn refuse_key(&self, suffix: &str, known: &'static str) -> Result<()> {
        match self.has_key(suffix) {
            true => Err(Error::Unsupported { key: self.key(suffix), found: "the key".to_owned(), known }),
            false => Ok(()),
        }
    }

    /// Refuses a flag that is false, whose maths is not implemented.
    pub(super) fn insist(&self, suffix: &str, known: &'static str) -> Result<()> {
        match self.source.optional::<bool>(&self.key(suffix))? {
            None | Some(true) => Ok(()),
            Some(false) => Err(Error::Unsupported { key: self.key(suffix), found: "false".to_owned(), known }),
        }
    }
}
