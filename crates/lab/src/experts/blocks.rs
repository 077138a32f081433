//! The heat map as block characters in a terminal.

use std::fmt::{self, Display, Formatter};

use super::usage::{LayerUsage, Report};

/// Shares from less than 0.25 to 1.75 and more, in steps of 0.25. An unused expert has a space.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// One line for each layer, and further lines for experts beyond the terminal's columns.
pub struct Blocks<'a> {
    /// The counts.
    pub report: &'a Report,
    /// Of the terminal.
    pub columns: usize,
}

/// The columns before the blocks.
const HEAD: &str = "layer entropy least  most  ";

fn block(share: f64) -> char {
    match share {
        0.0 => ' ',
        share => BLOCKS[((share * 4.0) as usize).min(BLOCKS.len() - 1)],
    }
}

impl Display for Blocks<'_> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let Report { model, tokens, layers } = self.report;
        writeln!(f, "{model}, {tokens} tokens")?;
        writeln!(f, "{}experts ({} under 0.25 of an even share, {} over 1.75)", HEAD, BLOCKS[0], BLOCKS[7])?;
        let width = self.columns.saturating_sub(HEAD.len()).max(8);
        for layer in layers {
            let LayerUsage { entropy, least, most, .. } = layer;
            let experts: Vec<char> = layer.shares().into_iter().map(block).collect();
            for (i, experts) in experts.chunks(width).enumerate() {
                match i {
                    0 => write!(f, "{:5} {entropy:7.3} {least:5.2} {most:5.2}  ", layer.layer)?,
                    _ => write!(f, "{:1$}", "", HEAD.len())?,
                }
                writeln!(f, "{}", experts.iter().collect::<String>())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experts_wrap_and_none_is_lost() {
        let layer = LayerUsage::new(7, 2, (0..20).map(|i| if i == 3 { 0 } else { 10 }).collect());
        let report = Report { model: "m".into(), tokens: 95, layers: vec![layer] };
        for (columns, lines) in [(200, 1), (HEAD.len() + 9, 3), (1, 3)] {
            let text = Blocks { report: &report, columns }.to_string();
            let body: Vec<&str> = text.lines().skip(2).collect();
            assert_eq!(body.len(), lines, "{text}");
            let experts: String = body.iter().map(|line| line.chars().skip(HEAD.len()).collect::<String>()).collect();
            assert_eq!(experts.chars().count(), 20);
            assert_eq!(experts.chars().position(|c| c == ' '), Some(3));
        }
        assert_eq!([0.1, 0.25, 1.0, 1.74, 1.75, 90.0].map(block), ['▁', '▂', '▅', '▇', '█', '█']);
    }
}
