//! `models`: the models in the hub's cache.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use gristmill_files::gguf::{FileKind, GgufFile};
use gristmill_hub::{CachedModel, Error, model_path};
use serde::Serialize;
use unicode_width::UnicodeWidthStr;

use crate::console;
use crate::failure::Failure;

/// List the models in the cache of the hub.
///
/// GGUF files that are no language model are named on stderr. `gristmill rm` removes them by these names. Every command
/// accepts a name of the list as its model. The last use is the file system's access time, which Linux usually updates
/// once a day.
#[derive(Args)]
pub(crate) struct ModelsArgs {
    /// List only these models [default: all].
    #[arg(value_name = "ORG/REPO[:QUANT]")]
    models: Vec<String>,
    /// List models to start with, by the memory of a machine, with the command for each. Nothing is sent to the hub.
    #[arg(long, conflicts_with = "models")]
    recommended: bool,
    /// Print JSON.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// A model of the list.
#[derive(Debug, Serialize)]
struct Line {
    name: String,
    format: String,
    bytes: u64,
    /// Seconds since 1970.
    last_used: Option<u64>,
    files: Vec<String>,
}

pub(crate) fn run(args: &ModelsArgs) -> Result<(), Failure> {
    if args.recommended {
        return super::recommended::print(args.json);
    }
    let names = super::references(&args.models)?;
    let cache = super::cache()?;
    let is_asked = |model: &CachedModel| names.is_empty() || names.iter().any(|name| model.is_named(name));
    let all = cache.models()?;
    if let Some(name) = names.iter().find(|name| !all.iter().any(|model| model.is_named(name))) {
        return Err(Error::NotCached { wanted: name.to_string(), cache: cache.root().to_owned() }.into());
    }
    let (models, others): (Vec<CachedModel>, Vec<CachedModel>) =
        all.into_iter().filter(is_asked).partition(|model| model.kind == FileKind::LanguageModel);
    for CachedModel { reference, kind, size, .. } in &others {
        console::note(format_args!("{reference}: no language model ({kind}, {})", console::bytes(*size)));
    }
    let lines: Vec<Line> = models.into_iter().map(Line::new).collect();
    if args.json {
        return console::print_json(&lines);
    }
    if lines.is_empty() && others.is_empty() {
        let folder = cache.root().display();
        let example = "gristmill pull ORG/REPO";
        console::note(format_args!("there are no models in {folder}; {example} downloads one"));
        console::note(format_args!("gristmill models --recommended lists models to start with"));
        return Ok(());
    }
    console::print_report(table(&lines, now()))?;
    let sum = lines.iter().map(|line| line.bytes).sum();
    console::note(format_args!("{} in {}", console::bytes(sum), cache.root().display()));
    Ok(())
}

impl Line {
    fn new(model: CachedModel) -> Line {
        let is_folder = model_path(&model.files).is_some_and(Path::is_dir);
        let format = || if is_folder { Some("safetensors".to_owned()) } else { format_of(model.files.first()?) };
        let format = model.tag.or_else(format).unwrap_or_else(|| "?".to_owned());
        let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).ok().map(|time| time.as_secs());
        Line {
            name: model.reference.to_string(),
            format,
            bytes: model.size,
            last_used: model.last_used.and_then(seconds),
            files: model.files.iter().map(|file| file.display().to_string()).collect(),
        }
    }
}

/// The format with most bytes in a file.
fn format_of(path: &Path) -> Option<String> {
    let file = GgufFile::open(path).ok()?;
    let mut sums = std::collections::BTreeMap::<&str, u64>::new();
    file.tensors().iter().for_each(|tensor| *sums.entry(tensor.type_name()).or_default() += tensor.bytes);
    sums.into_iter().max_by_key(|(_, bytes)| *bytes).map(|(name, _)| name.to_owned())
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

fn table(lines: &[Line], now: u64) -> String {
    let width = lines.iter().map(|line| line.name.width()).max().unwrap_or(0);
    let row = |line: &Line| {
        let size = console::bytes(line.bytes);
        let used = line.last_used.map_or("?".to_owned(), |used| ago(now, used));
        format!("{:width$}  {:<11}  {size:>9}  {used}\n", line.name, line.format)
    };
    lines.iter().map(row).collect()
}

/// A readable time before now.
fn ago(now: u64, then: u64) -> String {
    let seconds = now.saturating_sub(then);
    let several = |count: u64, what: &str| format!("{count} {what}{} ago", if count == 1 { "" } else { "s" });
    match seconds {
        0..60 => "now".to_owned(),
        60..3_600 => several(seconds / 60, "minute"),
        3_600..86_400 => several(seconds / 3_600, "hour"),
        _ => several(seconds / 86_400, "day"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_line_for_each_model() {
        let line = |name: &str, used| Line {
            name: name.to_owned(),
            format: "Q4_K_M".to_owned(),
            bytes: 18_600_000_000,
            last_used: used,
            files: Vec::new(),
        };
        let table = table(&[line("a/b:Q4_K_M", Some(1_000_000)), line("a/longer", None)], 1_000_000 + 86_400 * 3);
        assert_eq!(table, "a/b:Q4_K_M  Q4_K_M        18.60 GB  3 days ago\na/longer    Q4_K_M        18.60 GB  ?\n");
        assert_eq!(
            [0, 61, 7_200, 90_000].map(|past| ago(100_000, 100_000 - past)),
            ["now", "1 minute ago", "2 hours ago", "1 day ago"]
        );
    }
}
