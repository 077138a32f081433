"""Texts: batches, seeds, log-probabilities, streams, receipts, tokens, vectors and logits."""

import json
import subprocess
import sys

import numpy as np
import pytest

import gristmill
from gristmill import Completion, Content, Finish, SamplingParams

PROMPT = "Once upon a time"
GREEDY = SamplingParams(temperature=0, max_tokens=12)


def test_a_list_is_one_batch_with_the_texts_of_single_calls(llm):
    prompts = [PROMPT, "The dog", llm.tokenize("A cat"), "Lily"]
    batch = llm.generate(prompts, GREEDY)
    assert [one.text for one in batch] == [llm.generate(prompt, GREEDY).text for prompt in prompts]
    assert isinstance(batch[0], Completion) and batch[0].finish_reason == "length"
    assert llm.detokenize(batch[0].token_ids) == batch[0].text
    assert batch[2].prompt_token_ids == llm.tokenize("A cat")
    assert llm.generate([], GREEDY) == []


def test_many_prompts_wait_for_each_other(llm):
    texts = llm.generate(["The dog"] * 1030, max_tokens=1, temperature=0)
    assert len(texts) == 1030 and len({one.text for one in texts}) == 1


def test_seeds_give_the_same_text_again(llm):
    first = llm.generate(PROMPT, max_tokens=16, temperature=1.5, n=3)
    assert len({choice.text for choice in first.choices}) == 3 and first.choices[0].text == first.text
    for choice in first.choices:
        assert llm.generate(PROMPT, max_tokens=16, temperature=1.5, seed=choice.seed).text == choice.text


def test_logprobs_are_those_of_the_logits(llm):
    # The built-in model recommends a penalty, which log-probabilities are without.
    found = llm.generate(PROMPT, GREEDY, logprobs=3, repetition_penalty=1)
    logits = llm.logits(found.prompt_token_ids + found.token_ids).astype(np.float64)
    rows = logits[len(found.prompt_token_ids) - 1 : -1]
    expected = rows - np.log(np.exp(rows - rows.max(1, keepdims=True)).sum(1, keepdims=True)) - rows.max(1, keepdims=True)
    got = [entry.logprob for entry in found.logprobs]
    assert np.allclose(got, expected[np.arange(len(rows)), found.token_ids], atol=2e-2)
    assert all(len(entry.top) == 3 and max(entry.top.values()) == entry.logprob for entry in found.logprobs)


def test_logprobs_of_a_text(llm):
    found = llm.token_logprobs("The dog sat", top=1)
    assert found[0].logprob is None and all(entry.logprob < 0 for entry in found[1:])
    assert "".join(entry.token for entry in found) == "The dog sat"


def test_a_stream_has_the_text_in_pieces(llm):
    *pieces, last = llm.stream_text(PROMPT, GREEDY, seed=5)
    assert len(pieces) > 5 and all(isinstance(piece, Content) for piece in pieces)
    assert "".join(map(str, pieces)) == llm.generate(PROMPT, GREEDY).text
    assert isinstance(last, Finish) and last.reason == "length" and last.seed == 5
    assert last.usage.completion_tokens == 12


def test_a_receipt_is_replayed_by_the_command_line(llm, tmp_path):
    receipt = llm.generate(PROMPT, max_tokens=8, receipt=True, temperature=1).receipt
    path = tmp_path / "receipt.json"
    path.write_text(json.dumps(receipt))
    run = subprocess.run(
        [sys.executable, "-m", "gristmill", "replay", str(path)], capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr


def test_stops_grammars_and_biases(llm):
    text = llm.generate(PROMPT, GREEDY).text
    assert llm.generate(PROMPT, GREEDY, stop=[text[3:6]]).text == text[:3]
    assert llm.generate(PROMPT, guided_choice=["yes", "no"], temperature=0).text in ("yes", "no")
    token = llm.tokenize(" dog")[0]
    assert llm.generate(PROMPT, GREEDY, logit_bias={token: 100.0}, max_tokens=2).token_ids == [token, token]


def test_arrays_share_their_memory(llm):
    vectors = llm.embed(["The dog sat", "A cat"])
    assert vectors.shape == (2, llm.info["width"]) and vectors.dtype == np.float32
    assert np.allclose((vectors**2).sum(1), 1, atol=1e-5)
    floats, tokens = llm.engine.embed(["The dog sat"]).wait()
    array = np.asarray(floats)
    assert array.__array_interface__["data"][0] == floats.__array_interface__["data"][0]
    assert tokens == 3 and np.allclose(floats.tolist(), array)
    del floats
    assert np.allclose(array[0], vectors[0], atol=1e-4)
    assert llm.embed("A cat").shape == (llm.info["width"],)
    logits = llm.logits("The dog sat")
    assert logits.shape == (3, llm.info["vocabulary"])
    assert np.allclose(llm.logits("The dog sat", last=True), logits[-1], atol=1e-2)
    with pytest.raises(ValueError):
        vectors[0, 0] = 1


def test_ranks_and_scores(llm):
    ranked = llm.rerank("a dog", ["a dog", "a car"], top_n=1)
    assert [(one.index, one.document) for one in ranked] == [(0, "a dog")] and ranked[0].score > 0.99
    assert llm.score("a dog", ["a dog", "a car"])[0] > 0.99


def test_sessions_return_logits_step_by_step(llm):
    tokens = llm.tokenize("The dog sat on the mat")
    session = llm.engine.session(64)
    session.forward(tokens[:3], False)
    rest = np.asarray(session.forward(tokens[3:], True))
    assert np.allclose(rest, llm.logits(tokens)[3:], atol=5e-2)
    session.truncate(3)
    assert np.allclose(np.asarray(session.forward(tokens[3:], False))[0], rest[-1], atol=5e-2)
    session.close()
    with pytest.raises(gristmill.ClosedError):
        session.forward(tokens, False)


def test_the_dictionaries_of_openai(llm):
    body = llm.create_completion(prompt=PROMPT, max_tokens=3, temperature=0)
    assert body["object"] == "text_completion" and body["usage"]["completion_tokens"] == 3
    chunks = list(llm.create_completion(prompt=PROMPT, max_tokens=3, temperature=0, stream=True))
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == body["choices"][0]["text"]
    assert len(llm.create_embedding(input="a dog")["data"][0]["embedding"]) == llm.info["width"]
