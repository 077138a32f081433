"""Writing the files: models and logits."""

import pathlib

import gguf
import numpy as np

from . import attention, gemma4, ik, kda, latent, mamba, plain, recurrent, shapes
from .shapes import ATTENTION_CAP, CONTEXT, EPS, GRANITE, LINEAR, LOGIT_CAP, LLAMA3, LONG, SHORT, UNTRUNCATED, YARN, Shape


def write_model(path: pathlib.Path, shape: Shape, tensors: dict) -> None:
    architecture = {"mixtral": "llama", "bamba": "granitehybrid", **latent.ARCHITECTURES}.get(shape.arch, shape.arch)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(path.stem)
    if shape.arch in mamba.FAMILIES:
        mamba.write_keys(writer, shape)
    else:
        write_keys(writer, shape)
    vocabulary(writer)
    for name, (data, kind) in tensors.items():
        if isinstance(kind, ik.Type):
            # The writer computes the shape of unsigned bytes from the sizes of the types that it has.
            columns = (data.shape[-1] - ik.SIZES[kind.name][0]) // ik.SIZES[kind.name][1] * ik.BLOCK
            writer.add_tensor(name, data.view(np.int8), raw_shape=(*data.shape[:-1], columns), raw_dtype=kind)
        else:
            writer.add_tensor(name, data, raw_dtype=kind)
    finish(writer)


def write_keys(writer: gguf.GGUFWriter, shape: Shape) -> None:
    writer.add_block_count(shape.layers + shape.nextn)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(shape.hidden)
    inner = 3 * shape.inner if shape.dense or shape.arch == "llama4" else shape.beside or shape.inner
    writer.add_feed_forward_length(gemma4.widths(shape) if shape.shares else inner)
    of_layers = plain.heads if shape.arch in plain.FAMILIES else attention.heads
    writer.add_head_count(of_layers(shape) if shape.full_heads else shape.heads)
    kv_heads = [shape.kv_heads if i in (*shape.full, *range(shape.layers, shape.layers + shape.nextn)) else 0
                for i in range(shape.layers + shape.nextn)]
    if shape.arch == "gemma4":
        kv_heads = [shape.kv_heads if window else shape.full_kv_heads or shape.kv_heads for window in gemma4.windowed(shape)]
    if shape.arch == "mimo2":
        kv_heads = plain.kv_heads(shape)
    several = shape.arch in (*recurrent.LFM2, *kda.FAMILIES, "mimo2") or shape.full_kv_heads
    writer.add_head_count_kv(kv_heads if several else shape.kv_heads)
    if shape.arch in recurrent.FAMILIES:
        recurrent.write_keys(writer, shape)
    if shape.arch in plain.FAMILIES and (keys := plain.FAMILIES[shape.arch].keys):
        keys(writer, shape)
    if shape.arch in attention.FAMILIES:
        attention.write_keys(writer, shape)
    if shape.arch in latent.FAMILIES:
        latent.write_keys(writer, shape)
    elif shape.arch in kda.FAMILIES:
        kda.write_keys(writer, shape)
    else:
        writer.add_key_length(shape.full_head or shape.head)
        writer.add_value_length(shape.value or shape.full_head or shape.head)
    if shape.arch not in attention.FAMILIES:
        writer.add_layer_norm_rms_eps(EPS)
    writer.add_rope_freq_base(shape.theta)
    if shape.arch in ("llama", "mixtral", "granite", "granitemoe", "deepseek"):
        writer.add_rope_dimension_count(shape.head)
        writer.add_vocab_size(shapes.VOCAB)
    if shape.experts:
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(shape.top_k)
        if shape.arch not in ("mixtral", "granitemoe", "phimoe"):
            writer.add_expert_feed_forward_length(shape.inner)
    if shape.arch == "deepseek":
        writer.add_leading_dense_block_count(shape.dense)
        writer.add_expert_shared_count(shape.shared // shape.inner)
        writer.add_expert_weights_scale(shapes.ROUTED_SCALE)
        writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
    elif shape.arch in ("glm4moe", "dots1"):
        writer.add_leading_dense_block_count(shape.dense)
        writer.add_expert_shared_count(shape.shared // shape.inner)
        writer.add_expert_weights_scale(shape.scale)
        writer.add_expert_weights_norm(True)
        writer.add_expert_group_count(shape.groups)
        writer.add_expert_group_used_count((shape.groups + 1) // 2)
    elif shape.arch == "ernie4_5-moe":
        writer.add_leading_dense_block_count(shape.dense)
        writer.add_interleave_moe_layer_step(1)
        writer.add_expert_shared_count(shape.shared // shape.inner)
        if shape.shared:
            writer.add_expert_shared_feed_forward_length(shape.shared)
    elif shape.shared and shape.arch not in (*latent.FAMILIES, *kda.FAMILIES, "minimax-m3"):
        writer.add_expert_shared_feed_forward_length(shape.shared)
    if shape.arch in ("glm4moe", "minimax-m2", "dots1", "lfm2moe", "hy_v3", "step35", "minimax-m3"):
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    if shape.rotary:
        writer.add_rope_dimension_count(shape.rotary)
    if "mrope_section" in shape.rope:
        writer.add_rope_dimension_sections([*shape.rope["mrope_section"], 0])
    if shape.nextn:
        writer.add_nextn_predict_layers(shape.nextn)
    if shape.arch in ("granite", "granitemoe"):
        writer.add_embedding_scale(GRANITE["embedding_multiplier"])
        writer.add_attention_scale(GRANITE["attention_multiplier"])
        writer.add_residual_scale(GRANITE["residual_multiplier"])
        writer.add_logit_scale(GRANITE["logits_scaling"])
    if shape.arch == "gemma2":
        writer.add_attn_logit_softcapping(ATTENTION_CAP)
        writer.add_final_logit_softcapping(LOGIT_CAP)
    if shape.window:
        writer.add_sliding_window(shape.window)
    if shape.arch == "gemma4":
        gemma4.write_keys(writer, shape)
    elif shape.period and shape.arch not in attention.FAMILIES and shape.arch not in plain.FAMILIES:
        writer.add_sliding_window_pattern(shape.period)
    if shape.arch == "phimoe":
        writer.add_sliding_window(0)
        writer.add_rope_dimension_count(shape.head)
        writer.add_rope_scaling_orig_ctx_len(shape.rope["original_max_position_embeddings"])
        writer.add_rope_scaling_attn_factors(shape.rope["short_mscale"])
        writer.add_tensor("rope_factors_long.weight", np.array(LONG, np.float32))
        writer.add_tensor("rope_factors_short.weight", np.array(SHORT, np.float32))
    if shape.rope in (LINEAR, YARN, UNTRUNCATED):
        writer.add_rope_scaling_type(gguf.RopeScalingType(shape.rope["rope_type"]))
        writer.add_rope_scaling_factor(shape.rope["factor"])
    if shape.rope in (YARN, UNTRUNCATED):
        writer.add_rope_scaling_orig_ctx_len(shape.rope["original_max_position_embeddings"])
    if shape.rope is UNTRUNCATED:
        writer.add_rope_scaling_yarn_beta_fast(shape.rope["beta_fast"])
    if shape.rope is LLAMA3:
        writer.add_tensor("rope_freqs.weight", llama3_factors(shape))


def llama3_factors(shape: Shape) -> np.ndarray:
    """What each pair's frequency is divided by (Llama 3.1's rule)."""
    width = shape.head // 2 if shape.arch == "step35" else shape.head
    rule, frequency = LLAMA3, shape.theta ** -(np.arange(0, width, 2) / width)
    length = 2 * np.pi / frequency
    low = rule["original_max_position_embeddings"] / rule["low_freq_factor"]
    high = rule["original_max_position_embeddings"] / rule["high_freq_factor"]
    smooth = (rule["original_max_position_embeddings"] / length - rule["low_freq_factor"]) / (
        rule["high_freq_factor"] - rule["low_freq_factor"])
    between = 1 / ((1 - smooth) / rule["factor"] + smooth)
    factors = np.where(length < high, 1.0, np.where(length > low, rule["factor"], between))
    assert (factors == 1).any() and (factors == rule["factor"]).any(), factors
    return np.pad(factors, (0, (shape.head - width) // 2), constant_values=1).astype(np.float32)


def vocabulary(writer: gguf.GGUFWriter) -> None:
    """Bytes, pairs of letters, one special token."""
    printable = [b for b in range(256) if 0x21 <= b <= 0x7E or 0xA1 <= b <= 0xAC or 0xAE <= b]
    tokens = [chr(b) for b in printable] + [chr(256 + i) for i in range(256 - len(printable))]
    merges = [f"a {chr(97 + i)}" for i in range(26)] + [f"b {chr(97 + i)}" for i in range(5)]
    tokens += [merge.replace(" ", "") for merge in merges] + ["<|end|>"]
    assert len(tokens) == shapes.VOCAB
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (shapes.VOCAB - 1) + [3])
    writer.add_token_merges(merges)
    writer.add_eos_token_id(shapes.VOCAB - 1)
    writer.add_add_bos_token(False)


def write_logits(path: pathlib.Path, tolerance: float, sequences: list, logits: list) -> None:
    writer = gguf.GGUFWriter(path, "golden")
    writer.add_float32("golden.tolerance", tolerance)
    for i, (tokens, values) in enumerate(zip(sequences, logits)):
        writer.add_array(f"golden.tokens.{i}", [int(t) for t in tokens])
        writer.add_tensor(f"logits.{i}", values.numpy())
    finish(writer)


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
