"""Conversations whose turns repeat what came before: how much of their prompts replicas find in their caches, and how
evenly a router spreads the requests."""

import http.client
import json
import random
import uuid
from concurrent.futures import ThreadPoolExecutor

from replica import request

CONVERSATIONS, TURNS, AT_A_TIME = 48, 5, 12
# Words of a system prompt and of a question, and tokens of an answer.
SYSTEM, QUESTION, ANSWER = 250, 30, 32
WORDS = ("the little dog saw a big red ball in garden and ran to it then girl said we can play with you friend sun was "
         "warm bird sang from tree they found box under old house opened door went into dark wood one day boy named Tim "
         "liked his mum made cake for party everyone happy cat slept on soft bed night came moon star").split()


def words(source, count):
    return " ".join(source.choice(WORDS) for _ in range(count))


def converse(port, systems, seed):
    """Runs all conversations, each with one of so many system prompts. Returns how many requests were not answered."""
    source = random.Random(seed)
    prompts = [words(source, SYSTEM) for _ in range(systems)]
    # Equal numbers, in a random order, because users come in no order.
    starts = [prompts[index % systems] for index in range(CONVERSATIONS)]
    source.shuffle(starts)
    questions = [[words(source, QUESTION) for _ in range(TURNS)] for _ in range(CONVERSATIONS)]
    sessions = [str(uuid.UUID(int=source.getrandbits(128))) for _ in range(CONVERSATIONS)]

    def one(index):
        text, failed = starts[index], 0
        for question in questions[index]:
            text += f"\n\n{question}.\n\n"
            body = {"model": "any", "prompt": text, "max_tokens": ANSWER, "ignore_eos": True, "temperature": 0}
            try:
                status, reply = request(port, "POST", "/v1/completions", body, session=sessions[index])
            except (OSError, http.client.HTTPException):
                status = None
            if status == 200:
                text += json.loads(reply)["choices"][0]["text"]
            else:
                failed += 1
        return failed

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        return sum(pool.map(one, range(CONVERSATIONS)))


def measure(port, replicas, systems, seed):
    """The share of prompt tokens from caches, the requests of each replica, and the requests without an answer."""
    names = ("prompt_tokens_total", "prompt_tokens_reused_total", "ended_requests_total")
    read = lambda: [[replica.metric(name) for name in names] for replica in replicas]
    before = read()
    failed = converse(port, systems, seed)
    counts = [[after - old for after, old in zip(*pair)] for pair in zip(read(), before)]
    prompt, reused, _ = (sum(column) for column in zip(*counts))
    return reused / prompt, [count[2] for count in counts], failed
