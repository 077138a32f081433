"""The times of real replicas on a trace of random requests, to compare with what `replay.py` computes for that trace.

    measured.py TRACE ADDRESS...        e.g. measured.py trace.jsonl 127.0.0.1:8081 127.0.0.1:8082
    measured.py --make TRACE SECONDS RATE SEED

The second form writes a trace in the form of Mooncake's: RATE requests per second in the mean for SECONDS, with prompts of 64
to 512 tokens that share nothing, and completions of 32 to 128. Replicas get requests in turn, as of a router that works round
robin. One JSON object with the keys of the replay's report goes to stdout.
"""

import http.client
import json
import random
import sys
import threading
import time

TRACE_BLOCK = 512
# Token ids that every vocabulary has.
IDS = (300, 1900)


def make(path, seconds, rate, seed):
    draw, now, block = random.Random(seed), 0.0, 0
    with open(path, "w") as out:
        while (now := now + draw.expovariate(rate)) < seconds:
            prompt, completion = draw.randint(64, 512), draw.randint(32, 128)
            count = -(-prompt // TRACE_BLOCK)
            ids, block = list(range(block, block + count)), block + count
            request = {"timestamp": round(now * 1e3), "input_length": prompt, "output_length": completion, "hash_ids": ids}
            print(json.dumps(request), file=out)


def send(address, request, start, found):
    """Streams one completion, and appends the times of its tokens since it was sent."""
    draw = random.Random(request["hash_ids"][0])
    body = json.dumps({
        "prompt": [draw.randint(*IDS) for _ in range(request["input_length"])],
        "max_tokens": request["output_length"], "temperature": 0, "ignore_eos": True, "stream": True,
    })
    time.sleep(max(0.0, start + request["timestamp"] / 1e3 - time.monotonic()))
    begin, times = time.monotonic(), []
    connection = http.client.HTTPConnection(address, timeout=300)
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    reply = connection.getresponse()
    if reply.status != 200:
        found.append((request, begin, reply.read()[:200]))
        return
    for line in reply:
        if line.startswith(b"data: {"):
            times.append(time.monotonic() - begin)
    found.append((request, begin, times))


def quantile(numbers, share):
    numbers = sorted(numbers)
    return numbers[min(len(numbers) - 1, int(share * len(numbers)))]


def main():
    if sys.argv[1] == "--make":
        return make(sys.argv[2], *(float(it) for it in sys.argv[3:5]), int(sys.argv[5]))
    requests, addresses = [json.loads(line) for line in open(sys.argv[1])], sys.argv[2:]
    start, found = time.monotonic() + 1, []
    threads = [
        threading.Thread(target=send, args=(addresses[i % len(addresses)], request, start, found))
        for i, request in enumerate(requests)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failed = [times for _, _, times in found if not isinstance(times, list)]
    if failed:
        sys.exit(f"{len(failed)} requests failed: {failed[0]}")
    first = [times[0] * 1e3 for _, _, times in found]
    # Of all tokens of all requests. Tokens that arrive together have no time between them.
    between = [(after - before) * 1e3 for _, _, times in found for before, after in zip(times, times[1:])]
    end = max(begin + times[-1] for _, begin, times in found)
    print(json.dumps({
        "requests": len(found), "request_throughput_rps": len(found) / (end - start),
        "median_ttft_ms": quantile(first, 0.5), "p95_ttft_ms": quantile(first, 0.95),
        "median_itl_ms": quantile(between, 0.5), "p95_itl_ms": quantile(between, 0.95),
    }, indent=1))


main()
