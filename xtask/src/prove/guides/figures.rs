//! Checks that figures of the pages have their source in the benchmarks: one place has a figure, and others link to it.

use std::fs;

use crate::root;

/// Pages that repeat figures of docs/benchmarks.md.
const PAGES: [&str; 3] = ["README.md", "docs/choose.md", "docs/team.md"];

/// The start of a link to a section of the benchmarks.
const LINK: &str = "benchmarks.md#";

/// The sections of a page by the names of their headings in addresses, each with the sections below it.
fn section(page: &str, anchor: &str) -> Option<String> {
    let level = |line: &str| line.bytes().take_while(|&byte| byte == b'#').count();
    let lines: Vec<&str> = page.lines().collect();
    let is_start = |line: &&str| level(line) > 0 && super::links::anchor(line.trim_start_matches('#')) == anchor;
    let start = lines.iter().position(is_start)?;
    let ends = |line: &&&str| level(line) > 0 && level(line) <= level(lines[start]);
    let count = lines[start + 1..].iter().take_while(|line| !ends(line)).count();
    Some(lines[start..start + 1 + count].join("\n"))
}

/// The numbers of a text that stand alone and have two digits that count: no versions, names of models or formats.
fn numbers(text: &str) -> Vec<(f64, usize)> {
    // Commands have numbers of their own.
    let text: String = text.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    let is_part = |letter: char| letter.is_alphanumeric() || ['.', ',', '-', '_', '/', '#'].contains(&letter);
    let words = text.split(|letter: char| !is_part(letter)).map(|word| word.trim_matches(['.', ',']));
    let number = |word: &str| {
        let plain = word.replace(',', "");
        let is_number =
            plain.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') && plain.matches('.').count() < 2;
        let decimals = plain.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        let digits = plain.bytes().filter(u8::is_ascii_digit).count();
        if is_number && digits > 1 { plain.parse().ok().map(|number| (number, decimals)) } else { None }
    };
    words.filter_map(number).collect()
}

/// Whether one of these numbers rounds to a number with this number of decimals.
fn is_rounded_from(number: (f64, usize), sources: &[(f64, usize)]) -> bool {
    let scale = 10_f64.powi(i32::try_from(number.1).unwrap_or(0));
    sources.iter().any(|(source, _)| ((source * scale).round() - number.0 * scale).abs() < 0.5)
}

/// The paragraphs and items of lists of a page, outside code.
fn paragraphs(page: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut is_code = false;
    for line in page.lines() {
        is_code ^= line.trim_start().starts_with("```");
        let starts = line.trim().is_empty() || line.trim_start().starts_with("- ");
        if starts {
            found.push(String::new());
        }
        if let Some(last) = found.last_mut().filter(|_| !is_code) {
            *last += &format!("{line}\n");
        }
    }
    found
}

#[test]
fn figures_of_pages_are_in_the_linked_sections() {
    let benchmarks = fs::read_to_string(root().join("docs/benchmarks.md")).expect("the page");
    let (mut count, mut wrong) = (0, Vec::new());
    for page in PAGES {
        let text = fs::read_to_string(root().join(page)).expect("a page");
        for paragraph in paragraphs(&text) {
            // The sentences before a link have its figures.
            let mut before = "";
            let parts: Vec<&str> = paragraph.split(LINK).collect();
            for (i, part) in parts.iter().enumerate().skip(1) {
                before = if i == 1 { parts[0] } else { before };
                let anchor = part.split(')').next().unwrap_or_default();
                let source = section(&benchmarks, anchor).unwrap_or_else(|| panic!("{page}: no section {anchor}"));
                let known = numbers(&source);
                for number in numbers(before) {
                    count += 1;
                    if !is_rounded_from(number, &known) {
                        wrong.push(format!("{page}: {} is not in {anchor}", number.0));
                    }
                }
                before = part.split_once(')').map_or("", |(_, after)| after);
            }
        }
    }
    assert!(count > 10, "only {count} figures were found");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn figures_of_the_speed_table_are_in_the_benchmarks() {
    let benchmarks = fs::read_to_string(root().join("docs/benchmarks.md")).expect("the page");
    let readme = fs::read_to_string(root().join("README.md")).expect("the page");
    let known = numbers(&benchmarks);
    let table = section(&readme, "speed").expect("the section");
    for row in table.lines().filter(|line| line.starts_with('|')) {
        // The first two columns name the machine and the work.
        for number in row.split('|').skip(3).flat_map(numbers) {
            assert!(is_rounded_from(number, &known), "{row}: {} is not in docs/benchmarks.md", number.0);
        }
    }
}

#[test]
fn numbers_are_read_as_they_are_written() {
    let found: Vec<f64> = numbers("Qwen3-30B-A3B: 1,411 tokens, 0.58 of 7, `-n 64` of 128 (18.6 GB), 0.26.0.")
        .iter()
        .map(|n| n.0)
        .collect();
    assert_eq!(found, [1411.0, 0.58, 128.0, 18.6]);
    assert!(is_rounded_from((1.7, 1), &[(1.74, 2)]) && !is_rounded_from((1.7, 1), &[(1.76, 2)]));
    assert_eq!(section("# A\n## B c\nx\n### D\ny\n## E\nz", "b-c").as_deref(), Some("## B c\nx\n### D\ny"));
}
