"""Three replicas behind a router: a replica that ends loses no request, one that is killed breaks only its own streams or
none, a client that leaves frees its sequence, and conversations find their caches on evenly loaded replicas.

    replicas.py GRISTMILL ROUTER [losses|conversations]

Prints a line for each check; the exit code is 1 if one failed.
"""

import concurrent.futures
import contextlib
import http.client
import json
import os
import random
import signal
import socket
import sys
import time

import conversations
from replica import PATIENCE, Replica, Stream, free_port, headers, request, wait_until
from routers import ROUTERS

STREAMS = 30
# Bytes of white space after every second new request: more than a router reads at once, as requests of agents are.
LONG = 40_000
# Of a stream. Those that are compared run three times.
TOKENS, COMPARED_TOKENS = 600, 400
REPLICAS = 3
# Conversations: the least share of one replica's cached prompt tokens, and the most requests of a replica over the mean.
HITS, BALANCE = 0.9, 1.3
SEED = 11

failed = []


def check(what, holds):
    print(f"{'ok' if holds else 'FAILED'}: {what}", flush=True)
    if not holds:
        failed.append(what)


def new_requests(port, count):
    """How many of so many requests, which start within two seconds, are answered; and the other results."""
    body = {"model": "any", "prompt": "Then", "max_tokens": 8, "ignore_eos": True}

    def one(index):
        time.sleep(2 * index / count)
        try:
            return request(port, "POST", "/v1/completions", body, padding=index % 2 * LONG)[0]
        except (OSError, http.client.HTTPException) as error:
            return repr(error)

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        results = list(pool.map(one, range(count)))
    return results.count(200), sorted({str(result) for result in results if result != 200})


def wait_for_use(port, replica):
    """Waits until the router sends requests to a replica that has just started. A router that looks for prefixes may leave
    a replica without requests until the others are busy, so several requests run at a time."""
    source = random.Random(SEED)

    def send(prompt):
        with contextlib.suppress(OSError, http.client.HTTPException):
            request(port, "POST", "/v1/completions", {"model": "any", "prompt": prompt, "max_tokens": 16, "ignore_eos": True})

    def is_used():
        with concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
            list(pool.map(send, [conversations.words(source, 20) for _ in range(STREAMS)]))
        return replica.metric("ended_requests_total") > 0

    wait_until(f"the router uses {replica.name}", is_used)


def start_streams(port, tokens=TOKENS, more=None):
    streams = [Stream(port, tokens, f"Once {index}", more) for index in range(STREAMS)]
    for stream in streams:
        stream.start()
    wait_until("each stream has started", lambda: all(s.events > 2 or s.error for s in streams))
    return streams


def ends(label, router, replicas, number, _):
    """A replica ends in the middle of streams, and starts again. Returns it."""
    port = router.port
    streams = start_streams(port)
    victim = max(replicas, key=lambda replica: sum(s.replica == replica.name for s in streams))
    # A stream that has ended already proves nothing.
    own = [s for s in streams if s.replica == victim.name and not s.is_complete]
    victim.end(number)
    answered, others = new_requests(port, STREAMS)
    for stream in streams:
        stream.join(PATIENCE)
    complete = sum(stream.is_complete for stream in streams)
    broken = [stream for stream in streams if not stream.is_complete]
    told = f"{answered} of {STREAMS} new requests were answered {others or ''}".strip()
    where = f"{len(own)} of {STREAMS} streams ran on it"
    if number == signal.SIGTERM:
        holds = complete == STREAMS and answered == STREAMS and own
        errors = sorted({stream.error for stream in broken if stream.error})
        check(f"{label}: SIGTERM to the busiest replica ({where}): {complete} of {STREAMS} streams were complete, {told} {errors or ''}".strip(), holds)
    else:
        only_own = all(stream in own for stream in broken)
        holds = only_own and 0 < len(broken) <= len(own) and answered == STREAMS
        check(f"{label}: SIGKILL to the busiest replica ({where}): {len(broken)} streams broke, {'all on it' if only_own else 'NOT all on it'}, {told}", holds)
    victim.process.wait(PATIENCE)
    victim.start()
    return victim


def greedy_streams(port):
    return start_streams(port, COMPARED_TOKENS, {"temperature": 0, "repetition_penalty": 1})


def undisturbed(port):
    """The texts of streams while no replica ends; an empty one if a stream is not complete."""
    streams = greedy_streams(port)
    for stream in streams:
        stream.join(PATIENCE)
    return [stream.text if stream.is_complete else "" for stream in streams]


def moves(label, router, replicas, number, peace):
    """Streams of greedy tokens, of which none breaks when their replica ends. `peace` has the texts of an undisturbed run.
    Returns the replica, which has started again."""
    streams = greedy_streams(router.port)
    victim = max(replicas, key=Replica.running)
    running = victim.running()
    victim.end(number)
    if number == signal.SIGKILL:
        router.workers[victim.name].kill()
    answered, others = new_requests(router.port, STREAMS)
    for stream in streams:
        stream.join(PATIENCE)
    complete = sum(stream.is_complete for stream in streams)
    equal = sum(bool(text) and stream.text == text for stream, text in zip(streams, peace))
    errors = sorted({stream.error for stream in streams if stream.error})
    signal_name = "SIGTERM" if number == signal.SIGTERM else "SIGKILL"
    check(f"{label}: {signal_name} to the busiest replica ({running} of {STREAMS} streams ran on it): {complete} of {STREAMS} "
          f"streams were complete, {equal} have the text of an undisturbed run, {answered} of {STREAMS} new requests were "
          f"answered {others or ''}{errors or ''}".strip(),
          complete == equal == answered == STREAMS and running > 0)
    victim.process.wait(PATIENCE)
    victim.start()
    router.replace(victim)
    return victim


def leaves(label, port, replicas, is_stream):
    body = {"model": "any", "prompt": "Once", "max_tokens": TOKENS, "ignore_eos": True, "stream": is_stream}
    text = json.dumps(body)
    fields = "".join(f"{name}: {value}\r\n" for name, value in headers().items())
    head = f"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\n{fields}content-length: {len(text)}\r\n\r\n"
    client = socket.create_connection(("127.0.0.1", port))
    client.sendall((head + text).encode())
    count = lambda: sum(replica.running() for replica in replicas)
    wait_until("the request runs", lambda: count() == 1)
    start = time.monotonic()
    client.close()
    wait_until("the sequence is free", lambda: count() == 0)
    seconds = time.monotonic() - start
    kind = "a stream" if is_stream else "a whole reply"
    check(f"{label}: a client that leaves {kind} frees its sequence ({seconds:.2f} s, at most 1 s)", seconds <= 1)


def started(program, count, options, router, events=False):
    """Replicas that are ready. With `events` each publishes those of its prefix cache."""
    replicas = []
    for index in range(1, count + 1):
        more = ["--kv-events", f"tcp://127.0.0.1:{free_port()}"] if events else []
        replicas.append(Replica(program, index, [*options, *router.options, *more], not router.moves_streams))
    for replica in replicas:
        replica.start()
    return replicas


def talks(program, router):
    """Conversations, compared with one replica without a router."""
    options = ["--parallel", "8", "--kv-tokens", "65536"]
    for systems in (3, 1):
        (single,) = replicas = started(program, 1, options, router)
        front = None
        try:
            alone, _, failures = conversations.measure(single.port, replicas, systems, SEED)
            stop(replicas)
            replicas = started(program, REPLICAS, options, router, events=router.moves_streams)
            front = router(replicas)
            label = front.label()
            found, requests, more = conversations.measure(front.port, replicas, systems, SEED)
        finally:
            stop(replicas, front)
        prompts = "one system prompt" if systems == 1 else f"{systems} system prompts"
        where = f"{label}: {conversations.CONVERSATIONS} conversations with {prompts}"
        check(f"{where}: {failures + more} requests without an answer", failures + more == 0)
        check(f"{where}: {100 * found:.1f}% of the prompt tokens were cached, {100 * alone:.1f}% of one replica's "
              f"(ratio {found / alone:.2f}, at least {HITS})", found >= HITS * alone)
        most = max(requests) * len(requests) / sum(requests)
        counts = ", ".join(str(count) for count in requests)
        bar = f"at most {BALANCE}" if router.is_balanced else "without a bound"
        check(f"{where}: the replicas got {counts} requests (the busiest {most:.2f} times the mean, {bar})",
              most <= BALANCE or not router.is_balanced)


def stop(replicas, front=None):
    if front:
        front.end()
    for replica in replicas:
        if replica.process:
            replica.process.kill()
            replica.process.wait()


def losses(program, router):
    """Replicas that end, and clients that leave."""
    replicas, front = [], None
    try:
        replicas = started(program, REPLICAS, ["--parallel", str(STREAMS), "--kv-tokens", "32768"], router)
        front = router(replicas)
        label = front.label()
        for is_stream in (True, False):
            leaves(label, front.port, replicas, is_stream)
        peace = undisturbed(front.port) if router.moves_streams else None
        end = moves if peace else ends
        victim = end(label, front, replicas, signal.SIGTERM, peace)
        wait_for_use(front.port, victim)
        end(label, front, replicas, signal.SIGKILL, peace)
    finally:
        stop(replicas, front)


def main():
    program, router, *only = os.path.abspath(sys.argv[1]), ROUTERS[sys.argv[2]], *sys.argv[3:]
    for name, part in (("losses", losses), ("conversations", talks)):
        if name in (only or [name]):
            part(program, router)
    sys.exit(1 if failed else 0)


main()
