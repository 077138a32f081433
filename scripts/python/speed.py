"""Decoding through Python next to `gristmill bench` on the same file, for one sequence and for 64 in one call.

    python scripts/python/speed.py MODEL.gguf [--device DEVICE] [--threads N] [--batch 1 64] [--tokens 128] [--depth 64]

Both processes have the device alone, one after another, in turns. The decode time of a call is that of `tokens` + 1 tokens
less that of one token, with the prompt in the prefix cache. The target is at most 3% below `bench`.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("--device", default="auto")
parser.add_argument("--threads", type=int)
parser.add_argument("--batch", type=int, nargs="+", default=[1, 64])
parser.add_argument("--tokens", type=int, default=128)
parser.add_argument("--depth", type=int, default=64)
parser.add_argument("--rounds", type=int, default=3)
#: The measurement of one process.
parser.add_argument("--inner", type=int, help=argparse.SUPPRESS)
options = parser.parse_args()


def inner(batch):
    """Tokens per second of calls in this process, and of a stream for one sequence."""
    from gristmill import LLM

    context = options.depth + options.tokens + 32
    llm = LLM(
        options.model, device=options.device, threads=options.threads, ctx=context, parallel=batch, kv_tokens=batch * context
    )
    source = random.Random(batch)
    prompts = [[source.randrange(100, llm.info["vocabulary"] - 100) for _ in range(options.depth)] for _ in range(batch)]
    settings = {"temperature": 0, "repetition_penalty": 1, "ignore_eos": True, "return_token_ids": False}

    def seconds(tokens):
        start = time.perf_counter()
        llm.generate(prompts, max_tokens=tokens, **settings)
        return time.perf_counter() - start

    def streamed(tokens):
        start = time.perf_counter()
        for _ in llm.stream_text(prompts[0], max_tokens=tokens, **settings):
            pass
        return time.perf_counter() - start

    seconds(4)
    rates = []
    for _ in range(3):
        first = seconds(1)
        rates.append(batch * options.tokens / (seconds(options.tokens + 1) - first))
    found = {"generate": statistics.median(rates)}
    if batch == 1:
        first = streamed(1)
        found["stream"] = options.tokens / (streamed(options.tokens + 1) - first)
    print(json.dumps(found))


def command(arguments):
    run = subprocess.run([sys.executable, *arguments], capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stderr)
    return json.loads(run.stdout)


def main():
    own = ["--device", options.device] + (["--threads", str(options.threads)] if options.threads else [])
    missed = False
    for batch in options.batch:
        bench, python = [], {}
        for _ in range(options.rounds):
            lengths = ["-p", "0", "-n", str(options.tokens), "-d", str(options.depth), "-b", str(batch)]
            found = command(["-m", "gristmill", "bench", "--model", options.model, "--json", *lengths, *own])
            bench.append(found["decode"]["median_tokens_per_second"])
            lengths = ["--tokens", str(options.tokens), "--depth", str(options.depth)]
            for name, rate in command([__file__, options.model, "--inner", str(batch), *lengths, *own]).items():
                python.setdefault(name, []).append(rate)
        expected = statistics.median(bench)
        for name, rates in python.items():
            share = statistics.median(rates) / expected - 1
            missed |= share < -0.03
            print(f"batch {batch}, {name}: {statistics.median(rates):.1f} tokens/s, bench {expected:.1f}: {share:+.1%}")
    sys.exit("more than 3% slower than bench" if missed else 0)


if options.inner:
    inner(options.inner)
else:
    main()
