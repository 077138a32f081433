"""Trains the model on the tokens that train_tokenizer.py wrote.

    python train.py --data work --epochs 6 --minutes 8.5

Stops at the last step or when the minutes are over, and saves work/checkpoint.pt and the model as it is then to
work/model; run again with the same --epochs, it goes on from there.
"""

import argparse
import pathlib
import time

import numpy as np
import torch
import torch.nn.functional as F

from model import CONTEXT, EOS, Model, VOCAB, save

SEED, BALANCE, DECAY_FROM = 1, 0.01, 0.5


def epoch(tokens, starts, number, device):
    """The start of each row in a fresh order of all stories, and that order's tokens.

    Each row begins with a story, as a prompt does, and is cut where it is full.
    """
    generator = torch.Generator().manual_seed(SEED + number)
    order = torch.randperm(len(starts) - 1, generator=generator).to(device)
    lengths = (starts[1:] - starts[:-1])[order]
    begins = lengths.cumsum(0) - lengths
    shuffled = tokens[torch.arange(len(tokens), device=device)
                      - torch.repeat_interleave(begins - starts[:-1][order], lengths)]
    following, rows, i = torch.searchsorted(begins, begins + CONTEXT + 1).tolist(), [], 0
    while i < len(following) and following[i] < len(following):
        rows.append(i)
        i = following[i]
    return shuffled, begins[torch.tensor(rows, device=device)][torch.randperm(len(rows), generator=generator).to(device)]


def rate(step, steps, peak):
    """Warm-up, constant, then straight down to zero."""
    return peak * min(1, (step + 1) / 200, (steps - step) / (steps * (1 - DECAY_FROM)))


def main():
    arg = argparse.ArgumentParser()
    arg.add_argument("--data", type=pathlib.Path, required=True)
    arg.add_argument("--epochs", type=float, default=6)
    arg.add_argument("--minutes", type=float, default=8.5)
    arg.add_argument("--rows", type=int, default=128)
    arg.add_argument("--rate", type=float, default=2e-3)
    arg = arg.parse_args()
    begin, device = time.time(), "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(SEED)
    torch.set_float32_matmul_precision("high")
    tokens = torch.from_numpy(np.load(arg.data / "train.npy").astype(np.int32)).to(device)
    starts = torch.cat([torch.zeros(1, dtype=torch.long, device=device), (tokens == EOS).nonzero()[:, 0] + 1])
    model = Model().to(device)
    plain = [p for n, p in model.named_parameters() if "norm" in n or "router" in n or n == "embedding"]
    others = [p for p in model.parameters() if all(p is not q for q in plain)]
    optimizer = torch.optim.AdamW([dict(params=others, weight_decay=0.1), dict(params=plain, weight_decay=0.0)],
                                  lr=arg.rate, betas=(0.9, 0.95), fused=device == "cuda")
    steps, step, number, at = int(arg.epochs * len(epoch(tokens, starts, 0, device)[1]) / arg.rows), 0, 0, 0
    checkpoint = arg.data / "checkpoint.pt"
    if checkpoint.exists():
        state = torch.load(checkpoint, map_location=device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step, number, at = state["step"], state["epoch"], state["at"]

    @torch.compile
    def losses(rows):
        with torch.autocast(device, torch.bfloat16):
            logits, shares, balance = model(rows[:, :-1])
        return F.cross_entropy(logits.float().view(-1, VOCAB), rows[:, 1:].reshape(-1)), shares, balance

    shuffled, rows = epoch(tokens, starts, number, device)
    print(f"{len(tokens)} tokens, {len(starts) - 1} stories, {len(rows)} rows; step {step} of {steps}", flush=True)
    window, first, begun = torch.arange(CONTEXT + 1, device=device), step, time.time()
    while step < steps and time.time() - begin < arg.minutes * 60:
        if at + arg.rows > len(rows):
            number, at = number + 1, 0
            shuffled, rows = epoch(tokens, starts, number, device)
        loss, shares, balance = losses(shuffled[rows[at:at + arg.rows, None] + window].long())
        (loss + BALANCE * balance).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = rate(step, steps, arg.rate)
        optimizer.step()
        optimizer.zero_grad()
        step, at = step + 1, at + arg.rows
        if step == first + 20:
            torch.cuda.synchronize() if device == "cuda" else None
            begun = time.time()
        if step % 200 == 0:
            least = shares.min().item() * shares.shape[1]
            done = (step - first - 20) * arg.rows * CONTEXT / (time.time() - begun)
            print(f"step {step} epoch {number} loss {loss.item():.4f} balance {balance.item():.4f} "
                  f"least {least:.2f}/E {done:.0f} tok/s {time.time() - begin:.0f} s", flush=True)
    partial = checkpoint.with_suffix(".partial")
    torch.save(dict(model=model.state_dict(), optimizer=optimizer.state_dict(), step=step, epoch=number, at=at), partial)
    partial.rename(checkpoint)
    print(f"step {step} of {steps}: {step * arg.rows * CONTEXT} tokens seen, {number + at / len(rows):.2f} epochs")
    save(model, arg.data / "model")


if __name__ == "__main__":
    main()
