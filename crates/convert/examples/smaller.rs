//! From the folder of a published model to a small file:
//! `cargo run --release --example smaller -- FOLDER OUT.gguf [MIX]`.

use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;

use gristmill_convert::quantize::{Mix, check_output};
use gristmill_convert::{ConvertOptions, Converter};
use gristmill_engine::machine;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: smaller FOLDER OUT.gguf [MIX]";
    let (folder, out) = (arguments.next().ok_or(usage)?, arguments.next().ok_or(usage)?);
    let mix = Mix::parse(&arguments.next().unwrap_or_else(|| "Q4_K_M".to_owned()))?;
    let options = ConvertOptions { mix: Some(mix), ..ConvertOptions::default() };
    let converter = Converter::new(Path::new(&folder), &options)?;
    check_output(converter.files(), Path::new(&out), false)?;
    for note in converter.notes() {
        eprintln!("{note}");
    }
    println!("{} tensors, {} bytes", converter.tensors().len(), converter.file_bytes());
    Ok(converter.write(Path::new(&out), machine::logical_cpus(), &mut |_| ControlFlow::Continue(()))?)
}
