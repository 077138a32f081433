//! `rm`: frees the cache of a model.

use clap::Args;

use crate::args::Verbosity;
use crate::console;
use crate::failure::Failure;

/// Remove a model from the cache of the hub.
///
/// ORG/REPO:QUANT removes one model, ORG/REPO all files of the repository, also those of other programs. Contents that
/// another revision needs stay.
#[derive(Args)]
pub(crate) struct RmArgs {
    /// The models, named as gristmill models does.
    #[arg(value_name = "ORG/REPO[:QUANT]", required = true)]
    models: Vec<String>,
    #[command(flatten)]
    log: Verbosity,
}

pub(crate) fn run(args: &RmArgs) -> Result<(), Failure> {
    let references = super::references(&args.models)?;
    let cache = super::cache()?;
    for reference in &references {
        let removed = cache.remove(reference)?;
        let files = if removed.files == 1 { "1 file".to_owned() } else { format!("{} files", removed.files) };
        let bytes = console::bytes(removed.bytes);
        args.log.info(format_args!("{reference}: {files} removed, {bytes} are free again"));
    }
    Ok(())
}
