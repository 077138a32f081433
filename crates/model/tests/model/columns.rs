//! Matrices whose columns are in another order: `X.column_order`.

use std::sync::Arc;

use gristmill_files::gguf::GgufFile;
use gristmill_kernels::reference::Reference;
use gristmill_model::{Batch, Error, LoadOptions, Model, ModelInfo, Outputs, column_order};

use crate::tiny::{Random, Tiny};
use crate::{reference, runner};

/// Matrices with an order, and the columns of each.
const ORDERED: [(&str, u64); 7] = [
    ("blk.0.attn_q.weight", 48),
    ("blk.0.attn_k.weight", 48),
    ("blk.0.attn_v.weight", 48),
    ("blk.0.ffn_down.weight", 80),
    ("blk.1.attn_output.weight", 48),
    ("blk.1.ffn_gate.weight", 48),
    ("blk.1.ffn_up.weight", 48),
];

/// A model with room for orders, and its bytes.
fn ordered(change: impl FnOnce(&mut Tiny)) -> Vec<u8> {
    let mut tiny = Tiny::llama();
    ORDERED.iter().for_each(|(name, columns)| tiny.tensor(&column_order(name), &[*columns]));
    change(&mut tiny);
    tiny.bytes(&mut Random(3))
}

/// Changes the numbers of a tensor.
fn set(bytes: &mut [u8], name: &str, value: impl Fn(usize, &[f32]) -> f32) {
    let file = GgufFile::from_bytes(bytes.to_vec()).expect("a good file");
    let tensor = file.tensor(name).expect("a tensor");
    let mut values = vec![0.0; tensor.elements() as usize];
    tensor.format.decode(file.data(tensor), &mut values).expect("F32");
    for i in 0..values.len() {
        let at = tensor.offset as usize + 4 * i;
        bytes[at..at + 4].copy_from_slice(&value(i, &values).to_le_bytes());
    }
}

/// Column `place` of the file is column 7 · `place` + 3 of the model.
fn place(place: usize, columns: u64) -> usize {
    (7 * place + 3) % columns as usize
}

#[test]
fn columns_in_another_order_are_those_of_the_model() {
    let mut bytes = ordered(|_| {});
    for (name, _) in ORDERED {
        set(&mut bytes, &column_order(name), |i, _| i as f32);
    }
    let plain = bytes.clone();
    for (name, columns) in ORDERED {
        set(&mut bytes, &column_order(name), |i, _| place(i, columns) as f32);
        let width = columns as usize;
        set(&mut bytes, name, |i, values| values[i / width * width + place(i % width, columns)]);
    }
    let logits = |bytes: Vec<u8>| {
        let mut runner = runner(&reference(&GgufFile::from_bytes(bytes).expect("a good file")));
        let (id, mut batch) = (runner.open_sequence().expect("a sequence"), Batch::new());
        batch.push(id, &[1, 2, 3, 4, 5], Outputs::All);
        runner.forward(&batch).expect("a pass").to_vec().expect("host memory")
    };
    let (found, wanted) = (logits(bytes), logits(plain));
    assert!(found.iter().zip(&wanted).all(|(a, b)| (a - b).abs() <= 1e-4 * b.abs().max(1.0)), "{found:?} {wanted:?}");
}

#[test]
fn bad_orders_are_named() {
    let refused = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = ordered(|_| {});
        ORDERED.iter().for_each(|(name, _)| set(&mut bytes, &column_order(name), |i, _| i as f32));
        change(&mut bytes);
        let file = GgufFile::from_bytes(bytes).expect("a good file");
        match Model::with_backend(file, Arc::new(Reference::backend()), LoadOptions::default()) {
            Err(error @ Error::ColumnOrder { .. }) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    for bad in [f32::NAN, -1.0, 48.0, 2.5, f32::INFINITY, 1.0] {
        let error =
            refused(&|bytes| set(bytes, "blk.0.attn_q.column_order", |i, _| if i == 5 { bad } else { i as f32 }));
        assert!(
            error.contains("tensor `blk.0.attn_q.column_order`: the order of columns is not each column once"),
            "{error}"
        );
    }
    let error = refused(&|bytes| set(bytes, "blk.0.attn_k.column_order", |i, _| (47 - i) as f32));
    assert!(error.contains("`blk.0.attn_k.column_order`: the order of columns differs within a matrix"), "{error}");
}

#[test]
fn orders_that_no_product_uses_are_refused() {
    let refusal = |change: &dyn Fn(&mut Tiny)| {
        let file = GgufFile::from_bytes(ordered(|tiny| change(tiny))).expect("a good file");
        ModelInfo::read(&file).expect_err("a bad model").to_string()
    };
    let table = refusal(&|tiny| tiny.tensor("token_embd.column_order", &[48]));
    assert!(table.contains("`token_embd.column_order` is not a weight"), "{table}");
    let missing = refusal(&|tiny| tiny.without("blk.0.attn_v.column_order"));
    assert!(missing.contains("`blk.0.attn_v.column_order`") && missing.contains("is missing"), "{missing}");
    let shape = refusal(&|tiny| tiny.tensor("blk.0.ffn_down.column_order", &[79]));
    assert!(shape.contains("has shape [79], but the metadata requires [80]"), "{shape}");
}
