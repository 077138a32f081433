"""Samples stories from SmolLM2-135M-Instruct.

    python sample_text.py --model SmolLM2-135M-Instruct.Q4_1.gguf --out work/raw --stream 0 --minutes 4.2

Writes parts of --part stories, one JSON pair a line: the story and its mean loss in nats, of SmolLM2 itself given the
request. Run again, it goes on with the stream's next part; a part that was not complete when a run was killed is lost.
Streams have different numbers and may run side by side, each on its own GPU. The stream and the number of a run's
first part give the seed of its requests and of its draws.
"""

import argparse
import json
import os
import pathlib
import random
import time
from concurrent.futures import ThreadPoolExecutor

import torch

import prompts
from decode import Batch
from smollm2 import SmolLM2


def main():
    arg = argparse.ArgumentParser()
    arg.add_argument("--model", required=True)
    arg.add_argument("--out", type=pathlib.Path, required=True)
    arg.add_argument("--stream", type=int, default=0)
    arg.add_argument("--minutes", type=float, default=8)
    arg.add_argument("--rows", type=int, default=4096)
    arg.add_argument("--length", type=int, default=320)
    arg.add_argument("--part", type=int, default=32768)
    arg.add_argument("--temperature", type=float, default=0.8)
    arg.add_argument("--min-p", type=float, default=0.05)
    arg = arg.parse_args()
    begin = time.time()
    arg.out.mkdir(parents=True, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = SmolLM2(arg.model, device, torch.bfloat16 if device == "cuda" else torch.float32)
    probe = random.Random(0)
    shared = os.path.commonprefix([model.tokenizer.encode(prompts.chat(probe)[0]).ids for _ in range(1000)])
    batch = Batch(model, arg.rows, arg.length, arg.temperature, arg.min_p, len(shared))
    part = len(list(arg.out.glob(f"{arg.stream}-*.jsonl")))
    seed = arg.stream * 100_000 + part
    rng, stories, starts = random.Random(seed), [], [0] * arg.rows
    torch.manual_seed(seed)
    print(f"stream {arg.stream}, part {part}: loaded in {time.time() - begin:.1f} s", flush=True)

    def write(part, stories):
        texts = model.tokenizer.decode_batch([tokens for tokens, _ in stories], skip_special_tokens=False)
        partial = arg.out / f"{arg.stream}-{part:04}.partial"
        partial.write_text("".join(json.dumps([t, round(loss, 4)]) + "\n" for t, (_, loss) in zip(texts, stories)))
        partial.rename(arg.out / f"{arg.stream}-{part:04}.jsonl")

    steps, ended, cut, writing, begun = 0, 0, 0, [], time.time()
    with ThreadPoolExecutor(1) as writer:
        while time.time() - begin < arg.minutes * 60:
            rows, finished = batch.finished()
            for row, story in zip(rows.tolist(), finished):
                if story:
                    stories.append((story[0][starts[row]:], story[1]))
                elif steps:
                    cut += 1
            if len(stories) >= arg.part:
                ended += len(stories)
                writing.append(writer.submit(write, part, stories))
                rate = steps * arg.rows / (time.time() - begun)
                print(f"{time.time() - begin:.0f} s: {ended} stories, {cut} cut, {rate:.0f} tok/s", flush=True)
                part, stories = part + 1, []
            requests = [prompts.chat(rng) for _ in finished]
            heads = [e.ids for e in model.tokenizer.encode_batch([a for a, _ in requests])]
            openings = [e.ids for e in model.tokenizer.encode_batch([b for _, b in requests])]
            for row, head in zip(rows.tolist(), heads):
                assert head[:len(shared)] == shared
                starts[row] = len(head)
            batch.refill(rows, [h + o for h, o in zip(heads, openings)])
            batch.steps(24)
            steps += 24
        for job in writing:
            job.result()
        if stories:
            write(part, stories)
    print(f"{ended + len(stories)} stories in {time.time() - begin:.0f} s")


if __name__ == "__main__":
    main()
