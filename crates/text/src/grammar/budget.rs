//! Bounds on a schema, so that compiling it takes little time and memory.

use super::weight::Weight;

/// Schemas and constants, each target of references once.
const MAX_SIZE: usize = 10_000;
/// Bytes of names, constants and patterns.
const MAX_BYTES: usize = 512 << 10;
/// Properties of one object, of all objects, and the squares of their numbers. A grammar at one of these limits takes
/// about 150 ms. llguidance descends once for each property of an object.
const MAX_PROPERTIES: usize = 1_000;
const MAX_PROPERTIES_IN_ALL: usize = 4_000;
const MAX_SQUARES: u64 = 1_000_000;
/// Copies of schemas that combining them takes.
const MAX_WORK: u64 = 300_000;
/// Bytes of one pattern, and of all: the time of compiling one grows with their square.
const MAX_PATTERN: usize = 2 << 10;
const MAX_PATTERNS: usize = 32 << 10;
/// Patterns of property names. Each is compared with each wherever two schemas are combined.
const MAX_NAME_PATTERNS: usize = 8;

/// The totals of a schema so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Budget {
    pub(super) size: usize,
    bytes: usize,
    properties: usize,
    pub(super) squares: u64,
    work: u64,
    pattern_bytes: usize,
    name_patterns: usize,
}

fn limit(fits: bool, problem: impl FnOnce() -> String) -> Result<(), String> {
    if fits { Ok(()) } else { Err(problem()) }
}

impl Budget {
    /// Counts a schema or a constant.
    pub(super) fn value(&mut self) -> Result<(), String> {
        self.size += 1;
        limit(self.size <= MAX_SIZE, || {
            format!("the schema has more than {MAX_SIZE} schemas and constants; make it smaller")
        })
    }

    /// Counts a name, a text or a pattern.
    pub(super) fn text(&mut self, text: &str) -> Result<(), String> {
        self.bytes += text.len();
        limit(self.bytes <= MAX_BYTES, || {
            format!("names, constants and patterns have more than {MAX_BYTES} bytes; make them fewer")
        })
    }

    /// Counts the properties of an object; returns the square of their number.
    pub(super) fn properties(&mut self, count: usize) -> Result<u64, String> {
        let square = count as u64 * count as u64;
        self.squares += square;
        self.properties += count;
        let in_all = self.squares <= MAX_SQUARES && self.properties <= MAX_PROPERTIES_IN_ALL;
        limit(count <= MAX_PROPERTIES && in_all, || {
            let all = format!("all {MAX_PROPERTIES_IN_ALL}, and the squares of their numbers a million");
            format!("{count} properties are too many; one object may have {MAX_PROPERTIES}, {all}")
        })?;
        Ok(square)
    }

    /// Counts a pattern, next to its text.
    pub(super) fn pattern(&mut self, pattern: &str) -> Result<(), String> {
        self.pattern_bytes += pattern.len();
        limit(pattern.len() <= MAX_PATTERN && self.pattern_bytes <= MAX_PATTERNS, || {
            format!("the patterns are too long; one may have {MAX_PATTERN} bytes, and all {MAX_PATTERNS}")
        })
    }

    /// Counts patterns of property names.
    pub(super) fn name_patterns(&mut self, count: usize) -> Result<(), String> {
        self.name_patterns += count;
        limit(self.name_patterns <= MAX_NAME_PATTERNS, || {
            format!("a schema may have at most {MAX_NAME_PATTERNS} patterns of names")
        })
    }

    /// Counts what needs this number of copies to combine.
    pub(super) fn combination(&mut self, combined: Weight, work: u64) -> Result<(), String> {
        self.work = self.work.saturating_add(work);
        self.squares = self.squares.saturating_add(combined.squares);
        limit(self.work <= MAX_WORK && self.squares <= MAX_SQUARES, || {
            "its parts have too many combinations; use fewer of anyOf, allOf, enum and $ref together".to_owned()
        })
    }
}
