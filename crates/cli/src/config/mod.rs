//! Settings from the environment and a file: each option of each command, with the precedence flag, variable, file,
//! default. clap's own command says which options there are, so there is no second list.

mod complete;
mod file;
mod print;

pub(crate) use complete::complete;
use complete::{Found, Origin, WITHOUT, nearest, path, settings, text, variable};
pub(crate) use print::{ConfigArgs, run};
