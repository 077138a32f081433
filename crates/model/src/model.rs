//! A loaded model.

use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use gristmill_files::gguf::{GgufFile, TensorInfo};
use gristmill_kernels::Backend;
use gristmill_kernels::act::Precision;
use gristmill_kernels::format::Format;
use gristmill_kernels::ops::{Rates, SamplingOptions};
use gristmill_kernels::tensor::DeviceId;
use gristmill_kernels::weight::Location;
use gristmill_text::tokenizer::Tokenizer;

use crate::device;
use crate::error::{Error, Result};
use crate::info::ModelInfo;
use crate::limits::Limits;
use crate::load::{ExpertPlacement, LoadOptions, Progress};
use crate::notice::Notice;
use crate::plan::{Plan, PlanParts};
use crate::program::Program;
use crate::program::node::Node;
use crate::program::uses::TensorUse;
use crate::ranks::{Message, RankGroup, RankPart, Split, Sums, follow};
use crate::runner::{MOST_DRAFTS, Runner};
use crate::sampling;
use crate::spec::ModelSpec;
use crate::tower::Tower;
use crate::weights::{self, Weights};

/// A loaded model: immutable, and shared by its runners.
pub struct Model {
    file: GgufFile,
    fingerprint: OnceLock<String>,
    pub(crate) spec: ModelSpec,
    /// What this device has of it: the spec of the state.
    pub(crate) own: ModelSpec,
    pub(crate) program: Program,
    tokenizer: Option<Tokenizer>,
    template: Option<String>,
    tool_template: Option<String>,
    unused_keys: Vec<String>,
    pub(crate) backend: Arc<Backend>,
    pub(crate) precision: Precision,
    experts: ExpertPlacement,
    /// The precision of attention: products with F32 weights round nothing, and then attention does not either.
    pub(crate) attention_precision: Precision,
    pub(crate) weights: Weights,
    tower: Option<Arc<Tower>>,
    /// Whether rank 0 has a tower, of which this rank gets the rows.
    has_pictures_of_rank_0: bool,
    /// The parts of the other ranks, if the model is split over devices; this one is rank 0.
    pub(crate) other_ranks: Vec<Arc<Model>>,
    split: Split,
    /// How the devices sum.
    pub(crate) sums: Sums,
    /// Held during a step of a model that is split. Two runners could otherwise hold the lock of one device each and wait for that of
    /// the other.
    step: Mutex<()>,
    /// The other processes that run the model with this one.
    pub(crate) group: Option<Arc<RankGroup>>,
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Model({} with {} layers on {})", self.spec.architecture, self.spec.layers.len(), self.backend.name())
    }
}

impl Model {
    /// Loads a GGUF file; of a split model, give any part. It blocks until the weights are loaded, on a CPU and on a GPU.
    /// [`LoadOptions::progress`] reports the progress.
    ///
    /// # Errors
    /// An [`Error`] that says what is wrong with the file, the options or the memory.
    pub fn open(path: impl AsRef<Path>, options: LoadOptions) -> Result<Self> {
        Self::from_file(GgufFile::open(path)?, options)
    }

    /// Loads a model linked into the program, for example with `include_bytes!`.
    ///
    /// # Errors
    /// The errors of [`Self::open`].
    pub fn from_static(bytes: &'static [u8], options: LoadOptions) -> Result<Self> {
        Self::from_file(GgufFile::from_static(bytes)?, options)
    }

    /// Loads an open GGUF file. It blocks as [`Self::open`] does.
    ///
    /// # Errors
    /// The errors of [`Self::open`].
    pub fn from_file(file: GgufFile, options: LoadOptions) -> Result<Self> {
        // Wrong options are refused before a large file is read.
        let opened = device::open_device(&options)?;
        Self::with_backends(file, std::iter::once(opened.backend).chain(opened.others).collect(), options)
    }

    /// Loads an open GGUF file onto the caller's backend; the options `device`, `threads` and `level` are
    /// ignored.
    ///
    /// # Errors
    /// The errors of [`Self::open`]; [`Error::NotDeterministic`] if the options request what the backend was not opened
    /// for.
    pub fn with_backend(file: GgufFile, backend: Arc<Backend>, options: LoadOptions) -> Result<Self> {
        Self::with_backends(file, vec![backend], options)
    }

    /// Loads an open GGUF file onto several backends, each of which has a part of the model ([`LoadOptions::split`]). The first one
    /// computes the logits. The options `device`, `threads` and `level` are ignored.
    ///
    /// # Errors
    /// The errors of [`Self::with_backend`]; [`Error::Split`] if the model cannot be split over these backends.
    pub fn with_backends(file: GgufFile, backends: Vec<Arc<Backend>>, options: LoadOptions) -> Result<Self> {
        let mut others = backends.into_iter();
        let Some(backend) = others.next() else {
            return Err(Error::Split { reason: "no device is named; name one".to_owned() });
        };
        check_backend(&backend, &options)?;
        let mut info = ModelInfo::read_for(&file, &options)?;
        let others: Vec<_> = others.collect();
        info.split(&file, RankPart::own(1 + others.len(), &info.spec, &options))?;
        Self::load_ranks(file, info, backend, others, options, None)
    }

    /// Loads the parts of all ranks. The description is the one of rank 0, and the sums are those of the devices if they have joined.
    pub(crate) fn load_ranks(
        file: GgufFile,
        info: ModelInfo,
        backend: Arc<Backend>,
        others: Vec<Arc<Backend>>,
        options: LoadOptions,
        sums: Option<Sums>,
    ) -> Result<Self> {
        if others.is_empty() && options.group.is_none() {
            return Self::load(file, info, backend, options);
        }
        if options.experts != ExpertPlacement::Device {
            let reason = "experts in host memory or in the file are not supported on several devices; leave the option out, \
                          or name one device";
            return Err(Error::ExpertPlacement { reason: reason.to_owned() });
        }
        if let Some(collective) = options.group.clone() {
            if !others.is_empty() {
                let reason =
                    "several devices and several processes cannot share a model; name one device for each process";
                return Err(Error::Split { reason: reason.to_owned() });
            }
            let facts = [
                ("version", env!("CARGO_PKG_VERSION").to_owned()),
                ("model file", file.fingerprint()),
                ("split", info.part.split.to_string()),
                ("load of experts", info.part.load.as_ref().map_or_else(String::new, |load| load.fingerprint())),
                ("arithmetic of the device", backend.arithmetic().join(", ")),
                ("precision", format!("{:?}", options.precision)),
                ("prediction heads", options.prediction_heads.to_string()),
            ];
            let group = Some(Arc::new(RankGroup::join(collective.clone(), &facts)?));
            let aborts = |error: &Error| collective.abort(&error.to_string());
            let sums = match sums {
                Some(sums) => sums,
                None => Sums::of(std::slice::from_ref(&backend), &options).inspect_err(aborts)?,
            };
            return Ok(Self { group, sums, ..Self::load(file, info, backend, options).inspect_err(aborts)? });
        }
        if let Some(other) = others.iter().find(|other| other.arithmetic() != backend.arithmetic()) {
            let reason = format!(
                "{} and {} compute different bits, so their routers could choose different experts; name equal devices",
                backend.name(),
                other.name()
            );
            return Err(Error::Split { reason });
        }
        // Libraries of collectives take memory of the devices, so they come before weights and plans.
        let all = || std::iter::once(&backend).chain(&others).cloned().collect::<Vec<_>>();
        let sums = sums.map_or_else(|| Sums::of(&all(), &options), Ok)?;
        let rest = others.into_iter().zip(1..).map(|(backend, rank)| {
            let info = info.of_rank(&file, info.part.of_rank(rank))?;
            let model = Self::load_part(file.clone(), info, backend, options.of_other_rank())?;
            Ok(Arc::new(Self { sums: sums.clone(), ..model }))
        });
        let other_ranks = rest.collect::<Result<Vec<_>>>()?;
        Ok(Self { other_ranks, sums, ..Self::load_part(file, info, backend, options)? })
    }

    /// Loads the part of a device, which an error names if its memory is too little.
    fn load_part(file: GgufFile, info: ModelInfo, backend: Arc<Backend>, options: LoadOptions) -> Result<Self> {
        let device = backend.name();
        Self::load(file, info, backend, options).map_err(|error| match error.is_out_of_memory() {
            true => Error::OnDevice { device, error: Box::new(error) },
            false => error,
        })
    }

    /// Loads a model whose description was read for these options.
    pub(crate) fn load(
        file: GgufFile,
        info: ModelInfo,
        backend: Arc<Backend>,
        mut options: LoadOptions,
    ) -> Result<Self> {
        check_backend(&backend, &options)?;
        if backend.device() != DeviceId::Cpu {
            info.program.check_streamed_for_gpu()?;
        }
        if options.check_memory {
            // The smallest runner; a larger one makes its own plan.
            let least = Limits { context: Some(1), batch_tokens: 1, ..Limits::default() };
            Plan::new(&info, &least, options.precision, &backend)?.check()?;
        }
        let total = info.weights.file;
        let mut done = 0;
        let mut report = options.progress.take();
        let mut report = |bytes| {
            done += bytes;
            let flow = report.as_mut().map_or(ControlFlow::Continue(()), |report| report(Progress { done, total }));
            if flow.is_break() { Err(Error::Cancelled) } else { Ok(()) }
        };
        report(0)?;
        let weights = {
            let _exclusive = backend.exclusive();
            weights::load(&file, &info.program.tensors, &backend, &mut report)?
        };
        let ModelInfo { spec, own, program, part, tokenizer, template, tool_template, unused_keys, .. } = info;
        let precision = options.precision;
        let rounds = |tensor: &TensorInfo| tensor.shape.len() > 1 && tensor.format != Format::F32;
        let attention_precision = if file.tensors().iter().any(rounds) { precision } else { Precision::Exact };
        Ok(Self {
            file,
            fingerprint: OnceLock::new(),
            spec,
            own,
            program,
            tokenizer,
            template,
            tool_template,
            unused_keys,
            backend,
            precision,
            experts: options.experts,
            attention_precision,
            weights,
            tower: None,
            has_pictures_of_rank_0: false,
            other_ranks: Vec::new(),
            split: part.split,
            sums: Sums::on_host(None),
            step: Mutex::default(),
            group: None,
        })
    }

    /// The model with the tower of an `mmproj` file, which is loaded onto the same device.
    ///
    /// # Errors
    /// The errors of [`Tower::load`].
    pub fn with_tower(self, file: GgufFile) -> Result<Self> {
        let tower = self.load_tower(file)?;
        Ok(self.with_loaded_tower(tower))
    }

    /// The tower of an `mmproj` file, for this model and on its device. A caller that goes on without a tower loads it
    /// this way.
    ///
    /// # Errors
    /// The errors of [`Tower::load`].
    pub fn load_tower(&self, file: GgufFile) -> Result<Tower> {
        Tower::load(file, &self.spec, self.backend.clone(), self.precision)
    }

    /// The model with a tower that was loaded for it.
    pub fn with_loaded_tower(mut self, tower: Tower) -> Self {
        // Nothing else has the parts of a model that nobody shares yet.
        self.other_ranks.iter_mut().filter_map(Arc::get_mut).for_each(|rank| rank.has_pictures_of_rank_0 = true);
        Self { tower: Some(Arc::new(tower)), ..self }
    }

    /// Whether batches can have pictures.
    pub(crate) fn reads_images(&self) -> bool {
        self.tower.is_some() || self.has_pictures_of_rank_0
    }

    /// The tower, if there is one: the model reads images.
    pub fn tower(&self) -> Option<&Arc<Tower>> {
        self.tower.as_ref()
    }

    pub(crate) fn parts_of_plan(&self) -> PlanParts<'_> {
        PlanParts { spec: &self.own, program: &self.program, tower: self.tower.as_ref().map(|tower| &tower.info) }
    }

    /// The file; its metadata, and tensors as they are in the file.
    pub fn file(&self) -> &GgufFile {
        &self.file
    }

    /// The backend, for another model on the same device with the same threads.
    pub fn backend(&self) -> &Arc<Backend> {
        &self.backend
    }

    /// The file's [`GgufFile::fingerprint`], computed when it is first requested: the first call blocks and reads the file.
    pub fn fingerprint(&self) -> &str {
        self.fingerprint.get_or_init(|| self.file.fingerprint())
    }

    /// The parts of the model.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// Prediction heads that are loaded: 0 if the file has none, or without [`LoadOptions::prediction_heads`].
    pub fn prediction_heads(&self) -> usize {
        self.spec.heads.len()
    }

    /// The most tokens that the prediction heads draft for a sequence at once.
    pub fn most_drafts(&self) -> usize {
        match (self.prediction_heads(), self.spec.head_inputs.chained) {
            (0, _) => 0,
            (_, true) => MOST_DRAFTS,
            (heads, false) => heads.min(MOST_DRAFTS),
        }
    }

    /// What a forward pass reads of each tensor.
    pub fn tensor_uses(&self) -> Vec<TensorUse> {
        self.program.tensor_uses()
    }

    /// The tokenizer.
    ///
    /// # Errors
    /// [`Error::NoTokenizer`] if the file has no vocabulary.
    pub fn tokenizer(&self) -> Result<&Tokenizer> {
        self.tokenizer.as_ref().ok_or(Error::NoTokenizer)
    }

    /// The source of the chat template (Jinja), if the file has one.
    pub fn template(&self) -> Option<&str> {
        self.template.as_deref()
    }

    /// The source of the chat template for conversations with tools, if the file has one of its own.
    pub fn tool_template(&self) -> Option<&str> {
        self.tool_template.as_deref()
    }

    /// Metadata keys that are not used, in file order.
    pub fn unused_keys(&self) -> &[String] {
        &self.unused_keys
    }

    /// The device with its level and threads, as text.
    pub fn device_name(&self) -> String {
        let names = std::iter::once(&self.backend).chain(self.other_ranks.iter().map(|rank| &rank.backend));
        let names = names.map(|backend| backend.name()).collect::<Vec<_>>().join(" + ");
        match &self.group {
            Some(group) => format!("{names}, rank {} of {}", group.collective().rank(), group.collective().size()),
            None => names,
        }
    }

    /// Whether other devices have parts of the model.
    fn is_split(&self) -> bool {
        !self.other_ranks.is_empty() || self.group.is_some()
    }

    /// How the devices of a model on several devices sum; `None` on one device.
    pub fn sums(&self) -> Option<&Sums> {
        self.is_split().then_some(&self.sums)
    }

    /// Repeats the calls of rank 0, as a process of [`LoadOptions::group`] that is another rank, until rank 0 drops the model.
    ///
    /// # Errors
    /// A rank that is lost, or in another state; a device that fails. It ends the group.
    pub fn follow(self: &Arc<Self>) -> Result<()> {
        let Some(group) = &self.group else { return Ok(()) };
        let repeat = || -> Result<()> {
            loop {
                match group.receive()? {
                    Message::Start(start) => {
                        let (limits, reuse) = start.limits();
                        let runner = Runner::of_process(self.clone(), group, limits, reuse)?;
                        let orders = std::iter::from_fn(|| match group.receive() {
                            Ok(Message::Order(order)) => Some(order),
                            // A rank that is lost is also the error of the next call.
                            _ => None,
                        });
                        follow(orders, runner, &**group.collective());
                    }
                    Message::Quit => return Ok(()),
                    Message::Order(_) | Message::End => return Err(Error::RankState),
                }
            }
        };
        repeat().inspect_err(|error| group.collective().abort(&error.to_string()))
    }

    /// The right to run a step on all ranks.
    pub(crate) fn step_on_ranks(&self) -> MutexGuard<'_, ()> {
        self.step.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The limits of a rank that has no caller. Only rank 0 computes logits, but each has those of prediction heads.
    pub(crate) fn of_other_rank(&self, limits: Limits) -> Limits {
        if self.prediction_heads() > 0 { limits } else { Limits { output_rows: Some(1), ..limits } }
    }

    /// Whether each device has some of the layers.
    pub(crate) fn is_in_a_row(&self) -> bool {
        self.split == Split::Layers
    }

    /// What logits depend on to the bit, as [`Backend::arithmetic`]; with the split over devices, because sums are added in their
    /// order.
    pub fn arithmetic(&self) -> Vec<String> {
        let ranks = self.group.as_ref().map_or(1 + self.other_ranks.len(), |group| group.collective().size());
        let split = (ranks > 1).then(|| format!("{ranks} devices by {}", self.split));
        self.backend.arithmetic().into_iter().chain(split).collect()
    }

    /// Bytes that can still be allocated on the device; `None` on the CPU, whose memory is the system's.
    ///
    /// # Errors
    /// [`Error::Kernel`] if the device refuses.
    pub fn free_memory(&self) -> Result<Option<u64>> {
        Ok(self.backend.free_memory()?)
    }

    /// The device's peak rates, measured quickly; `None` for the CPU.
    ///
    /// # Errors
    /// [`Error::Kernel`] if the device refuses.
    pub fn rates(&self) -> Result<Option<Rates>> {
        let _exclusive = self.backend.exclusive();
        Ok(self.backend.rates()?)
    }

    /// Notices of the file and of the device.
    pub fn notices(&self) -> Vec<Notice> {
        let tokenizer = self.tokenizer.as_ref().and_then(Notice::of_tokenizer);
        let (_, sampling) = sampling::recommended(self.file.metadata());
        let sums = self.sums.refusal.as_ref().map(|reason| {
            Notice::Device(format!("the devices sum through host memory, which is slower, because {reason}"))
        });
        tokenizer.into_iter().chain(sampling).chain(self.backend.notice().map(Notice::Device)).chain(sums).collect()
    }

    /// The sampling that the file recommends (keys `general.sampling.*`), completed by the defaults.
    pub fn sampling(&self) -> SamplingOptions {
        sampling::recommended(self.file.metadata()).0
    }

    /// Where experts are stored and computed.
    pub fn experts(&self) -> ExpertPlacement {
        self.experts
    }

    /// What `attempt` returns. While memory is too little for it and a layer has slots for experts, slots are freed and it is
    /// called again; after an error it must have left everything as before.
    pub(crate) fn freeing_slots<T>(&self, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            match attempt() {
                Err(error) if error.is_out_of_memory() => match self.free_slots()? {
                    0 => return Err(error),
                    bytes => tracing::warn!(%error, bytes, "slots for experts are freed"),
                },
                outcome => return outcome,
            }
        }
    }

    /// Frees the slots for experts of the last layer that has some. Returns the bytes, 0 if no layer has slots.
    fn free_slots(&self) -> Result<u64> {
        let _exclusive = self.backend.exclusive();
        let layers = self.program.parts().collect::<Vec<_>>().into_iter().rev();
        for node in layers.flat_map(|part| part.nodes.iter().rev()) {
            let Node::Experts(experts) = node else { continue };
            let weights = [experts.gate_up, experts.down].map(|id| self.weights.matrix(id));
            if weights.iter().any(|weight| weight.location() != Location::Host) {
                continue;
            }
            let freed = self.backend.offload().free_slots(weights)?;
            if freed > 0 {
                return Ok(freed);
            }
        }
        Ok(0)
    }

    /// How precisely activations are kept.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Bytes of the prepared weights, without the mapped file; of a model on several devices, those of the first one.
    pub fn prepared_bytes(&self) -> u64 {
        self.weights.owned_bytes()
    }

    /// Bytes of the prepared weights of each device.
    pub fn bytes_of_ranks(&self) -> Vec<u64> {
        let others = self.other_ranks.iter().map(|rank| rank.prepared_bytes());
        std::iter::once(self.prepared_bytes()).chain(others).collect()
    }
}

/// Refuses options that request what a backend was not opened for.
fn check_backend(backend: &Backend, options: &LoadOptions) -> Result<()> {
    if options.deterministic && !backend.deterministic() {
        return Err(Error::NotDeterministic { device: backend.name() });
    }
    let (is_cpu, on_disk) =
        (backend.device() == DeviceId::Cpu, matches!(options.experts, ExpertPlacement::Disk { .. }));
    let needs_host = options.experts != ExpertPlacement::Device && !(is_cpu && on_disk);
    if needs_host && backend.offload().host().is_none() {
        let reason = format!("{} was opened without a CPU that computes them; use `open_device`", backend.name());
        return Err(Error::ExpertPlacement { reason });
    }
    Ok(())
}
