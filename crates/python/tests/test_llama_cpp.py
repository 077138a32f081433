"""The calls of llama-cpp-python."""

import itertools
import pathlib
import sys

import pytest
from conftest import TEMPLATE

import gristmill.llama_cpp as llama_cpp
from gristmill import UnsupportedError


@pytest.fixture(scope="module")
def llama():
    with llama_cpp.Llama("builtin", n_ctx=512, n_threads=2, verbose=False, chat_template=TEMPLATE) as llama:
        yield llama


def text(completion):
    return completion["choices"][0]["text"]


def test_completions(llama):
    found = llama("Once upon a time", max_tokens=6, temperature=0.0)
    assert found["object"] == "text_completion" and found["model"] == "builtin"
    chunks = llama.create_completion("Once upon a time", max_tokens=6, temperature=0.0, stream=True)
    assert "".join(map(text, chunks)) == text(found)
    assert text(llama("The", max_tokens=3, echo=True)).startswith("The")
    assert len(llama("The", max_tokens=3, logprobs=2)["choices"][0]["logprobs"]["tokens"]) == 3
    grammar = llama_cpp.LlamaGrammar.from_string('root ::= "true" | "false"')
    assert text(llama("It is ", max_tokens=9, grammar=grammar)) in ("true", "false")
    schema = llama_cpp.LlamaGrammar.from_json_schema('{"type": "boolean"}')
    assert text(llama("It is ", max_tokens=9, grammar=schema)) in ("true", "false")
    assert text(llama("Once upon a time", max_tokens=50, temperature=0.0, stop=[text(found)[2:4]])) == text(found)[:2]


def test_seeds_of_a_model(llama):
    def three():
        llama.set_seed(1337)
        return [text(llama("Once", max_tokens=8, temperature=1.0)) for _ in range(3)]

    assert three() == three() and len(set(three())) == 3
    assert text(llama("Once", max_tokens=8, seed=4)) == text(llama("Once", max_tokens=8, seed=4))


def test_processors_change_logits(llama):
    wanted = llama.tokenize(b" dog", add_bos=False)[0]
    lengths = []

    def processor(input_ids, logits):
        lengths.append(len(input_ids))
        logits[wanted] += 1000
        return logits

    processors = llama_cpp.LogitsProcessorList([processor])
    found = llama("The", max_tokens=4, logits_processor=processors)
    assert text(found) == " dog" * 4 and found["usage"]["completion_tokens"] == 4
    assert lengths == [1, 2, 3, 4]
    chunks = llama("The", max_tokens=4, logits_processor=processors, stream=True, stop=["dog dog dog"])
    assert "".join(map(text, chunks)) == " "
    plain = llama("Once upon a time", max_tokens=8, temperature=0.0)
    same = llama("Once upon a time", max_tokens=8, temperature=0.0, logits_processor=llama_cpp.LogitsProcessorList())
    assert text(plain) == text(same)
    stopping = llama_cpp.StoppingCriteriaList([lambda ids, logits: len(ids) >= 5])
    assert llama("The", max_tokens=50, stopping_criteria=stopping)["usage"]["completion_tokens"] == 4
    chat = llama.create_chat_completion([{"role": "user", "content": "Hi"}], max_tokens=2, logits_processor=processors)
    assert chat["choices"][0]["message"]["content"] == " dog dog"


def test_logits(llama):
    llama.reset()
    tokens = llama.tokenize(b"The dog")
    llama.eval(tokens)
    llama.eval(llama.tokenize(b" sat", add_bos=False))
    assert llama.n_tokens == 3 and llama.scores.shape == (3, llama.n_vocab()) and list(llama.input_ids[:2]) == tokens
    ids = list(itertools.islice(llama.generate(tokens, temp=0), 5))
    assert ids == list(itertools.islice(llama.generate(tokens, temp=0, logits_processor=llama_cpp.LogitsProcessorList()), 5))
    llama.reset()
    llama.eval(tokens)
    assert llama.sample(temp=0) == ids[0]
    assert list(llama.scores.argmax(1))[-1] == ids[0]


def test_chats_and_vectors(llama):
    messages = [{"role": "user", "content": "Hi"}]
    found = llama.create_chat_completion(messages, max_tokens=6, temperature=0.0)
    assert found["choices"][0]["message"]["role"] == "assistant"
    chunks = llama.create_chat_completion(messages, max_tokens=6, temperature=0.0, stream=True)
    deltas = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks]
    assert "".join(deltas) == found["choices"][0]["message"]["content"]
    form = {"type": "json_object", "schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}
    content = llama.create_chat_completion(messages, response_format=form, max_tokens=90)["choices"][0]["message"]["content"]
    assert content.startswith("{")
    assert llama.create_chat_completion_openai_v1(messages, max_tokens=2).choices[0].finish_reason == "length"
    assert len(llama.embed("The dog")) == llama.n_embd() and len(llama.embed(["a", "b"])) == 2
    assert llama.create_embedding("The dog")["data"][0]["object"] == "embedding"


def test_tokens(llama):
    assert llama.detokenize(llama.tokenize(b"The dog sat")) == b"The dog sat"
    assert llama.token_eos() == 0 and llama.token_bos() == -1
    assert llama.detokenize([llama.token_nl()]) == b"\n"
    assert llama.n_ctx() == 512 and llama.metadata["general.architecture"] == "qwen3moe"


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"n_gpu_layers": 20}, "n_gpu_layers"),
        ({"lora_path": "x"}, "lora_path"),
        ({"rope_freq_base": 5.0}, "rope_freq_base"),
        ({"chat_format": "vicuna"}, "chat_format"),
        ({"type_k": 2, "type_v": 2}, "type_k"),
        ({"n_threads": 1, "n_threads_batch": 2}, "n_threads_batch"),
        ({"vocab_only": True}, "vocab_only"),
    ],
)
def test_options_that_are_not_supported_are_refused_by_name(options, word):
    with pytest.raises(UnsupportedError, match=f"^{word}"):
        llama_cpp.Llama("builtin", **options)


def test_arguments_that_are_not_supported_are_refused_by_name(llama):
    for arguments in ({"mirostat_mode": 2}, {"suffix": "x"}, {"typical_p": 0.5}, {"tfs_z": 0.5}):
        with pytest.raises(UnsupportedError, match=f"^{next(iter(arguments))}"):
            llama("The", **arguments)
    with pytest.raises(UnsupportedError, match="_ctx"):
        llama._ctx
    with pytest.raises(ValueError, match="nonsense"):
        llama("The", nonsense=1)
    with pytest.raises(TypeError, match="nonsense"):
        llama_cpp.Llama("builtin", nonsense=1)


def test_options_that_are_honoured():
    draft = llama_cpp.llama_speculative.LlamaPromptLookupDecoding(num_pred_tokens=2)
    with llama_cpp.Llama(
        "builtin", n_ctx=128, n_threads=1, n_threads_batch=1, n_batch=64, n_ubatch=64, flash_attn=True, type_k=8, type_v=8,
        chat_format="chatml", draft_model=draft, logits_all=True, embedding=True, verbose=False,
    ) as llama:  # fmt: skip
        assert llama.n_ctx() == 128
        prompt = llama.llm.apply_template("Hi")
        assert prompt == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        usage = llama("one two three one two three one two", max_tokens=20, temperature=0)["usage"]
        assert usage["gristmill"]["choices"][0]["draft"] == "lookup"


def test_states(llama):
    tokens = llama.tokenize(b"Once upon a time", special=True)
    llama.reset()
    llama.eval(tokens)
    llama.set_seed(7)
    state = llama.save_state()

    def three():
        return [llama.sample(temp=2.0, top_k=0, top_p=1.0, min_p=0.0) for _ in range(3)]

    first = three()
    llama.reset()
    llama.eval(llama.tokenize(b"Once there was", special=True))
    llama.load_state(state)
    assert llama.n_tokens == len(tokens) and list(llama.input_ids) == tokens
    assert three() == first
    # The next logits follow the restored tokens.
    llama.eval(llama.tokenize(b",", add_bos=False))
    restored = llama.scores[-1].copy()
    llama.reset()
    llama.eval(tokens + llama.tokenize(b",", add_bos=False))
    assert abs(llama.scores[-1] - restored).max() < 1e-3


def test_a_state_of_fixed_size_is_cut():
    golden = pathlib.Path(__file__).parents[2] / "conformance/golden/falcon-h1-q8_0.gguf"
    with llama_cpp.Llama(str(golden), n_ctx=64, n_threads=2) as llama:
        tokens = llama.tokenize(b"The quick brown fox")
        llama.eval(tokens)
        state, expected = llama.save_state(), llama.scores[-1].copy()
        llama.reset()
        llama.eval([*tokens[:-1], 5, 6])
        llama.load_state(state)
        assert llama.n_tokens == len(tokens) and abs(llama.scores[-1] - expected).max() == 0
        none = llama_cpp.LogitsProcessorList()
        after = list(itertools.islice(llama.generate(tokens, temp=0, logits_processor=none), 3))
        assert after == list(itertools.islice(llama.generate(tokens, temp=0), 3))


def test_libraries_that_import_llama_cpp():
    before = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "llama_cpp"}
    llama_cpp.install()
    try:
        from llama_cpp import Llama
        from llama_cpp.llama_grammar import LlamaGrammar

        assert Llama is llama_cpp.Llama and LlamaGrammar is llama_cpp.LlamaGrammar
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "llama_cpp"]:
            del sys.modules[name]
        sys.modules.update(before)
