//! Reads metadata into parts of a spec, and records the keys that were read, so unused keys can be listed.

mod attention;
mod latent;
mod mlp;
mod recurrent;
mod tower;

pub(in crate::family) use attention::Sections;
pub(in crate::family) use tower::projector;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::Range;

use gristmill_files::gguf::{Array, FromValue, GgufFile, Value};
use gristmill_kernels::ops::Activation;

use crate::error::{Error, Result};
use crate::limits::MAX_CONTEXT;
use crate::spec::{AttentionSpec, BlockInputs, HeadInputs, LayerSpec, Mixer, MlpSpec, ModelSpec, NormKind, Pooling};

/// The maximum width or head count; products of two fit into 64 bits.
const MAX_WIDTH: usize = 1 << 24;
/// The maximum number of experts of the router.
const MAX_EXPERTS: usize = 1024;
/// The key with the number of multi-token prediction (MTP) layers, the last layers of the file.
const PREDICTION_LAYERS: &str = "nextn_predict_layers";
/// The key with the layers that have a window.
const WINDOW_PATTERN: &str = "attention.sliding_window_pattern";

/// A file that records which metadata keys were read.
pub(crate) struct Source<'a> {
    file: &'a GgufFile,
    /// Whether prediction heads are part of the model.
    with_heads: bool,
    seen: RefCell<BTreeSet<String>>,
}

impl<'a> Source<'a> {
    pub(crate) fn new(file: &'a GgufFile) -> Self {
        Self { file, with_heads: false, seen: RefCell::default() }
    }

    /// A file whose prediction heads are part of the model.
    pub(crate) fn with_heads(file: &'a GgufFile) -> Self {
        Self { with_heads: true, ..Self::new(file) }
    }

    pub(crate) fn optional<T: FromValue<'a>>(&self, key: &str) -> Result<Option<T>> {
        self.seen.borrow_mut().insert(key.to_owned());
        Ok(self.file.metadata().optional(key)?)
    }

    pub(crate) fn required<T: FromValue<'a>>(&self, key: &str) -> Result<T> {
        self.seen.borrow_mut().insert(key.to_owned());
        Ok(self.file.metadata().required(key)?)
    }

    /// Keys that were not read, in file order, except `general.` (describes the file) and `split.` (describes its
    /// shards).
    pub(crate) fn unused_keys(&self) -> Vec<String> {
        let seen = self.seen.borrow();
        let unused = |key: &&str| !(seen.contains(*key) || key.starts_with("general.") || key.starts_with("split."));
        self.file.metadata().iter().map(|(key, _)| key).filter(unused).map(str::to_owned).collect()
    }
}

/// Keys that converters write as one number, or as an array with a number for each layer.
const OF_LAYERS: [&str; 3] = ["attention.head_count", "attention.head_count_kv", "feed_forward_length"];

/// The error message for a limit of gristmill itself.
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

    /// A whole number. The keys [`OF_LAYERS`] may have it once for each layer.
    fn whole(&self, suffix: &str) -> Result<Option<usize>> {
        let key = self.key(suffix);
        let is_list = matches!(self.source.file.metadata().value(&key), Some(Value::Array(_)));
        if !is_list || !OF_LAYERS.contains(&suffix) {
            return self.source.optional(&key);
        }
        let all: Vec<usize> = self.source.required(&key)?;
        match self.of_layers(suffix, &all, "numbers")? {
            [first, others @ ..] if others.iter().all(|other| other == first) => Ok(Some(*first)),
            numbers => {
                let rule = "are numbers of layers; this architecture is supported with one number for all layers";
                self.wrong(suffix, format!("{numbers:?}"), rule)
            }
        }
    }

    /// A count of at least 1. Zero means "none" in some converters, so it is `None`.
    fn optional_count(&self, suffix: &str, max: usize) -> Result<Option<usize>> {
        match self.whole(suffix)? {
            None | Some(0) => Ok(None),
            Some(n) if n <= max => Ok(Some(n)),
            Some(n) => self.wrong(suffix, n, supported(max)),
        }
    }

    /// A count of at least 1 and at most gristmill's limit.
    fn count(&self, suffix: &str, max: usize) -> Result<usize> {
        self.count_within(suffix, max, || supported(max))
    }

    /// A count of at least 1 and at most `max`; `rule` names the origin of the limit, as a phrase that follows the
    /// number.
    fn count_within(&self, suffix: &str, max: usize, rule: impl Fn() -> String) -> Result<usize> {
        let found = match self.whole(suffix)? {
            Some(n) => n,
            None => self.source.required(&self.key(suffix))?,
        };
        match found {
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

    /// The value of [`Self::optional_number`]; zero means "none".
    pub(super) fn number_or_zero(&self, suffix: &str) -> Result<Option<f32>> {
        match self.source.optional::<f32>(&self.key(suffix))? {
            Some(0.0) => Ok(None),
            _ => self.optional_number(suffix),
        }
    }

    /// A soft cap of logits; 0 means none, and `default` applies without the key.
    pub(super) fn cap(&self, suffix: &str, default: Option<f32>) -> Result<Option<f32>> {
        match self.source.optional::<f32>(&self.key(suffix))? {
            None => Ok(default),
            Some(_) => self.number_or_zero(suffix),
        }
    }

    /// A factor; the default is 1.
    pub(super) fn factor(&self, suffix: &str) -> Result<f32> {
        Ok(self.number_or_zero(suffix)?.unwrap_or(1.0))
    }

    /// 1 / a divisor; the default is 1.
    pub(super) fn divisor(&self, suffix: &str) -> Result<f32> {
        let divisor = self.factor(suffix)?;
        let factor = 1.0 / divisor;
        if factor.is_finite() { Ok(factor) } else { self.wrong(suffix, divisor, "is too small to divide by") }
    }

    /// A count; the default is 0.
    pub(super) fn count_or_zero(&self, suffix: &str) -> Result<usize> {
        Ok(self.optional_count(suffix, MAX_WIDTH)?.unwrap_or(0))
    }

    /// Whether a count is set and not zero.
    pub(super) fn has(&self, suffix: &str) -> Result<bool> {
        Ok(self.optional_count(suffix, usize::MAX)?.is_some())
    }

    /// Whether the file has a key, with any value.
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

    /// The number of layers without MTP layers. Each layer has tensors, so a count that exceeds the file's tensors is
    /// rejected before it is used.
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

    /// The number of multi-token prediction (MTP) layers after the other layers.
    fn prediction_layers(&self) -> Result<usize> {
        self.count_or_zero(PREDICTION_LAYERS)
    }

    /// The number of MTP layers in the file. Checks that it has all of them that it declares, or, as a file of the model
    /// alone, none; and all layers of the model.
    fn check_prediction_layers(&self, layers: usize, hidden: usize) -> Result<usize> {
        let declared = self.prediction_layers()?;
        let predicting = if self.has_tensors_of(layers..layers + declared) { declared } else { 0 };
        for layer in layers..layers + predicting {
            let n = hidden as u64;
            for (part, shape) in [("eh_proj", vec![2 * n, n]), ("enorm", vec![n]), ("hnorm", vec![n])] {
                let name = format!("blk.{layer}.nextn.{part}.weight");
                if !self.tensor(&name) {
                    return Err(Error::MissingTensor { name, shape });
                }
            }
        }
        if predicting > 0 && !self.has_tensors_of(0..1) {
            let rule =
                "layers that predict further tokens are all that the file has; open the file of the model itself";
            return self.wrong(PREDICTION_LAYERS, predicting, rule);
        }
        Ok(predicting)
    }

    fn has_tensors_of(&self, layers: Range<usize>) -> bool {
        let layer = |name: &str| name.strip_prefix("blk.")?.split_once('.')?.0.parse::<usize>().ok();
        self.source.file.tensors().iter().any(|tensor| layer(&tensor.name).is_some_and(|layer| layers.contains(&layer)))
    }

    /// The layer `block` of a prediction head after `layers`, which is as theirs. Its attention is that of the last layer that
    /// has attention to all tokens, or a window if the file has its flag. It has experts if it has a router, else a
    /// dense MLP, also if no layer of the model has one.
    fn head_layer(&self, layers: &[LayerSpec], block: usize) -> Result<LayerSpec> {
        let windowed = match self.source.file.metadata().value(&self.key(WINDOW_PATTERN)) {
            Some(Value::Array(_)) => self.window_flags()?.get(block).copied().unwrap_or(false),
            _ => false,
        };
        let mixers = || layers.iter().rev().map(|layer| &layer.mixer).filter(|mixer| mixer.has_own_cache());
        let has_window = |mixer: &&Mixer| matches!(mixer, Mixer::Attention(spec) if spec.window.is_some());
        let mixer = mixers().find(|mixer| has_window(mixer) == windowed).or_else(|| mixers().next());
        let has_router = self.tensor(&format!("blk.{block}.ffn_gate_inp.weight"));
        let is_routed = |mlp: &&MlpSpec| matches!(mlp, MlpSpec::Moe(_)) == has_router;
        let mlp = match layers.iter().rev().filter_map(|layer| layer.mlp.as_ref()).find(is_routed) {
            None if !has_router => Some(self.dense(Activation::SwiGlu)?),
            mlp => mlp.cloned(),
        };
        match (mixer, mlp) {
            (Some(mixer), mlp @ Some(_)) => Ok(LayerSpec { mixer: mixer.clone(), mlp }),
            _ => {
                let rule = format!("layers are none of the kinds of the {} layers before them", layers.len());
                self.wrong(PREDICTION_LAYERS, self.prediction_layers()?, rule)
            }
        }
    }

    /// A model with equal layers.
    pub(super) fn uniform(&self, attention: AttentionSpec, mlp: MlpSpec) -> Result<ModelSpec> {
        self.model(vec![LayerSpec { mixer: Mixer::Attention(attention), mlp: Some(mlp) }; self.layers()?])
    }

    pub(super) fn model(&self, layers: Vec<LayerSpec>) -> Result<ModelSpec> {
        self.model_with_epsilon("attention.layer_norm_rms_epsilon", layers)
    }

    /// A model whose norm epsilon has this key.
    pub(super) fn model_with_epsilon(&self, suffix: &str, layers: Vec<LayerSpec>) -> Result<ModelSpec> {
        let eps = self.source.required::<f32>(&self.key(suffix))?;
        if !(eps.is_finite() && eps >= 0.0) {
            return self.wrong(suffix, eps, "must be finite and not negative");
        }
        self.insist("attention.causal", "true (a token sees those before it)")?;
        let hidden = self.hidden()?;
        let prediction_layers = self.check_prediction_layers(layers.len(), hidden)?;
        let heads = match self.source.with_heads {
            true => {
                let blocks = layers.len()..layers.len() + prediction_layers;
                blocks.map(|block| self.head_layer(&layers, block)).collect::<Result<_>>()?
            }
            false => Vec::new(),
        };
        Ok(ModelSpec {
            architecture: self.arch.to_owned(),
            name: self.source.optional::<&str>("general.name")?.map(str::to_owned),
            vocab: self.vocab(hidden)?,
            hidden,
            context_length: self.context_length()?,
            unindexed_context: None,
            norm: NormKind::Rms,
            head_norm: NormKind::Rms,
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
            picture_layers: 0,
            layers,
            prediction_layers,
            heads,
            head_inputs: HeadInputs::default(),
        })
    }

    /// The pooling of hidden states; the default is the last token.
    fn pooling(&self) -> Result<Option<Pooling>> {
        match self.source.optional::<u32>(&self.key("pooling_type"))? {
            None | Some(3) => Ok(Some(Pooling::Last)),
            Some(1) => Ok(Some(Pooling::Mean)),
            Some(2) => Ok(Some(Pooling::First)),
            // No pooling, and reranker scores.
            Some(0 | 4) => Ok(None),
            Some(found) => {
                self.wrong("pooling_type", found, "must be 0 (none), 1 (mean), 2 (CLS), 3 (last) or 4 (rank)")
            }
        }
    }

    /// The values of the model's layers in a per-layer array, which can also have values for MTP layers.
    fn of_layers<'v, T>(&self, suffix: &str, values: &'v [T], noun: &str) -> Result<&'v [T]> {
        let (layers, found) = (self.layers()?, values.len());
        match values.get(..layers) {
            Some(own) if found == layers || found == layers + self.prediction_layers()? => Ok(own),
            _ => self.wrong(suffix, format!("{found} {noun}"), format!("are not the {layers} layers")),
        }
    }

    /// One number per layer: a number for all layers, or an array.
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

    /// A number of one layer, if the file has the key: a number for all layers, or an array. 0 means none.
    fn number_of_layer(&self, suffix: &str, layer: usize) -> Result<Option<usize>> {
        if !self.has_key(suffix) {
            return Ok(None);
        }
        let number = match self.source.file.metadata().value(&self.key(suffix)) {
            Some(Value::Array(_)) => self.of_each_layer(suffix)?.get(layer).copied().unwrap_or(0),
            _ => self.count_or_zero(suffix)?,
        };
        Ok(Some(number).filter(|&number| number > 0))
    }

    /// Whether each layer has a sliding window: see [`Self::window_pattern`]. The file must have the window's width.
    pub(super) fn windowed(&self, period: usize) -> Result<Vec<bool>> {
        self.count("attention.sliding_window", MAX_CONTEXT)?;
        self.window_pattern(period)
    }

    /// [`Self::windowed`] for a file without a required window: if it has none, no layer has one.
    pub(super) fn windowed_if_any(&self, period: usize) -> Result<Vec<bool>> {
        match self.has("attention.sliding_window")? {
            true => self.windowed(period),
            false => Ok(vec![false; self.layers()?]),
        }
    }

    /// [`Self::windowed`] for a file that must have one flag per layer; a flag can be a number, 0 or 1.
    pub(super) fn windowed_by_flags(&self) -> Result<Vec<bool>> {
        self.count("attention.sliding_window", MAX_CONTEXT)?;
        Ok(self.of_layers(WINDOW_PATTERN, &self.window_flags()?, "flags")?.to_vec())
    }

    /// The flags of sliding windows, those of MTP layers too; a flag can be a number, 0 or 1.
    fn window_flags(&self) -> Result<Vec<bool>> {
        let key = self.key(WINDOW_PATTERN);
        if let Some(Value::Array(Array::Bool(_))) = self.source.file.metadata().value(&key) {
            return Ok(self.source.required::<&[bool]>(&key)?.to_vec());
        }
        let numbers: Vec<usize> = self.source.required(&key)?;
        match numbers.iter().find(|&&number| number > 1) {
            Some(found) => self.wrong(WINDOW_PATTERN, found, "must be 0 or 1"),
            None => Ok(numbers.into_iter().map(|number| number == 1).collect()),
        }
    }

    /// Whether each layer has a sliding window. By default all layers have one but the last of every `period`; the file
    /// can have another period or one flag per layer.
    pub(super) fn window_pattern(&self, period: usize) -> Result<Vec<bool>> {
        self.pattern(period, |layer, period| layer % period < period - 1)
    }

    /// [`Self::window_pattern`] with the first instead of the last layer of every `period`, if the file has a window.
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

    /// The longest context in which an index chooses all blocks of tokens.
    pub(super) fn unindexed_context(&self) -> Result<usize> {
        let block = self.count("attention.indexer.block_size", MAX_CONTEXT)?;
        let blocks = self.count("attention.indexer.top_k", MAX_CONTEXT)?;
        Ok(block.saturating_mul(blocks))
    }

    /// The vocabulary has the size of the embedding table; a key with another size is an error.
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

    /// Rejects a number other than zero, which is not implemented.
    pub(super) fn refuse(&self, suffix: &str, known: &'static str) -> Result<()> {
        match self.source.optional::<f32>(&self.key(suffix))? {
            None | Some(0.0) => Ok(()),
            Some(found) => Err(Error::Unsupported { key: self.key(suffix), found: found.to_string(), known }),
        }
    }

    /// Rejects numbers of the model's layers other than zero, which are not implemented.
    pub(super) fn refuse_numbers(&self, suffix: &str, known: &'static str) -> Result<()> {
        let key = self.key(suffix);
        let Some(Value::Array(_)) = self.source.file.metadata().value(&key) else { return self.refuse(suffix, known) };
        match self.of_layers(suffix, self.source.required::<&[f32]>(&key)?, "numbers")?.iter().find(|&&n| n != 0.0) {
            None => Ok(()),
            Some(found) => Err(Error::Unsupported { key, found: found.to_string(), known }),
        }
    }

    /// Rejects a count other than zero, which is not implemented.
    pub(super) fn refuse_count(&self, suffix: &str, known: &'static str) -> Result<()> {
        match self.source.optional::<u64>(&self.key(suffix))? {
            None | Some(0) => Ok(()),
            Some(found) => Err(Error::Unsupported { key: self.key(suffix), found: found.to_string(), known }),
        }
    }

    /// Rejects a key of files for other programs, whose other keys can differ.
    pub(super) fn refuse_key(&self, suffix: &str, known: &'static str) -> Result<()> {
        match self.has_key(suffix) {
            true => Err(Error::Unsupported { key: self.key(suffix), found: "the key".to_owned(), known }),
            false => Ok(()),
        }
    }

    /// A flag, with its default.
    pub(super) fn flag_or(&self, suffix: &str, default: bool) -> Result<bool> {
        Ok(self.source.optional(&self.key(suffix))?.unwrap_or(default))
    }

    /// A key that says nothing about the model.
    pub(super) fn ignore(&self, suffix: &str) {
        self.source.seen.borrow_mut().insert(self.key(suffix));
    }

    /// Rejects a number that is not that of another key.
    pub(super) fn same_number(&self, suffix: &str, other: &str) -> Result<()> {
        let [number, other_number] = [suffix, other].map(|suffix| self.source.optional::<f32>(&self.key(suffix)));
        match (number?, other_number?) {
            (Some(found), Some(wanted)) if found != wanted => {
                self.wrong(suffix, found, format!("is not `{}`, {wanted}; both must be equal", self.key(other)))
            }
            _ => Ok(()),
        }
    }

    /// Rejects a flag that is false, which is not implemented.
    pub(super) fn insist(&self, suffix: &str, known: &'static str) -> Result<()> {
        match self.source.optional::<bool>(&self.key(suffix))? {
            None | Some(true) => Ok(()),
            Some(false) => Err(Error::Unsupported { key: self.key(suffix), found: "false".to_owned(), known }),
        }
    }
}
