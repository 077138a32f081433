"""Measures the trained model: held-out loss, the experts' shares, and thirty samples.

    python evaluate.py --data work --smollm2 SmolLM2-135M-Instruct.Q4_1.gguf --out results

The samples are the prompts of sample_prompts.txt with seeds 1 to 30, one each, none left out. Writes evaluation.json
and samples.jsonl. Checks first that transformers' Qwen3MoeForCausalLM gives the same logits for the written model.
"""

import argparse
import json
import pathlib
import statistics

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from transformers import Qwen3MoeForCausalLM

from filter_text import sentences
from model import CONTEXT, EOS, EXPERTS, VOCAB, load
from smollm2 import SmolLM2

PROMPTS = pathlib.Path(__file__).with_name("sample_prompts.txt")
TEMPERATURE, MIN_P, LONGEST, HELD_TEXTS = 0.7, 0.1, 400, 300


@torch.no_grad()
def compare(model, folder, rows):
    """The largest difference from transformers' logits, relative to the largest logit, in float32 on the CPU."""
    theirs = Qwen3MoeForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    expected, found = theirs(rows).logits, model(rows)[0]
    return ((found - expected).abs().max() / expected.abs().max()).item()


@torch.no_grad()
def held_out(model, rows):
    """Mean loss, and each layer's shares of its experts' slots."""
    losses, shares = [], []
    for part in rows.split(32):
        logits, share, _ = model(part[:, :-1])
        losses.append(F.cross_entropy(logits.reshape(-1, VOCAB), part[:, 1:].reshape(-1), reduction="sum"))
        shares.append(share * len(part))
    return (sum(losses) / rows[:, 1:].numel()).item(), sum(shares) / len(rows)


@torch.no_grad()
def sample(model, prompts, device):
    """Continues each prompt with its own seed, its number; returns the tokens, without EOS, and whether it ended.

    Each step runs the whole texts again: short as they are, a cache is not worth its code.
    """
    texts, ended = [list(p) for p in prompts], [False] * len(prompts)
    generators = [torch.Generator().manual_seed(i + 1) for i in range(len(prompts))]
    while True:
        active = [i for i, t in enumerate(texts) if not ended[i] and len(t) < LONGEST]
        if not active:
            return texts, ended
        longest = max(len(texts[i]) for i in active)
        padded = torch.tensor([texts[i] + [EOS] * (longest - len(texts[i])) for i in active], device=device)
        last = torch.tensor([len(texts[i]) - 1 for i in active], device=device)
        logits = model(padded)[0][torch.arange(len(active), device=device), last].cpu()
        for i, row in zip(active, logits):
            p = (row / TEMPERATURE).softmax(-1)
            p = torch.where(p < MIN_P * p.max(), 0.0, p)
            token = torch.multinomial(p, 1, generator=generators[i]).item()
            if token == EOS:
                ended[i] = True
            else:
                texts[i].append(token)


def main():
    arg = argparse.ArgumentParser()
    arg.add_argument("--data", type=pathlib.Path, required=True)
    arg.add_argument("--smollm2", required=True)
    arg.add_argument("--out", type=pathlib.Path, required=True)
    arg = arg.parse_args()
    arg.out.mkdir(parents=True, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    folder = arg.data / "model"
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    held = torch.from_numpy(np.load(arg.data / "held.npy").astype(np.int64))
    held = held[:len(held) // (CONTEXT + 1) * (CONTEXT + 1)].view(-1, CONTEXT + 1)
    model = load(folder).eval()
    difference = compare(model, folder, held[:2, :-1])
    assert difference < 1e-4, f"transformers disagrees: {difference}"
    model = model.to(device)
    loss, shares = held_out(model, held.to(device))

    texts, ended = sample(model, [tokenizer.encode(p).ids for p in PROMPTS.read_text().splitlines()], device)
    texts = [tokenizer.decode(t) for t in texts]
    judge = SmolLM2(arg.smollm2, device, torch.bfloat16 if device == "cuda" else torch.float32)
    stories = [json.loads(s) for s in (arg.data / "held.jsonl").open()][:HELD_TEXTS]
    held_losses = [judge.loss(t) for t in stories]
    rows = []
    for number, (text, end) in enumerate(zip(texts, ended), 1):
        parts = sentences(text)
        rows.append(dict(seed=number, ended=end, repeated=len(parts) - len(set(parts)),
                         smollm2_loss=round(judge.loss(text), 4), text=text))
    (arg.out / "samples.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    report = dict(
        parameters=sum(p.numel() for p in model.parameters()), transformers_difference=difference,
        held_tokens=held.numel(), held_loss=loss,
        least_share_of_even=[round(v, 3) for v in (shares.min(-1).values * EXPERTS).tolist()],
        greatest_share_of_even=[round(v, 3) for v in (shares.max(-1).values * EXPERTS).tolist()],
        temperature=TEMPERATURE, min_p=MIN_P, longest=LONGEST, samples=len(rows),
        ended_without_repetition=sum(r["ended"] and not r["repeated"] for r in rows),
        smollm2_loss_of_samples=statistics.mean(r["smollm2_loss"] for r in rows),
        smollm2_loss_of_held_out=statistics.mean(held_losses))
    report["smollm2_ratio"] = report["smollm2_loss_of_samples"] / report["smollm2_loss_of_held_out"]
    (arg.out / "evaluation.json").write_text(json.dumps(report, indent=1))
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
