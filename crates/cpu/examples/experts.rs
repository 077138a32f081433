//! The mixture-of-experts layer of a GGUF file, with nothing but the kernels:
//! `cargo run --release -p gristmill-cpu --example experts -- MODEL.gguf [LAYER]`.
//!
//! It routes random rows, and computes many tokens by grouped products and one token alone. `docs/kernels.md` explains
//! the steps. The layer needs a router without a bias and SwiGLU experts: Qwen3-MoE, OLMoE, Mixtral and others.

use std::error::Error;
use std::time::Instant;

use gristmill_cpu::{Cpu, Level};
use gristmill_files::gguf::GgufFile;
use gristmill_kernels::Backend;
use gristmill_kernels::act::Precision;
use gristmill_kernels::ops::{
    GroupByExpert, Matmul, MoeCombine, MoeGateUp, MoeMatmul, PrepareActivations, Route, Routing,
};
use gristmill_kernels::weight::{Role, TensorView, Weight};

/// The weights of a layer.
pub struct Layer {
    router: Weight,
    gate_up: Weight,
    down: Weight,
    routing: Routing,
}

impl Layer {
    /// Reads layer `index` of a file. The blocks stay in the file's map until the backend has its own layout of them.
    pub fn read(backend: &Backend, file: &GgufFile, index: usize) -> Result<Layer, Box<dyn Error>> {
        let metadata = file.metadata();
        let architecture = metadata.required::<&str>("general.architecture")?;
        let top_k = metadata.required::<u32>(&format!("{architecture}.expert_used_count"))?;
        let tensor = |name: &str| view(file, &format!("blk.{index}.{name}.weight"));
        Ok(Layer {
            router: backend.prepare(&[tensor("ffn_gate_inp")?], Role::Matrix)?,
            gate_up: backend.prepare(&[tensor("ffn_gate_exps")?, tensor("ffn_up_exps")?], Role::GateUp)?,
            down: backend.prepare(&[tensor("ffn_down_exps")?], Role::Matrix)?,
            routing: Routing::softmax(top_k as usize, true),
        })
    }

    /// Elements of a row.
    pub fn hidden(&self) -> usize {
        self.router.cols()
    }

    /// The layer's output for rows of [`Layer::hidden`] elements.
    pub fn run(&self, b: &Backend, precision: Precision, rows: &[f32]) -> gristmill_kernels::Result<Vec<f32>> {
        let hidden = self.hidden();
        let inner = self.gate_up.rows();
        let experts = self.router.rows();
        let tokens = rows.len() / hidden;
        let top_k = self.routing.top_k;
        let pairs = tokens * top_k;

        let mut x = b.alloc::<f32>(tokens * hidden, "x")?;
        b.upload(rows, &mut x)?;
        let mut act = b.alloc_act(precision, tokens, hidden)?;
        b.run(PrepareActivations::new(x.view(tokens, hidden)?, &mut act))?;

        let mut logits = b.alloc::<f32>(tokens * experts, "logits")?;
        b.run(Matmul::new(&self.router, &act, logits.view_mut(tokens, experts)?))?;
        let (mut ids, mut weights) = (b.alloc::<u32>(pairs, "ids")?, b.alloc::<f32>(pairs, "weights")?);
        let (chosen, shares) = (ids.view_mut(tokens, top_k)?, weights.view_mut(tokens, top_k)?);
        b.run(Route::new(logits.view(tokens, experts)?, &self.routing, chosen, shares))?;
        let mut groups = b.alloc_groups(experts, pairs)?;
        b.run(GroupByExpert::new(ids.view(tokens, top_k)?, &mut groups))?;

        let mut h = b.alloc::<f32>(pairs * inner, "h")?;
        b.run(MoeGateUp::new(&self.gate_up, &act, &groups, top_k, h.view_mut(pairs, inner)?))?;
        let mut h_act = b.alloc_act(precision, pairs, inner)?;
        b.run(PrepareActivations::new(h.view(pairs, inner)?, &mut h_act))?;
        let mut out = b.alloc::<f32>(pairs * hidden, "out")?;
        b.run(MoeMatmul::new(&self.down, &h_act, &groups, top_k, out.view_mut(pairs, hidden)?))?;

        let mut y = b.alloc::<f32>(tokens * hidden, "y")?;
        let shares = weights.view(tokens, top_k)?;
        b.run(MoeCombine::new(out.view(pairs, hidden)?, shares, y.view_mut(tokens, hidden)?))?;
        b.into_host(y)
    }
}

/// A tensor of a file. GGUF names the innermost dimension first: `[inputs, outputs, experts]`.
fn view(file: &GgufFile, name: &str) -> Result<TensorView, Box<dyn Error>> {
    let tensor = file.tensor(name).ok_or_else(|| format!("the file has no tensor {name}; is layer 0 dense?"))?;
    let size = |dim: usize| tensor.shape.get(dim).map_or(Ok(1), |&size| usize::try_from(size));
    let [cols, rows, experts] = [size(0)?, size(1)?, size(2)?];
    Ok(TensorView::new(name, tensor.format, [experts, rows, cols], file.load(tensor)?))
}

/// Numbers between −1 and 1.
pub fn numbers(count: usize) -> Vec<f32> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64 ^ count as u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: experts MODEL.gguf [LAYER]")?;
    let index = std::env::args().nth(2).map_or(Ok(0), |layer| layer.parse())?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let cpu = Cpu::backend(Level::best(), threads)?;
    let layer = Layer::read(&cpu, &GgufFile::open(path)?, index)?;
    println!("{}: {} experts of {} × {}", cpu.name(), layer.router.rows(), layer.gate_up.rows(), layer.hidden());
    for tokens in [1, 128] {
        let rows = numbers(tokens * layer.hidden());
        let start = Instant::now();
        let y = layer.run(&cpu, Precision::Fast, &rows)?;
        println!("{tokens:>3} tokens in {:>9.3} ms: {:?} …", start.elapsed().as_secs_f64() * 1e3, &y[..4]);
    }
    Ok(())
}
