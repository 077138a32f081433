"""`llama_cpp.Llama` over an engine of gristmill."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from .. import _calls
from ..errors import GristmillError, UnsupportedError
from ..llm import LLM
from . import _sampling
from .llama_grammar import LlamaGrammar

#: A seed that means a random one.
LLAMA_DEFAULT_SEED = 0xFFFFFFFF
#: Types of the KV cache by their numbers in GGML.
_KV_TYPES = {None: None, 1: "f16", 8: "q8_0"}
#: Arguments whose other values change a result, with the only accepted ones and what to do.
_FIXED: dict[str, tuple[tuple[Any, ...], str]] = {
    "split_mode": ((None, 1), "a model is on one device, whole"),
    "tensor_split": ((None,), "a model is on one device, whole"),
    "vocab_only": ((False, None), "use gristmill tokenize"),
    "use_mmap": ((True, None), "files are mapped or copied as the device needs"),
    "use_mlock": ((False, None), "the system keeps the pages of models that are used"),
    "kv_overrides": ((None, {}), "the metadata of the file apply"),
    "rope_scaling_type": ((None, -1), "the file sets it"),
    "pooling_type": ((None, -1), "the file sets it"),
    "attention_type": ((None, -1), "the file sets it"),
    "rope_freq_base": ((None, 0, 10000.0), "the file sets it"),
    "rope_freq_scale": ((None, 0, 1.0), "the file sets it"),
    "yarn_ext_factor": ((None, -1.0), "the file sets it"),
    "yarn_attn_factor": ((None, 1.0), "the file sets it"),
    "yarn_beta_fast": ((None, 32.0), "the file sets it"),
    "yarn_beta_slow": ((None, 1.0), "the file sets it"),
    "yarn_orig_ctx": ((None, 0), "the file sets it"),
    "offload_kqv": ((True, None), "the KV cache is on the model's device"),
    "op_offload": ((None,), "see experts_on"),
    "swa_full": ((None, False), "a window's layers keep their window"),
    "lora_base": ((None,), "merge the adapter into its model"),
    "lora_scale": ((None, 1.0), "merge the adapter into its model"),
    "lora_path": ((None,), "merge the adapter into its model"),
    "numa": ((None, False, 0), "use numactl"),
    "chat_handler": ((None,), "images need no handler: pass mmproj, or have the mmproj file in the model's folder"),
    "tokenizer": ((None,), "the file has the tokenizer"),
    "spm_infill": ((False, None), "write the tokens for infilling into the prompt"),
    "typical_p": ((None, 1, 1.0), "use top_k, top_p or min_p"),
    "tfs_z": ((None, 1, 1.0), "use top_k, top_p or min_p"),
    "mirostat_mode": ((None, 0), "use top_k, top_p or min_p"),
    "suffix": ((None,), "write the tokens for infilling into the prompt"),
    "functions": ((None,), "use tools"),
    "function_call": ((None,), "use tool_choice"),
}
#: Arguments that change no result here: how fast the other program is, parts of samplers that are off, and what
#: llama-cpp-python itself no longer reads.
_FREE = {
    "n_ubatch", "logits_all", "embedding", "flash_attn", "no_perf", "mirostat_tau", "mirostat_eta", "penalize_nl", "n_parts",
    "f16_kv",
}  # fmt: skip
#: Templates of chat formats by their names.
_CHAT_FORMATS = {
    "chatml": "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
}


def refuse_others(arguments: dict[str, Any]) -> None:
    """Refuses values that change a result and are not supported, by the names of their arguments."""
    for name, value in arguments.items():
        accepted, remedy = _FIXED[name]
        if value not in accepted:
            raise UnsupportedError(f"{name}: {value!r} is not supported; leave it out ({remedy})")


class LlamaState:
    """What :meth:`Llama.save_state` keeps: tokens, their logits, and the source of seeds."""

    def __init__(self, tokens: list[int], scores: list[Any], seeds: Any) -> None:
        self.tokens = tokens
        self.scores = scores
        self.seeds = seeds


class Llama:
    """A model with the calls of llama-cpp-python. Options of :class:`gristmill.LLM` are keywords too, such as ``device``.

    ``n_gpu_layers`` is 0 for the CPU and -1 for the GPU, on which a model is whole.
    """

    def __init__(
        self,
        model_path: str,
        *,
        n_gpu_layers: int = 0,
        main_gpu: int = 0,
        seed: int = LLAMA_DEFAULT_SEED,
        n_ctx: int = 512,
        n_batch: int = 512,
        n_threads: int | None = None,
        n_threads_batch: int | None = None,
        last_n_tokens_size: int = 64,
        chat_format: str | None = None,
        draft_model: Any = None,
        type_k: int | None = None,
        type_v: int | None = None,
        verbose: bool = True,
        **others: Any,
    ) -> None:
        refuse_others({name: others.pop(name) for name in list(others) if name in _FIXED})
        for name in _FREE.intersection(others):
            del others[name]
        if n_threads_batch not in (None, 0, n_threads):
            raise UnsupportedError("n_threads_batch: prompts and tokens use the same threads; pass n_threads alone")
        if type_k not in _KV_TYPES or type_v != type_k:
            raise UnsupportedError(f"type_k, type_v: {type_k} and {type_v} are not supported; both are 1 (f16) or 8 (q8_0)")
        if chat_format is not None:
            if chat_format not in _CHAT_FORMATS:
                remedy = "leave it out for the model's template, or pass chat_template, a template in Jinja"
                raise UnsupportedError(f"chat_format: {chat_format!r} is not supported; {remedy}")
            others.setdefault("chat_template", _CHAT_FORMATS[chat_format])
        if draft_model is not None:
            others.update(draft="lookup", draft_tokens=draft_model.num_pred_tokens)
        others.setdefault("device", _device(n_gpu_layers, main_gpu))
        others.setdefault("parallel", 1)
        self.model_path = model_path
        self.verbose = verbose
        self.last_n_tokens_size = last_n_tokens_size
        self.llm = LLM(
            model_path,
            ctx=n_ctx or None,
            batch=None if n_batch == 512 else max(n_batch, 1),
            threads=n_threads or None,
            kv=_KV_TYPES[type_k],
            **others,
        )
        self._info = self.llm.info
        self._session: Any = None
        self._tokens: list[int] = []
        self._scores: list[Any] = []
        self.set_seed(seed)

    # --- the model ---

    @classmethod
    def from_pretrained(
        cls,
        repo_id: str,
        filename: str | None,
        additional_files: Any = None,
        local_dir: Any = None,
        local_dir_use_symlinks: Any = "auto",
        cache_dir: Any = None,
        **others: Any,
    ) -> Llama:
        """A model of the hub, which is downloaded if the cache lacks it. ``filename`` is a file, or ``*TAG*`` or
        ``*TAG.gguf`` for a quantisation."""
        for name, value in {"additional_files": additional_files, "local_dir": local_dir, "cache_dir": cache_dir}.items():
            if value is not None:
                raise UnsupportedError(f"{name}: leave it out; models are in the hub's cache (HF_HOME)")
        pick = (filename or "").removesuffix(".gguf") if "*" in (filename or "") else filename or ""
        pick = pick.strip("*").strip("-.")
        if any(mark in pick for mark in "*?["):
            raise UnsupportedError(f"filename: the pattern {filename!r} is not supported; name the file or its quantisation")
        return cls(model_path=f"hf:{repo_id}:{pick}" if pick else f"hf:{repo_id}", **others)

    @property
    def model(self) -> Llama:
        """What :func:`gristmill.llama_cpp.llama_model_get_vocab` takes."""
        return self

    @property
    def context_params(self) -> SimpleNamespace:
        """The length of the context."""
        return SimpleNamespace(n_ctx=self.n_ctx())

    @property
    def metadata(self) -> dict[str, str]:
        """Some of the metadata of the file."""
        found = {"general.architecture": self._info["architecture"], "general.name": self._info["title"]}
        template = {"tokenizer.chat_template": self._info["chat_template"]}
        return {name: value for name, value in {**found, **template}.items() if value is not None}

    def n_ctx(self) -> int:
        """Tokens of the context."""
        return self._info["context"]

    def n_embd(self) -> int:
        """The width of vectors."""
        return self._info["width"]

    def n_vocab(self) -> int:
        """Tokens of the vocabulary."""
        return self._info["vocabulary"]

    def token_bos(self) -> int:
        """The token at the start of a text; -1 if there is none."""
        return -1 if self._info["bos"] is None else self._info["bos"]

    def token_eos(self) -> int:
        """The token at the end of a text; -1 if there is none."""
        return -1 if self._info["eos"] is None else self._info["eos"]

    def token_nl(self) -> int:
        """The token of a line break."""
        return self.llm.engine.tokenize("\n", False, False)[-1]

    def tokenizer(self) -> Llama:
        """What has ``tokenize`` and ``detokenize``."""
        return self

    def set_seed(self, seed: int) -> None:
        """The seed from which the seeds of requests without one are chosen."""
        self._seeds = random.Random(None if seed in (LLAMA_DEFAULT_SEED, -1) else seed)

    def set_cache(self, cache: Any) -> None:
        """Prefixes of prompts are always cached, within the KV cache."""

    def close(self) -> None:
        """Frees the memory."""
        if self._session is not None:
            self._session.close()
            self._session = None
        self.llm.close()

    def __enter__(self) -> Llama:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name in ("ctx", "_ctx", "_model", "_init_sampler"):
            raise _MissingError(f"{name}: gristmill.llama_cpp.Llama has no contexts of llama.cpp; use eval, scores and reset")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # --- tokens ---

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> list[int]:
        """The tokens of a text."""
        return self.llm.engine.tokenize(text.decode("utf-8", "replace"), add_bos, special)

    def detokenize(self, tokens: Sequence[int], prev_tokens: Sequence[int] | None = None, special: bool = False) -> bytes:
        """The bytes of tokens. A text that starts has no space that the tokenizer puts before it."""
        if prev_tokens is None and not special:
            return self.llm.engine.detokenize(list(tokens), True).encode()
        return b"".join(self.llm.engine.token_bytes(token) for token in tokens)

    # --- logits ---

    @property
    def n_tokens(self) -> int:
        """Tokens that :meth:`eval` has read."""
        return len(self._tokens)

    @property
    def input_ids(self) -> Any:
        """The tokens that :meth:`eval` has read."""
        import numpy

        return numpy.array(self._tokens, dtype=numpy.intc)

    @property
    def scores(self) -> Any:
        """The logits after each token that :meth:`eval` has read."""
        import numpy

        return numpy.concatenate(self._scores) if self._scores else numpy.zeros((0, self.n_vocab()), numpy.single)

    def reset(self) -> None:
        """Forgets the tokens of :meth:`eval`."""
        self._cut(0)

    def eval(self, tokens: Sequence[int]) -> None:
        """Reads tokens after those it has read, and keeps their logits in :attr:`scores`."""
        if len(tokens) > 0:
            self._scores.append(self._forward(tokens, True))

    def save_state(self) -> LlamaState:
        """The tokens that :meth:`eval` has read, their logits, and the source of seeds. The KV cache is not copied."""
        return LlamaState(list(self._tokens), list(self._scores), self._seeds.getstate())

    def load_state(self, state: LlamaState) -> None:
        """Continues where a state was saved. Tokens that differ from those that are read now are read again."""
        same = _shared(self._tokens, state.tokens)
        self._cut(same)
        if rest := state.tokens[same:]:
            self._forward(rest, False)
        self._scores = list(state.scores)
        self._seeds.setstate(state.seeds)

    def sample(
        self,
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        temp: float = 0.8,
        repeat_penalty: float = 1.0,
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        logits_processor: Any = None,
        idx: int | None = None,
        **others: Any,
    ) -> int:
        """Samples a token from the last logits of :meth:`eval`, or from those at an index."""
        import numpy

        _check_request({"typical_p": typical_p, **others})
        logits = numpy.array(self.scores[-1 if idx is None else idx])
        if logits_processor is not None:
            logits = logits_processor(self.input_ids, logits)
        return _sampling.sample(
            logits, self._tokens, numpy.random.default_rng(self._seeds.getrandbits(63)), temperature=temp, top_k=top_k,
            top_p=top_p, min_p=min_p, repeat_penalty=repeat_penalty, frequency_penalty=frequency_penalty,
            presence_penalty=presence_penalty,
        )  # fmt: skip

    def _forward(self, tokens: Sequence[int], every: bool) -> Any:
        import numpy

        if self._session is None:
            self._session = self.llm.engine.session(self.n_ctx())
        logits = numpy.asarray(self._session.forward(list(tokens), every))
        self._tokens.extend(tokens)
        return logits

    def _cut(self, length: int) -> None:
        if self._session is not None and length < len(self._tokens):
            try:
                self._session.truncate(length)
            except GristmillError:
                # Layers whose state has a fixed size keep that of few lengths.
                self._session.truncate(0)
                if length:
                    self._session.forward(self._tokens[:length], False)
        del self._tokens[length:]
        self._scores = [self.scores[:length]] if self._scores and length else []

    def generate(
        self,
        tokens: Sequence[int],
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        temp: float = 0.8,
        repeat_penalty: float = 1.0,
        reset: bool = True,
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        logits_processor: Any = None,
        stopping_criteria: Any = None,
        grammar: LlamaGrammar | None = None,
        seed: int | None = None,
        **others: Any,
    ) -> Iterator[int]:
        """Tokens after these, without end."""
        _check_request({"typical_p": typical_p, **others})
        settings = {
            "top_k": top_k, "top_p": top_p, "min_p": min_p, "temperature": temp, "repeat_penalty": repeat_penalty,
            "frequency_penalty": frequency_penalty, "presence_penalty": presence_penalty,
        }  # fmt: skip
        seed = self._seeds.getrandbits(63) if seed is None else seed
        if not reset:
            tokens = [*self._tokens, *tokens]
        if logits_processor is None and stopping_criteria is None:
            fields = {**settings, "prompt": list(tokens), "max_tokens": -1, "ignore_eos": True, "seed": seed}
            fields.update(grammar.fields() if grammar is not None else {})
            fields.update(stream=True, return_token_ids=True)
            for chunk in _calls.chunks(_calls.start(self.llm.engine, "/v1/completions", fields)):
                for choice in chunk["choices"]:
                    yield from choice.get("token_ids") or []
            return
        if grammar is not None:
            raise UnsupportedError("grammar: it cannot be used together with logits_processor; leave one out")
        yield from self._processed(list(tokens), settings, seed, logits_processor, stopping_criteria)

    def _processed(
        self, tokens: list[int], settings: dict[str, Any], seed: int, processor: Any, criteria: Any
    ) -> Iterator[int]:
        import numpy

        shared = _shared(self._tokens, tokens[:-1])
        self._cut(shared)
        chooser, prompt, rest = numpy.random.default_rng(seed & (2**64 - 1)), len(tokens), tokens[shared:]
        while len(self._tokens) + len(rest) <= self.n_ctx():
            logits = numpy.array(self._forward(rest, False)[0])
            so_far = numpy.array(self._tokens, dtype=numpy.intc)
            if processor is not None:
                logits = processor(so_far, logits)
            if criteria is not None and criteria(so_far, logits):
                return
            token = _sampling.sample(logits, self._tokens[prompt:], chooser, **settings)
            yield token
            rest = [token]

    # --- texts ---

    def create_completion(
        self,
        prompt: str | Sequence[int],
        suffix: str | None = None,
        max_tokens: int | None = 16,
        temperature: float = 0.8,
        top_p: float = 0.95,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        logprobs: int | None = None,
        echo: bool = False,
        stop: str | Sequence[str] | None = (),
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        repeat_penalty: float = 1.0,
        top_k: int = 40,
        stream: bool = False,
        seed: int | None = None,
        tfs_z: float = 1.0,
        mirostat_mode: int = 0,
        mirostat_tau: float = 5.0,
        mirostat_eta: float = 0.1,
        model: str | None = None,
        stopping_criteria: Any = None,
        logits_processor: Any = None,
        grammar: LlamaGrammar | None = None,
        logit_bias: dict[Any, float] | None = None,
        **others: Any,
    ) -> Any:
        """Continues a text: OpenAI's dictionary, or with ``stream`` an iterator of chunks. ``max_tokens`` of None or 0 is
        the whole context."""
        refuse_others({"suffix": suffix, "typical_p": typical_p, "tfs_z": tfs_z, "mirostat_mode": mirostat_mode})
        settings = {
            "temperature": temperature, "top_p": top_p, "min_p": min_p, "top_k": top_k, "repeat_penalty": repeat_penalty,
            "frequency_penalty": frequency_penalty, "presence_penalty": presence_penalty,
        }  # fmt: skip
        most = -1 if max_tokens is None or max_tokens <= 0 else max_tokens
        seed = self._seeds.getrandbits(63) if seed is None else seed
        stops = [stop] if isinstance(stop, str) else list(stop or [])
        if logits_processor is not None or stopping_criteria is not None:
            if logprobs is not None or logit_bias or grammar is not None or others:
                raise UnsupportedError(
                    "logits_processor: logprobs, logit_bias and grammar cannot be used together with it; leave one out"
                )
            tokens = self.tokenize(prompt.encode(), True, True) if isinstance(prompt, str) else list(prompt)
            ids = self._processed(tokens, settings, seed, logits_processor, stopping_criteria)
            chunks = self._written(ids, tokens, most, stops, model or self.model_path)
            text = prompt if isinstance(prompt, str) else self.llm.detokenize(tokens)
            return chunks if stream else _joined(list(chunks), text if echo else "", len(tokens))
        fields = {
            **settings, **others, "prompt": prompt if isinstance(prompt, str) else list(prompt), "max_tokens": most,
            "echo": echo, "stop": stops, "seed": seed,
        }  # fmt: skip
        if logprobs is not None:
            fields["logprobs"] = logprobs
        if logit_bias:
            fields["logit_bias"] = {str(token): bias for token, bias in logit_bias.items()}
        if grammar is not None:
            fields.update(grammar.fields())
        if stream:
            fields["echo"] = False
            return self._created("/v1/completions", fields, True, model)
        return self._created("/v1/completions", fields, False, model)

    def __call__(self, prompt: str | Sequence[int], *arguments: Any, **keywords: Any) -> Any:
        """The same as :meth:`create_completion`."""
        return self.create_completion(prompt, *arguments, **keywords)

    def create_chat_completion(
        self,
        messages: Sequence[Any],
        functions: Any = None,
        function_call: Any = None,
        tools: Sequence[Any] | None = None,
        tool_choice: Any = None,
        temperature: float = 0.2,
        top_p: float = 0.95,
        top_k: int = 40,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        stream: bool = False,
        stop: str | Sequence[str] | None = (),
        seed: int | None = None,
        response_format: Any = None,
        max_tokens: int | None = None,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        repeat_penalty: float = 1.0,
        tfs_z: float = 1.0,
        mirostat_mode: int = 0,
        mirostat_tau: float = 5.0,
        mirostat_eta: float = 0.1,
        model: str | None = None,
        logits_processor: Any = None,
        grammar: LlamaGrammar | None = None,
        logit_bias: dict[Any, float] | None = None,
        logprobs: bool | None = None,
        top_logprobs: int | None = None,
        **others: Any,
    ) -> Any:
        """Answers a conversation: OpenAI's dictionary, or with ``stream`` an iterator of chunks."""
        fixed = {"functions": functions, "function_call": function_call, "typical_p": typical_p, "tfs_z": tfs_z}
        refuse_others({**fixed, "mirostat_mode": mirostat_mode})
        stops = [stop] if isinstance(stop, str) else list(stop or [])
        if logits_processor is not None:
            # The form of a reply is text: no calls.
            if tools or response_format or grammar is not None or logprobs:
                raise UnsupportedError("logits_processor: it is for texts alone; leave tools, formats and logprobs out")
            tokens = self.llm.tokenize(list(messages))
            completion = self.create_completion(
                tokens, max_tokens=max_tokens, temperature=temperature, top_p=top_p, min_p=min_p, top_k=top_k, stop=stops,
                frequency_penalty=frequency_penalty, presence_penalty=presence_penalty, repeat_penalty=repeat_penalty,
                seed=seed, model=model, logits_processor=logits_processor, stream=stream,
            )  # fmt: skip
            return map(_chat_chunk, completion) if stream else _chat(completion)
        fields: dict[str, Any] = {
            "messages": list(messages), "temperature": temperature, "top_p": top_p, "top_k": top_k, "min_p": min_p,
            "stop": stops, "presence_penalty": presence_penalty, "frequency_penalty": frequency_penalty,
            "repeat_penalty": repeat_penalty, "seed": self._seeds.getrandbits(63) if seed is None else seed, **others,
        }  # fmt: skip
        optional = {
            "tools": tools, "tool_choice": tool_choice, "response_format": response_format, "logprobs": logprobs,
            "top_logprobs": top_logprobs,
        }  # fmt: skip
        fields.update({name: value for name, value in optional.items() if value is not None})
        if max_tokens is not None and max_tokens > 0:
            fields["max_tokens"] = max_tokens
        if logit_bias:
            fields["logit_bias"] = {str(token): bias for token, bias in logit_bias.items()}
        if grammar is not None:
            fields.update(grammar.fields())
        return self._created("/v1/chat/completions", fields, stream, model)

    def create_chat_completion_openai_v1(self, *arguments: Any, **keywords: Any) -> Any:
        """The same as the objects of the package ``openai``."""
        from openai.types.chat import ChatCompletion, ChatCompletionChunk

        found = self.create_chat_completion(*arguments, **keywords)
        if keywords.get("stream"):
            return (ChatCompletionChunk(**chunk) for chunk in found)
        return ChatCompletion(**found)

    def _created(self, path: str, fields: dict[str, Any], stream: bool, model: str | None) -> Any:
        name = model or self.model_path
        response = _calls.start(self.llm.engine, path, {**fields, **({"stream": True} if stream else {})})
        if stream:
            return ({**chunk, "model": name} for chunk in _calls.chunks(response))
        return {**_calls.whole(response), "model": name}

    def _written(
        self, ids: Iterator[int], prompt: list[int], most: int, stops: list[str], model: str
    ) -> Iterator[dict[str, Any]]:
        head = {"id": f"cmpl-{self._seeds.getrandbits(63):x}", "object": "text_completion", "created": int(time.time())}
        chunk = {**head, "model": model}

        def choice(text: str, reason: str | None) -> dict[str, Any]:
            return {**chunk, "choices": [{"text": text, "index": 0, "logprobs": None, "finish_reason": reason}]}

        data, sent, count, reason, longest = b"", 0, 0, "length", max(map(len, stops), default=1)
        for token in ids:
            if token in self._info["ends"]:
                reason = "stop"
                break
            count, data = count + 1, data + self.llm.engine.token_bytes(token)
            text = data.decode("utf-8", "ignore")
            if found := [at for at in map(text.find, stops) if at >= 0]:
                data, reason = text[: min(found)].encode(), "stop"
                break
            # The end of the text may be the start of a stop string.
            ready = len(text) - longest + 1
            if ready > sent:
                yield choice(text[sent:ready], None)
                sent = ready
            if count == most:
                break
        else:
            reason = "stop" if len(self._tokens) < self.n_ctx() else "length"
        yield {**choice(data.decode("utf-8", "ignore")[sent:], reason), "completion_tokens": count}

    # --- vectors ---

    def create_embedding(self, input: str | list[str], model: str | None = None) -> Any:
        """OpenAI's dictionary of vectors."""
        return {**self.llm.create_embedding(input=input), "model": model or self.model_path}

    def embed(
        self, input: str | list[str], normalize: bool = False, truncate: bool = True, return_count: bool = False
    ) -> Any:
        """The vector of a text, or of each of several. Vectors have length 1."""
        texts = [input] if isinstance(input, str) else list(input)
        tokens = [self.llm.tokenize(text) for text in texts]
        if truncate:
            tokens = [one[: self.n_ctx()] for one in tokens]
        floats, count = self.llm.engine.embed(tokens).wait()
        vectors: Any = floats.tolist()
        vectors = vectors[0] if isinstance(input, str) else vectors
        return (vectors, count) if return_count else vectors


class _MissingError(UnsupportedError, AttributeError):
    """An attribute that is refused by name."""


def _check_request(arguments: dict[str, Any]) -> None:
    for name in list(arguments):
        if name in _FREE:
            del arguments[name]
        elif name not in _FIXED:
            raise UnsupportedError(f"{name}: there is no such argument; leave it out")
    refuse_others(arguments)


def _shared(a: Sequence[int], b: Sequence[int]) -> int:
    """The length of the common start."""
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b))))


def _device(layers: int, main: int) -> str:
    if layers == 0:
        return "cpu"
    if layers == -1 or layers >= 99:
        return f"cuda:{main}" if main else "auto"
    raise UnsupportedError(
        f"n_gpu_layers: {layers} is not supported, because a model is on one device, whole; use -1, or 0 for the CPU "
        "(see experts_on for experts on the CPU)"
    )


def _joined(chunks: list[dict[str, Any]], prompt: str, prompt_tokens: int) -> dict[str, Any]:
    *_, last = chunks
    text = prompt + "".join(chunk["choices"][0]["text"] for chunk in chunks)
    count = last.pop("completion_tokens")
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": count, "total_tokens": prompt_tokens + count}
    return {**last, "choices": [{**last["choices"][0], "text": text}], "usage": usage}


def _chat(completion: dict[str, Any]) -> dict[str, Any]:
    choice = completion["choices"][0]
    message = {"role": "assistant", "content": choice["text"]}
    own = {"index": 0, "message": message, "logprobs": None, "finish_reason": choice["finish_reason"]}
    return {**completion, "object": "chat.completion", "choices": [own]}


def _chat_chunk(chunk: dict[str, Any]) -> dict[str, Any]:
    choice = chunk["choices"][0]
    own = {"index": 0, "delta": {"content": choice["text"]}, "logprobs": None, "finish_reason": choice["finish_reason"]}
    return {**chunk, "object": "chat.completion.chunk", "choices": [own]}

