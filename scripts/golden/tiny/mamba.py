"""Families with selective scans: Mamba-2 in Nemotron, Granite 4, Falcon-H1 and Mamba-2 itself, Mamba-1 in Jamba."""

import gguf
import numpy as np

from .recurrent import Order
from .shapes import CONTEXT, EPS, GRANITE, Shape

NEMOTRON = ("nemotron_h", "nemotron_h_moe")
FAMILIES = (*NEMOTRON, "granitehybrid", "mamba2", "falcon-h1", "jamba", "bamba")
# More than one group, so that a norm over all of them is not theirs.
TAPS, STATE, GROUPS, HEADS = 4, 16, 2, 4
# Shorter than the sequences, and no divisor of their lengths.
CHUNK = 7
LETTERS = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}
# Those of Falcon-H1: of each input of a scan, then of an MLP's gate and output, then one each.
SCAN_FACTORS = [0.8, 1.3, 0.7, 1.2, 0.9]
MLP_FACTORS = [1.2, 0.8]
FALCON = dict(embedding_multiplier=0.5, lm_head_multiplier=0.7, key_multiplier=1.3, attention_in_multiplier=0.9,
              attention_out_multiplier=1.1, ssm_in_multiplier=1.2, ssm_out_multiplier=0.8)


def inner(shape: Shape) -> int:
    """Values of all heads of a scan."""
    return 2 * shape.hidden


def rows(shape: Shape) -> list[int]:
    """Rows of each input of a scan: the gate, values, B, C, Δ."""
    return [inner(shape), inner(shape), GROUPS * STATE, GROUPS * STATE, HEADS]


class Times(Order):
    """A tensor times a factor, or one for each row."""

    def __init__(self, factor):
        super().__init__()
        self.factor = np.asarray(factor, np.float32)

    def take(self, w: np.ndarray) -> np.ndarray:
        return w * (self.factor[:, None] if self.factor.ndim else self.factor)

    def give(self, w: np.ndarray, ours: np.ndarray) -> np.ndarray:
        return ours / (self.factor[:, None] if self.factor.ndim else self.factor)


class Reshaped(Order):
    """A vector as a matrix; `log` for the decay of a scan."""

    def __init__(self, shape: tuple, log: bool = False):
        super().__init__(log=log)
        self.shape = shape

    def take(self, w: np.ndarray) -> np.ndarray:
        return super().take(w).reshape(self.shape)

    def give(self, w: np.ndarray, ours: np.ndarray) -> np.ndarray:
        return super().give(w, ours.reshape(w.shape))


def kinds(shape: Shape) -> list[str]:
    if shape.pattern:
        return [LETTERS[letter] for letter in shape.pattern]
    return ["full_attention" if i in shape.full else "linear_attention" for i in range(shape.layers)]


def periods(shape: Shape) -> dict:
    """One layer has attention, and the last of each `step` has experts."""
    return dict(attn_layer_period=shape.layers, attn_layer_offset=shape.full[0], expert_layer_period=shape.step,
                expert_layer_offset=shape.step - 1)


def build(shape: Shape, common: dict):
    """The model of transformers."""
    import transformers as t

    common = common | dict(bos_token_id=None, eos_token_id=None, pad_token_id=None)
    prefixed = dict(mamba_n_heads=HEADS, mamba_n_groups=GROUPS, mamba_d_state=STATE, mamba_d_conv=TAPS,
                    mamba_d_head=inner(shape) // HEADS, mamba_expand=2, mamba_chunk_size=CHUNK)
    if shape.arch in NEMOTRON:
        common = {k: v for k, v in common.items() if k not in ("rms_norm_eps", "rope_parameters", "num_hidden_layers")}
        experts = dict(n_routed_experts=shape.experts, num_experts_per_tok=shape.top_k,
                       moe_intermediate_size=shape.inner, moe_shared_expert_intermediate_size=shape.shared,
                       moe_latent_size=shape.latent or None, routed_scaling_factor=shape.scale)
        return t.NemotronHForCausalLM(t.NemotronHConfig(
            layers_block_type=kinds(shape), head_dim=shape.head, intermediate_size=shape.inner, ssm_state_size=STATE,
            mamba_num_heads=HEADS, mamba_head_dim=inner(shape) // HEADS, n_groups=GROUPS, conv_kernel=TAPS,
            chunk_size=CHUNK, layer_norm_epsilon=EPS, **(experts if shape.experts else {}), **common))
    if shape.arch == "mamba2":
        return t.Mamba2ForCausalLM(t.Mamba2Config(
            vocab_size=common["vocab_size"], hidden_size=shape.hidden, num_hidden_layers=shape.layers, num_heads=HEADS,
            head_dim=inner(shape) // HEADS, state_size=STATE, n_groups=GROUPS, conv_kernel=TAPS, chunk_size=CHUNK,
            layer_norm_epsilon=EPS, tie_word_embeddings=shape.tied, bos_token_id=None, eos_token_id=None, pad_token_id=None))
    if shape.arch == "falcon-h1":
        return t.FalconH1ForCausalLM(t.FalconH1Config(
            intermediate_size=shape.inner, head_dim=shape.head, mamba_d_ssm=inner(shape), mamba_rms_norm=shape.qk_norm,
            mamba_norm_before_gate=False, mlp_multipliers=MLP_FACTORS, ssm_multipliers=SCAN_FACTORS, **FALCON, **prefixed,
            **common))
    if shape.arch == "jamba":
        common = {k: v for k, v in common.items() if k != "rope_parameters"}
        return t.JambaForCausalLM(t.JambaConfig(
            intermediate_size=shape.inner, num_experts=shape.experts or 1, num_experts_per_tok=shape.top_k or 1,
            mamba_d_state=STATE, mamba_d_conv=TAPS, mamba_expand=2, mamba_dt_rank=shape.rank, **periods(shape), **common))
    if shape.arch == "bamba":
        return t.BambaForCausalLM(t.BambaConfig(
            intermediate_size=shape.inner, attn_layer_indices=list(shape.full), **prefixed, **common))
    dense = dict(num_local_experts=shape.experts, num_experts_per_tok=shape.top_k, intermediate_size=shape.inner,
                 shared_intermediate_size=shape.shared or shape.inner)
    return t.GraniteMoeHybridForCausalLM(t.GraniteMoeHybridConfig(
        layer_types=kinds(shape), position_embedding_type=None, **dense, **GRANITE, **prefixed, **common))


def value(shape: Shape, name: str, noise):
    """The weights that are drawn in their own way."""
    if shape.arch not in FAMILIES:
        return None
    if name.endswith(".D"):
        return 1.0 + 0.3 * noise
    if name.endswith("norm_f.weight"):
        return 1.2 + 0.3 * noise
    if "embeddings.weight" in name:
        return noise
    return None


def is_unclamped(model, sequences, logits, run) -> bool:
    """Whether transformers' least Δ, which only its longer runs have, changes nothing."""
    mixers = [module for module in model.modules() if hasattr(module, "time_step_limit") and hasattr(module, "A_log")]
    limits = [mixer.time_step_limit for mixer in mixers]
    for mixer in mixers:
        mixer.time_step_limit = (0.0, float("inf"))
    free = run(model, sequences)
    for mixer, limit in zip(mixers, limits):
        mixer.time_step_limit = limit
    return all((a == b).all() for a, b in zip(free, logits))


def scan(shape: Shape) -> list:
    """The tensors of a scan."""
    falcon = shape.arch == "falcon-h1"
    factors = np.repeat(np.array(SCAN_FACTORS) * FALCON["ssm_in_multiplier"], rows(shape))
    table = [("ssm_in.weight", "in_proj.weight", Times(factors) if falcon else 0),
             ("ssm_conv1d.weight", "conv1d.weight", Order(squeeze=True)), ("ssm_conv1d.bias", "conv1d.bias", 0),
             ("ssm_dt.bias", "dt_bias", 0), ("ssm_a", "A_log", Reshaped((HEADS, 1), log=True)),
             ("ssm_d", "D", Reshaped((HEADS, 1))),
             ("ssm_out.weight", "out_proj.weight", Times(FALCON["ssm_out_multiplier"]) if falcon else 0)]
    if not falcon or shape.qk_norm:
        table.append(("ssm_norm.weight", "norm.weight", Reshaped((GROUPS, inner(shape) // GROUPS))))
    return table


def channel_scan(shape: Shape) -> list:
    """The tensors of a scan of Mamba-1."""
    norms = [(f"ssm_{part}_norm.weight", f"{part}_layernorm.weight", 0) for part in ("dt", "b", "c")]
    return norms + [("ssm_in.weight", "in_proj.weight", 0), ("ssm_conv1d.weight", "conv1d.weight", Order(squeeze=True)),
                    ("ssm_conv1d.bias", "conv1d.bias", 0), ("ssm_x.weight", "x_proj.weight", 0),
                    ("ssm_dt.weight", "dt_proj.weight", 0), ("ssm_dt.bias", "dt_proj.bias", 0),
                    ("ssm_a", "A_log", Order(log=True)), ("ssm_d", "D", 0), ("ssm_out.weight", "out_proj.weight", 0)]


def jamba_layer(shape: Shape, i: int) -> list:
    table = [("attn_norm.weight", "input_layernorm.weight", 0), ("ffn_norm.weight", "pre_ff_layernorm.weight", 0)]
    has_attention = kinds(shape)[i] == "full_attention"
    table += within("self_attn", attention(shape)) if has_attention else within("mamba", channel_scan(shape))
    experts = [("ffn_gate_inp.weight", "router.weight", 0), ("ffn_gate_exps.weight", "experts.gate_up_proj:0", 0),
               ("ffn_up_exps.weight", "experts.gate_up_proj:1", 0), ("ffn_down_exps.weight", "experts.down_proj", 0)]
    plain = [(f"ffn_{part}.weight", f"{part}_proj.weight", 0) for part in ("gate", "up", "down")]
    return table + within("feed_forward", experts if shape.experts and (i + 1) % shape.step == 0 else plain)


def attention(shape: Shape) -> list:
    paired = shape.arch in ("granitehybrid", "bamba", *NEMOTRON)
    heads = dict(q=shape.heads, k=shape.kv_heads) if paired else {}
    how = {part: heads.get(part, 0) for part in "qkv"}
    if shape.arch == "falcon-h1":
        factor = FALCON["attention_in_multiplier"]
        how = dict(q=Times(factor), k=Times(factor * FALCON["key_multiplier"]), v=Times(factor))
    out = Times(FALCON["attention_out_multiplier"]) if shape.arch == "falcon-h1" else 0
    return [(f"attn_{part}.weight", f"{part}_proj.weight", how[part]) for part in "qkv"] + [
        ("attn_output.weight", "o_proj.weight", out)]


def experts(shape: Shape) -> list:
    """The tensors of Nemotron's experts."""
    table = [("ffn_gate_inp.weight", "gate.weight", 0), ("exp_probs_b.bias", "gate.e_score_correction_bias", 0),
             ("ffn_up_exps.weight", "experts.up_proj", 0), ("ffn_down_exps.weight", "experts.down_proj", 0)]
    table += [(f"ffn_{part}_shexp.weight", f"shared_experts.{part}_proj.weight", 0) for part in ("up", "down")]
    if shape.latent:
        table += [("ffn_latent_down.weight", "fc1_latent_proj.weight", 0),
                  ("ffn_latent_up.weight", "fc2_latent_proj.weight", 0)]
    return table


def within(module: str, table: list) -> list:
    """Rows of a module in another."""
    return [(ours, f"{module}.{theirs}", how) for ours, theirs, how in table]


def of_layer(shape: Shape, i: int) -> list:
    if shape.arch == "jamba":
        return jamba_layer(shape, i)
    kind = kinds(shape)[i]
    if shape.arch == "bamba":
        table = [("attn_norm.weight", "input_layernorm.weight", 0), ("ffn_norm.weight", "pre_ff_layernorm.weight", 0)]
        table += within("self_attn", attention(shape)) if kind == "full_attention" else within("mamba", scan(shape))
        plain = [(f"ffn_{part}.weight", f"{part}_proj.weight", 0) for part in ("gate", "up", "down")]
        return table + within("feed_forward", plain)
    if shape.arch in NEMOTRON or shape.arch == "mamba2":
        plain = [(f"ffn_{part}.weight", f"{part}_proj.weight", 0) for part in ("up", "down")]
        parts = dict(linear_attention=scan(shape), full_attention=attention(shape), mlp=plain, moe=experts(shape))
        return [("attn_norm.weight", "norm.weight", 0)] + within("mixer", parts[kind])
    table = [("attn_norm.weight", "input_layernorm.weight", 0)]
    if kind == "linear_attention" or shape.arch == "falcon-h1":
        table += within("mamba", scan(shape))
    if kind == "full_attention" or shape.arch == "falcon-h1":
        table += within("self_attn", attention(shape))
    if shape.arch == "falcon-h1":
        factors = dict(gate=Times(MLP_FACTORS[0]), up=0, down=Times(MLP_FACTORS[1]))
        # llama.cpp's converter names the norm so.
        table.append(("ffn_norm", "pre_ff_layernorm.weight", 0))
        return table + [(f"ffn_{part}.weight", f"feed_forward.{part}_proj.weight", factors[part])
                        for part in ("gate", "up", "down")]
    table.append(("ffn_norm.weight", "post_attention_layernorm.weight", 0))
    end = "_shexp" if shape.experts else ""
    if shape.experts:
        table += [("ffn_gate_inp.weight", "block_sparse_moe.router.weight", 0),
                  ("ffn_gate_exps.weight", "block_sparse_moe.experts.gate_up_proj:0", 0),
                  ("ffn_up_exps.weight", "block_sparse_moe.experts.gate_up_proj:1", 0),
                  ("ffn_down_exps.weight", "block_sparse_moe.experts.down_proj", 0)]
    return table + [(f"ffn_gate{end}.weight", "shared_mlp.input_linear.weight:0", 0),
                    (f"ffn_up{end}.weight", "shared_mlp.input_linear.weight:1", 0),
                    (f"ffn_down{end}.weight", "shared_mlp.output_linear.weight", 0)]


def names(shape: Shape) -> list:
    """As `tensors.names`."""
    base = "backbone" if shape.arch == "mamba2" else "model"
    embeddings = "embeddings" if shape.arch in (*NEMOTRON, "mamba2") else "embed_tokens"
    last = {"granitehybrid": "norm", "falcon-h1": "final_layernorm", "jamba": "final_layernorm", "bamba": "final_layernorm"}.get(shape.arch, "norm_f")
    falcon = shape.arch == "falcon-h1"
    table = [("token_embd.weight", f"{base}.{embeddings}.weight", Times(FALCON["embedding_multiplier"]) if falcon else 0),
             ("output_norm.weight", f"{base}.{last}.weight", 0)]
    if not shape.tied:
        table.append(("output.weight", "lm_head.weight", Times(FALCON["lm_head_multiplier"]) if falcon else 0))
    for i in range(shape.layers):
        table += [(f"blk.{i}.{ours}", f"{base}.layers.{i}.{theirs}", how) for ours, theirs, how in of_layer(shape, i)]
    return table


def write_keys(writer: gguf.GGUFWriter, shape: Shape) -> None:
    """All keys of a layer and its blocks, as llama.cpp's converter writes them."""
    of_kind = kinds(shape)
    writer.add_block_count(shape.layers + shape.nextn)
    writer.add_embedding_length(shape.hidden)
    writer.add_ssm_conv_kernel(TAPS)
    writer.add_ssm_inner_size(inner(shape))
    writer.add_ssm_state_size(STATE)
    writer.add_ssm_time_step_rank(shape.rank or HEADS)
    if shape.arch != "jamba":
        writer.add_ssm_group_count(GROUPS)
    if shape.arch not in NEMOTRON:
        writer.add_layer_norm_rms_eps(EPS)
    if shape.arch == "mamba2":
        writer.add_context_length(2**20)
        writer.add_feed_forward_length(0)
        writer.add_head_count(0)
        return
    writer.add_context_length(CONTEXT)
    writer.add_head_count(shape.heads)
    attends = [kind == "full_attention" for kind in of_kind] + [True] * shape.nextn
    writer.add_head_count_kv(shape.kv_heads if shape.arch == "falcon-h1" else [shape.kv_heads * n for n in attends])
    if shape.arch in NEMOTRON:
        is_mlp = [kind in ("mlp", "moe") for kind in of_kind] + [True] * shape.nextn
        writer.add_feed_forward_length([shape.inner * n for n in is_mlp])
        writer.add_layer_norm_eps(EPS)
        writer.add_key_length(shape.head)
        writer.add_value_length(shape.head)
        # As in published files, where nothing is rotated.
        writer.add_rope_dimension_count(shape.hidden // shape.heads)
        writer.add_rope_scaling_finetuned(False)
    elif shape.arch == "falcon-h1":
        writer.add_feed_forward_length(shape.inner)
        writer.add_key_length(shape.head)
        writer.add_value_length(shape.head)
        writer.add_rope_freq_base(shape.theta)
    elif shape.arch == "jamba":
        writer.add_feed_forward_length(shape.inner)
    elif shape.arch == "bamba":
        writer.add_feed_forward_length(shape.inner)
        writer.add_rope_dimension_count(shape.head // 2)
        writer.add_rope_scaling_finetuned(True)
        writer.add_rope_freq_base(shape.theta)
        writer.add_vocab_size(288)
    else:
        writer.add_feed_forward_length(shape.inner)
        writer.add_rope_dimension_count(shape.head)
        writer.add_rope_scaling_finetuned(False)
        writer.add_vocab_size(288)
    if shape.arch == "granitehybrid":
        writer.add_embedding_scale(GRANITE["embedding_multiplier"])
        writer.add_attention_scale(GRANITE["attention_multiplier"])
        writer.add_residual_scale(GRANITE["residual_multiplier"])
        writer.add_logit_scale(GRANITE["logits_scaling"])
    if shape.arch == "jamba":
        writer.add_expert_count(shape.experts or 1)
        writer.add_expert_used_count(shape.top_k or 1)
        return
    if not shape.experts:
        return
    writer.add_expert_count(shape.experts)
    writer.add_expert_used_count(shape.top_k)
    writer.add_expert_shared_feed_forward_length(shape.shared)
    if shape.arch in NEMOTRON:
        writer.add_expert_feed_forward_length(shape.inner)
        writer.add_expert_shared_count(1)
        writer.add_expert_weights_norm(True)
        writer.add_expert_weights_scale(shape.scale)
        writer.add_expert_group_count(1)
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        if shape.latent:
            writer.add_uint32(f"{shape.arch}.moe_latent_size", shape.latent)
    if shape.nextn:
        writer.add_nextn_predict_layers(shape.nextn)


def published(shape: Shape) -> dict:
    """Settings as in published folders."""
    older = dict(linear_attention="mamba", full_attention="attention")
    names = [older.get(kind, kind) for kind in kinds(shape)]
    if shape.arch == "nemotron_h_moe":
        return dict(layers_block_type=names, num_hidden_layers=shape.layers)
    if shape.arch == "nemotron_h":
        return dict(hybrid_override_pattern=shape.pattern, num_hidden_layers=shape.layers)
    if shape.arch == "bamba":
        return dict(attn_rotary_emb=shape.head // 2)
    return dict(layer_types=names) if shape.arch == "granitehybrid" else {}


def dropped(shape: Shape) -> list:
    """Settings of transformers that published folders lack."""
    if shape.arch == "nemotron_h":
        return ["layers_block_type", "num_experts_per_tok", "n_routed_experts", "moe_intermediate_size", "n_group",
                "topk_group"]
    return []


def published_state(shape: Shape, model) -> dict:
    """Parameters by their names in published folders."""
    state = {}
    for name, weight in model.state_dict().items():
        if shape.arch in NEMOTRON:
            name = name.replace("model.", "backbone.", 1)
        base, _, last = name.rpartition(".")
        if base.endswith("feed_forward.experts"):
            parts = [(last, weight)] if last == "down_proj" else zip(("gate_proj", "up_proj"), weight.chunk(2, dim=1))
            state |= {f"{base}.{i}.{part}.weight": one.clone() for part, of_all in parts for i, one in enumerate(of_all)}
        elif base.endswith("mixer.experts"):
            state |= {f"{base}.{i}.{last}.weight": one.clone() for i, one in enumerate(weight)}
        else:
            state[name] = weight
    return state
