"""Times of 8 to 512 replicas on a recorded trace, by the simulator of Dynamo, with step times that gristmill measured.

    pip install --no-deps ai-dynamo==1.6.1 ai-dynamo-runtime==1.6.1
    pip install numpy pydantic typing_extensions
    gristmill bench MODEL --batch-sweep 1..128 --sweep-prompt 1024 --json > sweep.json
    replay.py TRACE sweep.json

TRACE is a trace of Mooncake. With N replicas it runs N/8 times as fast. Several files of sweeps with different `--depth`
give step times by the length of the context. `--prefill` sets another rate of prompts, in tokens per second, for a sweep
without `--sweep-prompt`. A table goes to stdout.

    replay.py TRACE sweep.json --replicas 3 --sequences 16

computes the same for 3 replicas with 16 sequences each, round robin, at the trace's own speed: what `measured.py` measures.
"""

import argparse
import json
import tempfile

import numpy as np
from dynamo.replay import run_trace_replay

REPLICAS = (8, 64, 512)
ROUTERS = ("round_robin", "kv_router")
# Of each replica: most tokens of a step, seconds of prompts in a step, and blocks of the KV cache (1,048,576 tokens).
STEP_TOKENS, STEP_SECONDS, BLOCK, BLOCKS = 2048, 0.1, 16, 65_536
# Tokens of a block of the trace.
TRACE_BLOCK = 512


def prompt_seconds(sweep):
    """Seconds that a prompt token adds to a step with other sequences: the mean of all sizes."""
    added = [size["median_prompt_step_seconds"] - size["median_step_seconds"] for size in sweep["sizes"]]
    return float(np.mean(added)) / sweep["prompt_tokens"]


def step_times(sweeps, sequences, context):
    """Seconds of a step by its sequences (any shape) and their contexts (the same shape): between the measured depths
    along a line, and beyond them as the nearest one."""
    sweeps = sorted(sweeps, key=lambda sweep: sweep["depth"])
    of_depth = [
        np.interp(sequences, *zip(*((size["sequences"], size["median_step_seconds"]) for size in sweep["sizes"])))
        for sweep in sweeps
    ]
    depths = [sweep["depth"] for sweep in sweeps]
    place = np.interp(context, depths, range(len(depths)))
    below = np.minimum(place.astype(int), len(depths) - 1)
    above = np.minimum(below + 1, len(depths) - 1)
    stacked, share = np.stack(of_depth), place - below
    take = lambda index: np.take_along_axis(stacked, index[None], 0)[0]
    return (1 - share) * take(below) + share * take(above)


def tables(sweeps, prefill, most, longest, path):
    """The simulator's tables: seconds of prompts by their length, and of steps by tokens in the cache and context. It adds
    both for a step that has a prompt."""
    lengths = np.linspace(16, longest, 200)
    context = np.linspace(64, longest, 400)
    tokens = np.linspace(0, most * longest, 400)
    sequences = np.maximum(1, tokens[:, None] / context[None, :])
    np.savez(
        path,
        prefill_isl=lengths,
        prefill_ttft_ms=lengths / prefill * 1e3,
        decode_active_kv_tokens=tokens,
        decode_context_length=context,
        decode_itl=step_times(sweeps, sequences, np.broadcast_to(context, sequences.shape)) * 1e3,
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trace")
    parser.add_argument("sweeps", nargs="+")
    parser.add_argument("--prefill", type=float, help="prompt tokens per second, in place of the sweeps'")
    parser.add_argument("--replicas", type=int, help="only so many, at the trace's own speed, round robin")
    parser.add_argument("--sequences", type=int, default=128, help="of each replica")
    args = parser.parse_args()
    profile = tempfile.NamedTemporaryFile(suffix=".npz")
    requests = [json.loads(line) for line in open(args.trace)]
    longest = max(request["input_length"] + request["output_length"] for request in requests)
    sweeps = [json.load(open(path)) for path in args.sweeps]
    prefill = args.prefill or 1 / np.mean([prompt_seconds(sweep) for sweep in sweeps if "prompt_tokens" in sweep])
    tables(sweeps, prefill, args.sequences, longest, profile.name)
    engine = {
        "engine": {
            "num_gpu_blocks": BLOCKS, "block_size": BLOCK, "max_num_seqs": args.sequences,
            "max_num_batched_tokens": int(min(STEP_TOKENS, STEP_SECONDS * prefill + args.sequences)),
            "timing_model": {"type": "external", "provider": "dynamo_profile", "config": {"path": profile.name}},
        }
    }
    cases = [(args.replicas, "round_robin", 1.0)] if args.replicas else [
        (replicas, router, replicas / 8) for replicas in REPLICAS for router in ROUTERS
    ]
    print("| replicas | router | requests per second | prompt tokens from caches | first token p50, p95 (s) | between tokens p50, p95 (ms) |")
    print("| ---: | --- | ---: | ---: | ---: | ---: |")
    for replicas, router, speed in cases:
        report = run_trace_replay(
            [args.trace], extra_engine_args=json.dumps(engine), num_workers=replicas, router_mode=router,
            arrival_speedup_ratio=speed, trace_block_size=TRACE_BLOCK)
        row(replicas, router, getattr(report, "summary", report))


def row(replicas, router, found):
    print(
        f"| {replicas} | {router} | {found['request_throughput_rps']:.1f} | {100 * found['prefix_cache_reused_ratio']:.0f}% | "
        f"{found['median_ttft_ms'] / 1e3:.3f}, {found['p95_ttft_ms'] / 1e3:.3f} | "
        f"{found['median_itl_ms']:.2f}, {found['p95_itl_ms']:.2f} |", flush=True)


main()
