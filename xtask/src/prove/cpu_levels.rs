//! The levels of the CPU's backend, by name.

/// Declares them, one a line: `Avx2 = avx2;` or `AvxVnni = avxvnni, encoders by avx2;`.
const TABLE: &str = include_str!("../../../crates/cpu/src/level.rs");

/// Names of all levels of all architectures.
pub(super) fn names() -> impl Iterator<Item = &'static str> + Clone {
    let lines = TABLE.lines().skip_while(|line| *line != "levels! {").take_while(|line| *line != "}");
    lines.filter_map(|line| line.split_once(" = ")?.1.strip_suffix(';')?.split(',').next())
}

#[cfg(test)]
mod tests {
    #[test]
    fn all_levels_are_read() {
        let names: Vec<&str> = super::names().collect();
        assert_eq!(names, ["portable", "avx2", "avxvnni", "avx512", "amx", "neon"]);
    }
}
