"""A worker of NVIDIA Dynamo 1.6 for one running `gristmill serve`. Token ids go in and out, so Dynamo's frontend can
continue a stream on another replica if this replica is lost.

    dynamo_worker.py --server http://127.0.0.1:8081 --tokenizer FOLDER [--kv-events tcp://127.0.0.1:5557]

FOLDER contains the model's config.json, tokenizer.json and tokenizer_config.json, as Hugging Face publishes them: Dynamo
applies the chat template and the tokenizer. The key of the server, if it needs one, is in GRISTMILL_API_KEY. The worker
waits until the server is ready, and ends when it is not: start both under a supervisor. docs/team.md has all commands.
"""

import argparse
import asyncio
import contextlib
import json
import os

import httpx
from dynamo.llm import KvEventPublisher, ModelInput, ModelRuntimeConfig, ModelType, WorkerType, register_model
from dynamo.llm.exceptions import Disconnected, HttpError, InvalidArgument, WorkerUnavailable
from dynamo.runtime import DistributedRuntime, dynamo_worker

# Tokens of a block of the prefix cache.
BLOCK = 16
# Between two checks of the server, and the longest wait for its reply: a busy machine is no reason to end.
READY_SECONDS, READY_TIMEOUT = 0.5, 30

# Fields of a request, with the names of Dynamo and of gristmill.
SAMPLING = {name: name for name in (
    "temperature", "top_p", "top_k", "min_p", "seed", "frequency_penalty", "presence_penalty", "repetition_penalty")}
STOPPING = {"max_tokens": "max_tokens", "min_tokens": "min_tokens", "ignore_eos": "ignore_eos"}
STOP_TOKENS = ("stop_token_ids", "stop_token_ids_hidden", "stop_token_ids_visible")
# What this worker cannot do, or not after a stream has moved: refused, never ignored. The values ask for nothing.
REFUSED = {
    "sampling_options": {"n": (1,), "best_of": (1,), "use_beam_search": (False,), "length_penalty": (1.0,), "guided_decoding": ()},
    "output_options": {"logprobs": (), "prompt_logprobs": ()},
}


def body(request):
    """The body of `/v1/completions` for a request of Dynamo."""
    for part, fields in REFUSED.items():
        for name, harmless in fields.items():
            value = (request.get(part) or {}).get(name)
            if value is not None and value not in harmless:
                raise InvalidArgument(f"{name}: this worker does not support it; leave it out")
    sampling, stopping = request.get("sampling_options") or {}, request.get("stop_conditions") or {}
    found = {"prompt": request["token_ids"], "stream": True, "stream_options": {"include_usage": True},
             "return_token_ids": True, "max_tokens": -1}
    for fields, names in ((sampling, SAMPLING), (stopping, STOPPING)):
        found |= {names[name]: fields[name] for name in names if fields.get(name) is not None}
    stop = sorted({token for name in STOP_TOKENS for token in stopping.get(name) or ()})
    return found | ({"stop_token_ids": stop} if stop and not stopping.get("ignore_eos") else {})


def usage(found):
    """The usage of a completion in the fields that Dynamo forwards."""
    return {name: found[name] for name in ("prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details")
            if found.get(name) is not None}


class Worker:
    def __init__(self, client):
        self.client = client

    async def is_ready(self):
        try:
            return (await self.client.get("/ready", timeout=READY_TIMEOUT)).status_code == 200
        except httpx.HTTPError:
            return False

    async def get(self, path):
        reply = await self.client.get(path)
        reply.raise_for_status()
        return reply.json()

    async def generate(self, request, context):
        """Yields the token ids of each event. An error of the connection is one after which Dynamo asks another worker."""
        try:
            async with self.client.stream("POST", "/v1/completions", json=body(request)) as reply:
                if reply.status_code in (429, 503):
                    raise WorkerUnavailable(f"the server has refused a request with {reply.status_code}")
                if reply.status_code != 200:
                    message = json.loads(await reply.aread())["error"]["message"]
                    # Dynamo forwards only messages of the first kind.
                    raise InvalidArgument(message) if reply.status_code == 400 else HttpError(reply.status_code, message)
                async with closed_when_stopped(reply, context):
                    async for output in outputs(reply):
                        yield output
        except httpx.HTTPError as error:
            if not context.is_stopped():
                raise Disconnected(f"the server has closed the connection: {error!r}") from error


@contextlib.asynccontextmanager
async def closed_when_stopped(reply, context):
    """Closes the connection as soon as the client has left, which frees the sequence."""
    async def close():
        await context.async_killed_or_stopped()
        await reply.aclose()

    task = asyncio.create_task(close())
    try:
        yield
    finally:
        task.cancel()


async def outputs(reply):
    """The outputs in the events of a completion. The last one waits for the usage, which follows it."""
    last, is_complete = None, False
    async for line in reply.aiter_lines():
        if not line.startswith("data: "):
            continue
        if line == "data: [DONE]":
            is_complete = True
            break
        event = json.loads(line[6:])
        if "error" in event:
            raise Disconnected(event["error"]["message"])
        if last and event.get("usage"):
            last["completion_usage"] = usage(event["usage"])
        for choice in event["choices"]:
            output = {"token_ids": choice["token_ids"]}
            if choice["finish_reason"]:
                last = output | {"finish_reason": choice["finish_reason"]}
            else:
                yield output
    if not is_complete or not last:
        raise httpx.RemoteProtocolError("the stream has no end")
    yield last


async def register(worker, endpoint, args):
    """Describes the model to Dynamo, with the sizes that the server reports."""
    model, server = (await worker.get("/v1/models"))["data"][0], await worker.get("/server_info")
    config = ModelRuntimeConfig()
    config.context_length = model["max_model_len"]
    config.max_num_seqs = server["max_running_requests"]
    config.total_kv_blocks = server["max_total_num_tokens"] // BLOCK
    publisher = None
    if args.kv_events:
        config.enable_local_indexer = True
        publisher = KvEventPublisher(endpoint, kv_block_size=BLOCK, enable_local_indexer=True, zmq_endpoint=args.kv_events)
    await register_model(
        ModelInput.Tokens, ModelType.Chat | ModelType.Completions, endpoint, args.tokenizer, model["id"],
        worker_type=WorkerType.Aggregated, kv_cache_block_size=BLOCK, runtime_config=config, ignore_weights=True)
    print(f"{args.server}: registered {model['id']}", flush=True)
    return publisher


async def end_with(worker, runtime):
    """Ends the worker, after its running requests, when the server ends or is lost."""
    while await worker.is_ready():
        await asyncio.sleep(READY_SECONDS)
    runtime.shutdown()


@dynamo_worker()
async def main(runtime: DistributedRuntime):
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True, help="address of gristmill serve")
    parser.add_argument("--tokenizer", required=True, help="folder with config.json and the tokenizer's files")
    parser.add_argument("--kv-events", help="the server's --kv-events, for --router-mode kv")
    parser.add_argument("--endpoint", default="gristmill.backend.generate", help="namespace, component and name")
    args = parser.parse_args()
    key = os.environ.get("GRISTMILL_API_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    # A prompt may wait for long, and there is a connection for each request.
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
    timeout = httpx.Timeout(None, connect=5)
    async with httpx.AsyncClient(base_url=args.server, headers=headers, limits=limits, timeout=timeout) as client:
        worker = Worker(client)
        while not await worker.is_ready():
            await asyncio.sleep(READY_SECONDS)
        endpoint = runtime.endpoint(args.endpoint)
        publisher = await register(worker, endpoint, args)
        ending = asyncio.create_task(end_with(worker, runtime))
        await endpoint.serve_endpoint(worker.generate)
        ending.cancel()
        if publisher:
            publisher.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
