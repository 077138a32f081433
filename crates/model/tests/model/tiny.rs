//! Tiny random models in memory, whose keys and tensors a test can change before they are written.

use gristmill_files::gguf::{GgufFile, GgufWriter, Value};
use gristmill_kernels::format::Format;
use gristmill_suite::testing::seed_of_test;

pub(crate) const VOCAB: u64 = 61;

/// A stream of random numbers (SplitMix64).
pub(crate) struct Random(pub u64);

impl Random {
    /// The numbers of a test in this run.
    pub(crate) fn fresh() -> Random {
        Random(seed_of_test())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to `end` − 1.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// From −1 to 1.
    pub(crate) fn signed(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    pub(crate) fn tokens(&mut self, count: usize) -> Vec<u32> {
        (0..count).map(|_| self.below(VOCAB as usize) as u32).collect()
    }
}

/// A model to be written.
#[derive(Clone)]
pub(crate) struct Tiny {
    pub(crate) pairs: Vec<(String, Value)>,
    pub(crate) tensors: Vec<(String, Format, Vec<u64>)>,
}

/// Attention of a tiny model, all layers alike.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) hidden: u64,
    pub(crate) heads: u64,
    pub(crate) kv_heads: u64,
    pub(crate) width: u64,
    pub(crate) inner: u64,
    /// Experts, and how many are used; 0 for a dense model.
    pub(crate) experts: [u64; 2],
}

impl Tiny {
    fn new(arch: &str, shape: Shape) -> Tiny {
        let Shape { hidden, heads, kv_heads, width, inner, experts } = shape;
        let mut tiny = Tiny { pairs: vec![], tensors: vec![] };
        tiny.set("general.architecture", arch);
        for (key, value) in [
            ("block_count", 2),
            ("context_length", 100),
            ("embedding_length", hidden),
            ("feed_forward_length", inner),
            ("attention.head_count", heads),
            ("attention.head_count_kv", kv_heads),
            ("attention.key_length", width),
            ("attention.value_length", width),
        ] {
            tiny.set(&format!("{arch}.{key}"), value as u32);
        }
        tiny.set(&format!("{arch}.attention.layer_norm_rms_epsilon"), 1e-5_f32);
        tiny.tensor("token_embd.weight", &[hidden, VOCAB]);
        for layer in 0..2 {
            let mut tensor = |name: &str, shape: &[u64]| tiny.tensor(&format!("blk.{layer}.{name}.weight"), shape);
            tensor("attn_norm", &[hidden]);
            tensor("attn_q", &[hidden, heads * width]);
            tensor("attn_k", &[hidden, kv_heads * width]);
            tensor("attn_v", &[hidden, kv_heads * width]);
            tensor("attn_output", &[heads * width, hidden]);
            tensor("ffn_norm", &[hidden]);
            if experts[0] == 0 {
                tensor("ffn_gate", &[hidden, inner]);
                tensor("ffn_up", &[hidden, inner]);
                tensor("ffn_down", &[inner, hidden]);
            } else {
                tensor("ffn_gate_inp", &[hidden, experts[0]]);
                tensor("ffn_gate_exps", &[hidden, inner, experts[0]]);
                tensor("ffn_up_exps", &[hidden, inner, experts[0]]);
                tensor("ffn_down_exps", &[inner, hidden, experts[0]]);
            }
            if arch.starts_with("qwen3") {
                tensor("attn_q_norm", &[width]);
                tensor("attn_k_norm", &[width]);
            }
        }
        tiny.tensor("output_norm.weight", &[hidden]);
        if experts[0] > 0 {
            tiny.set(&format!("{arch}.expert_count"), experts[0] as u32);
            tiny.set(&format!("{arch}.expert_used_count"), experts[1] as u32);
            tiny.set(&format!("{arch}.expert_feed_forward_length"), inner as u32);
        }
        tiny
    }

    /// Grouped queries 3 to 1, tied embeddings.
    pub(crate) fn llama() -> Tiny {
        Tiny::new("llama", Shape { hidden: 48, heads: 6, kv_heads: 2, width: 8, inner: 80, experts: [0, 0] })
    }

    /// Heads that the hidden size does not tell, and an output head of its own.
    pub(crate) fn qwen3() -> Tiny {
        let shape = Shape { hidden: 64, heads: 5, kv_heads: 1, width: 12, inner: 96, experts: [0, 0] };
        let mut tiny = Tiny::new("qwen3", shape);
        tiny.tensor("output.weight", &[64, VOCAB]);
        tiny
    }

    /// Odd: 5 experts, top-3, head 48.
    pub(crate) fn qwen3moe() -> Tiny {
        Tiny::new("qwen3moe", Shape { hidden: 64, heads: 2, kv_heads: 2, width: 48, inner: 32, experts: [5, 3] })
    }

    /// Four experts, two of which a sigmoid with a bias chooses, and one for every token.
    pub(crate) fn dots1() -> Tiny {
        let shape = Shape { hidden: 32, heads: 2, kv_heads: 2, width: 16, inner: 16, experts: [4, 2] };
        let Shape { hidden, width, inner, experts: [experts, _], .. } = shape;
        let mut tiny = Tiny::new("dots1", shape);
        tiny.set("dots1.expert_shared_count", 1_u32);
        for layer in 0..2 {
            let mut tensor = |name: &str, shape: &[u64]| tiny.tensor(&format!("blk.{layer}.{name}"), shape);
            tensor("attn_q_norm.weight", &[width]);
            tensor("attn_k_norm.weight", &[width]);
            tensor("exp_probs_b.bias", &[experts]);
            tensor("ffn_gate_shexp.weight", &[hidden, inner]);
            tensor("ffn_up_shexp.weight", &[hidden, inner]);
            tensor("ffn_down_shexp.weight", &[inner, hidden]);
        }
        tiny
    }

    /// A window of 5 in every other layer, sinks, and biases everywhere.
    pub(crate) fn gpt_oss() -> Tiny {
        let shape = Shape { hidden: 32, heads: 4, kv_heads: 2, width: 8, inner: 32, experts: [5, 2] };
        let Shape { hidden, heads, inner, experts: [experts, _], .. } = shape;
        let mut tiny = Tiny::new("gpt-oss", shape);
        tiny.set("gpt-oss.attention.sliding_window", 5_u32);
        for layer in 0..2 {
            tiny.without(&format!("blk.{layer}.ffn_norm.weight"));
            for (name, shape) in [
                ("post_attention_norm.weight", &[hidden][..]),
                ("attn_sinks.weight", &[heads]),
                ("attn_q.bias", &[32]),
                ("attn_k.bias", &[16]),
                ("attn_v.bias", &[16]),
                ("attn_output.bias", &[hidden]),
                ("ffn_gate_inp.bias", &[experts]),
                ("ffn_gate_exps.bias", &[inner, experts]),
                ("ffn_up_exps.bias", &[inner, experts]),
                ("ffn_down_exps.bias", &[hidden, experts]),
            ] {
                tiny.tensor(&format!("blk.{layer}.{name}"), shape);
            }
        }
        tiny
    }

    /// A short convolution, then attention.
    pub(crate) fn lfm2() -> Tiny {
        let shape = Shape { hidden: 32, heads: 4, kv_heads: 2, width: 8, inner: 48, experts: [0, 0] };
        let mut tiny = Tiny::new("lfm2", shape);
        tiny.set("lfm2.attention.head_count_kv", vec![0_u32, 2]);
        tiny.set("lfm2.shortconv.l_cache", 3_u32);
        ["q", "k", "v", "output"].iter().for_each(|part| tiny.without(&format!("blk.0.attn_{part}.weight")));
        for (name, shape) in [
            ("token_embd_norm", &[32][..]),
            ("blk.0.shortconv.conv", &[3, 32]),
            ("blk.0.shortconv.in_proj", &[32, 96]),
            ("blk.0.shortconv.out_proj", &[32, 32]),
            ("blk.1.attn_q_norm", &[8]),
            ("blk.1.attn_k_norm", &[8]),
        ] {
            tiny.tensor(&format!("{name}.weight"), shape);
        }
        tiny.without("output_norm.weight");
        tiny
    }

    /// Sets the keys of selective scans of 4 heads of 16 values in 2 groups, of a model with 32 columns, and adds the tensors
    /// of a layer.
    fn scan(&mut self, arch: &str, layer: usize) {
        for (key, value) in [
            ("ssm.conv_kernel", 4_u32),
            ("ssm.inner_size", 64),
            ("ssm.state_size", 16),
            ("ssm.time_step_rank", 4),
            ("ssm.group_count", 2),
        ] {
            self.set(&format!("{arch}.{key}"), value);
        }
        for (name, shape) in [
            ("ssm_in.weight", &[32, 196][..]),
            ("ssm_conv1d.weight", &[4, 128]),
            ("ssm_conv1d.bias", &[128]),
            ("ssm_dt.bias", &[4]),
            ("ssm_a", &[1, 4]),
            ("ssm_d", &[1, 4]),
            ("ssm_norm.weight", &[32, 2]),
            ("ssm_out.weight", &[64, 32]),
        ] {
            self.tensor(&format!("blk.{layer}.{name}"), shape);
        }
    }

    /// Attention and a selective scan in each layer.
    pub(crate) fn falcon_h1() -> Tiny {
        let shape = Shape { hidden: 32, heads: 4, kv_heads: 2, width: 8, inner: 48, experts: [0, 0] };
        let mut tiny = Tiny::new("falcon-h1", shape);
        (0..2).for_each(|layer| tiny.scan("falcon-h1", layer));
        tiny.tensor("output.weight", &[32, VOCAB]);
        tiny
    }

    /// Selective scans and nothing else.
    pub(crate) fn mamba2() -> Tiny {
        let shape = Shape { hidden: 32, heads: 0, kv_heads: 0, width: 8, inner: 0, experts: [0, 0] };
        let mut tiny = Tiny::new("mamba2", shape);
        for layer in 0..2 {
            for part in ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"] {
                tiny.without(&format!("blk.{layer}.{part}.weight"));
            }
            tiny.scan("mamba2", layer);
        }
        tiny
    }

    /// A selective scan of Mamba-1, in which 64 channels are heads, then attention; the second layer has experts.
    pub(crate) fn jamba() -> Tiny {
        let shape = Shape { hidden: 32, heads: 4, kv_heads: 2, width: 8, inner: 48, experts: [0, 0] };
        let mut tiny = Tiny::new("jamba", shape);
        for (key, value) in [
            ("ssm.conv_kernel", 4_u32),
            ("ssm.inner_size", 64),
            ("ssm.state_size", 16),
            ("ssm.time_step_rank", 8),
            ("expert_count", 4),
            ("expert_used_count", 2),
        ] {
            tiny.set(&format!("jamba.{key}"), value);
        }
        tiny.set("jamba.attention.head_count_kv", vec![0_u32, 2]);
        ["q", "k", "v", "output"].into_iter().for_each(|part| tiny.without(&format!("blk.0.attn_{part}.weight")));
        ["gate", "up", "down"].into_iter().for_each(|part| tiny.without(&format!("blk.1.ffn_{part}.weight")));
        for (name, shape) in [
            ("blk.0.ssm_in.weight", &[32, 128][..]),
            ("blk.0.ssm_conv1d.weight", &[4, 64]),
            ("blk.0.ssm_conv1d.bias", &[64]),
            ("blk.0.ssm_x.weight", &[64, 40]),
            ("blk.0.ssm_dt_norm.weight", &[8]),
            ("blk.0.ssm_b_norm.weight", &[16]),
            ("blk.0.ssm_c_norm.weight", &[16]),
            ("blk.0.ssm_dt.weight", &[8, 64]),
            ("blk.0.ssm_dt.bias", &[64]),
            ("blk.0.ssm_a", &[16, 64]),
            ("blk.0.ssm_d", &[64]),
            ("blk.0.ssm_out.weight", &[64, 32]),
            ("blk.1.ffn_gate_inp.weight", &[32, 4]),
            ("blk.1.ffn_gate_exps.weight", &[32, 48, 4]),
            ("blk.1.ffn_up_exps.weight", &[32, 48, 4]),
            ("blk.1.ffn_down_exps.weight", &[48, 32, 4]),
        ] {
            tiny.tensor(name, shape);
        }
        tiny
    }

    /// A gated delta rule, then attention with a gated output.
    pub(crate) fn qwen35() -> Tiny {
        let shape = Shape { hidden: 32, heads: 2, kv_heads: 1, width: 16, inner: 48, experts: [0, 0] };
        let mut tiny = Tiny::new("qwen35", shape);
        for (key, value) in [
            ("full_attention_interval", 2_u32),
            ("rope.dimension_count", 4),
            ("ssm.conv_kernel", 4),
            ("ssm.inner_size", 64),
            ("ssm.state_size", 16),
            ("ssm.time_step_rank", 4),
            ("ssm.group_count", 2),
        ] {
            tiny.set(&format!("qwen35.{key}"), value);
        }
        tiny.set("qwen35.rope.dimension_sections", vec![1_u32, 1, 0, 0]);
        for layer in 0..2 {
            tiny.without(&format!("blk.{layer}.ffn_norm.weight"));
            tiny.tensor(&format!("blk.{layer}.post_attention_norm.weight"), &[32]);
        }
        for part in ["q", "k", "v", "output", "q_norm", "k_norm"] {
            tiny.without(&format!("blk.0.attn_{part}.weight"));
        }
        for (name, shape) in [
            ("blk.0.attn_qkv.weight", &[32, 128][..]),
            ("blk.0.attn_gate.weight", &[32, 64]),
            ("blk.0.ssm_beta.weight", &[32, 4]),
            ("blk.0.ssm_alpha.weight", &[32, 4]),
            ("blk.0.ssm_conv1d.weight", &[4, 128]),
            ("blk.0.ssm_a", &[4]),
            ("blk.0.ssm_dt.bias", &[4]),
            ("blk.0.ssm_norm.weight", &[16]),
            ("blk.0.ssm_out.weight", &[64, 32]),
            ("blk.1.attn_q.weight", &[32, 64]),
        ] {
            tiny.tensor(name, shape);
        }
        tiny
    }

    /// A layer with a window, then one that sees everything and whose values are its keys; next to the four experts of
    /// each an MLP.
    pub(crate) fn gemma4() -> Tiny {
        let shape = Shape { hidden: 32, heads: 4, kv_heads: 2, width: 16, inner: 16, experts: [4, 2] };
        let mut tiny = Tiny::new("gemma4", shape);
        for (key, value) in [
            ("attention.sliding_window", 5_u32),
            ("attention.key_length_swa", 8),
            ("attention.value_length_swa", 8),
            ("rope.dimension_count_swa", 8),
            ("feed_forward_length", 48),
        ] {
            tiny.set(&format!("gemma4.{key}"), value);
        }
        tiny.set("gemma4.attention.sliding_window_pattern", vec![true, false]);
        tiny.set("gemma4.attention.head_count_kv", vec![2_u32, 1]);
        for layer in 0..2 {
            let width = [8, 16][layer];
            let mut tensor = |name: &str, shape: &[u64]| tiny.tensor(&format!("blk.{layer}.{name}"), shape);
            tensor("attn_q.weight", &[32, 4 * width]);
            tensor("attn_k.weight", &[32, 16]);
            tensor("attn_v.weight", &[32, 16]);
            tensor("attn_output.weight", &[4 * width, 32]);
            tensor("attn_q_norm.weight", &[width]);
            tensor("attn_k_norm.weight", &[width]);
            for norm in ["post_attention_norm", "post_ffw_norm", "post_ffw_norm_1", "post_ffw_norm_2", "pre_ffw_norm_2"]
            {
                tensor(&format!("{norm}.weight"), &[32]);
            }
            tensor("ffn_gate.weight", &[32, 48]);
            tensor("ffn_up.weight", &[32, 48]);
            tensor("ffn_down.weight", &[48, 32]);
            tensor("ffn_gate_inp.scale", &[32]);
            tensor("ffn_down_exps.scale", &[4]);
        }
        tiny.without("blk.1.attn_v.weight");
        tiny
    }

    /// Each layer has an input of its own, and the second reads the cache of the first; its MLP is twice as wide.
    pub(crate) fn gemma4_e() -> Tiny {
        let shape = Shape { hidden: 32, heads: 4, kv_heads: 2, width: 16, inner: 24, experts: [0, 0] };
        let mut tiny = Tiny::new("gemma4", shape);
        tiny.set("gemma4.attention.sliding_window", 5_u32);
        tiny.set("gemma4.attention.sliding_window_pattern", vec![false, false]);
        tiny.set("gemma4.attention.shared_kv_layers", 1_u32);
        tiny.set("gemma4.embedding_length_per_layer_input", 8_u32);
        tiny.set("gemma4.feed_forward_length", vec![24_u32, 48]);
        tiny.tensor("per_layer_token_embd.weight", &[16, VOCAB]);
        tiny.tensor("per_layer_model_proj.weight", &[32, 16]);
        tiny.tensor("per_layer_proj_norm.weight", &[8]);
        for layer in 0..2 {
            for (name, shape) in [
                ("attn_q_norm", &[16][..]),
                ("post_attention_norm", &[32]),
                ("post_ffw_norm", &[32]),
                ("inp_gate", &[32, 8]),
                ("proj", &[8, 32]),
                ("post_norm", &[32]),
            ] {
                tiny.tensor(&format!("blk.{layer}.{name}.weight"), shape);
            }
        }
        tiny.tensor("blk.0.attn_k_norm.weight", &[16]);
        for (part, shape) in [("gate", [32, 48]), ("up", [32, 48]), ("down", [48, 32])] {
            tiny.tensor(&format!("blk.1.ffn_{part}.weight"), &shape);
        }
        tiny.without("blk.1.attn_k.weight");
        tiny.without("blk.1.attn_v.weight");
        tiny
    }

    /// One of each, and of each feature.
    pub(crate) fn all() -> Vec<(&'static str, Tiny)> {
        let mut mixtral =
            Tiny::new("llama", Shape { hidden: 32, heads: 4, kv_heads: 2, width: 8, inner: 32, experts: [8, 2] });
        mixtral.set("llama.attention.sliding_window", 5_u32);
        let mut llama3 = Tiny::llama();
        llama3.tensor("rope_freqs.weight", &[4]);
        for layer in 0..2 {
            for (part, len) in [("q", 48), ("k", 16), ("v", 16), ("output", 48)] {
                llama3.tensor(&format!("blk.{layer}.attn_{part}.bias"), &[len]);
            }
        }
        let mut yarn = Tiny::llama();
        yarn.set("llama.rope.scaling.type", "yarn");
        yarn.set("llama.rope.scaling.factor", 4.0_f32);
        yarn.set("llama.rope.scaling.original_context_length", 25_u32);
        vec![
            ("gemma4", Tiny::gemma4()),
            ("gemma4 with shared caches", Tiny::gemma4_e()),
            ("gpt-oss", Tiny::gpt_oss()),
            ("llama", Tiny::llama()),
            ("llama with factors and biases", llama3),
            ("llama with YaRN", yarn),
            ("llama with experts and a window", mixtral),
            ("qwen3", Tiny::qwen3()),
            ("qwen3moe", Tiny::qwen3moe()),
        ]
    }

    /// Adds a prediction head, whose layer is as the last one.
    pub(crate) fn predict(&mut self) {
        let Some((_, Value::String(arch))) = self.pairs.first().cloned() else { panic!("an architecture") };
        let hidden = self.tensors.iter().find(|tensor| tensor.0 == "token_embd.weight").expect("embeddings").2[0];
        self.set(&format!("{arch}.block_count"), 3_u32);
        self.set(&format!("{arch}.nextn_predict_layers"), 1_u32);
        for (name, _, shape) in self.tensors.clone() {
            if let Some(part) = name.strip_prefix("blk.1.") {
                self.tensor(&format!("blk.2.{part}"), &shape);
            }
        }
        for (part, shape) in [("eh_proj", &[2 * hidden, hidden][..]), ("enorm", &[hidden]), ("hnorm", &[hidden])] {
            self.tensor(&format!("blk.2.nextn.{part}.weight"), shape);
        }
    }

    pub(crate) fn set(&mut self, key: &str, value: impl Into<Value>) {
        let value = value.into();
        match self.pairs.iter_mut().find(|(known, _)| known == key) {
            Some(pair) => pair.1 = value,
            None => self.pairs.push((key.to_owned(), value)),
        }
    }

    pub(crate) fn unset(&mut self, key: &str) {
        self.pairs.retain(|(known, _)| known != key);
    }

    /// Adds a tensor, or gives it another shape.
    pub(crate) fn tensor(&mut self, name: &str, shape: &[u64]) {
        match self.tensors.iter_mut().find(|tensor| tensor.0 == name) {
            Some(tensor) => tensor.2 = shape.to_vec(),
            None => self.tensors.push((name.to_owned(), Format::F32, shape.to_vec())),
        }
    }

    pub(crate) fn without(&mut self, name: &str) {
        self.tensors.retain(|tensor| tensor.0 != name);
    }

    pub(crate) fn use_all_experts(&mut self) {
        let find = |end: &str| self.pairs.iter().position(|(key, _)| key.ends_with(end));
        if let (Some(count), Some(used)) = (find(".expert_count"), find(".expert_used_count")) {
            self.pairs[used].1 = self.pairs[count].1.clone();
        }
    }

    /// All matrices in this format, as far as their rows are whole blocks.
    pub(crate) fn format(&mut self, format: Format) {
        for (_, of, _) in self
            .tensors
            .iter_mut()
            .filter(|(_, _, shape)| shape.len() > 1 && format.row_bytes(shape[0] as usize).is_some())
        {
            *of = format;
        }
    }

    /// The model with random weights.
    pub(crate) fn file(&self, random: &mut Random) -> GgufFile {
        GgufFile::from_bytes(self.bytes(random)).expect("a good file")
    }

    /// Writes the model with random weights, scaled so that every block matters.
    pub(crate) fn bytes(&self, random: &mut Random) -> Vec<u8> {
        let mut plan = GgufWriter::new();
        for (key, value) in &self.pairs {
            plan.set(key, value.clone()).expect("a good key");
        }
        for (name, format, shape) in &self.tensors {
            plan.tensor(name, *format, shape).expect("a good tensor");
        }
        let mut data = plan.begin(Vec::new()).expect("memory takes all");
        for (name, format, shape) in &self.tensors {
            let count = shape.iter().product::<u64>() as usize;
            let mut value = || match shape.len() {
                // A state must not grow.
                _ if name.ends_with("ssm_a") => -1.0 + 0.5 * random.signed(),
                1 => 1.0 + 0.5 * random.signed(),
                _ => random.signed() * 2.0 / (shape[0] as f32).sqrt(),
            };
            let values: Vec<f32> = (0..count).map(|_| value()).collect();
            let mut bytes = vec![0; format.row_bytes(count).expect("whole blocks")];
            format.encode(&values, &mut bytes).expect("whole blocks");
            data.write_tensor(name, &bytes).expect("the size is right");
        }
        data.finish().expect("all tensors are written")
    }
}
