//! Models for interfaces that are not the command line, such as the Python package: opened with the options that `serve`
//! has for a model, by the same code. The environment and the user's file are not read for options.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser};
use gristmill_engine::{Backend, open_device};
use gristmill_server::{LoadProgress, LoadedModel, Options};
use thiserror::Error;

use crate::args::{ContextArg, DeviceArgs};
use crate::draft::DraftArgs;
use crate::failure::Failure;
use crate::hub;
use crate::kind;
use crate::mmproj::MmprojArg;
use crate::serve::models::Loads;
use crate::serve::{CapacityArgs, ImageArgs};
use crate::settings::SettingArgs;
use crate::source::{ModelOption, QuantizeArg, Source};
use crate::summary;
use crate::template::TemplateArg;
use crate::verbosity::Verbosity;

/// The options of a model, as `serve` has them.
#[derive(Parser)]
#[command(name = "gristmill", disable_help_flag = true, disable_version_flag = true)]
struct OpenArgs {
    #[command(flatten)]
    option: ModelOption,
    /// The name of the model in replies.
    #[arg(long)]
    name: Option<String>,
    /// Refuse requests with unknown fields.
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    rest: LoadArgs,
}

#[derive(Args)]
struct LoadArgs {
    #[command(flatten)]
    quantize: QuantizeArg,
    #[command(flatten)]
    mmproj: MmprojArg,
    #[command(flatten)]
    images: ImageArgs,
    #[command(flatten)]
    capacity: CapacityArgs,
    #[command(flatten)]
    template: TemplateArg,
    #[command(flatten)]
    draft: DraftArgs,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    context: ContextArg,
    #[command(flatten)]
    settings: SettingArgs,
    #[command(flatten)]
    log: Verbosity,
}

/// A model with its engine.
#[derive(Debug)]
pub struct OpenModel {
    /// The name of its file, or the one that was given.
    pub name: String,
    /// The engine, and the defaults of requests.
    pub loaded: LoadedModel,
    /// Options of a router for this model. The largest body of a request is unlimited.
    pub options: Options,
}

/// Why a model was not opened. Messages name options by their identifiers, `gpu_memory` for `--gpu-memory`.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// An option has a value that it cannot have.
    #[error("{0}")]
    Option(String),
    /// The file is missing or damaged, is no model that can run, or cannot be downloaded.
    #[error("{0}")]
    File(String),
    /// The device cannot be used.
    #[error("{0}")]
    Device(String),
    /// The memory does not suffice.
    #[error("{0}")]
    Memory(String),
    /// Another cause.
    #[error("{0}")]
    Failed(String),
}

/// Opens a model with options of `gristmill serve`, each `--name=value` or `--flag`; `--model` names it, and without it, it
/// is the built-in model. `shared` is a device of another model, in place of the one that the options name.
///
/// # Errors
/// [`OpenError`] has the causes.
pub fn open(options: Vec<OsString>, shared: Option<Arc<Backend>>) -> Result<OpenModel, OpenError> {
    let words = std::iter::once("gristmill".into()).chain(options);
    let OpenArgs { option, name, strict, rest } = OpenArgs::try_parse_from(words).map_err(|error| usage(&error))?;
    let LoadArgs { quantize, mmproj, images, capacity, template, draft, mut device, context, settings, log } = rest;
    let of_option = |failure: Failure| OpenError::Option(in_identifiers(&failure.message()));
    settings.check().map_err(of_option)?;
    let load_options = device.load_options().map_err(of_option)?;
    let chat_template = template.read().map_err(of_option)?;
    let (image_limits, images) = (images.limits(), images.options().map_err(of_option)?);
    let path: Option<PathBuf> = option.model.clone();
    hub::set_offline_here(option.offline);
    let source = Source::of(path.as_deref());
    let opened = quantize.of(source).and_then(|source| {
        let file = source.open(&log)?;
        kind::info_for(&file, &load_options)?;
        Ok(file)
    });
    let file = opened.map_err(|failure| OpenError::File(in_identifiers(&failure.message())))?;
    let name = name.unwrap_or_else(|| summary::name(&file));
    drop(file);
    let is_shared = shared.is_some();
    device.shared = shared;
    let loads = Loads {
        quantize,
        mmproj,
        drafts: draft,
        device,
        capacity,
        image_limits,
        context: context.ctx,
        chat_template,
        settings,
        log,
        held: Arc::default(),
    };
    let loaded = loads.load(path.as_deref(), false, &LoadProgress::default()).map_err(|failure| {
        let message = in_identifiers(&failure.message());
        match failure {
            Failure::Memory(_) => OpenError::Memory(message),
            _ if !is_shared && open_device(&load_options).is_err() => OpenError::Device(message),
            _ => OpenError::Failed(message),
        }
    })?;
    let options = Options { strict, allow_chat_template: true, images, body_bytes: usize::MAX, ..Options::default() };
    Ok(OpenModel { name, loaded, options })
}

/// Wrong usage in one sentence.
fn usage(error: &clap::Error) -> OpenError {
    let text = error.render().to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    let line = first.trim_start_matches("error: ").split_whitespace().collect::<Vec<_>>().join(" ");
    match error.kind() {
        ErrorKind::UnknownArgument => OpenError::Option(format!("{}; leave it out", in_identifiers(&line))),
        _ => OpenError::Option(in_identifiers(&line)),
    }
}

/// A message with the identifiers of options in place of their spelling on a command line.
fn in_identifiers(message: &str) -> String {
    let command = OpenArgs::command();
    let mut options: Vec<(String, Option<String>)> = command
        .get_arguments()
        .filter_map(|arg| {
            let value = arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
            Some((arg.get_long()?.to_owned(), value))
        })
        .collect();
    // No option is a prefix of one that is replaced after it.
    options.sort_by_key(|(option, _)| std::cmp::Reverse(option.len()));
    let mut message = message.to_owned();
    for (option, value) in options {
        let identifier = if option == "temp" { "temperature".to_owned() } else { option.replace('-', "_") };
        let typed = format!("--{option}");
        if let Some(value) = value {
            message = message.replace(&format!("{typed} <{value}>"), &identifier);
        }
        message = message.replace(&typed, &identifier);
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(options: &[&str]) -> OpenError {
        let options = [&["--quiet"], options].concat().into_iter().map(OsString::from).collect();
        open(options, None).expect_err("an error")
    }

    #[test]
    fn errors_have_their_cause_and_the_identifiers_of_options() {
        for (options, is_cause, words) in [
            (&["--ctx=0"][..], (|e| matches!(e, OpenError::Option(_))) as fn(&OpenError) -> bool, "ctx"),
            (&["--temp=-1"], |e| matches!(e, OpenError::Option(_)), "temperature"),
            (&["--cpu-level=none"], |e| matches!(e, OpenError::Option(_)), "cpu_level"),
            (
                &["--device=cuda", "--cpu-memory=1GB", "--cpu-level=none"],
                |e| matches!(e, OpenError::Option(_)),
                "cpu_level",
            ),
            (&["--model=missing.gguf"], |e| matches!(e, OpenError::File(_)), "missing.gguf: no such file"),
            (&["--model=Cargo.toml"], |e| matches!(e, OpenError::File(_)), "Cargo.toml"),
            (&["--device=abacus"], |e| matches!(e, OpenError::Device(_)), "abacus"),
            (&["--cpu-memory=1MB"], |e| matches!(e, OpenError::Memory(_)), "memory"),
        ] {
            let error = error(options);
            assert!(is_cause(&error), "{options:?}: {error:?}");
            assert!(error.to_string().contains(words) && !error.to_string().contains("--"), "{error}");
        }
    }

    #[test]
    fn models_share_a_device() {
        let options = |name: &str| ["--quiet", "--ctx=64", "--parallel=1", name].map(OsString::from).to_vec();
        let first = open(options("--name=first"), None).expect("a model");
        let backend = first.loaded.engine.model().backend().clone();
        let second = open(options("--name=second"), Some(backend.clone())).expect("a model");
        assert!(Arc::ptr_eq(second.loaded.engine.model().backend(), &backend));
        assert_eq!((first.name.as_str(), second.name.as_str()), ("first", "second"));
    }
}
