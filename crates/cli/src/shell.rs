//! `completions` and `man`: files for packagers.

use clap::Args;
use clap_complete::Shell;

use crate::failure::Failure;
use crate::{command, console};

/// Print a shell's completion script.
///
/// For example: gristmill completions bash > ~/.local/share/bash-completion/completions/gristmill
#[derive(Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

/// Print the manual page.
///
/// For example: gristmill man | man -l -
#[derive(Args)]
pub(crate) struct ManArgs {}

pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command(), "gristmill", &mut script);
    console::print(String::from_utf8_lossy(&script))
}

/// One page: the command itself, then a section of each subcommand.
pub(crate) fn man(_: &ManArgs) -> Result<(), Failure> {
    let mut command = command();
    command.build();
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page).map_err(Failure::output)?;
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        let man = clap_mangen::Man::new(sub.clone());
        let heading = format!(".SH {}\n", sub.get_bin_name().unwrap_or(sub.get_name()).to_uppercase());
        page.extend_from_slice(heading.as_bytes());
        for render in [clap_mangen::Man::render_description_section, clap_mangen::Man::render_options_section] {
            let mut section = Vec::new();
            render(&man, &mut section).map_err(Failure::output)?;
            let text = String::from_utf8_lossy(&section).replace(".SH DESCRIPTION\n", "").replace(".SH", ".SS");
            page.extend_from_slice(text.as_bytes());
        }
    }
    console::print(String::from_utf8_lossy(&page))
}
