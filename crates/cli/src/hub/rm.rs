//! `rm`: frees the cache of a model.

use clap::Args;

use crate::console;
use crate::failure::Failure;
use crate::verbosity::Verbosity;

/// Remove a model from the cache of the hub.
///
/// ORG/REPO:QUANT removes one model. ORG/REPO removes all files of the repository, including files that other programs
/// downloaded. Files that another revision uses are kept.
#[derive(Args)]
pub(crate) struct RmArgs {
    /// The models, by the names that gristmill models prints.
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
