//! Breaks a streamed text into lines of a terminal, between words.

use std::mem;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Distance of tab stops, in columns.
const TAB: usize = 8;

/// The state of the current line. A word is held back until it is complete, because it may not fit into the line.
#[derive(Debug, Default)]
pub(crate) struct Wrap {
    /// Used columns of the line.
    column: usize,
    /// White space after the last word, dropped if the line breaks there.
    gap: String,
    gap_width: usize,
    word: String,
    word_width: usize,
}

impl Wrap {
    /// Takes the next piece. Returns the complete words, on lines of at most `columns`.
    pub(crate) fn push(&mut self, text: &str, columns: usize) -> String {
        let columns = columns.max(1);
        let mut out = String::new();
        for c in text.chars() {
            match c {
                '\n' => {
                    self.put_word(columns, &mut out);
                    self.end_line(&mut out);
                }
                ' ' | '\t' => {
                    self.put_word(columns, &mut out);
                    let at = self.column.saturating_add(self.gap_width);
                    self.gap_width += if c == '\t' { TAB - at % TAB } else { 1 };
                    self.gap.push(c);
                }
                _ => self.push_char(c, columns, &mut out),
            }
        }
        out
    }

    /// Returns the last word.
    pub(crate) fn finish(&mut self, columns: usize) -> String {
        let mut out = String::new();
        self.put_word(columns.max(1), &mut out);
        out
    }

    fn push_char(&mut self, c: char, columns: usize, out: &mut String) {
        let width = c.width().unwrap_or(0);
        // Chinese and Japanese have no spaces, so a line may break before and after each wide character.
        let wide = width > 1;
        if wide {
            self.put_word(columns, out);
        }
        // A word that is longer than a line breaks anywhere.
        if self.word_width + width > columns {
            self.put_word(columns, out);
        }
        self.word.push(c);
        self.word_width += width;
        if wide {
            self.put_word(columns, out);
        }
    }

    /// Appends the word to `out`, on the next line if it does not fit into this one.
    fn put_word(&mut self, columns: usize, out: &mut String) {
        if self.word.is_empty() {
            return;
        }
        let end = self.column.saturating_add(self.gap_width).saturating_add(self.word_width);
        if end > columns && self.column > 0 {
            self.end_line(out);
        }
        self.column += mem::take(&mut self.gap_width) + mem::take(&mut self.word_width);
        out.push_str(&mem::take(&mut self.gap));
        out.push_str(&mem::take(&mut self.word));
    }

    fn end_line(&mut self, out: &mut String) {
        self.gap.clear();
        (self.column, self.gap_width) = (0, 0);
        out.push('\n');
    }
}

/// Breaks the lines of a report between words. The further lines of a row start at its last column in the left half, and
/// those of a comment are comments. A word that is longer than a line stays whole.
pub(crate) fn report(text: &str, columns: usize) -> String {
    text.split_inclusive('\n').map(|line| report_line(line, columns)).collect()
}

fn report_line(line: &str, columns: usize) -> String {
    let (content, end) = line.strip_suffix('\n').map_or((line, ""), |content| (content, "\n"));
    if content.width() <= columns {
        return line.to_owned();
    }
    let start = start_of_further_lines(content, columns);
    let mut out = String::new();
    let mut used = 0;
    let mut is_first = true;
    for word in content.split_inclusive(' ') {
        let width = word.trim_end().width();
        if width > 0 && used + width > columns && !is_first {
            out.truncate(out.trim_end().len());
            out += "\n";
            out += &start;
            used = start.width();
            is_first = true;
        }
        out += word;
        used += word.width();
        is_first &= width == 0;
    }
    out.truncate(out.trim_end().len());
    out + end
}

fn start_of_further_lines(content: &str, columns: usize) -> String {
    let indent = content.len() - content.trim_start().len();
    if content.trim_start().starts_with("# ") {
        return format!("{}# ", &content[..indent]);
    }
    let is_column = |at: &usize| content[*at..].starts_with(|c: char| c != ' ') && content[..*at].ends_with("  ");
    let mut starts = content.char_indices().map(|(at, _)| at).filter(is_column).map(|at| content[..at].width());
    " ".repeat(starts.rfind(|&start| start <= columns / 2).unwrap_or(indent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_break_between_words() {
        for (columns, text, expected) in [
            (80, "a b\n\n  c\n", "a b\n\n  c\n"),
            (10, "the mill by the river\nx", "the mill\nby the\nriver\nx"),
            // A row continues at its last column that is not too far right, a comment as a comment.
            (20, "ok     cpu  it is all right here\n", "ok     cpu  it is\n       all right\n       here\n"),
            (24, "ok   cpu:  it is all right here", "ok   cpu:  it is all\n           right here"),
            (12, "# a comment of words\n", "# a comment\n# of words\n"),
            (12, "  - item of a list", "  - item of\n  a list"),
            // A path is one word.
            (8, "/a/long/path/of/a/file\n", "/a/long/path/of/a/file\n"),
            (8, "in /a/long/path/of/a/file x", "in\n/a/long/path/of/a/file\nx"),
            (usize::MAX, "a b", "a b"),
            (0, "a b", "a\nb"),
        ] {
            assert_eq!(report(text, columns), expected, "{text:?} in {columns} columns");
        }
    }

    /// Wraps a text that arrives in pieces of `n` characters.
    fn laid_out(text: &str, columns: usize, n: usize) -> String {
        let (mut wrap, mut out) = (Wrap::default(), String::new());
        let chars: Vec<char> = text.chars().collect();
        for piece in chars.chunks(n) {
            out += &wrap.push(&piece.iter().collect::<String>(), columns);
        }
        out + &wrap.finish(columns)
    }

    #[test]
    fn lines_break_between_words() {
        let cases = [
            (10, "the mill by the river", "the mill\nby the\nriver"),
            (8, "the mill by the", "the mill\nby the"),
            (100, "the mill by the river", "the mill by the river"),
            (usize::MAX, "the mill", "the mill"),
            // Line ends and indentation stay; spaces at the end of a line go.
            (10, "a\n\n  b  \n", "a\n\n  b\n"),
            (6, "if x:\n    y = z", "if x:\n    y\n= z"),
            // A word longer than a line.
            (4, "abcdefghij k", "abcd\nefgh\nij k"),
            (4, "a bcdefg", "a\nbcde\nfg"),
            // A line may break between wide characters.
            (5, "水車小屋", "水車\n小屋"),
            (5, "a 水車 b", "a 水\n車 b"),
            // A combining accent has no width; a tab reaches the next stop.
            (4, "e\u{301}e\u{301}e\u{301}e\u{301} x", "e\u{301}e\u{301}e\u{301}e\u{301}\nx"),
            (10, "a\tb c", "a\tb\nc"),
            (1, "ab c", "a\nb\nc"),
            (0, "ab", "a\nb"),
            (9, "", ""),
        ];
        for (columns, text, expected) in cases {
            for n in [1, 2, 3, 100] {
                assert_eq!(laid_out(text, columns, n), expected, "{text:?} in {columns} columns by {n}");
            }
        }
    }

    #[test]
    fn a_word_is_shown_when_it_is_complete() {
        let mut wrap = Wrap::default();
        assert_eq!(wrap.push("the mi", 80), "the");
        assert_eq!(wrap.push("ll by", 80), " mill");
        assert_eq!(wrap.finish(80), " by");
    }
}
