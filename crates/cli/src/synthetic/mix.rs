//! Which format each tensor of a model gets: the choices of llama.cpp's quantiser.

use gristmill_kernels::format::Format;

/// What a tensor is for, as far as its format depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Norms and routers stay in F32.
    Small,
    /// The output head.
    Output,
    /// The value projection and the down projections of this layer: more bits in some layers.
    Sensitive {
        /// The layer.
        layer: u32,
    },
    /// Everything else.
    Plain,
}

/// A mix of formats.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mix {
    /// As in `Q4_K_M`.
    pub(crate) name: &'static str,
    base: Format,
    sensitive: Format,
    output: Format,
}

/// The mixes that are more than one format with a better output head.
const NAMED: &[Mix] = &[Mix { name: "Q4_K_M", base: Format::Q4_K, sensitive: Format::Q6_K, output: Format::Q6_K }];

impl Mix {
    /// The mix of this name: a named one, or any format.
    pub(crate) fn parse(name: &str) -> Option<Mix> {
        Self::all().find(|mix| mix.name.eq_ignore_ascii_case(name))
    }

    /// All names.
    pub(crate) fn known() -> Vec<&'static str> {
        Self::all().map(|mix| mix.name).collect()
    }

    fn all() -> impl Iterator<Item = Mix> {
        NAMED.iter().copied().chain(Format::ALL.iter().map(|&base| {
            let output = if base.is_float() || base == Format::Q8_0 { base } else { Format::Q6_K };
            Mix { name: base.name(), base, sensitive: base, output }
        }))
    }

    /// The format of a part of a model of `layers` layers.
    pub(crate) fn format(&self, part: Part, layers: u32) -> Format {
        match part {
            Part::Small => Format::F32,
            Part::Output => self.output,
            Part::Sensitive { layer } if more_bits(layer, layers) => self.sensitive,
            Part::Sensitive { .. } | Part::Plain => self.base,
        }
    }
}

/// The first and the last eighth of the layers, and every third between.
fn more_bits(layer: u32, layers: u32) -> bool {
    let eighth = layers / 8;
    layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2
}
