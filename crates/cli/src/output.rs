//! Writing a model file: threads, free space on the disk, formats, progress, signals.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use clap::Args;
use gristmill_convert::quantize::{Planned, check_output};
use gristmill_cpu::MAX_THREADS;
use gristmill_engine::{Progress, machine};
use gristmill_kernels::format::Format;

use crate::args::threads;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::verbosity::Verbosity;
use crate::{console, load, numbers};

/// Arguments of the commands that write a model.
#[derive(Args)]
pub(crate) struct OutputArgs {
    /// Replace an existing output.
    #[arg(short, long)]
    force: bool,
    /// Threads [default: one for each core that this process can use].
    #[arg(
        short, long, value_name = "N", allow_negative_numbers = true,
        value_parser = numbers::between(1, MAX_THREADS),
        help_heading = "Device"
    )]
    threads: Option<usize>,
    #[command(flatten)]
    pub(crate) log: Verbosity,
}

impl OutputArgs {
    /// Fails for an output that is one of the `inputs`, exists (without `--force`) or exceeds the free space. Prints
    /// the formats and returns the number of threads.
    pub(crate) fn prepare<'a>(
        &self,
        inputs: impl IntoIterator<Item = &'a Path>,
        output: &Path,
        bytes: u64,
        tensors: &[Planned],
    ) -> Result<usize, Failure> {
        check_output(inputs, output, self.force)?;
        let threads = self.prepare_space(output, bytes)?;
        warn_shapes(tensors, &self.log);
        self.log.detail(format_args!("{}; {threads} threads", formats(tensors)));
        Ok(threads)
    }

    /// Fails for an output that exceeds the free space. Returns the number of threads.
    pub(crate) fn prepare_space(&self, output: &Path, bytes: u64) -> Result<usize, Failure> {
        check_space(output, bytes)?;
        Ok(threads(self.threads, machine::logical_cpus()))
    }

    /// Runs `write` with a progress bar. A signal stops `write`, which then removes its partial file.
    pub(crate) fn with_progress<E: Into<Failure>>(
        &self,
        doing: &str,
        write: impl FnOnce(&mut dyn FnMut(Progress) -> ControlFlow<()>) -> Result<(), E>,
    ) -> Result<(), Failure> {
        let interrupt = Interrupt::watch()?;
        let bar =
            load::bar(&self.log, &format!("{doing} {{wide_bar}} {{decimal_bytes}}/{{decimal_total_bytes}} {{eta}}"));
        let written = write(&mut |progress| {
            bar.set_length(progress.total);
            bar.set_position(progress.done);
            if interrupt.signal().is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        bar.finish_and_clear();
        written.map_err(|error| Failure::stopped(&interrupt, error))
    }
}

/// The folder of a file to be written.
pub(crate) fn folder(output: &Path) -> &Path {
    output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Fails if the disk of `output` has less than `needed` bytes free.
pub(crate) fn check_space(output: &Path, needed: u64) -> Result<(), Failure> {
    let folder = folder(output);
    let free = fs4::available_space(folder).map_err(|e| {
        Failure::new(format!("{}: {e}; name a folder that exists and can be written", folder.display()))
    })?;
    if needed > free {
        let path = output.display();
        let needed = console::bytes(needed);
        let free = console::bytes(free);
        return Err(Failure::new(format!(
            "{path}: the model needs {needed}, but {free} are free; name another folder"
        )));
    }
    Ok(())
}

/// Names the tensors whose rows do not fit the requested format.
fn warn_shapes(tensors: &[Planned], log: &Verbosity) {
    let mut shapes: BTreeMap<(Format, Format), Vec<&str>> = BTreeMap::new();
    for tensor in tensors {
        if let Some(requested) = tensor.instead_of {
            shapes.entry((requested, tensor.to)).or_default().push(&tensor.name);
        }
    }
    for ((requested, to), names) in shapes {
        let (n, block) = (names.len(), requested.block_len());
        log.info(format_args!(
            "{n} of {} tensors become {to} instead of {requested}, because their rows are not multiples of {block}: {}",
            tensors.len(),
            some(&names)
        ));
    }
}

/// The first three names.
pub(crate) fn some(names: &[&str]) -> String {
    let more = if names.len() > 3 { ", …" } else { "" };
    format!("{}{more}", names[..names.len().min(3)].join(", "))
}

/// `213 F32, 168 Q4_K, 38 Q6_K`.
fn formats(tensors: &[Planned]) -> String {
    let mut counts: BTreeMap<Format, usize> = BTreeMap::new();
    for tensor in tensors {
        *counts.entry(tensor.to).or_default() += 1;
    }
    counts.iter().map(|(format, n)| format!("{n} {format}")).collect::<Vec<_>>().join(", ")
}
