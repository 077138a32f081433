"""Events of the prefix cache, read by ZeroMQ's own library and by the structs that vLLM's subscribers have.

with_kv_events.py ADDRESS EVENTS REPLAY: of a server with --kv-events EVENTS and --kv-events-replay REPLAY.
"""

import json
import sys
import time
import urllib.request
from typing import Optional, Union

import msgspec
import zmq


class BlockStored(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    block_hashes: list[int]
    parent_block_hash: Optional[int]
    token_ids: list[int]
    block_size: int
    lora_id: Optional[int]
    medium: Optional[str]
    lora_name: Optional[str]


class BlockRemoved(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    block_hashes: list[int]
    medium: Optional[str]


class AllBlocksCleared(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    pass


class Batch(msgspec.Struct, array_like=True):
    ts: float
    events: list[Union[BlockStored, BlockRemoved, AllBlocksCleared]]
    data_parallel_rank: Optional[int] = None


address, live, replay = sys.argv[1:]
decode = msgspec.msgpack.Decoder(Batch).decode
context = zmq.Context()
failed = False


def check(what, holds):
    global failed
    failed |= not holds
    print(f"{'ok' if holds else 'FAILED'}: {what}")


def ask(path, body):
    request = urllib.request.Request(address + path, json.dumps(body).encode(), {"content-type": "application/json"})
    return json.load(urllib.request.urlopen(request))


subscriber = context.socket(zmq.SUB)
subscriber.connect(live)
subscriber.setsockopt_string(zmq.SUBSCRIBE, "")
subscriber.RCVTIMEO = 10_000
# A subscription takes effect some time after it is made.
time.sleep(1)
prompt = "Once upon a time there was a mill by a river, and the mill had a wheel that turned all day and all night. " * 2
tokens = ask("/tokenize", {"prompt": prompt})["tokens"]
ask("/v1/completions", {"prompt": tokens, "max_tokens": 1})
whole = len(tokens) // 16 * 16
stored, numbers, parents = [], [], []
while len(stored) < whole:
    topic, number, payload = subscriber.recv_multipart()
    numbers.append(int.from_bytes(number, "big"))
    for event in decode(payload).events:
        stored += event.token_ids
        parents.append((event.parent_block_hash, event.block_hashes[-1]))
check(f"pyzmq {zmq.__version__} gets BlockStored with the {whole} tokens of a prompt's whole blocks", stored == tokens[:whole])
check("each block names the hash of the preceding one", [p for p, _ in parents] == [None] + [h for _, h in parents[:-1]])
check("numbers have no gap", numbers == list(range(numbers[0], numbers[0] + len(numbers))))

client = context.socket(zmq.DEALER)
client.connect(replay)
client.RCVTIMEO = 10_000
client.send_multipart((b"", (0).to_bytes(8, "big")))
replayed = []
while True:
    _, number, payload = client.recv_multipart()
    if int.from_bytes(number, "big", signed=True) == -1:
        break
    replayed += decode(payload).events
check("a replay starts with AllBlocksCleared and has the same blocks", isinstance(replayed[0], AllBlocksCleared)
      and sum((event.token_ids for event in replayed[1:]), []) == stored)

urllib.request.urlopen(urllib.request.Request(address + "/flush_cache", b"{}"))
removed = []
while len(removed) < len(parents):
    for event in decode(subscriber.recv_multipart()[2]).events:
        removed += event.block_hashes
check("an emptied cache sends BlockRemoved for each block", sorted(removed) == sorted(h for _, h in parents))
sys.exit(failed)
