//! The description of a model that is not loaded.

use std::ops::Range;

use gristmill_files::gguf::GgufFile;
use gristmill_kernels::weight::Role;
use gristmill_text::tokenizer::Tokenizer;

use crate::error::{Error, Result};
use crate::family::{self, Source};
use crate::load::{ExpertPlacement, LoadOptions};
use crate::notice::Notice;
use crate::plan::PlanParts;
use crate::program::Program;
use crate::program::build::build;
use crate::program::uses::TensorUse;
use crate::ranks::{RankPart, check_layers, own_spec};
use crate::spec::{LayerSpec, ModelSpec};
use crate::templates;
use crate::tower::TowerInfo;
use crate::vocabulary;
use crate::weights::{self, WeightShapes};

/// The description of a model, read from a file and checked against its tensors; no weight is loaded.
#[derive(Debug)]
pub struct ModelInfo {
    /// The parts of the model.
    pub spec: ModelSpec,
    /// The tokenizer, if the file has a vocabulary.
    pub tokenizer: Option<Tokenizer>,
    /// The source of the chat template (Jinja), if the file has one.
    pub template: Option<String>,
    /// The source of the chat template for conversations with tools, if the file has one of its own
    /// (`tokenizer.chat_template.tool_use`).
    pub tool_template: Option<String>,
    /// Metadata keys that are not used, in file order.
    pub unused_keys: Vec<String>,
    /// The vision tower, if the model is loaded with one.
    pub tower: Option<TowerInfo>,
    /// What a rank has of them.
    pub(crate) own: ModelSpec,
    /// The forward pass.
    pub(crate) program: Program,
    /// The sizes of the weights.
    pub(crate) weights: WeightShapes,
    /// Which part of the model these are.
    pub(crate) part: RankPart,
}

impl ModelInfo {
    /// Reads and checks everything but the weights' values.
    ///
    /// # Errors
    /// An [`Error`] that names the key or tensor: an unknown architecture, RoPE scaling, gating, activation or
    /// pre-tokenizer; a count or number out of range; a tensor that is missing, of another shape, or not known.
    pub fn read(file: &GgufFile) -> Result<Self> {
        Self::of(Source::new(file), file, ExpertPlacement::Device)
    }

    /// Like [`Self::read`], for a model whose prediction heads are loaded
    /// ([`LoadOptions::prediction_heads`]).
    ///
    /// # Errors
    /// The errors of [`Self::read`].
    pub fn read_with_heads(file: &GgufFile) -> Result<Self> {
        Self::of(Source::with_heads(file), file, ExpertPlacement::Device)
    }

    /// Like [`Self::read`], for a model that is loaded with these options: with its prediction heads if they are loaded, and
    /// with its experts where they are placed.
    ///
    /// # Errors
    /// The errors of [`Self::read`], and [`Error::ExpertPlacement`].
    pub fn read_for(file: &GgufFile, options: &LoadOptions) -> Result<Self> {
        let source = if options.prediction_heads { Source::with_heads(file) } else { Source::new(file) };
        Self::of(source, file, options.experts)
    }

    fn of(source: Source, file: &GgufFile, experts: ExpertPlacement) -> Result<Self> {
        let spec = family::spec(&source)?;
        let (own, program, weights) = Self::parts(&spec, file, experts, &RankPart::WHOLE)?;
        let tokenizer = vocabulary::read(&source)?;
        if let Some(tokens) = tokenizer.as_ref().map(Tokenizer::vocab_size).filter(|&tokens| tokens != spec.vocab) {
            return Err(Error::VocabularySize { tokens, rows: spec.vocab });
        }
        // Converters write an empty one for models that have none.
        let [template, tool_template] = templates::read(&source)?.map(|template| template.map(str::to_owned));
        Ok(Self {
            spec,
            tokenizer,
            template,
            tool_template,
            unused_keys: source.unused_keys(),
            tower: None,
            own,
            program,
            weights,
            part: RankPart::WHOLE,
        })
    }

    /// Reads the vision tower of an `mmproj` file, with which the model is loaded: plans count it.
    ///
    /// # Errors
    /// The errors of [`TowerInfo::read`].
    pub fn read_tower(&mut self, file: &GgufFile) -> Result<()> {
        self.tower = Some(TowerInfo::read(file, &self.spec)?);
        Ok(())
    }

    pub(crate) fn parts_of_plan(&self) -> PlanParts<'_> {
        PlanParts { spec: &self.own, program: &self.program, tower: self.tower.as_ref() }
    }

    /// The forward pass and the sizes of the weights of a model whose experts are there, or of a rank's part of it.
    pub(crate) fn parts(
        spec: &ModelSpec,
        file: &GgufFile,
        experts: ExpertPlacement,
        part: &RankPart,
    ) -> Result<(ModelSpec, Program, WeightShapes)> {
        let own = own_spec(spec, file, part);
        let mut program = build(&own, spec, file, part);
        program.place_experts(experts)?;
        // A rank with some of the layers leaves out the others; the whole model was surveyed before.
        let leaves_out = |name: &str| part.is_in_a_row() || spec.leaves_out(name);
        let weights = weights::survey(file, &leaves_out, &spec.architecture, &program.tensors)?;
        Ok((own, program, weights))
    }

    /// Places the experts elsewhere. `file` is the one that was read; its vocabulary is not read again.
    ///
    /// # Errors
    /// [`Error::ExpertPlacement`].
    pub fn place(&mut self, file: &GgufFile, experts: ExpertPlacement) -> Result<()> {
        (self.own, self.program, self.weights) = Self::parts(&self.spec, file, experts, &self.part)?;
        Ok(())
    }

    /// Leaves the part of a rank of the model. `file` is the one that was read.
    ///
    /// # Errors
    /// [`Error::Split`] if the model has parts that cannot be on several devices.
    pub(crate) fn split(&mut self, file: &GgufFile, part: RankPart) -> Result<()> {
        if part.is_whole() {
            return Ok(());
        }
        self.check_split(&part)?;
        self.part = part;
        self.place(file, ExpertPlacement::Device)
    }

    /// The model on another rank, which reads and writes no text.
    pub(crate) fn of_rank(&self, file: &GgufFile, part: RankPart) -> Result<Self> {
        let (own, program, weights) = Self::parts(&self.spec, file, ExpertPlacement::Device, &part)?;
        let spec = self.spec.clone();
        let (tokenizer, template, tool_template, tower, unused_keys) = (None, None, None, None, Vec::new());
        Ok(Self { spec, tokenizer, template, tool_template, unused_keys, tower, own, program, weights, part })
    }

    /// What a rank has of the layers that are split, as text.
    pub(crate) fn own_parts(&self) -> String {
        let mut parts = Vec::new();
        let groups = || self.program.groups.iter().map(|groups| groups.experts).filter(|experts| experts.all > 0);
        if let Some(first) = groups().find(|experts| experts.count < experts.all) {
            let counts = groups().map(|experts| experts.count);
            let [own, all] = [counts.sum::<usize>(), groups().map(|experts| experts.all).sum()];
            let is_same = groups().all(|experts| experts == first);
            parts.push(match is_same {
                true => format!("experts {} to {} of {}", first.first, first.first + first.count - 1, first.all),
                false => format!("{own} of {all} experts of all layers"),
            });
        }
        if self.part.is_in_a_row() {
            let layers = self.part.layers(self.spec.layers.len());
            let routers = self.spec.routers();
            let experts = |layers: Range<usize>| layers.map(|layer| routers[layer].experts).sum::<usize>();
            let [own, all] = [experts(layers.clone()), experts(0..routers.len())];
            let experts = if all > 0 { format!(", {own} of {all} experts") } else { String::new() };
            return format!("layers {} to {} of {}{experts}", layers.start, layers.end - 1, self.spec.layers.len());
        }
        let heads = |spec: &ModelSpec| spec.layers.iter().map(LayerSpec::query_heads).sum::<usize>();
        let (own, all) = (heads(&self.own), heads(&self.spec));
        if own < all {
            parts.push(format!("{own} of {all} attention heads"));
        }
        let cut = self.program.tensors.matrices.iter().filter(|matrix| matches!(matrix.role, Role::GateUp | Role::Up));
        let columns = cut.filter_map(|matrix| matrix.tensors.first()?.cut.rows.clone()).map(|rows| rows.len());
        if let Some(columns) = columns.reduce(|all, columns| all + columns) {
            parts.push(format!("{columns} columns of dense MLPs and shared experts"));
        }
        if parts.is_empty() { "all layers".to_owned() } else { parts.join(", ") }
    }

    fn check_split(&self, part: &RankPart) -> Result<()> {
        match self {
            Self { spec, .. } if !spec.heads.is_empty() && part.is_in_a_row() => {
                let reason =
                    "prediction heads cannot draft from layers in a row; choose another split, or leave the heads out";
                Err(Error::Split { reason: reason.to_owned() })
            }
            Self { spec, .. } if part.is_in_a_row() => match part.load {
                Some(_) => {
                    let reason =
                        "layers in a row do not share experts; leave the load of experts out, or choose another split";
                    Err(Error::Split { reason: reason.to_owned() })
                }
                None => check_layers(spec, part),
            },
            Self { spec, .. } => part.load.as_ref().map_or(Ok(()), |load| load.check(spec)),
        }
    }

    /// Checks a model with its prediction heads, except for its vocabulary and its templates.
    ///
    /// # Errors
    /// The errors of [`Self::read`] about keys and tensors.
    pub fn check(file: &GgufFile) -> Result<()> {
        let spec = family::spec(&Source::with_heads(file))?;
        Self::parts(&spec, file, ExpertPlacement::Device, &RankPart::WHOLE).map(drop)
    }

    /// What a forward pass reads of each tensor.
    pub fn tensor_uses(&self) -> Vec<TensorUse> {
        self.program.tensor_uses()
    }

    /// Notices of the file.
    pub fn notices(&self) -> Vec<Notice> {
        self.tokenizer.as_ref().and_then(Notice::of_tokenizer).into_iter().collect()
    }
}
