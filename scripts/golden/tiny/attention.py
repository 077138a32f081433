"""Families that differ from `llama` in their attention and norms: models of transformers, tensors and keys."""

from .shapes import Shape

FAMILIES = ("seed_oss", "smollm3")
# Q and K as pairs of neighbours.
PERMUTED = ("smollm3",)


def build(shape: Shape, common: dict, head: dict, moe: dict):
    """The model of transformers, with zeros for weights."""
    import transformers as t

    dense = dict(intermediate_size=shape.inner)
    if shape.arch == "seed_oss":
        return t.SeedOssForCausalLM(t.SeedOssConfig(**dense, **head, **common))
    return t.SmolLM3ForCausalLM(t.SmolLM3Config(pad_token_id=None, **dense, **common))


def norms(shape: Shape) -> list:
    """The norms of a layer's rows."""
    if shape.arch == "seed_oss":
        return [("attn_norm", "input_layernorm"), ("post_attention_norm", "post_attention_layernorm")]
    return [("attn_norm", "input_layernorm"), ("ffn_norm", "post_attention_layernorm")]


def attention(shape: Shape) -> list:
    q, k = (shape.heads, shape.kv_heads) if shape.arch in PERMUTED else (0, 0)
    rows = []
    for kind in ["weight", "bias"] if shape.bias else ["weight"]:
        rows += [(f"attn_q.{kind}", f"self_attn.q_proj.{kind}", q), (f"attn_k.{kind}", f"self_attn.k_proj.{kind}", k),
                 (f"attn_v.{kind}", f"self_attn.v_proj.{kind}", 0)]
    return [*rows, ("attn_output.weight", "self_attn.o_proj.weight", 0)]


def mlp(shape: Shape, layer: int) -> list:
    return [(f"ffn_{part}.weight", f"mlp.{part}_proj.weight", 0) for part in ("gate", "up", "down")]


def names(shape: Shape) -> list:
    """GGUF name, transformers name, and the heads by which rows are permuted (0: not at all)."""
    table = [("token_embd.weight", "model.embed_tokens.weight", 0), ("output_norm.weight", "model.norm.weight", 0)]
    if not shape.tied:
        table.append(("output.weight", "lm_head.weight", 0))
    for i in range(shape.layers):
        rows = [(f"{ours}.weight", f"{theirs}.weight", 0) for ours, theirs in norms(shape)]
        rows += attention(shape) + mlp(shape, i)
        table += [(f"blk.{i}.{ours}", f"model.layers.{i}.{theirs}", how) for ours, theirs, how in rows]
    return table


def write_keys(writer, shape: Shape) -> None:
    """The keys that these families have besides those of others."""
    if shape.arch == "smollm3":
        writer.add_rope_dimension_count(shape.head)
        writer.add_vocab_size(288)
