"""Trains a prediction head for the model, whose weights stay as they are, on text that the model itself samples.

    python train_head.py --trunk work/trunk.npz --out work/head.npz --sample-minutes 1 --minutes 4

The head is that of DeepSeek-V3 (https://arxiv.org/abs/2412.19437, section 2.2): from the model's last hidden state of
token t, after the final norm, and the embedding of token t + 1, one decoder block predicts token t + 2 with the model's
output matrix. To predict further, the head's own output takes the place of the hidden state; DEPTH such steps are
trained, in the manner of HASS (https://arxiv.org/abs/2408.15766). The targets are the model's own probabilities.

Needs torch and numpy alone. Prints, for greedy stories that are not trained on, how often each step's most likely token
is the model's own while all steps before it were right.
"""

import argparse
import pathlib
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from model import EOS, HEAD, HEADS, HIDDEN, KV_HEADS, LAYERS, Attention, Model, Norm, matrix

SEED, INNER, DEPTH, LENGTH = 1, 768, 3, 320
# Of three rows, one is sampled as it is, one with a sharper distribution, and one is greedy after its start.
TEMPERATURES, MIN_P, START = (1.0, 0.7, 0.0), 0.1, 16


# ── the model ──

def load_trunk(path) -> Model:
    """The model whose weights head_gguf.py has unpacked."""
    tensors = {n: torch.from_numpy(w.astype(np.float32)) for n, w in np.load(path).items()}
    names = {"attention_norm.weight": "attn_norm", "experts_norm.weight": "ffn_norm", "attention.q": "attn_q",
             "attention.k": "attn_k", "attention.v": "attn_v", "attention.o": "attn_output",
             "attention.q_norm.weight": "attn_q_norm", "attention.k_norm.weight": "attn_k_norm",
             "experts.router": "ffn_gate_inp", "experts.gate": "ffn_gate_exps", "experts.up": "ffn_up_exps",
             "experts.down": "ffn_down_exps"}
    theirs = {"embedding": "token_embd.weight", "norm.weight": "output_norm.weight"}
    theirs |= {f"layers.{i}.{ours}": f"blk.{i}.{name}.weight" for i in range(LAYERS) for ours, name in names.items()}
    model = Model()
    model.load_state_dict({n: tensors[theirs[n]].reshape(w.shape) for n, w in model.state_dict().items()})
    return model.requires_grad_(False)


def hidden_states(model, tokens):
    """The hidden states of rows of tokens, after the final norm."""
    cos, sin = model.cos[:tokens.shape[1]], model.sin[:tokens.shape[1]]
    x = F.embedding(tokens, model.embedding)
    for layer in model.layers:
        x = x + layer.attention(layer.attention_norm(x), cos, sin)
        x = x + layer.experts(layer.experts_norm(x))[0]
    return model.norm(x)


def split(x, weight):
    return F.linear(x, weight).unflatten(-1, (-1, HEAD)).transpose(1, 2)


def rotate(t, cos, sin, kind):
    a, b = t.float().chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(kind)


@torch.no_grad()
def sample(model, rows, greedy, generator):
    """Rows of LENGTH tokens, each a story from its first token on, and what follows it; all greedy or of all kinds."""
    device = model.embedding.device
    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    cache = torch.zeros(LAYERS, 2, rows, KV_HEADS, LENGTH + 1, HEAD, dtype=kind, device=device)
    tokens = torch.full((rows, LENGTH + 1), EOS, device=device)
    temperature = torch.tensor(TEMPERATURES, device=device)[torch.arange(rows, device=device) % 3]
    temperature = (torch.zeros_like(temperature) if greedy else temperature)[:, None]
    for at in range(LENGTH):
        x = F.embedding(tokens[:, at:at + 1], model.embedding)
        for layer, (keys, values) in zip(model.layers, cache):
            part, y = layer.attention, layer.attention_norm(x)
            angles = model.cos[at:at + 1], model.sin[at:at + 1]
            q = rotate(part.q_norm(split(y, part.q)), *angles, kind)
            keys[:, :, at:at + 1] = rotate(part.k_norm(split(y, part.k)), *angles, kind)
            values[:, :, at:at + 1] = split(y, part.v)
            y = F.scaled_dot_product_attention(q, keys[:, :, :at + 1], values[:, :, :at + 1], enable_gqa=True)
            x = x + F.linear(y.transpose(1, 2).flatten(-2).to(x.dtype), part.o)
            x = x + layer.experts(layer.experts_norm(x))[0]
        logits = F.linear(model.norm(x), model.embedding)[:, 0].float()
        heat = torch.ones_like(temperature) if at < START else temperature
        logits = logits / heat.clamp_min(1e-6)
        # A greedy row keeps its most likely token alone.
        least = logits.amax(-1, keepdim=True) + torch.where(heat == 1, -torch.inf, np.log(MIN_P))
        logits = logits.masked_fill(logits < least, -torch.inf)
        noise = torch.empty_like(logits).exponential_(generator=generator).clamp_min(1e-20)
        tokens[:, at + 1] = (logits - noise.log()).argmax(-1)
    # A prompt does not begin with the end of another story.
    return tokens[:, 1:].to(torch.int16)


# ── the head ──

class Head(nn.Module):
    """One prediction head. Norms start at 1, and the block as one that adds little."""

    def __init__(self):
        super().__init__()
        self.enorm, self.hnorm, self.norm = Norm(HIDDEN), Norm(HIDDEN), Norm(HIDDEN)
        self.join = matrix(HIDDEN, 2 * HIDDEN)
        self.attention_norm, self.attention, self.mlp_norm = Norm(HIDDEN), Attention(), Norm(HIDDEN)
        self.gate, self.up = matrix(INNER, HIDDEN), matrix(INNER, HIDDEN)
        self.down = matrix(HIDDEN, INNER, std=0.01)

    def forward(self, hidden, embedded, cos, sin, cache):
        """A step at each position. `cache` has the keys and values of the steps before it: those of the first step
        serve all positions before the chain, each later step the position that it is at. The step adds its own."""
        x = F.linear(torch.cat([self.enorm(embedded), self.hnorm(hidden)], -1), self.join)
        part, y = self.attention, self.attention_norm(x)
        v = split(y, part.v)
        q, k = (rotate(norm(split(y, weight)), cos, sin, v.dtype)
                for norm, weight in ((part.q_norm, part.q), (part.k_norm, part.k)))
        cache.append((k, v))
        x = x + F.linear(attend(q, cache).transpose(1, 2).flatten(-2), part.o)
        y = self.mlp_norm(x)
        x = x + F.linear(F.silu(F.linear(y, self.gate)) * F.linear(y, self.up), self.down)
        return self.norm(x)


def attend(q, cache):
    """Attention of the last step in `cache`: at position i, step number s sees the keys of the first step up to
    i - s, and those of step d at position i - s + d."""
    step, length, group = len(cache) - 1, q.shape[2], HEADS // KV_HEADS
    k, v = cache[0]
    if step == 0:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    q = q.unflatten(1, (KV_HEADS, group)) * HEAD ** -0.5
    seen = torch.ones(length, length, dtype=torch.bool, device=q.device).tril(-step)
    scores = [torch.einsum("bkgqd,bksd->bkgqs", q, k).masked_fill(~seen, -torch.inf)]
    own = [tuple(t.roll(step - d, 2) for t in cache[d]) for d in range(1, step + 1)]
    scores += [torch.einsum("bkgqd,bkqd->bkgq", q, k)[..., None] for k, _ in own]
    weights = torch.cat(scores, -1).float().softmax(-1).to(v.dtype)
    out = torch.einsum("bkgqs,bksd->bkgqd", weights[..., :length], v)
    for d, (_, v) in enumerate(own):
        out = out + weights[..., length + d, None] * v[:, :, None]
    return out.flatten(1, 2)


def steps(model, head, tokens):
    """For each step of the chain: its logits and the model's, for the positions that have both. The first of step s is
    position s."""
    hidden = hidden_states(model, tokens)
    embedded, logits = F.embedding(tokens, model.embedding).roll(-1, 1), F.linear(hidden, model.embedding)
    cos, sin, cache, at = model.cos[:tokens.shape[1]], model.sin[:tokens.shape[1]], [], hidden
    for step in range(DEPTH):
        # Position i has the hidden state of token i, or after a step what the head made of token i - 1. It predicts
        # token i + 2, of which the model's state at i + 1 has the probabilities.
        at = head(at if step == 0 else at.roll(1, 1), embedded, cos, sin, cache)
        yield F.linear(at[:, step:-1], model.embedding), logits[:, step + 1:]


def loss_of(model, head, tokens):
    """Of each step, the divergence from the model's probabilities and the loss on its most likely token."""
    total = 0.0
    for step, (ours, theirs) in enumerate(steps(model, head, tokens)):
        ours, theirs = ours.float().flatten(0, 1).log_softmax(-1), theirs.float().flatten(0, 1)
        best = F.nll_loss(ours, theirs.argmax(-1))
        total = total + 0.8 ** step * (best + F.kl_div(ours, theirs.softmax(-1), reduction="batchmean"))
    return total


@torch.no_grad()
def acceptance(model, head, tokens):
    """By step: how often its most likely token is the next of a greedy text, if the steps before it were right."""
    right, shares = None, []
    for step, (ours, theirs) in enumerate(steps(model, head, tokens)):
        hit = ours.argmax(-1) == theirs.argmax(-1)
        # The step before it was at the position before.
        before = torch.ones_like(hit) if right is None else right[:, :-1]
        right = hit & before
        shares.append((right[:, START:].sum() / before[:, START:].sum().clamp_min(1)).item())
    return shares


def rate(share, peak):
    """Warm-up over a fiftieth of the time, then a half cosine down to zero."""
    return peak * min(1.0, share * 50 + 0.02) * 0.5 * (1 + np.cos(np.pi * min(share, 1.0)))


NAMES = {"join": "nextn.eh_proj", "enorm.weight": "nextn.enorm", "hnorm.weight": "nextn.hnorm",
         "norm.weight": "nextn.shared_head_norm", "attention_norm.weight": "attn_norm", "mlp_norm.weight": "ffn_norm",
         "attention.q": "attn_q", "attention.k": "attn_k", "attention.v": "attn_v", "attention.o": "attn_output",
         "attention.q_norm.weight": "attn_q_norm", "attention.k_norm.weight": "attn_k_norm", "gate": "ffn_gate",
         "up": "ffn_up", "down": "ffn_down"}


def main():
    arg = argparse.ArgumentParser()
    arg.add_argument("--trunk", type=pathlib.Path, required=True)
    arg.add_argument("--out", type=pathlib.Path, required=True)
    arg.add_argument("--sample-minutes", type=float, default=1)
    arg.add_argument("--minutes", type=float, default=4)
    arg.add_argument("--sample-rows", type=int, default=6144)
    arg.add_argument("--rows", type=int, default=96)
    arg.add_argument("--rate", type=float, default=2e-3)
    arg = arg.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(SEED)
    torch.set_float32_matmul_precision("high")
    model, head = load_trunk(arg.trunk).to(device), Head().to(device)
    generator = torch.Generator(device).manual_seed(SEED)

    def autocast():
        return torch.autocast(device, torch.bfloat16, enabled=device == "cuda")

    begin, parts = time.time(), []
    with autocast():
        held_out = sample(model, min(arg.sample_rows, 512), True, generator).long()
        while not parts or time.time() - begin < arg.sample_minutes * 60:
            parts.append(sample(model, arg.sample_rows, False, generator))
    tokens = torch.cat(parts)
    print(f"{tokens.numel()} tokens sampled in {time.time() - begin:.0f} s", flush=True)

    def measured():
        with autocast():
            shares = [acceptance(model, head, rows) for rows in held_out.split(arg.rows)]
        return " ".join(f"{100 * np.mean(share):.1f} %" for share in zip(*shares))

    plain = [p for p in head.parameters() if p.dim() == 1]
    others = [p for p in head.parameters() if p.dim() > 1]
    optimizer = torch.optim.AdamW([dict(params=others, weight_decay=0.1), dict(params=plain, weight_decay=0.0)],
                                  betas=(0.9, 0.95), fused=device == "cuda")
    begin, step = time.time(), 0
    order = torch.Generator().manual_seed(SEED)
    while (share := (time.time() - begin) / (arg.minutes * 60)) < 1:
        rows = torch.randint(len(tokens), (arg.rows,), generator=order).to(device)
        with autocast():
            loss = loss_of(model, head, tokens[rows].long())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = rate(share, arg.rate)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step % 500 == 0:
            print(f"step {step} loss {loss.item():.4f} accepted by place {measured()} "
                  f"{time.time() - begin:.0f} s", flush=True)
    print(f"step {step}, {step * arg.rows * LENGTH} tokens seen; accepted by place {measured()}", flush=True)
    weights = {NAMES[n]: w.detach().float().cpu().numpy().astype(np.float16) for n, w in head.state_dict().items()}
    arg.out.parent.mkdir(parents=True, exist_ok=True)
    np.savez(arg.out, **weights)


if __name__ == "__main__":
    main()
