"""Times of 8 to 512 replicas on a recorded trace, by the simulator of Dynamo, with step times that gristmill measured.

    pip install --no-deps ai-dynamo==1.6.1 ai-dynamo-runtime==1.6.1
    pip install numpy pydantic typing_extensions
    gristmill bench MODEL --batch-sweep 1..128 --json > sweep.json
    replay.py sweep.json PREFILL TRACE

PREFILL is the rate of prompts in tokens per second (`gristmill bench MODEL -p 2048`), TRACE a trace of Mooncake. With N
replicas the trace runs N/8 times as fast. A table goes to stdout.

    replay.py sweep.json PREFILL TRACE --replicas 3 --sequences 16

computes the same for 3 replicas with 16 sequences each, round robin, at the trace's own speed: what `measured.py` measures.
"""

import argparse
import json
import tempfile

import numpy as np
from dynamo.replay import run_trace_replay

REPLICAS = (8, 64, 512)
ROUTERS = ("round_robin", "kv_router")
# Of each replica: tokens of a step, and blocks of the KV cache (1,048,576 tokens).
STEP_TOKENS, BLOCK, BLOCKS = 2048, 16, 65_536
# Tokens of a block of the trace.
TRACE_BLOCK = 512


def tables(sweep, prefill, most, longest, path):
    """The simulator's tables: seconds of prompts by their length, and of steps by tokens in the cache and context."""
    sizes = [(size["sequences"], size["median_step_seconds"]) for size in sweep["sizes"]]
    batch, seconds = np.array([n for n, _ in sizes]), np.array([s for _, s in sizes])
    lengths = np.linspace(16, longest, 200)
    context = np.linspace(64, longest, 400)
    tokens = np.linspace(0, most * longest, 400)
    # A step's time depends on the number of sequences alone: that is what the sweep measures.
    sequences = np.maximum(1, tokens[:, None] / context[None, :])
    np.savez(
        path,
        prefill_isl=lengths,
        prefill_ttft_ms=lengths / prefill * 1e3,
        decode_active_kv_tokens=tokens,
        decode_context_length=context,
        decode_itl=np.interp(sequences, batch, seconds) * 1e3,
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sweep")
    parser.add_argument("prefill", type=float)
    parser.add_argument("trace")
    parser.add_argument("--replicas", type=int, help="only so many, at the trace's own speed, round robin")
    parser.add_argument("--sequences", type=int, default=128, help="of each replica")
    args = parser.parse_args()
    profile = tempfile.NamedTemporaryFile(suffix=".npz")
    requests = [json.loads(line) for line in open(args.trace)]
    longest = max(request["input_length"] + request["output_length"] for request in requests)
    tables(json.load(open(args.sweep)), args.prefill, args.sequences, longest, profile.name)
    engine = {
        "engine": {
            "num_gpu_blocks": BLOCKS, "block_size": BLOCK, "max_num_seqs": args.sequences,
            "max_num_batched_tokens": STEP_TOKENS,
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
