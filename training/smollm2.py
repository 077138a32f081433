"""SmolLM2-135M-Instruct in PyTorch from its GGUF file: whole texts, and one token at a time in large batches."""

import gguf
import numpy as np
import torch
import torch.nn.functional as F
from gguf.quants import dequantize
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD, EPS, THETA = 30, 576, 9, 3, 64, 1e-5, 100_000.0
EOS = 2  # <|im_end|>


def rope(x, angles):
    """Rotates the halves of each head; `angles` has one row for each row of x, or for each position."""
    a, b = x.float().chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)


def block(x, w, attend):
    """One layer; attend(q, k, v) returns the heads' output."""
    q, k, v = (F.rms_norm(x, (HIDDEN,), w["attn_norm"], EPS) @ w["qkv"].T).split(
        [HEADS * HEAD, KV_HEADS * HEAD, KV_HEADS * HEAD], -1)
    x = x + attend(q.unflatten(-1, (HEADS, HEAD)), k.unflatten(-1, (KV_HEADS, HEAD)),
                   v.unflatten(-1, (KV_HEADS, HEAD))).flatten(-2) @ w["attn_output"].T
    gate, up = (F.rms_norm(x, (HIDDEN,), w["ffn_norm"], EPS) @ w["gate_up"].T).chunk(2, -1)
    return x + (F.silu(gate) * up) @ w["ffn_down"].T


class SmolLM2:
    def __init__(self, path, device, dtype=torch.bfloat16):
        reader = gguf.GGUFReader(path)
        tensors = {t.name: t for t in reader.tensors}

        def weight(name, heads=0):
            t = tensors[name]
            w = dequantize(t.data, t.tensor_type).astype(np.float32)
            if heads:  # GGUF keeps each pair that rotates side by side; we want halves
                w = w.reshape(heads, -1, 2, w.shape[-1]).swapaxes(1, 2).reshape(w.shape)
            return torch.from_numpy(np.ascontiguousarray(w)).to(device, dtype)

        self.device, self.dtype = device, dtype
        self.embedding, self.norm = weight("token_embd.weight"), weight("output_norm.weight")
        self.layers = []
        for i in range(LAYERS):
            b = f"blk.{i}."
            w = {n: weight(f"{b}{n}.weight") for n in ("attn_norm", "attn_output", "ffn_norm", "ffn_down")}
            w["qkv"] = torch.cat([weight(b + "attn_q.weight", HEADS), weight(b + "attn_k.weight", KV_HEADS),
                                  weight(b + "attn_v.weight")])
            w["gate_up"] = torch.cat([weight(b + "ffn_gate.weight"), weight(b + "ffn_up.weight")])
            self.layers.append(w)
        self.frequencies = THETA ** (-torch.arange(0, HEAD, 2, device=device) / HEAD)
        self.tokenizer = tokenizer(reader)

    def forward(self, tokens):
        """Logits of all positions: [batch, length] to [batch, length, vocabulary]."""
        angles = torch.arange(tokens.shape[1], device=self.device)[:, None] * self.frequencies

        def attend(q, k, v):
            q, k, v = (t.transpose(1, 2) for t in (q, k, v))
            return F.scaled_dot_product_attention(rope(q, angles), rope(k, angles), v, is_causal=True,
                                                  enable_gqa=True).transpose(1, 2)

        x = self.embedding[tokens]
        for w in self.layers:
            x = block(x, w, attend)
        return F.rms_norm(x, (HIDDEN,), self.norm, EPS) @ self.embedding.T

    @torch.no_grad()
    def loss(self, text):
        """Mean loss of a text's tokens after the first, in nats."""
        ids = torch.tensor([self.tokenizer.encode(text).ids], device=self.device)
        return F.cross_entropy(self.forward(ids)[0, :-1].float(), ids[0, 1:]).item()


def tokenizer(reader) -> Tokenizer:
    """The file's own byte-level BPE."""
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    merges = reader.fields["tokenizer.ggml.merges"].contents()
    kinds = reader.fields["tokenizer.ggml.token_type"].contents()
    out = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, [tuple(m.split(" ")) for m in merges]))
    out.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    out.decoder = decoders.ByteLevel()
    out.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, k in zip(tokens, kinds) if k == 3])
    return out
