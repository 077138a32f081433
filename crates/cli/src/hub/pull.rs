//! `pull`: a model of the hub into the cache.

use std::sync::Arc;

use clap::Args;
use gristmill_files::gguf::FileKind;
use gristmill_hub::model_path;
use signal_hook::consts::SIGINT;

use super::progress::Reporter;
use super::{Choices, client};
use crate::failure::Failure;
use crate::verbosity::Verbosity;
use crate::{console, interrupt, numbers};

/// Download a model of the Hugging Face hub.
///
/// Models are named ORG/REPO[:QUANT|:FILE][@REVISION]. Without a quantisation, the first of these is used: Q4_K_M,
/// UD-Q4_K_XL, Q8_0, the only model. Otherwise the choices are listed with their sizes. Files that are no language model,
/// by their name and then by their header, are listed and left out, except for the projector (mmproj) with which the model
/// reads images: F16, BF16, Q8_0 or F32, the first that is there. A draft model is downloaded if its file is named.
/// All parts of a split model are downloaded. A repository without GGUF files is downloaded as a folder: config.json,
/// tokenizer, chat templates and the safetensors that the index names.
///
/// A stopped download resumes. Every download is verified by the sum that the hub lists. The files are stored in the
/// cache of huggingface_hub, which other programs share. Commands then accept the model by the same name. Prints the
/// path of the first file, or of the folder.
///
/// These environment variables have the same meaning as in huggingface_hub: HF_TOKEN, HF_HUB_CACHE, HF_HOME,
/// HF_ENDPOINT, HF_HUB_OFFLINE, and HTTPS_PROXY and NO_PROXY.
#[derive(Args)]
pub(crate) struct PullArgs {
    /// The model.
    #[arg(value_name = "ORG/REPO[:QUANT]")]
    model: String,
    /// Download nothing, and fail if the model is not in the cache.
    #[arg(long, help_heading = "Model")]
    offline: bool,
    /// The address of the hub or of a mirror [default: HF_ENDPOINT, or https://huggingface.co].
    #[arg(long, value_name = "URL", conflicts_with = "offline")]
    endpoint: Option<String>,
    /// Concurrent connections.
    #[arg(
        long, value_name = "N", default_value_t = 4, allow_negative_numbers = true, conflicts_with = "offline",
        value_parser = numbers::between(1, 64)
    )]
    connections: usize,
    #[command(flatten)]
    log: Verbosity,
}

pub(crate) fn run(args: &PullArgs) -> Result<(), Failure> {
    let reference = super::reference(&args.model)?;
    let endpoint = args.endpoint.as_deref();
    let hub = client(Choices { offline: args.offline, endpoint, connections: Some(args.connections) })?;
    args.log.detail(format_args!("cache: {}", hub.cache().root().display()));
    let reporter = Arc::new(Reporter::new(&args.log));
    let stopped = reporter.clone();
    interrupt::on_ctrl_c(move || {
        stopped.stopped();
        interrupt::end(SIGINT)
    })?;
    let files = hub.pull(&reference, &|event| reporter.event(event));
    reporter.finish();
    if let Some(path) = model_path(&files?) {
        console::print_line(path.display())?;
        match FileKind::of_path(path) {
            Ok(Some(FileKind::Draft)) => {
                args.log.info(format_args!("it is a draft model: gristmill chat MODEL --draft-model {reference}"));
            }
            _ => args.log.info(format_args!("to talk to it: gristmill chat {reference}")),
        }
    }
    Ok(())
}
