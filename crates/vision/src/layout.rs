//! The tokens of a picture in a prompt.

use crate::fit::Size;

/// The texts of a family around pictures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marks {
    /// What a chat template writes for a picture; the pieces replace it.
    pub placeholder: String,
    /// What a chat template writes before and after the placeholder, for a template that writes none.
    pub around: (String, String),
    /// The text of the token that is repeated for each row of the tower's output.
    pub token: String,
    /// The text before a picture.
    pub before: String,
    /// The text after a picture.
    pub after: String,
    /// The text between two rows of tokens.
    pub row_break: String,
    /// The texts before tiles, if there are several.
    pub tiles: Option<TileMarks>,
}

/// The texts around tiles.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TileMarks {
    /// Before a picture that is not cut.
    pub alone: String,
    /// Before a tile: `ROW` and `COLUMN` become its numbers, from 1.
    pub tile: String,
    /// After the last tile of each row.
    pub row_end: String,
    /// Before the overview.
    pub overview: String,
}

/// A part of what replaces the placeholder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// A text, which may contain control tokens.
    Text(String),
    /// Tokens that stand for rows of the tower's output.
    Tokens {
        /// The index of the tile.
        tile: usize,
        /// The first of the tile's tokens.
        first: usize,
        /// Their number.
        count: usize,
    },
}

/// What a picture of a size becomes. It does not need the pixels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The pixels of each tile.
    pub tiles: Vec<Size>,
    /// Columns and rows of the grid of tiles; (1, 1) without one.
    pub grid: (usize, usize),
    /// What replaces the placeholder in the prompt.
    pub pieces: Vec<Piece>,
}

impl Layout {
    /// The pieces of tiles, each with its columns and rows of tokens. The tiles of the grid come first, row by row, then
    /// the overview if there is one.
    pub(crate) fn pieces(marks: &Marks, tiles: &[(usize, usize)], (columns, rows): (usize, usize)) -> Vec<Piece> {
        let mut pieces = Pieces::default();
        pieces.text(&marks.before);
        for (tile, &(wide, high)) in tiles.iter().enumerate() {
            let is_cut = columns * rows > 1;
            if let Some(own) = &marks.tiles {
                let (row, column) = (tile / columns + 1, tile % columns + 1);
                let numbered = || own.tile.replace("ROW", &row.to_string()).replace("COLUMN", &column.to_string());
                pieces.text(&match is_cut {
                    false => own.alone.clone(),
                    true if tile < columns * rows => numbered(),
                    true => own.overview.clone(),
                });
            }
            if marks.row_break.is_empty() {
                pieces.tokens(tile, 0, wide * high);
                let ends_row = is_cut && tile < columns * rows && (tile + 1).is_multiple_of(columns);
                marks.tiles.iter().filter(|_| ends_row).for_each(|own| pieces.text(&own.row_end));
                continue;
            }
            for row in 0..high {
                pieces.tokens(tile, row * wide, wide);
                if row + 1 < high {
                    pieces.text(&marks.row_break);
                }
            }
        }
        pieces.text(&marks.after);
        pieces.0
    }

    /// The number of tokens that stand for the picture, without the texts around them.
    pub fn tokens(&self) -> usize {
        let count = |piece: &Piece| match piece {
            Piece::Tokens { count, .. } => *count,
            Piece::Text(_) => 0,
        };
        self.pieces.iter().map(count).sum()
    }
}

#[derive(Default)]
struct Pieces(Vec<Piece>);

impl Pieces {
    fn text(&mut self, text: &str) {
        match self.0.last_mut() {
            _ if text.is_empty() => {}
            Some(Piece::Text(before)) => before.push_str(text),
            _ => self.0.push(Piece::Text(text.to_owned())),
        }
    }

    fn tokens(&mut self, tile: usize, first: usize, count: usize) {
        self.0.push(Piece::Tokens { tile, first, count });
    }
}
