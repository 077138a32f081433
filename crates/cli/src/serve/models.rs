//! The models of a server: which ones the command line names, and how each is loaded.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use clap::Args;
use gristmill_convert::is_model_folder;
use gristmill_engine::model::check_architecture;
use gristmill_engine::vision::Limits as ImageLimits;
use gristmill_engine::{Engine, Limits};
use gristmill_files::gguf::{FileKind, GgufFile};
use gristmill_server::{LoadError, LoadProgress, LoadedModel, OfferedModel};

use super::capacity::CapacityArgs;
use crate::args::DeviceArgs;
use crate::draft::{DraftArgs, Without};
use crate::failure::Failure;
use crate::load::{self, Memory, OtherModels};
use crate::mmproj::MmprojArg;
use crate::numbers;
use crate::settings::SettingArgs;
use crate::source::{ModelOption, QuantizeArg, Source};
use crate::summary::{self, name};
use crate::verbosity::Verbosity;
use crate::{kind, recommended, template};

#[derive(Args, Clone)]
pub(crate) struct ModelsArg {
    /// The models: GGUF files (any part of a split model), folders of Hugging Face or MLX, models of the hub, or folders
    /// that contain models. ORG/REPO[:QUANT] must be in the cache (`gristmill pull`); hf:ORG/REPO[:QUANT] is downloaded
    /// if it is missing. Several models are loaded when requests need them [default: the built-in model, which tells
    /// short stories].
    #[arg(value_name = "MODEL")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    option: ModelOption,
    /// The name of the model in replies, for one model [default: the name of its file].
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    name: Option<String>,
    /// Another name that requests can use for the model; in claude-*, the * matches any characters. ALIAS=MODEL is a name
    /// of that model, ALIAS of the first one. Can be repeated.
    #[arg(long, value_name = "ALIAS[=MODEL]", help_heading = "Model")]
    alias: Vec<String>,
    /// Load the model of this name at the start, and do not unload it. Can be repeated.
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    pin: Vec<String>,
    /// Unload models that have had no request for this number of seconds, except for pinned ones.
    #[arg(
        long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = numbers::between(1, 1_000_000),
        help_heading = "Model"
    )]
    pub(crate) idle: Option<usize>,
}

/// An engine, and the memory of its model.
type Held = (Weak<Engine>, Memory);

/// How models are loaded.
#[derive(Clone)]
pub(crate) struct Loads {
    pub(crate) quantize: QuantizeArg,
    pub(crate) mmproj: MmprojArg,
    pub(crate) drafts: DraftArgs,
    pub(crate) device: DeviceArgs,
    pub(crate) capacity: CapacityArgs,
    /// Of images in requests.
    pub(crate) image_limits: ImageLimits,
    pub(crate) context: Option<usize>,
    pub(crate) chat_template: Option<String>,
    /// Settings of requests that have none of their own.
    pub(crate) settings: SettingArgs,
    pub(crate) log: Verbosity,
    /// Of the models that were loaded.
    pub(crate) held: Arc<Mutex<Vec<Held>>>,
}

/// A model that is named, or that a folder contains.
struct Named {
    /// `None` for the built-in model.
    path: Option<PathBuf>,
    name: String,
}

impl ModelsArg {
    /// The models, of which pinned ones are loaded. One model is pinned, unless idle models are unloaded.
    pub(super) fn offered(&self, loads: &Loads) -> Result<Vec<OfferedModel>, Failure> {
        let named = self.named(loads)?;
        let is_several = named.len() > 1;
        self.check(&named, loads)?;
        let offer = |(index, Named { path, name }): (usize, Named)| {
            let is_pinned = self.pin.contains(&name) || (!is_several && self.idle.is_none());
            let loaded = match is_pinned || !is_several {
                true => Some(loads.load(path.as_deref(), is_several, &LoadProgress::default())?),
                false => None,
            };
            let aliases = self.aliases(index, &name);
            let loads = loads.clone();
            let load = move |progress: &LoadProgress| {
                loads.load(path.as_deref(), is_several, progress).map_err(|failure| match failure {
                    Failure::Memory(message) => LoadError::Memory(message),
                    failure => LoadError::Failed(failure.message()),
                })
            };
            let offered = OfferedModel::on_demand(name, load).with_aliases(aliases);
            let offered = if is_pinned { offered.pinned() } else { offered };
            Ok(match loaded {
                Some(loaded) => offered.with_loaded(loaded),
                None => offered,
            })
        };
        named.into_iter().enumerate().map(offer).collect()
    }

    /// Refuses options that are about one model next to several, and names that no model has.
    fn check(&self, named: &[Named], loads: &Loads) -> Result<(), Failure> {
        if loads.device.ranks.is_some() && (named.len() != 1 || self.idle.is_some()) {
            let one = "one model that stays loaded is served on several processes; name one model, without --idle";
            return Err(Failure::new(format!("--ranks: {one}")));
        }
        if let [_, _, ..] = named {
            let one = [
                ("--name", self.name.is_some()),
                ("--chat-template", loads.chat_template.is_some()),
                ("--draft-model", loads.drafts.has_model()),
            ];
            if let Some((option, _)) = one.into_iter().find(|(_, is_given)| *is_given) {
                let count = named.len();
                return Err(Failure::new(format!("{option} is for one model, and {count} are served; leave it out")));
            }
        }
        let names: Vec<&str> = named.iter().map(|named| named.name.as_str()).collect();
        for (index, name) in names.iter().enumerate() {
            if names[..index].contains(name) {
                return Err(Failure::new(format!("two models have the name {name}; rename a file, or leave one out")));
            }
        }
        let aliases = self.alias.iter().filter_map(|alias| Some(alias.split_once('=')?.1));
        let wanted = self.pin.iter().map(|name| ("--pin", name.as_str())).chain(aliases.map(|name| ("--alias", name)));
        match wanted.into_iter().find(|(_, name)| !names.contains(name)) {
            Some((option, name)) => {
                let names = names.join(", ");
                Err(Failure::new(format!("{option} {name}: there is no model of this name; use one of {names}")))
            }
            None => Ok(()),
        }
    }

    /// The aliases of the model at an index.
    fn aliases(&self, index: usize, name: &str) -> Vec<String> {
        let of_model = |alias: &String| match alias.split_once('=') {
            Some((alias, model)) => (model == name).then(|| alias.to_owned()),
            None => (index == 0).then(|| alias.clone()),
        };
        self.alias.iter().filter_map(of_model).collect()
    }

    fn named(&self, loads: &Loads) -> Result<Vec<Named>, Failure> {
        let option = &self.option;
        let paths: Vec<&Path> = match (self.paths.as_slice(), option.model.as_deref()) {
            ([path, ..], Some(model)) => {
                let (path, model) = (path.display(), model.display());
                return Err(Failure::new(format!("both {path} and -m {model} name the model; name one of them")));
            }
            ([], model) => model.or(option.default_model.as_deref()).into_iter().collect(),
            (paths, None) => paths.iter().map(PathBuf::as_path).collect(),
        };
        // Sets whether models are downloaded.
        let built_in = option.of(None);
        if paths.is_empty() {
            return Ok(vec![self.one(None, built_in, loads)?]);
        }
        let mut named = Vec::new();
        for path in paths {
            match path.is_dir() && !is_model_folder(path) {
                true => named.extend(of_folder(path, &loads.log)?),
                false => named.push(self.one(Some(path), Source::of(Some(path)), loads)?),
            }
        }
        Ok(named)
    }

    /// A model that the command line names. Opening it shows early what is wrong, and has its name.
    fn one(&self, path: Option<&Path>, source: Source, loads: &Loads) -> Result<Named, Failure> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => name(&loads.quantize.of(source)?.open(&Verbosity { quiet: true, ..loads.log })?),
        };
        Ok(Named { path: path.map(Path::to_owned), name })
    }
}

impl Loads {
    /// Loads a model and starts its engine.
    pub(crate) fn load(
        &self,
        path: Option<&Path>,
        is_several: bool,
        progress: &LoadProgress,
    ) -> Result<LoadedModel, Failure> {
        let Loads { device, log, .. } = self;
        let drafts = self.drafts.or(Without::Off);
        let source = self.quantize.of(Source::of(path))?;
        let others = OtherModels { memory: self.held(), keeps_context: is_several, progress: progress.clone() };
        let limits = self.capacity.limits(self.context, device.kv.into());
        let limits = Limits { output_rows: drafts.rows(limits.sequences), images: self.image_limits, ..limits };
        let (model, limits, memory) =
            load::load_alongside(&others, source, &self.mmproj, &drafts.on(device), limits, log)?;
        let mut sampling = recommended::sampling(source, &model);
        self.settings.apply(&mut sampling);
        let engine = load::start(model, drafts, limits, device, log)?.with_queue(self.capacity.queue);
        let engine = template::replaced(engine, self.chat_template.as_deref());
        let replies = match engine.sequences() {
            1 => "one reply at a time".to_owned(),
            replies => format!("{replies} replies at once"),
        };
        log.info(format_args!("{}, {replies}", summary::line(&engine)));
        template::report(&engine, log);
        if self.capacity.count_experts {
            engine.count_experts(true);
        }
        let draft = drafts.most(engine.model());
        let engine = Arc::new(engine);
        self.held.lock().unwrap_or_else(PoisonError::into_inner).push((Arc::downgrade(&engine), memory));
        Ok(LoadedModel { engine, sampling, draft })
    }

    /// The memory of all loaded models.
    fn held(&self) -> Memory {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|(engine, _)| engine.strong_count() > 0);
        held.iter().fold(Memory::default(), |sum, (_, memory)| sum.plus(*memory))
    }
}

/// The models that a folder contains: GGUF files, folders of Hugging Face or MLX, and folders with a GGUF file. Those whose
/// names suggest draft models and the like come last, because requests without a model use the first. Files that are no
/// model that can run are left out, with a line for each.
fn of_folder(folder: &Path, log: &Verbosity) -> Result<Vec<Named>, Failure> {
    let wrong = |error| Failure::new(format!("{}: {error}", folder.display()));
    let mut named = Vec::new();
    for path in paths(folder).map_err(wrong)? {
        let (is_folder, name) = match path.is_dir() {
            true => (true, path.file_name()),
            false => (false, path.file_stem()),
        };
        let name = name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let model = match is_folder {
            true if is_model_folder(&path) => Some(path),
            true => in_order(paths(&path).map_err(wrong)?).into_iter().find(|path| is_runnable(path, log)),
            false => Some(path).filter(|path| is_runnable(path, log)),
        };
        named.extend(model.map(|path| Named { path: Some(path), name }));
    }
    if named.is_empty() {
        return Err(Failure::new(format!(
            "{}: the folder contains no models; name a folder with GGUF files",
            folder.display()
        )));
    }
    named.sort_by_key(|model| is_marked(Path::new(&model.name)));
    Ok(named)
}

/// Paths whose names suggest a language model first.
fn in_order(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.sort_by_key(|path| is_marked(path));
    paths
}

fn is_marked(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    FileKind::of_name(&name) != FileKind::LanguageModel
}

/// Whether a path is a GGUF file, of a split model its first part, with a language model of a supported architecture. If it
/// is another GGUF file, a line has the reason.
fn is_runnable(path: &Path, log: &Verbosity) -> bool {
    if !is_first_gguf(path) {
        return false;
    }
    let checked = GgufFile::open(path).map_err(Failure::from).and_then(|file| {
        kind::check(&file)?;
        Ok(check_architecture(&file)?)
    });
    if let Err(failure) = &checked {
        let path = path.display().to_string();
        let reason = failure.message();
        let reason = reason.strip_prefix(&format!("{path}: ")).unwrap_or(&reason);
        log.info(format_args!("not served: {path}: {reason}"));
    }
    checked.is_ok()
}

/// The paths in a folder, in the order of their names.
fn paths(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    paths.sort();
    Ok(paths)
}

/// Whether a path is a GGUF file, and of a split model its first part.
fn is_first_gguf(path: &Path) -> bool {
    let is_gguf = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf")) && path.is_file();
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let part = stem.rsplit_once("-of-").and_then(|(start, count)| {
        let (_, part) = start.rsplit_once('-')?;
        (part.len() == 5 && count.len() == 5).then(|| part.parse::<u32>().ok())?
    });
    is_gguf && part.is_none_or(|part| part == 1)
}
