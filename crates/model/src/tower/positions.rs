//! What the host computes for a tile: the order of its patches, and their positions.

use super::spec::Positions;

/// The patches of `rows × columns` in the order of the blocks of `merge × merge` patches that become one token: blocks
/// row by row, and in a block patches row by row. Returns the row and the column of each.
pub(super) fn block_order(rows: usize, columns: usize, merge: usize) -> Vec<[usize; 2]> {
    let mut order = Vec::with_capacity(rows * columns);
    for top in (0..rows).step_by(merge) {
        for left in (0..columns).step_by(merge) {
            order.extend((top..top + merge).flat_map(|y| (left..left + merge).map(move |x| [y, x])));
        }
    }
    order
}

/// The weights of `from` cells for each of `to`: bilinear between the centres of cells, antialiased where `to` is smaller,
/// as `torch.nn.functional.interpolate` with `antialias=True`. The first cell with a weight, and the weights.
fn antialiased(from: usize, to: usize) -> Vec<(usize, Vec<f32>)> {
    let scale = from as f64 / to as f64;
    let support = scale.max(1.0);
    let weights = |i: usize| {
        let centre = (i as f64 + 0.5) * scale - 0.5;
        let first = (centre - support).ceil().max(0.0) as usize;
        let last = ((centre + support).floor() as usize).min(from - 1);
        let weight = |j: usize| (1.0 - (j as f64 - centre).abs() / support).max(0.0);
        let sum: f64 = (first..=last).map(weight).sum();
        (first, (first..=last).map(|j| (weight(j) / sum) as f32).collect())
    };
    (0..to).map(weights).collect()
}

/// The weights of `from` cells for each of `to`: bilinear, the first and the last of both at the same place.
fn aligned(from: usize, to: usize) -> Vec<(usize, Vec<f32>)> {
    let weights = |i: usize| {
        let at = if to > 1 { i as f64 * (from - 1) as f64 / (to - 1) as f64 } else { 0.0 };
        let first = (at.floor() as usize).min(from - 1);
        let part = (at - first as f64) as f32;
        (first, if first + 1 < from { vec![1.0 - part, part] } else { vec![1.0] })
    };
    (0..to).map(weights).collect()
}

/// The weights of `from` cells for each of `to`: bicubic between the centres of cells, as `torch.nn.functional.grid_sample` with
/// `padding_mode="border"`: cells beyond the edge are the outermost one.
fn bicubic(from: usize, to: usize) -> Vec<(usize, Vec<f32>)> {
    const A: f64 = -0.75;
    let near = |t: f64| ((A + 2.0) * t - (A + 3.0)) * t * t + 1.0;
    let far = |t: f64| ((A * t - 5.0 * A) * t + 8.0 * A) * t - 4.0 * A;
    let weights = |i: usize| {
        let at = (i as f64 + 0.5) * from as f64 / to as f64 - 0.5;
        let part = at - at.floor();
        let cell = |offset: i64| (at.floor() as i64 + offset).clamp(0, from as i64 - 1) as usize;
        let first = cell(-1);
        let mut weights = vec![0.0_f32; cell(2) - first + 1];
        let taps = [(-1, far(1.0 + part)), (0, near(part)), (1, near(1.0 - part)), (2, far(2.0 - part))];
        taps.into_iter().for_each(|(offset, weight)| weights[cell(offset) - first] += weight as f32);
        (first, weights)
    };
    (0..to).map(weights).collect()
}

/// A square table of rows of `width` values, resized to `rows × columns`, in the given order of its places.
pub(super) fn resized(
    positions: Positions,
    table: &[f32],
    width: usize,
    [rows, columns]: [usize; 2],
    order: &[[usize; 2]],
) -> Vec<f32> {
    let (of_rows, of_columns, side) = match positions {
        Positions::None => return vec![0.0; order.len() * width],
        Positions::ColumnsAndRows { len } => return of_both(table, width, len, order),
        Positions::Antialiased { side } => (antialiased(side, rows), antialiased(side, columns), side),
        Positions::Bicubic { side } => (bicubic(side, rows), bicubic(side, columns), side),
        Positions::Aligned { side } => (aligned(side, rows), aligned(side, columns), side),
    };
    let mut out = vec![0.0; order.len() * width];
    for (out, &[y, x]) in out.chunks_exact_mut(width).zip(order) {
        let ((top, of_row), (left, of_column)) = (&of_rows[y], &of_columns[x]);
        for (i, row_weight) in of_row.iter().enumerate() {
            for (j, weight) in of_column.iter().enumerate() {
                let cell = &table[((top + i) * side + left + j) * width..][..width];
                out.iter_mut().zip(cell).for_each(|(out, value)| *out += row_weight * weight * value);
            }
        }
    }
    out
}

/// The sum of the row of a patch's column in the first table, and of its row in the second.
fn of_both(table: &[f32], width: usize, len: usize, order: &[[usize; 2]]) -> Vec<f32> {
    let row = |at: usize| &table[at * width..][..width];
    let of = |&[y, x]: &[usize; 2]| row(x).iter().zip(row(len + y)).map(|(x, y)| x + y);
    order.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_in_order() {
        let order = block_order(2, 4, 2);
        assert_eq!(order, [[0, 0], [0, 1], [1, 0], [1, 1], [0, 2], [0, 3], [1, 2], [1, 3]]);
        assert_eq!(block_order(2, 1, 1), [[0, 0], [1, 0]]);
    }

    #[test]
    fn a_table_of_the_same_size_is_unchanged() {
        let table: Vec<f32> = (0..18).map(|at| at as f32).collect();
        let order = block_order(3, 3, 1);
        let of = |positions, size: [usize; 2]| resized(positions, &table, 2, size, &block_order(size[0], size[1], 1));
        let (smooth, aligned) = (Positions::Antialiased { side: 3 }, Positions::Aligned { side: 3 });
        assert!(of(smooth, [3, 3]) == table && of(aligned, [3, 3]) == table, "{order:?}");
        assert_eq!(of(Positions::Bicubic { side: 3 }, [3, 3]), table);
        // One place has the average, or the first.
        let average = of(smooth, [1, 1]);
        assert!((average[0] - 8.0).abs() < 1e-5 && (average[1] - 9.0).abs() < 1e-5, "{average:?}");
        assert_eq!(of(aligned, [1, 2]), [0.0, 1.0, 4.0, 5.0]);
        // Four columns and five rows.
        let both = Positions::ColumnsAndRows { len: 4 };
        assert_eq!(of(both, [1, 2]), [8.0, 10.0, 10.0, 12.0]);
    }
}
