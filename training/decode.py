"""One step of SmolLM2 for a large batch in which every row is at its own position.

A row's prompt is fed through the same step, one token at a time, so there is no prefill to write: its next token is
taken from the prompt as long as there is one.
"""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from smollm2 import EOS, EPS, HEAD, HIDDEN, HEADS, KV_HEADS, LAYERS, block, rope

GROUP = HEADS // KV_HEADS
RUN, REPEATING, ENDING, TOLD = 4, 2.0, 3.0, 75


@triton.jit
def attention_kernel(q, keys, values, position, out, length: tl.constexpr, group: tl.constexpr, size: tl.constexpr,
                     step: tl.constexpr):
    """One row and one KV head: its group of queries over the row's first position + 1 entries, with online softmax."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    heads = tl.num_programs(1)
    last = tl.load(position + row)
    i, d, t = tl.arange(0, 16), tl.arange(0, size), tl.arange(0, step)
    at = ((row * heads + head) * group + i[:, None]) * size + d[None, :]
    query = tl.load(q + at, mask=i[:, None] < group, other=0.0)
    base = (row * heads + head) * length * size
    best = tl.full([16], -1e30, tl.float32)
    total = tl.zeros([16], tl.float32)
    result = tl.zeros([16, size], tl.float32)
    for start in range(0, last + 1, step):
        seen = (start + t) <= last
        cell = base + (start + t)[:, None] * size + d[None, :]
        k = tl.load(keys + cell, mask=seen[:, None], other=0.0)
        v = tl.load(values + cell, mask=seen[:, None], other=0.0)
        score = tl.dot(query, tl.trans(k)) * (size ** -0.5)
        score = tl.where(seen[None, :], score, -1e30)
        new = tl.maximum(best, tl.max(score, 1))
        weight = tl.exp(score - new[:, None])
        shrink = tl.exp(best - new)
        total = total * shrink + tl.sum(weight, 1)
        result = result * shrink[:, None] + tl.dot(weight.to(v.dtype), v)
        best = new
    tl.store(out + at, (result / total[:, None]).to(out.dtype.element_ty), mask=i[:, None] < group)


def attention(q, keys, values, position):
    """q [rows, HEADS, HEAD] over keys and values [rows, KV_HEADS, length, HEAD], up to each row's position."""
    rows, length = q.shape[0], keys.shape[2]
    if q.is_cuda:
        q, out = q.contiguous(), torch.empty(q.shape, dtype=q.dtype, device=q.device)
        attention_kernel[(rows, KV_HEADS)](q, keys, values, position, out, length, GROUP, HEAD, 64, num_warps=2)
        return out
    seen = torch.arange(length, device=q.device) <= position[:, None]
    return F.scaled_dot_product_attention(q.unflatten(1, (KV_HEADS, GROUP)), keys, values, seen[:, None, None]).flatten(1, 2)


def cached_block(x, w, keys, values, position, angles):
    """A layer for one token of every row; keys and values are written at the row's position."""
    def attend(q, k, v):
        rows = torch.arange(x.shape[0], device=x.device)
        keys[rows, :, position] = rope(k, angles)
        values[rows, :, position] = v
        return attention(rope(q, angles), keys, values, position)
    return block(x, w, attend)


def draw(logits, temperature, min_p):
    """Samples by adding Gumbel noise; tokens less likely than min_p times the likeliest are left out."""
    z = logits.float() / temperature
    z = torch.where(z < z.amax(-1, keepdim=True) + min_p.log(), -torch.inf, z)
    return (z - torch.log(-torch.log(torch.rand_like(z).clamp_min(1e-20)))).argmax(-1)


def surprise(logits, token):
    """How unlikely each row's token was to the model itself, in nats."""
    return logits.float().logsumexp(-1) - logits.gather(1, token[:, None])[:, 0].float()


def steer(logits, tokens, position, prompt):
    """Makes runs of four tokens that were there before less likely, and the end more likely once a story is told.

    Left alone, a model this small talks in circles and seldom stops.
    """
    logits = logits.clone()
    last = tokens.gather(1, (position[:, None] - torch.arange(RUN - 2, -1, -1, device=tokens.device)).clamp_min(0))
    again = (tokens.unfold(1, RUN - 1, 1)[:, :-1] == last[:, None]).all(-1)
    logits.scatter_add_(1, tokens[:, RUN - 1:], again.to(logits.dtype) * -REPEATING)
    logits[:, EOS] += ENDING * (position >= prompt + TOLD)
    return logits


class Batch:
    """Rows of tokens being written. `done` rows wait to be collected and replaced.

    All prompts begin with the same `shared` tokens: a row keeps their keys and values and begins its next story after them.
    """

    def __init__(self, model, rows, length, temperature, min_p, shared):
        zeros = lambda *shape, dtype=torch.long: torch.zeros(*shape, dtype=dtype, device=model.device)
        self.model, self.length, self.shared, self.first = model, length, shared, 0
        self.temperature, self.min_p = temperature, torch.tensor(min_p, device=model.device)
        self.tokens, self.position, self.prompt = zeros(rows, length), zeros(rows), zeros(rows)
        self.loss = zeros(rows, dtype=torch.float32)  # the sum over the written tokens
        self.done = torch.ones(rows, dtype=torch.bool, device=model.device)
        shape = (LAYERS, rows, KV_HEADS, length, HEAD)
        self.keys, self.values = zeros(*shape, dtype=model.dtype), zeros(*shape, dtype=model.dtype)
        compiled = torch.compile if model.device != "cpu" else (lambda f: f)
        self.block, self.draw, self.surprise = compiled(cached_block), compiled(draw), compiled(surprise)
        self.graph = None
        self.rows = torch.arange(rows, device=model.device)

    def logits(self):
        angles = self.position[:, None, None] * self.model.frequencies
        x = self.model.embedding[self.tokens[self.rows, self.position]]
        for w, k, v in zip(self.model.layers, self.keys, self.values):
            x = self.block(x, w, k, v, self.position, angles)
        return F.rms_norm(x, (HIDDEN,), self.model.norm, EPS) @ self.model.embedding.T

    def step(self):
        logits = self.logits()
        sampled = self.draw(steer(logits, self.tokens, self.position, self.prompt), self.temperature, self.min_p)
        at = (self.position + 1).clamp_max(self.length - 1)
        written = at >= self.prompt
        token = torch.where(written & ~self.done, sampled, self.tokens[self.rows, at])
        self.loss += (written & ~self.done) * self.surprise(logits, token)
        self.tokens[self.rows, at] = token
        self.position += (~self.done).long()
        self.done |= (written & (token == EOS)) | (self.position >= self.length - 1)

    @torch.no_grad()
    def steps(self, count):
        """Takes `count` steps, on a GPU as replays of one CUDA graph: launches would cost more than the work."""
        if self.model.device == "cpu":
            return [self.step() for _ in range(count)]
        if self.graph is None:
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                for _ in range(3):
                    self.step()
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.step()
        for _ in range(count):
            self.graph.replay()

    def finished(self):
        """The numbers of the rows that are done; where they ended by EOS, their tokens and the written ones' mean loss."""
        rows = self.done.nonzero()[:, 0]
        tokens, ends = self.tokens[rows].tolist(), self.position[rows].tolist()
        losses = (self.loss[rows] / (self.position[rows] - self.prompt[rows] + 1)).tolist()
        return rows, [(t[:end], loss) if t[end] == EOS else None for t, end, loss in zip(tokens, ends, losses)]

    def refill(self, rows, prompts):
        """Starts `rows` on new prompts (lists of tokens)."""
        if not prompts:
            return
        fresh = torch.zeros(len(prompts), self.length, dtype=torch.long)
        for row, prompt in zip(fresh, prompts):
            row[:len(prompt)] = torch.tensor(prompt)
        self.tokens[rows] = fresh.to(self.tokens.device)
        self.prompt[rows] = torch.tensor([len(p) for p in prompts], device=self.tokens.device)
        self.position[rows], self.loss[rows], self.done[rows] = self.first, 0.0, False
        self.first = self.shared  # the first call fills all rows: after it, each has been through the shared tokens
