//! The chat template: one from a file in place of the model's, and a line about what it does.

use std::fs::File;
use std::path::PathBuf;

use clap::Args;
use gristmill_engine::template::{ChatTemplate, MAX_SOURCE};
use gristmill_engine::{Engine, ModelTemplate};
use serde::Serialize;

use crate::console;
use crate::failure::Failure;
use crate::option_names;
use crate::verbosity::Verbosity;

#[derive(Args)]
pub(crate) struct TemplateArg {
    /// A file with a chat template (Jinja) that replaces the model's.
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    chat_template: Option<PathBuf>,
}

impl TemplateArg {
    /// The source of the template, which is valid.
    pub(crate) fn read(&self) -> Result<Option<String>, Failure> {
        let Some(path) = &self.chat_template else { return Ok(None) };
        let failed = |what: String| Failure::new(format!("--chat-template {}: {what}", path.display()));
        let bytes = File::open(path).and_then(|file| console::at_most(file, MAX_SOURCE as u64));
        let bytes = bytes.map_err(|error| failed(format!("the file cannot be read: {error}")))?;
        let source = String::from_utf8(bytes).map_err(|error| failed(format!("the file is not UTF-8: {error}")))?;
        // The mark of UTF-8 that some editors write.
        let source = source.strip_prefix('\u{feff}').unwrap_or(&source).to_owned();
        ChatTemplate::new(&source).map_err(|error| failed(error.to_string()))?;
        Ok(Some(source))
    }
}

/// Gives an engine the template of the command line, if there is one.
pub(crate) fn replaced(engine: Engine, source: Option<&str>) -> Engine {
    match source {
        Some(source) => engine.with_template(source),
        None => engine,
    }
}

/// Prints a warning if an engine's template is broken, and with `--verbose` in which form tools and reasoning are read.
pub(crate) fn report(engine: &Engine, log: &Verbosity) {
    let (Some(template), Some(for_tools)) = (engine.template(), engine.tool_template()) else { return };
    let is_one = template.source() == for_tools.source();
    for template in [Some(template), Some(for_tools).filter(|_| !is_one)].into_iter().flatten() {
        if let Some(notice) = template.notice() {
            let option = option_names::of_notice(&notice).map(|option| format!(" ({option})")).unwrap_or_default();
            log.info(format_args!("warning: {notice}{option}"));
        }
    }
    if let (Ok((_, reasoning)), Ok((tools, _))) = (template.support(), for_tools.support()) {
        let own = if is_one { "" } else { " (template tool_use)" };
        log.detail(format_args!("chat template: tools: {tools}{own}; reasoning: {reasoning}"));
    }
}

/// The chat template in `inspect`.
#[derive(Serialize)]
pub(crate) struct TemplateReport {
    /// The form of calls, or why tools are spelled out; `None` if the template is broken.
    tools: Option<String>,
    /// The marks of reasoning.
    reasoning: Option<String>,
}

impl TemplateReport {
    /// The report on a template, and on the one for conversations with tools if there is one of its own.
    pub(crate) fn new(template: &ModelTemplate, for_tools: Option<&ModelTemplate>) -> TemplateReport {
        let own = template.support().ok();
        let support = for_tools.unwrap_or(template).support().ok();
        let name = if for_tools.is_some() { " (template tool_use)" } else { "" };
        TemplateReport {
            tools: support.map(|(tools, _)| format!("{tools}{name}")),
            reasoning: own.map(|(_, reasoning)| reasoning.to_string()),
        }
    }

    /// Names and values of lines.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [("tools", &self.tools), ("reasoning", &self.reasoning)]
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_deref()?)))
    }
}
