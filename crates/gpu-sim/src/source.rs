//! A kernel source and how it is compiled.

/// How a source is compiled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Without checks.
    #[default]
    Fast,
    /// Checks every access; [`crate::Kind`] lists the faults. About ten times slower.
    Checked,
}

/// The language of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Language {
    /// CUDA C++.
    #[default]
    Cuda,
    /// The Metal Shading Language 3.1: kernels only, without textures.
    Metal,
}

/// The value of a function constant of Metal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Constant {
    /// `bool`.
    Bool(bool),
    /// `int`.
    Int(i32),
    /// `uint`.
    Uint(u32),
    /// `float`.
    Float(f32),
}

impl Constant {
    /// Its type in Metal.
    #[cfg_attr(not(all(target_arch = "x86_64", unix)), allow(dead_code))]
    pub(crate) fn type_name(self) -> &'static str {
        match self {
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Float(_) => "float",
        }
    }

    /// Its value in C++.
    #[cfg_attr(not(all(target_arch = "x86_64", unix)), allow(dead_code))]
    pub(crate) fn literal(self) -> String {
        match self {
            Self::Bool(value) => value.to_string(),
            Self::Int(value) => format!("(int){}u", value as u32),
            Self::Uint(value) => format!("{value}u"),
            Self::Float(value) => format!("as_type<float>({}u)", value.to_bits()),
        }
    }
}

/// A kernel source and how it is compiled.
#[derive(Clone, Copy, Debug, Default)]
pub struct Source<'a> {
    /// Its language.
    pub language: Language,
    /// The source's name in messages, unless it has `#line` directives.
    pub name: &'a str,
    /// The translation unit, with its includes expanded.
    pub text: &'a str,
    /// Macros and their values.
    pub defines: &'a [(&'a str, &'a str)],
    /// Values of function constants by index, for Metal only. They are compiled into the source, as a device
    /// specialises a pipeline.
    pub constants: &'a [(u32, Constant)],
    /// Fast or checked mode.
    pub mode: Mode,
}
