//! The heat map as an SVG picture: rows are layers, columns are experts.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use gristmill_files::gguf::{WriteError, write_atomically};

use super::usage::{LayerUsage, Report};
use crate::error::LabError;

/// Margins around the cells, in pixels. The right one holds the entropies.
const LEFT: usize = 56;
const TOP: usize = 64;
const RIGHT: usize = 72;
const BOTTOM: usize = 56;
/// Larger shares have the same colour.
const DARKEST: f64 = 3.0;

/// Writes the picture to a file.
///
/// # Errors
/// If the file cannot be written.
pub fn write(report: &Report, path: &Path) -> Result<(), LabError> {
    write_atomically(path, |out| Ok(out.write_all(draw(report).as_bytes()).map_err(WriteError::from)?))
}

/// White for a share of 0, light blue for 1, dark blue for [`DARKEST`].
fn colour(share: f64) -> String {
    const STOPS: [(f64, [f64; 3]); 3] =
        [(0.0, [255.0, 255.0, 255.0]), (1.0, [140.0, 190.0, 230.0]), (DARKEST, [8.0, 40.0, 100.0])];
    let share = share.min(DARKEST);
    let [(from, low), (to, high)] = if share < 1.0 { [STOPS[0], STOPS[1]] } else { [STOPS[1], STOPS[2]] };
    let at = (share - from) / (to - from);
    let mix = |i: usize| (low[i] + (high[i] - low[i]) * at).round() as u8;
    format!("#{:02x}{:02x}{:02x}", mix(0), mix(1), mix(2))
}

/// Escapes text for XML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn draw(report: &Report) -> String {
    let experts = report.layers.iter().map(|layer| layer.counts.len()).max().unwrap_or(0);
    // All cells of a row take about 1,000 pixels.
    let cell = (1000 / experts.max(1)).clamp(6, 28);
    let width = (LEFT + experts * cell + RIGHT).max(480);
    let height = TOP + report.layers.len() * cell + BOTTOM;
    let mut svg = String::new();
    let Report { model, tokens, .. } = report;
    let top_k = report.layers.first().map_or(0, |layer| layer.top_k);
    let title = format!("{}: {experts} experts, {top_k} for each of {tokens} tokens", escape(model));
    // Writing to a string does not fail.
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{title}</text>\n\
         <text x=\"{LEFT}\" y=\"{label}\">expert</text>\n\
         <text x=\"8\" y=\"{label}\">layer</text>\n\
         <text x=\"{entropy}\" y=\"{label}\">entropy</text>\n",
        label = TOP - 10,
        entropy = LEFT + experts * cell + 8,
    );
    for (row, layer) in report.layers.iter().enumerate() {
        draw_layer(&mut svg, layer, TOP + row * cell, cell, experts);
    }
    draw_legend(&mut svg, height - BOTTOM + 20);
    svg.push_str("</svg>\n");
    svg
}

fn draw_layer(svg: &mut String, layer: &LayerUsage, top: usize, cell: usize, experts: usize) {
    let middle = top + cell / 2 + 4;
    let _ = writeln!(svg, "<text x=\"{}\" y=\"{middle}\" text-anchor=\"end\">{}</text>", LEFT - 8, layer.layer);
    for (expert, (share, count)) in layer.shares().into_iter().zip(&layer.counts).enumerate() {
        let _ = writeln!(
            svg,
            "<rect x=\"{}\" y=\"{top}\" width=\"{cell}\" height=\"{cell}\" fill=\"{}\" stroke=\"#e0e0e0\" \
             stroke-width=\"0.5\"><title>layer {}, expert {expert}: {share:.2} of an even share, {count} \
             tokens</title></rect>",
            LEFT + expert * cell,
            colour(share),
            layer.layer,
        );
    }
    let x = LEFT + experts * cell + 8;
    let _ = writeln!(svg, "<text x=\"{x}\" y=\"{middle}\">{:.3}</text>", layer.entropy);
}

fn draw_legend(svg: &mut String, top: usize) {
    let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{}\">part of an even share:</text>", top + 12);
    for (i, share) in [0.0, 0.5, 1.0, 2.0, DARKEST].into_iter().enumerate() {
        let x = LEFT + 140 + i * 56;
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{top}\" width=\"16\" height=\"16\" fill=\"{}\" stroke=\"#e0e0e0\"/>\
             <text x=\"{}\" y=\"{}\">{share}{}</text>",
            colour(share),
            x + 20,
            top + 12,
            if share == DARKEST { "+" } else { "" },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_expert_has_a_cell_and_text_is_escaped() {
        let layers = vec![LayerUsage::new(1, 2, vec![1, 0, 3]), LayerUsage::new(2, 2, vec![2, 2, 0])];
        let svg = draw(&Report { model: "a<b&c".into(), tokens: 2, layers });
        assert_eq!(svg.matches("<title>").count(), 6);
        assert!(svg.contains("a&lt;b&amp;c") && !svg.contains("a<b"));
        assert!(svg.contains("layer 1, expert 2: 2.25 of an even share, 3 tokens"));
        assert_eq!(svg.matches("<rect").count(), svg.matches("</rect>").count() + 1 + 5);
    }

    #[test]
    fn colours_darken() {
        let brightness = |share| u32::from_str_radix(&colour(share)[1..3], 16).unwrap();
        let shares = [0.0, 0.3, 0.99, 1.0, 1.5, 2.9, 3.0];
        assert!(shares.windows(2).all(|pair| brightness(pair[0]) >= brightness(pair[1])));
        assert_eq!((colour(0.0).as_str(), colour(99.0)), ("#ffffff", colour(DARKEST)));
    }
}
