//! Mixes of formats by name.

use gristmill_convert::quantize::Mix;
use gristmill_kernels::format::Format;

/// A mix by name. The name of a format stands for that format in all weights but the output head.
pub(super) fn find_mix(name: &str) -> Option<Mix> {
    let numbered = |format: &Format| format.ggml_type().is_some();
    Format::named(name).filter(numbered).map(Mix::uniform).or_else(|| Mix::named(name))
}

/// All names, formats first.
pub(super) fn mix_names() -> Vec<&'static str> {
    let mut names: Vec<_> = Format::numbered().map(Format::name).collect();
    names.extend(Mix::all().iter().map(Mix::name).filter(|name| Format::named(name).is_none()));
    names
}
