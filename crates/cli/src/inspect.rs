//! `inspect`: the contents of a model file, also of a model that cannot run.

mod layers;

use std::collections::BTreeMap;

use clap::Args;
use gristmill_engine::model::spec::{AttentionSpec, LayerSpec, Mixer, MlpSpec, ModelSpec, MoeSpec};
use gristmill_engine::model::{KV_BLOCK, KvFormat};
use gristmill_engine::{ModelInfo, ModelTemplate};
use gristmill_files::gguf::{GgufFile, TensorInfo};
use gristmill_lab::slots::bytes_per_token;
use serde::Serialize;

use crate::failure::Failure;
use crate::source::{ModelArg, QuantizeArg};
use crate::template::TemplateReport;
use crate::verbosity::Verbosity;
use crate::{console, kind};
use layers::LayerRun;

/// Show the contents of a model file.
#[derive(Args)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    quantize: QuantizeArg,
    /// Print JSON.
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// List every tensor and every metadata key.
    #[arg(long)]
    all: bool,
}

/// The contents of a file.
#[derive(Serialize)]
struct Report {
    architecture: Option<String>,
    name: Option<String>,
    /// Why the model cannot run.
    refused: Option<String>,
    parameters: u64,
    file_bytes: u64,
    parts: usize,
    /// `None` for a folder.
    gguf_version: Option<u32>,
    /// [`GgufFile::fingerprint`].
    fingerprint: String,
    /// Weights that one token reads.
    bytes_per_token: Option<u64>,
    shape: Option<Shape>,
    /// The layers in words, runs of equal ones together.
    layers: Vec<LayerRun>,
    formats: BTreeMap<&'static str, FormatShare>,
    tokenizer: Option<TokenizerReport>,
    chat_template: bool,
    /// What the chat template does with tools and reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    template: Option<TemplateReport>,
    unused_keys: Vec<String>,
    /// Notices about a model that runs, and about its chat template.
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tensors: Vec<TensorReport>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    keys: Vec<String>,
}

#[derive(Serialize)]
struct Shape {
    layers: usize,
    hidden: usize,
    context_length: usize,
    vocabulary: usize,
    /// That of the first layer that has it.
    #[serde(flatten)]
    attention: Option<Attention>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kv_cache: Option<KvCacheSize>,
    /// Layers whose state has a fixed size, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    fixed_state: Option<FixedStates>,
    mlp_width: usize,
    tied_embeddings: bool,
    experts: Option<Experts>,
}

#[derive(Serialize)]
struct Attention {
    heads: usize,
    kv_heads: usize,
    key_width: usize,
    value_width: usize,
}

/// Bytes of the KV cache in F16 for each token.
#[derive(Serialize)]
struct KvCacheSize {
    /// In the layers that keep all tokens.
    bytes_per_token: u64,
    /// In the layers that keep a window, for each of its tokens.
    bytes_per_token_in_windows: u64,
}

#[derive(Serialize)]
struct FixedStates {
    /// Layers with a gated delta rule.
    delta_rules: usize,
    /// Layers with a short convolution alone.
    convolutions: usize,
    /// Layers with a selective scan.
    selective_scans: usize,
    /// State of a sequence in all of them.
    bytes: u64,
}

#[derive(Serialize)]
struct Experts {
    count: usize,
    used: usize,
    /// Width of the expert that serves every token.
    shared_width: Option<usize>,
}

#[derive(Serialize, Default)]
struct FormatShare {
    tensors: usize,
    bytes: u64,
}

#[derive(Serialize)]
struct TokenizerReport {
    model: Option<String>,
    pre_tokenizer: Option<String>,
    tokens: usize,
    bos: Option<u32>,
    eos: Option<u32>,
    adds_bos: bool,
    end_of_generation: Vec<u32>,
}

#[derive(Serialize)]
struct TensorReport {
    name: String,
    format: &'static str,
    shape: Vec<u64>,
    bytes: u64,
}

pub(crate) fn run(args: &InspectArgs) -> Result<(), Failure> {
    let source = args.quantize.of(args.model.source()?)?;
    let report = Report::new(&source.open(&Verbosity::default())?, args.all);
    if args.json { console::print_json(&report) } else { console::print_report(report.text()) }
}

impl Report {
    fn new(file: &GgufFile, all: bool) -> Report {
        let info = ModelInfo::read(file);
        let string = |key: &str| file.metadata().optional::<&str>(key).ok().flatten().map(str::to_owned);
        let mut formats: BTreeMap<&str, FormatShare> = BTreeMap::new();
        for tensor in file.tensors() {
            let share = formats.entry(tensor.type_name()).or_default();
            share.tensors += 1;
            share.bytes += tensor.bytes;
        }
        // A model that cannot run may have a vocabulary.
        let vocabulary = gristmill_engine::model::tokenizer(file).ok().flatten();
        let tokenizer = vocabulary.as_ref().map(|t| TokenizerReport::new(t, &string));
        let spec = info.as_ref().ok().map(|info| &info.spec);
        let templates = gristmill_engine::model::chat_templates(file).unwrap_or_default();
        let [template, for_tools] = templates.map(|it| it.map(|it| ModelTemplate::new(it, vocabulary.as_ref())));
        let tensors = file.tensors().iter().filter(|_| all).map(TensorReport::new).collect();
        let keys = file.metadata().iter().filter(|_| all).map(|(key, _)| key.to_owned()).collect();
        Report {
            architecture: string("general.architecture"),
            name: string("general.name"),
            refused: kind::refusal(file).or_else(|| info.as_ref().err().map(ToString::to_string)),
            parameters: file.tensors().iter().map(TensorInfo::elements).fold(0, u64::saturating_add),
            file_bytes: file.file_bytes(),
            parts: file.parts(),
            gguf_version: file.is_gguf().then(|| file.version()),
            fingerprint: file.fingerprint(),
            bytes_per_token: info.as_ref().ok().map(|info| {
                bytes_per_token(&info.tensor_uses(), |name| file.tensor(name).map_or(0, |tensor| tensor.bytes))
            }),
            shape: spec.and_then(Shape::new),
            layers: spec.map(layers::runs).unwrap_or_default(),
            formats,
            tokenizer,
            chat_template: template.is_some(),
            template: template.as_ref().map(|it| TemplateReport::new(it, for_tools.as_ref())),
            unused_keys: info.as_ref().map(|info| info.unused_keys.clone()).unwrap_or_default(),
            warnings: info
                .iter()
                .flat_map(ModelInfo::notices)
                .chain(template.iter().chain(&for_tools).filter_map(ModelTemplate::notice))
                .map(|notice| notice.to_string())
                .collect(),
            tensors,
            keys,
        }
    }

    /// Readable text: a name and a value on each line.
    fn text(&self) -> String {
        let mut lines = Listing(String::new());
        let unknown = || "not given".to_owned();
        lines.add("architecture", self.architecture.clone().unwrap_or_else(unknown));
        lines.add("name", self.name.clone().unwrap_or_else(unknown));
        lines.add("parameters", console::count(self.parameters));
        let parts = if self.parts > 1 { format!(" in {} parts", self.parts) } else { String::new() };
        let kind = self.gguf_version.map_or("safetensors".to_owned(), |version| format!("GGUF version {version}"));
        lines.add("file", format!("{}{parts}, {kind}", console::bytes(self.file_bytes)));
        lines.add("fingerprint", self.fingerprint.clone());
        self.shape.iter().for_each(|shape| shape.list(&mut lines));
        self.layers.iter().for_each(|run| lines.add(&run.name(), run.what.clone()));
        // A folder's weights may take more bytes than its files.
        let whole = self.formats.values().map(|share| share.bytes).sum::<u64>().max(self.file_bytes);
        for (format, share) in &self.formats {
            let percent = 100.0 * share.bytes as f64 / whole.max(1) as f64;
            lines.add(format, format!("{} in {} tensors, {percent:.1}%", console::bytes(share.bytes), share.tensors));
        }
        if let Some(bytes) = self.bytes_per_token {
            lines.add("per token", format!("{} of weights read", console::bytes(bytes)));
        }
        match &self.tokenizer {
            None => lines.add("tokenizer", "none".to_owned()),
            Some(tokenizer) => tokenizer.list(&mut lines),
        }
        lines.add("template", if self.chat_template { "yes" } else { "none" }.to_owned());
        let template = self.template.iter().flat_map(TemplateReport::lines);
        template.for_each(|(name, value)| lines.add(name, value.to_owned()));
        let unused = if self.unused_keys.is_empty() { "none".to_owned() } else { self.unused_keys.join(", ") };
        lines.add("unused keys", unused);
        self.keys.iter().for_each(|key| lines.add("key", key.clone()));
        for TensorReport { name, format, shape, bytes } in &self.tensors {
            lines.add("tensor", format!("{name}  {format}  {shape:?}  {}", console::bytes(*bytes)));
        }
        self.warnings.iter().for_each(|warning| lines.add("warning", warning.clone()));
        self.refused.iter().for_each(|reason| lines.add("cannot run", reason.clone()));
        lines.0
    }
}

struct Listing(String);

impl Listing {
    /// Adds a line; control characters of the file are replaced.
    fn add(&mut self, name: &str, value: String) {
        let safe: String = value.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
        self.0.push_str(&format!("{name:<13} {safe}\n"));
    }
}

impl Shape {
    /// The shape of the first layer with experts; without experts, of the first layer with an MLP.
    fn new(spec: &ModelSpec) -> Option<Shape> {
        let moe = spec.layers.iter().find(|layer| matches!(layer.mlp, Some(MlpSpec::Moe(_))));
        let mlp = moe.or(spec.layers.iter().find(|layer| layer.mlp.is_some())).and_then(|layer| layer.mlp.as_ref());
        let attention = spec.layers.iter().find_map(LayerSpec::attention).map(|attention| {
            let AttentionSpec { heads, kv_heads, key_width, value_width, .. } = *attention;
            Attention { heads, kv_heads, key_width, value_width }
        });
        let (mlp_width, experts) = match mlp {
            None => (0, None),
            Some(MlpSpec::Moe(MoeSpec { experts, inner, routing, shared, .. })) => {
                let shared_width = shared.map(|shared| shared.inner);
                (*inner, Some(Experts { count: *experts, used: routing.top_k, shared_width }))
            }
            Some(MlpSpec::Dense { inner, .. }) => (*inner, None),
            _ => return None,
        };
        Some(Shape {
            layers: spec.layers.len(),
            hidden: spec.hidden,
            context_length: spec.context_length,
            vocabulary: spec.vocab,
            attention,
            kv_cache: KvCacheSize::new(spec),
            fixed_state: FixedStates::new(spec),
            mlp_width,
            tied_embeddings: spec.tied_embeddings,
            experts,
        })
    }

    fn list(&self, lines: &mut Listing) {
        let Shape { layers, hidden, mlp_width, .. } = self;
        let mlp = if *mlp_width > 0 { format!("MLP {mlp_width}") } else { "no MLP".to_owned() };
        lines.add("layers", format!("{layers}, hidden size {hidden}, {mlp}"));
        if let Some(Attention { heads, kv_heads, key_width, value_width }) = &self.attention {
            let widths = match key_width == value_width {
                true => key_width.to_string(),
                false => format!("{key_width} (keys), {value_width} (values)"),
            };
            lines.add("attention", format!("{heads} heads, {kv_heads} KV heads, width {widths}"));
        }
        if let Some(KvCacheSize { bytes_per_token, bytes_per_token_in_windows: windowed }) = &self.kv_cache {
            let windows = match windowed {
                0 => String::new(),
                _ => format!(", and {} for a token in a window", console::bytes(*windowed)),
            };
            lines.add("KV cache", format!("{} for a token{windows}, in F16", console::bytes(*bytes_per_token)));
        }
        if let Some(FixedStates { delta_rules, convolutions, selective_scans, bytes }) = &self.fixed_state {
            let kinds = [
                (delta_rules, "a gated delta rule"),
                (convolutions, "a short convolution"),
                (selective_scans, "a selective scan"),
            ];
            let kinds = kinds.iter().filter(|(count, _)| **count > 0);
            let kinds: Vec<String> = kinds.map(|(count, kind)| format!("{count} layers with {kind}")).collect();
            let bytes = console::bytes(*bytes);
            lines.add("state", format!("{}: {bytes} for a sequence of any length", kinds.join(", ")));
        }
        match &self.experts {
            Some(Experts { count, used, shared_width }) => {
                let shared = shared_width.map_or(String::new(), |width| format!(", and one of width {width} for all"));
                lines.add("experts", format!("{count}, {used} used for each token{shared}"));
            }
            None => lines.add("experts", "none (dense)".to_owned()),
        }
        lines.add("context", format!("{} tokens", self.context_length));
        lines.add("embeddings", if self.tied_embeddings { "tied" } else { "not tied" }.to_owned());
    }
}

impl KvCacheSize {
    fn new(spec: &ModelSpec) -> Option<KvCacheSize> {
        let is_windowed = |layer: &LayerSpec| layer.attention().is_some_and(|attention| attention.window.is_some());
        let sum = |windowed: bool| {
            let layers = spec.layers.iter().filter(|layer| is_windowed(layer) == windowed);
            let caches = layers.filter_map(|layer| layer.cache(KvFormat::F16));
            caches.map(|cache| (cache.block_bytes() / KV_BLOCK) as u64).fold(0, u64::saturating_add)
        };
        let size = KvCacheSize { bytes_per_token: sum(false), bytes_per_token_in_windows: sum(true) };
        (size.bytes_per_token + size.bytes_per_token_in_windows > 0).then_some(size)
    }
}

impl FixedStates {
    fn new(spec: &ModelSpec) -> Option<FixedStates> {
        let of_kind =
            |kind: fn(&Mixer) -> bool| spec.layers.iter().filter(|layer| layer.mixer.parts().iter().any(kind)).count();
        let delta_rules = of_kind(|mixer| matches!(mixer, Mixer::Delta(_)));
        let convolutions = of_kind(|mixer| matches!(mixer, Mixer::Convolution(_)));
        let selective_scans = of_kind(|mixer| matches!(mixer, Mixer::Scan(_)));
        let states = spec.layers.iter().flat_map(|layer| layer.mixer.fixed_state(spec.hidden));
        let floats = states.map(|state| state.elements as u64).fold(0, u64::saturating_add);
        let bytes = floats.saturating_mul(size_of::<f32>() as u64);
        let has_some = delta_rules + convolutions + selective_scans > 0;
        has_some.then_some(FixedStates { delta_rules, convolutions, selective_scans, bytes })
    }
}

impl TokenizerReport {
    fn new(
        tokenizer: &gristmill_text::tokenizer::Tokenizer,
        string: &impl Fn(&str) -> Option<String>,
    ) -> TokenizerReport {
        TokenizerReport {
            model: string("tokenizer.ggml.model"),
            pre_tokenizer: string("tokenizer.ggml.pre"),
            tokens: tokenizer.vocab_size(),
            bos: tokenizer.bos(),
            eos: tokenizer.eos(),
            adds_bos: tokenizer.adds_bos(),
            end_of_generation: tokenizer.end_of_generation().to_vec(),
        }
    }

    fn list(&self, lines: &mut Listing) {
        let kind: Vec<&str> = self.model.iter().chain(&self.pre_tokenizer).map(String::as_str).collect();
        lines.add("tokenizer", format!("{}, {} tokens", kind.join(" / "), self.tokens));
        let id = |id: Option<u32>| id.map_or("none".to_owned(), |id| id.to_string());
        let added = if self.adds_bos { " (added)" } else { "" };
        let ends = self.end_of_generation.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        lines.add("special", format!("BOS {}{added}, EOS {}, ends {ends}", id(self.bos), id(self.eos)));
    }
}

impl TensorReport {
    fn new(tensor: &TensorInfo) -> TensorReport {
        let TensorInfo { name, shape, bytes, .. } = tensor;
        TensorReport { name: name.clone(), format: tensor.type_name(), shape: shape.clone(), bytes: *bytes }
    }
}
