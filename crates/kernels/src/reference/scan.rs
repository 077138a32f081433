//! The selective scan, one token after another.

use super::recurrent::{runs, softplus};
use super::rows::{Rows, RowsMut};
use crate::error::Result;
use crate::ops::{Operation, Run, ScanHeads, SelectiveScan};

pub(super) fn selective_scan(call: SelectiveScan) -> Result<()> {
    const OP: &str = SelectiveScan::NAME;
    let decays = if call.has_element_decays() { call.heads.state } else { 1 };
    let SelectiveScan { xbc, dt, a, d, dt_bias, heads, mut state, runs: list, mut out } = call;
    let ScanHeads { width, groups, state: n, .. } = heads;
    let (xbc, dt) = (Rows::new(OP, xbc)?, Rows::new(OP, dt)?);
    let [a, d, dt_bias] = [a, d, dt_bias].map(|vector| vector.as_host().unwrap_or(&[]));
    let (mut state, mut out) = (RowsMut::new(OP, &mut state)?, RowsMut::new(OP, &mut out)?);
    for Run { first, rows, read, written } in runs(list) {
        for value in 0..heads.values() {
            let (head, group) = (value / width, heads.group_of(value));
            let mut s = vec![0.0; n];
            if let Some(slot) = read {
                let slot = state.row(slot);
                s.iter_mut().enumerate().for_each(|(m, s)| *s = f64::from(slot[heads.state_at(value, m)]));
            }
            for t in first..first + rows {
                let row = xbc.row(t);
                let (b, c) = row[heads.values()..].split_at(groups * n);
                let x = f64::from(row[value]);
                let b = &b[group * n..][..n];
                let c = &c[group * n..][..n];
                let delta = softplus(f64::from(dt.row(t)[head]) + f64::from(dt_bias[head]));
                let mut sum = f64::from(d[head]) * x;
                for (m, s) in s.iter_mut().enumerate() {
                    let kept = (delta * f64::from(a[head * decays + m % decays])).exp();
                    // Rounded as a slot keeps it, so that a run has the same state in one part and in several.
                    *s = f64::from((kept * *s + delta * x * f64::from(b[m])) as f32);
                    sum += *s * f64::from(c[m]);
                }
                out.row(t)[value] = sum as f32;
            }
            let slot = state.row(written);
            s.iter().enumerate().for_each(|(m, &s)| slot[heads.state_at(value, m)] = s as f32);
        }
    }
    Ok(())
}
