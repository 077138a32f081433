"""The model: transformers' Qwen3MoeForCausalLM, written so that it trains fast, with a load-balancing loss.

Every expert computes every token, and those that the router did not choose are weighted with zero. That is four times
the arithmetic, but it is three plain matrix products; at this size they are faster than gathering tokens by expert.
"""

import json
import pathlib

import torch
import torch.nn.functional as F
from torch import nn

CONFIG = dict(
    architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", vocab_size=4096, hidden_size=256,
    num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=64, num_experts=16,
    num_experts_per_tok=4, moe_intermediate_size=256, intermediate_size=256, norm_topk_prob=True,
    decoder_sparse_step=1, mlp_only_layers=[], attention_bias=False, hidden_act="silu", rms_norm_eps=1e-6,
    rope_theta=10000.0, rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    max_position_embeddings=512, tie_word_embeddings=True, use_sliding_window=False, eos_token_id=0,
    bos_token_id=None, pad_token_id=0, dtype="bfloat16",
)
VOCAB, HIDDEN, LAYERS = CONFIG["vocab_size"], CONFIG["hidden_size"], CONFIG["num_hidden_layers"]
HEADS, KV_HEADS, HEAD = CONFIG["num_attention_heads"], CONFIG["num_key_value_heads"], CONFIG["head_dim"]
EXPERTS, TOP_K, INNER = CONFIG["num_experts"], CONFIG["num_experts_per_tok"], CONFIG["moe_intermediate_size"]
EPS, CONTEXT, EOS = CONFIG["rms_norm_eps"], CONFIG["max_position_embeddings"], CONFIG["eos_token_id"]


def matrix(*shape, std=0.02):
    return nn.Parameter(torch.randn(*shape) * std)


class Norm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return F.rms_norm(x.float(), self.weight.shape, self.weight, EPS).to(x.dtype)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = matrix(HEADS * HEAD, HIDDEN), matrix(KV_HEADS * HEAD, HIDDEN), matrix(KV_HEADS * HEAD, HIDDEN)
        self.o = matrix(HIDDEN, HEADS * HEAD, std=0.02 / (2 * LAYERS) ** 0.5)
        self.q_norm, self.k_norm = Norm(HEAD), Norm(HEAD)

    def forward(self, x, cos, sin):
        def heads(weight):
            return F.linear(x, weight).unflatten(-1, (-1, HEAD)).transpose(1, 2)

        def rotate(t):
            a, b = t.float().chunk(2, -1)
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(v.dtype)

        v = heads(self.v)
        q, k = rotate(self.q_norm(heads(self.q))), rotate(self.k_norm(heads(self.k)))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return F.linear(out.transpose(1, 2).flatten(-2), self.o)


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = matrix(EXPERTS, HIDDEN)
        self.gate, self.up = matrix(EXPERTS * INNER, HIDDEN), matrix(EXPERTS * INNER, HIDDEN)
        self.down = matrix(EXPERTS, HIDDEN, INNER, std=0.02 / (2 * LAYERS) ** 0.5)

    def forward(self, x):
        """The output, the share of the slots that each expert took (they sum to 1), and the balance loss."""
        with torch.autocast(x.device.type, enabled=False):
            p = F.linear(x.float(), self.router.float()).softmax(-1)
        top, chosen = p.topk(TOP_K, -1)
        weights = torch.zeros_like(p).scatter(-1, chosen, top / top.sum(-1, keepdim=True))
        share = torch.zeros_like(p).scatter(-1, chosen, 1.0).flatten(0, -2).mean(0) / TOP_K
        balance = EXPERTS * (share * p.flatten(0, -2).mean(0)).sum()  # 1 when even (Switch Transformer, equation 4)
        inner = F.silu(F.linear(x, self.gate)) * F.linear(x, self.up)
        inner = inner.unflatten(-1, (EXPERTS, INNER)) * weights[..., None].to(inner.dtype)
        return F.linear(inner.flatten(-2), self.down.transpose(0, 1).flatten(1)), share, balance


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.attention = Norm(HIDDEN), Attention()
        self.experts_norm, self.experts = Norm(HIDDEN), Experts()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.norm = matrix(VOCAB, HIDDEN), Norm(HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        angles = torch.arange(CONTEXT)[:, None] * CONFIG["rope_theta"] ** (-torch.arange(0, HEAD, 2) / HEAD)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens):
        """Logits, each layer's shares of its experts, and the sum of their balance losses."""
        cos, sin = self.cos[:tokens.shape[1]], self.sin[:tokens.shape[1]]
        x, shares, balances = F.embedding(tokens, self.embedding), [], []
        for layer in self.layers:
            x = x + layer.attention(layer.attention_norm(x), cos, sin)
            y, share, balance = layer.experts(layer.experts_norm(x))
            x = x + y
            shares.append(share)
            balances.append(balance)
        return F.linear(self.norm(x), self.embedding), torch.stack(shares), torch.stack(balances).sum()


# ── transformers' names ──

NAMES = {"embedding": "model.embed_tokens.weight", "norm.weight": "model.norm.weight"}
for i in range(LAYERS):
    ours, theirs = f"layers.{i}.", f"model.layers.{i}."
    NAMES |= {ours + "attention_norm.weight": theirs + "input_layernorm.weight",
              ours + "experts_norm.weight": theirs + "post_attention_layernorm.weight",
              ours + "experts.router": theirs + "mlp.gate.weight"}
    NAMES |= {f"{ours}attention.{n}": f"{theirs}self_attn.{n}_proj.weight" for n in "qkvo"}
    NAMES |= {f"{ours}attention.{n}.weight": f"{theirs}self_attn.{n}.weight" for n in ("q_norm", "k_norm")}
    NAMES |= {f"{ours}experts.{n}": f"{theirs}mlp.experts.#.{n}_proj.weight" for n in ("gate", "up", "down")}


def save(model: Model, folder: pathlib.Path, shards=4):
    """Writes config.json and bfloat16 safetensors in shards, with transformers' names: one tensor for each expert."""
    from safetensors.torch import save_file
    out = {}
    for name, weight in model.state_dict().items():
        weight = weight.detach().to("cpu", torch.bfloat16)
        if "#" in NAMES[name]:
            for e, part in enumerate(weight.reshape(EXPERTS, -1, weight.shape[-1])):
                out[NAMES[name].replace("#", str(e))] = part.clone()
        else:
            out[NAMES[name]] = weight
    files = {name: f"model-{i * shards // len(out) + 1:05}-of-{shards:05}.safetensors" for i, name in enumerate(out)}
    folder.mkdir(parents=True, exist_ok=True)
    for file in set(files.values()):
        save_file({n: w for n, w in out.items() if files[n] == file}, folder / file, {"format": "pt"})
    size = sum(w.nbytes for w in out.values())
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": size}, "weight_map": files}, indent=1))
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1))


def load(folder: pathlib.Path) -> Model:
    """The model that `save` wrote, in float32."""
    from safetensors.torch import load_file
    tensors = {n: w.float() for file in sorted(folder.glob("*.safetensors")) for n, w in load_file(file).items()}
    model, state = Model(), {}
    for name, weight in model.state_dict().items():
        theirs = NAMES[name]
        parts = [tensors[theirs.replace("#", str(e))] for e in range(EXPERTS)] if "#" in theirs else [tensors[theirs]]
        state[name] = torch.stack(parts).reshape(weight.shape)
    model.load_state_dict(state)
    return model
