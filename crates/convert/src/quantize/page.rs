//! The table of formats in docs/quantize.md.

use std::fmt::Write;
use std::{fs, path::Path};

use gristmill_kernels::format::{Format, rows::ScaledRows};

use super::Mix;

const HEADER: &str = "\
| format | bits per weight | weights of a block | mixes |
| --- | ---: | ---: | --- |
";

/// Every format of files, the widest first.
fn table() -> String {
    let row = |name: &'static str, block: usize, bytes: usize| {
        let mixes = Mix::all().iter().map(Mix::name);
        let of_format =
            |mix: &&str| mix.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'));
        let mixes: Vec<&str> = mixes.filter(of_format).collect();
        (8.0 * bytes as f64 / block as f64, name, block, mixes.join(", "))
    };
    let formats = Format::numbered().map(|format| row(format.name(), format.block_len(), format.block_bytes()));
    let scaled = ScaledRows::all().map(|rows| {
        // Without the scale of the row, which is of no block.
        let block = rows.format().block_len();
        row(rows.name(), block, rows.row_bytes(block).expect("a block") - rows.scale_bytes())
    });
    let mut rows: Vec<_> = formats.chain(scaled).collect();
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    rows.iter().fold(HEADER.to_owned(), |mut text, (bits, name, block, mixes)| {
        let _ = writeln!(text, "| {name} | {bits:.4} | {block} | {mixes} |");
        text
    })
}

/// On a mismatch, the right page is written next to the build.
#[test]
fn the_page_has_every_format() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/quantize.md")).expect("the page");
    let (before, rest) = page.split_once(HEADER).expect("the table");
    let after = &rest[rest.find("\n\n").expect("the end of the table") + 1..];
    let new = format!("{before}{}{after}", table());
    if page != new {
        let to = root.join("target/quantize.md");
        fs::write(&to, new).expect("a file");
        panic!("docs/quantize.md has another table; the right page is in {}", to.display());
    }
}

#[test]
fn every_mix_is_in_one_row() {
    let table = table();
    let mixes = table.lines().skip(2).flat_map(|row| row.split(" | ").nth(3).unwrap_or_default().split(", "));
    let mut mixes: Vec<&str> = mixes.map(|mix| mix.trim_end_matches(" |")).filter(|mix| !mix.is_empty()).collect();
    let mut all: Vec<&str> = Mix::all().iter().map(Mix::name).collect();
    mixes.sort_unstable();
    all.sort_unstable();
    assert_eq!(mixes, all);
}
