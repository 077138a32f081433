//! The layers of a model, those of prediction heads, and numbers that each layer has.

use std::ops::Range;

use gristmill_files::gguf::Value;
use gristmill_kernels::ops::Activation;

use super::keys::{KeyReader, MAX_WIDTH, supported};
use super::windows::WINDOW_PATTERN;
use crate::error::{Error, Result};
use crate::spec::{LayerSpec, Mixer, MlpSpec};

/// The key with the number of multi-token prediction (MTP) layers, the last layers of the file.
const PREDICTION_LAYERS: &str = "nextn_predict_layers";

impl KeyReader<'_> {
    /// The number of layers without MTP layers. Each layer has tensors, so a count that exceeds the file's tensors is
    /// rejected before it is used.
    pub(in crate::family) fn layers(&self) -> Result<usize> {
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
    pub(super) fn prediction_layers(&self) -> Result<usize> {
        self.count_or_zero(PREDICTION_LAYERS)
    }

    /// The number of MTP layers in the file. Checks that it has all of them that it declares, or, as a file of the model
    /// alone, none; and all layers of the model.
    pub(super) fn check_prediction_layers(&self, layers: usize, hidden: usize) -> Result<usize> {
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
    pub(super) fn head_layer(&self, layers: &[LayerSpec], block: usize) -> Result<LayerSpec> {
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

    /// The values of the model's layers in a per-layer array, which can also have values for MTP layers.
    pub(super) fn of_layers<'v, T>(&self, suffix: &str, values: &'v [T], noun: &str) -> Result<&'v [T]> {
        let (layers, found) = (self.layers()?, values.len());
        match values.get(..layers) {
            Some(own) if found == layers || found == layers + self.prediction_layers()? => Ok(own),
            _ => self.wrong(suffix, format!("{found} {noun}"), format!("are not the {layers} layers")),
        }
    }

    /// One number per layer: a number for all layers, or an array.
    pub(super) fn of_each_layer(&self, suffix: &str) -> Result<Vec<usize>> {
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
    pub(super) fn number_of_layer(&self, suffix: &str, layer: usize) -> Result<Option<usize>> {
        if !self.has_key(suffix) {
            return Ok(None);
        }
        let number = match self.source.file.metadata().value(&self.key(suffix)) {
            Some(Value::Array(_)) => self.of_each_layer(suffix)?.get(layer).copied().unwrap_or(0),
            _ => self.count_or_zero(suffix)?,
        };
        Ok(Some(number).filter(|&number| number > 0))
    }
}
