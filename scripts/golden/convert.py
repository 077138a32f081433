#!/usr/bin/env python3
"""Writes the golden files of crates/convert/tests/convert/: tiny models as Hugging Face publishes them, and what
llama.cpp's converter makes of them.

    pip install torch==2.15.0 transformers==5.23.0 gguf==0.19.0 sentencepiece==0.2.3 numpy==2.*
    python scripts/golden/convert.py LLAMA_CPP [NAME…]

LLAMA_CPP is a checkout of llama.cpp; its convert_hf_to_gguf.py is run as it is, but for one thing: it knows a
pre-tokenizer by the hash of some ids, which no tiny vocabulary has, so the name is given; and Hunyuan's tokenizer is
read from tokenizer.json instead of a file of tiktoken.

For each model NAME, crates/conformance/golden/convert/NAME/ is the folder to convert. Beside it lie NAME.json (the
metadata, and for each type the tensors with format, shape and FNV-1a hash, ids of some texts) and NAME.logits.gguf
(token sequences and the logits of transformers in F32).
"""

import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass

import gguf
import numpy as np
import sentencepiece
import torch
from huggingface_hub import save_torch_state_dict
from safetensors.torch import save_file
from tiny import kda, mamba, plain, shapes
from tiny.build import build, randomise, selection_biases
from tiny.draw import bias_effect, draw, least_effect, run
from tiny.files import write_logits
from tiny.recurrent import QWEN
from tiny.shapes import DEEPSEEK as DEEPSEEK_ROPE
from tiny.shapes import LINEAR, LLAMA3, LONGROPE, MINISTRAL, PHI3, ROUTER_GAP, SELECTION_GAP, TOLERANCE, UNTRUNCATED, YARN, Shape
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.integrations.mxfp4 import FP4_VALUES, convert_moe_packed_tensors

HERE = pathlib.Path(__file__).parent
OUT = HERE.parents[1] / "crates/conformance/golden/convert"
LENGTHS = (10, 5, 3)
TYPES = ("f32", "f16", "bf16", "q8_0")
TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}{{ eos_token }}\n{% endfor %}"
TEXTS = ["", "The old mill, 1847.", "It's we'll\n\n  x  ", "a<|end|>b", "grün 中 😀 12345"]

GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LLAMA_BPE = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
             r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA_BPE.replace(r"\p{N}{1,3}", r"\p{N}")
SEED = QWEN2.replace(r"\p{N}|", r"\p{N}{1}|").replace(r"[^\s\p{L}\p{N}]+[\r\n]*", r"[^\s\p{L}\p{N}\r\n]+")
QWEN35 = QWEN2.replace(r"\p{L}+", r"[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# The tokens that GLM's converter looks for besides <|endoftext|>.
GLM_TOKENS = ["[gMASK]", "<|user|>", "<|observation|>"]
# One of Gemma 4's special tokens is text of a reply.
MARKS = ["<|turn>", "<|tool_call>"]
SHORTENED = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + SHORTENED +
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + SHORTENED +
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
EXAONE_MOE = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}"
              r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+")
AFMOE = [
    r"\p{Nd}{1,510}(?=(?>\p{Nd}{510})*(?:\P{Nd}|$))|\G\p{Nd}{510}",
    r"\A\p{Nd}{1,2}(?=\p{Nd}{3}+\z)",
    r"\A\p{Nd}{3}|\G\p{Nd}{3}",
    r"(?:[\u4E00-\u9FFF\u3040-\u309F\u30A0-\u30FF\u3400-\u4DBF\uf900-\uFAFF\uFF65-\uFF9F\u2F00-\u2FDF]+|[\u0E00-\u0E7F]+"
    r"|[\u0E80-\u0EFF]+|[\u1780-\u17FF]+|[\u1000-\u109F\uAA60-\uAA7F\uA9E0-\uA9FF]+|[\uAC00-\uD7AF\u1100-\u11FF]+)",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
]
YOUTU = ["[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥\u3040-ゟ゠-ヿ]+", GPT4O.replace(r"\p{N}{1,3}", r"\p{N}")]
TINY_AYA = [r"\d{1,3}(?=(?:\d{3})*\b)", GPT4O]


@dataclass
class Case:
    """A folder: the model, the dtype of its weights, its tokenizer, how many bytes a shard may have."""

    shape: Shape
    dtype: torch.dtype
    tokenizer: str
    shard: str = "50GB"
    mxfp4: bool = False  # the experts


BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32

GPT_OSS = Shape("gpt-oss", 32, 32, 4, 2, 16, 3, 2, theta=150000.0, bias=True, window=4, layers=3, rope=UNTRUNCATED)
PHIMOE_ROPE = LONGROPE | dict(original_max_position_embeddings=64)
PHI3_ROPE = PHI3 | dict(original_max_position_embeddings=64)

CASES = {
    "deepseek": Case(Shape("deepseek", 32, 16, 4, 4, 8, 4, 2, shared=32, dense=1), BF16, "spm", "30KB"),
    "deepseek2": Case(Shape("deepseek2", 32, 16, 4, 1, 24, 4, 2, shared=16, dense=1, rotary=8, latent=32, rank=24, value=12,
                            scale=2.5, groups=2, rope=DEEPSEEK_ROPE), BF16, "qwen2", "30KB"),
    "deepseek2-lite": Case(Shape("deepseek2", 32, 16, 4, 1, 24, 4, 2, shared=32, dense=1, rotary=8, latent=32, value=12,
                                 scale=2.0), BF16, "qwen2"),
    "kimi-linear": Case(Shape("kimi-linear", 32, 16, 4, 1, 24, 4, 2, shared=16, dense=1, layers=3, full=(2,), rotary=8,
                              latent=32, value=12, scale=2.446), BF16, "qwen2", "30KB"),
    "nemotron_h": Case(Shape("nemotron_h", 32, 48, 4, 2, 8, layers=4, pattern="M-*-"), BF16, "pixtral"),
    "nemotron_h_moe": Case(Shape("nemotron_h_moe", 32, 16, 4, 2, 8, 4, 2, shared=48, scale=2.5, layers=3, pattern="ME*",
                                 latent=16), BF16, "pixtral", "30KB"),
    "granitehybrid": Case(Shape("granitehybrid", 32, 16, 4, 2, 8, 4, 2, tied=True, shared=32, full=(1,)), BF16, "dbrx"),
    "granitehybrid-dense": Case(Shape("granitehybrid", 32, 48, 4, 2, 8, tied=True, full=(1,)), BF16, "dbrx"),
    "mamba2": Case(Shape("mamba2", 32, 0, 0, 0, 0), BF16, "spm"),
    "falcon-h1": Case(Shape("falcon-h1", 32, 48, 4, 2, 8, theta=1e11, qk_norm=True), BF16, "falcon-h1"),
    "bamba": Case(Shape("bamba", 32, 48, 4, 2, 8, full=(1,)), BF16, "llama-bpe"),
    "jamba": Case(Shape("jamba", 32, 48, 4, 2, 8, 4, 2, layers=4, full=(2,), step=2, rank=8), BF16, "spm", "30KB"),
    "jamba-dense": Case(Shape("jamba", 32, 48, 4, 2, 8, full=(1,), step=2, rank=8), BF16, "spm"),
    "bailingmoe3": Case(Shape("bailingmoe3", 32, 16, 4, 1, 24, 4, 2, shared=16, dense=1, layers=3, full=(2,), theta=6e6,
                              rotary=8, latent=32, value=12, scale=2.5, groups=2), BF16, "bailingmoe2"),
    "mistral4": Case(Shape("mistral4", 32, 16, 4, 1, 24, 4, 2, shared=16, rotary=8, latent=32, rank=24, value=12,
                           rope=MINISTRAL), BF16, "tekken"),
    "glm4-lite": Case(Shape("glm4_moe_lite", 32, 16, 4, 1, 24, 4, 2, shared=16, dense=1, rotary=8, latent=32, rank=24,
                            value=16, scale=1.8, theta=1e6), BF16, "glm4", "30KB"),
    "youtu": Case(Shape("youtu", 32, 48, 4, 1, 24, tied=True, rotary=8, latent=32, rank=24, value=12, theta=1.6e6), BF16,
                  "youtu"),
    "dots1": Case(Shape("dots1", 32, 16, 4, 4, 16, 4, 2, shared=32, dense=1, scale=2.5), BF16, "qwen2"),
    "ernie4_5-moe": Case(Shape("ernie4_5-moe", 32, 16, 4, 1, 16, 4, 2, tied=True, theta=5e5, shared=48, dense=1), BF16,
                         "spm"),
    "gemma2": Case(Shape("gemma2", 32, 32, 4, 2, 8, tied=True, window=4), BF16, "spm-bare"),
    "gemma3": Case(Shape("gemma3", 32, 32, 4, 1, 8, tied=True, layers=7, theta=1e6, window=4, rope=LINEAR), BF16,
                   "spm-bare"),
    "gemma4": Case(Shape("gemma4", 32, 48, 4, 2, 16, tied=True, layers=3, theta=1e6, window=4, period=3, full_head=32,
                         full_kv_heads=1), BF16, "spm-merges"),
    "gemma4-moe": Case(Shape("gemma4", 32, 16, 4, 2, 16, 4, 2, tied=True, theta=1e6, window=4, period=2, full_head=32,
                             full_kv_heads=1, beside=48), BF16, "spm-merges"),
    "gemma4-e": Case(Shape("gemma4", 32, 48, 4, 1, 16, tied=True, layers=4, theta=1e6, window=4, period=2, full_head=32,
                           per_layer=8, shares=2), BF16, "spm-merges"),
    "gpt-oss": Case(GPT_OSS, BF16, "gpt-4o", "30KB", mxfp4=True),
    "gpt-oss-dense": Case(GPT_OSS, BF16, "gpt-4o"),
    "glm4moe": Case(Shape("glm4moe", 32, 16, 4, 2, 16, 4, 2, bias=True, shared=16, dense=1, rotary=8, qk_norm=True,
                          scale=2.5, nextn=1), BF16, "glm4", "30KB"),
    "granite": Case(Shape("granite", 32, 48, 4, 2, 8, tied=True), F16, "gpt-2"),
    "granitemoe": Case(Shape("granitemoe", 32, 16, 4, 2, 8, 4, 2, tied=True, shared=32), BF16, "gpt-2"),
    "phimoe": Case(Shape("phimoe", 32, 16, 4, 2, 8, 4, 2, bias=True, rope=PHIMOE_ROPE), BF16, "spm"),
    "llama3": Case(Shape("llama", 32, 64, 4, 2, 8, theta=500000.0, rope=LLAMA3), BF16, "llama-bpe", "30KB"),
    "llama-spm": Case(Shape("llama", 32, 32, 2, 1, 16, tied=True, bias=True, rope=LINEAR), F16, "spm"),
    "llama-json": Case(Shape("llama", 32, 32, 4, 4, 8), F32, "spm-json"),
    "hunyuan-moe": Case(Shape("hunyuan-moe", 32, 16, 4, 2, 16, 4, 2, tied=True, shared=16), BF16, "hunyuan"),
    "minimax-m2": Case(Shape("minimax-m2", 32, 16, 4, 2, 16, 4, 2, theta=5e6, rotary=8), BF16, "minimax-m2"),
    "mistral": Case(Shape("llama", 32, 32, 4, 2, 8, theta=1e6), BF16, "tekken"),
    "laguna": Case(Shape("laguna", 32, 16, 4, 2, 16, 4, 2, theta=5e5, full_heads=2, shared=16, dense=1, rotary=8, scale=2.5,
                         layers=5, window=4, rope=YARN), BF16, "laguna"),
    "llama4": Case(Shape("llama4", 32, 16, 4, 2, 16, 4, 1, layers=4, theta=500000.0, window=8192, step=2, rope=LLAMA3),
                   BF16, "llama4"),
    "mistral3": Case(Shape("mistral3", 32, 48, 4, 2, 16, theta=1e6, rope=MINISTRAL), BF16, "tekken"),
    "mixtral": Case(Shape("mixtral", 32, 16, 4, 2, 8, 4, 2, theta=1e6), BF16, "spm", "30KB"),
    "smollm": Case(Shape("llama", 24, 40, 3, 1, 8, tied=True), F32, "smollm"),
    "qwen2": Case(Shape("qwen2", 32, 48, 4, 2, 8, tied=True, theta=1e6, bias=True), BF16, "qwen2"),
    "qwen2moe": Case(Shape("qwen2moe", 32, 16, 4, 2, 8, 4, 2, theta=1e6, bias=True, shared=32), BF16, "qwen2", "30KB"),
    "qwen3": Case(Shape("qwen3", 32, 32, 4, 2, 16, theta=1e6, rope=YARN), F16, "qwen2"),
    "qwen3moe": Case(Shape("qwen3moe", 32, 32, 4, 2, 16, 4, 2, theta=1e6), BF16, "qwen2", "40KB"),
    "olmoe": Case(Shape("olmoe", 32, 16, 4, 4, 8, 4, 2), BF16, "olmo"),
    "lfm2": Case(Shape("lfm2", 32, 48, 4, 2, 8, tied=True, layers=3, full=(1,), theta=1e6), BF16, "lfm2"),
    "lfm2moe": Case(Shape("lfm2moe", 32, 16, 4, 2, 8, 4, 2, tied=True, dense=1, layers=3, full=(1,), theta=1e6), BF16,
                    "lfm2"),
    "qwen3next": Case(Shape("qwen3next", 32, 16, 4, 2, 16, 4, 2, shared=16, layers=3, full=(2,), theta=1e7), BF16,
                      "qwen2", "30KB"),
    "qwen35": Case(Shape("qwen35", 32, 48, 4, 2, 16, tied=True, layers=3, full=(2,), theta=1e7), BF16, "qwen35"),
    "seed_oss": Case(Shape("seed_oss", 32, 48, 4, 2, 16, theta=1e7, bias=True), BF16, "seed-coder"),
    "smollm3": Case(Shape("smollm3", 32, 48, 4, 2, 8, tied=True, layers=4, theta=5e6), BF16, "llama-bpe"),
    "phi3": Case(Shape("phi3", 32, 48, 4, 2, 8, rotary=8, window=4, rope=PHI3_ROPE), BF16, "spm"),
    "glm4": Case(Shape("glm4", 32, 48, 4, 2, 16, bias=True, rotary=8), BF16, "glm4"),
    "glm4v": Case(Shape("glm4", 64, 48, 4, 2, 16, bias=True, rotary=8, rope=dict(mrope_section=[1, 1, 2])), BF16, "glm4"),
    "glm4v-moe": Case(Shape("glm4moe", 32, 16, 4, 2, 16, 4, 2, bias=True, shared=16, dense=1, rotary=8, scale=1.5,
                            rope=dict(mrope_section=[1, 1, 2])), BF16, "glm4", "30KB"),
    "olmo2": Case(Shape("olmo2", 32, 48, 4, 2, 8, theta=5e5), BF16, "dbrx"),
    "olmo3": Case(Shape("olmo2", 32, 48, 4, 2, 8, layers=4, theta=5e5, window=4, rope=YARN), BF16, "dbrx"),
    "exaone4": Case(Shape("exaone4", 32, 48, 4, 2, 16, layers=4, theta=5e5, window=4, rope=LLAMA3), BF16, "exaone4"),
    "cohere2": Case(Shape("cohere2", 32, 48, 4, 2, 8, tied=True, layers=4, theta=5e4, window=4), BF16, "command-r"),
    "exaone-moe": Case(Shape("exaone-moe", 32, 16, 4, 2, 16, 4, 2, shared=16, dense=1, window=4, period=2, theta=1e6,
                             scale=2.5), BF16, "exaone-moe"),
    "afmoe": Case(Shape("afmoe", 32, 16, 4, 2, 16, 4, 2, shared=16, dense=3, layers=4, window=4, scale=2.8), BF16, "afmoe"),
    "bailingmoe2": Case(Shape("bailingmoe2", 32, 16, 4, 2, 16, 8, 2, shared=16, dense=1, rotary=8, theta=6e5, scale=2.5,
                              groups=2), BF16, "bailingmoe2", "30KB"),
    "cohere2moe": Case(Shape("cohere2moe", 32, 16, 4, 2, 16, 4, 2, tied=True, dense=1, window=4, period=2, theta=5e4), BF16,
                       "cohere2moe"),
    "qwen2vl": Case(Shape("qwen2vl", 32, 32, 4, 2, 8, tied=True, theta=1e6, bias=True), BF16, "qwen2", "30KB"),
    "qwen3vl": Case(Shape("qwen3vl", 32, 32, 4, 2, 16, theta=5e6), BF16, "qwen2", "30KB"),
    "qwen3vlmoe": Case(Shape("qwen3vlmoe", 32, 16, 4, 2, 16, 4, 2, theta=5e6), BF16, "qwen2", "30KB"),
    "ernie4_5": Case(Shape("ernie4_5", 32, 48, 4, 1, 16, tied=True, theta=5e5), BF16, "spm"),
    "hunyuan-dense": Case(Shape("hunyuan-dense", 32, 48, 4, 2, 16, tied=True), BF16, "qwen2"),
    "exaone": Case(Shape("exaone", 32, 48, 4, 2, 8, theta=1e6, rope=LLAMA3), BF16, "exaone"),
    "internlm2": Case(Shape("internlm2", 32, 48, 4, 2, 8, theta=1e6), BF16, "spm"),
    "internlm3": Case(Shape("internlm3", 32, 48, 4, 2, 8, theta=1e6), BF16, "spm"),
    "gemma": Case(Shape("gemma", 32, 48, 4, 1, 16, tied=True), BF16, "spm-bare"),
    "minicpm": Case(Shape("minicpm", 32, 48, 4, 2, 8, tied=True), BF16, "spm"),
    "mellum": Case(Shape("mellum", 32, 16, 4, 2, 16, 4, 2, theta=5e5, layers=3, window=4, period=2, rope=YARN), BF16,
                   "mellum2"),
    "muse-glimmer": Case(Shape("muse-glimmer", 32, 48, 4, 2, 16, theta=5e5, layers=4, window=4), BF16, "llama4", "30KB"),
    "hy_v3": Case(Shape("hy_v3", 32, 16, 4, 2, 16, 4, 2, shared=16, dense=1, scale=2.826), BF16, "qwen2", "30KB"),
    "minimax-m3": Case(Shape("minimax-m3", 32, 16, 4, 2, 16, 4, 2, theta=5e6, shared=16, dense=1, rotary=8, scale=2.0), BF16,
                       "minimax-m2", "30KB"),
    "mimo2": Case(Shape("mimo2", 32, 16, 4, 2, 24, 4, 2, theta=5e6, dense=1, layers=3, window=4, period=2, rotary=8, value=16),
                  BF16, "qwen2", "30KB"),
    "step35": Case(Shape("step35", 32, 16, 6, 2, 16, 4, 2, theta=5e6, full_heads=4, shared=16, dense=1, scale=3.0, layers=3,
                         window=4, period=2, limits=((0, 0.3, None), (0.6, 0, 0.4)), rope=LLAMA3, nextn=1), BF16, "qwen2",
                   "30KB"),
    "qwen35moe": Case(Shape("qwen35moe", 32, 16, 4, 2, 16, 4, 2, shared=16, layers=3, full=(2,), theta=1e7), BF16,
                      "qwen35"),
}


# ── tokenizers ──


def byte_level(kind: str) -> PreTrainedTokenizerFast:
    """The vocabulary of the golden models, with the pipeline that the family's tokenizer.json has."""
    printable = [b for b in range(256) if 0x21 <= b <= 0x7E or 0xA1 <= b <= 0xAC or 0xAE <= b]
    tokens = [chr(b) for b in printable] + [chr(256 + i) for i in range(256 - len(printable))]
    merges = [("a", chr(97 + i)) for i in range(26)]
    merges += [("b", chr(97 + i)) for i in range(0 if kind == "glm4" else len(GLM_TOKENS))]
    tokens += ["".join(pair) for pair in merges]
    whole = kind in ("llama-bpe", "lfm2", "tekken", "gpt-4o", "llama4", "glm4", "youtu", "falcon-h1", "pixtral")
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges, ignore_merges=whole))
    pieces = {"llama-bpe": LLAMA_BPE, "lfm2": LLAMA_BPE, "qwen2": QWEN2, "qwen35": QWEN35, "tekken": TEKKEN, "pixtral": TEKKEN,
              "gpt-4o": GPT4O, "llama4": GPT4O, "glm4": LLAMA_BPE, "minimax-m2": GPT4O, "hunyuan": QWEN2, "seed-coder": SEED,
              "dbrx": LLAMA_BPE, "falcon-h1": LLAMA_BPE, "exaone-moe": EXAONE_MOE, "afmoe": AFMOE, "cohere2moe": TINY_AYA,
              "bailingmoe2": QWEN2, "youtu": YOUTU, "laguna": [r"[^\n]+|[\n]+", QWEN2]}.get(kind, [])
    pieces = [pieces] if isinstance(pieces, str) else pieces
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not pieces)
    if pieces:
        splits = [pre_tokenizers.Split(Regex(piece), behavior="isolated") for piece in pieces]
        level = pre_tokenizers.Sequence([*splits, level])
    elif kind in ("smollm", "command-r", "exaone", "mellum2"):
        level = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), level])
    tokenizer.pre_tokenizer = level
    if kind in ("qwen2", "qwen35", "olmo", "command-r"):
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    # transformers adds this token to Qwen 2's tokenizers that lack it.
    begin = "<|endoftext|>" if kind in ("qwen2", "qwen35", "glm4") else "<|begin|>"
    tokenizer.add_tokens([AddedToken(begin, special=True, normalized=False),
                          AddedToken("<|end|>", special=True, normalized=False)])
    if kind == "glm4":
        tokenizer.add_tokens([AddedToken(token, special=True, normalized=False) for token in GLM_TOKENS])
    tokenizer.add_tokens([AddedToken("<tool>", special=False, normalized=False)])
    assert tokenizer.get_vocab_size() == shapes.VOCAB
    bos = dict(bos_token="<|begin|>") if kind in ("llama-bpe", "lfm2", "tekken", "pixtral", "falcon-h1") else {}
    if bos:
        add = processors.TemplateProcessing(
            single="<|begin|> $A", pair="<|begin|> $A <|begin|>:1 $B:1",
            special_tokens=[("<|begin|>", tokenizer.token_to_id("<|begin|>"))])
        tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), add])
    else:
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    # Half of the families have the template in tokenizer_config.json, half in a file of its own: see `write_folder`.
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|end|>",
                                   chat_template=TEMPLATE, **bos)


def sentencepiece_style(folder: pathlib.Path, with_model: bool, prefix: bool, marks: list) -> None:
    """Llama 2's kind: tokenizer.model, or the tokenizer.json that transformers makes of it. `prefix`: a space goes
    before a text; Gemma has none. `marks`: Gemma 4's special tokens, in a tokenizer.json as it is published."""
    buffer = io.BytesIO()
    lines = [line for line in (HERE / "tokenizer.txt").read_text(encoding="utf-8").splitlines() if line.isascii()]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=buffer, model_type="bpe",
        vocab_size=shapes.VOCAB - 1 - len(marks), byte_fallback=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False, character_coverage=0.98, add_dummy_prefix=prefix, minloglevel=2)
    model = sentencepiece.SentencePieceProcessor(model_proto=buffer.getvalue())
    tokens = [model.id_to_piece(i) for i in range(model.vocab_size())]
    assert len(tokens) == shapes.VOCAB - 1 - len(marks), len(tokens)
    vocab = {token: i for i, token in enumerate(tokens)}
    pairs = [(-model.get_score(i), i, token[:cut], token[cut:]) for i, token in enumerate(tokens)
             if not (model.is_byte(i) or model.is_control(i) or model.is_unknown(i))
             for cut in range(1, len(token)) if token[:cut] in vocab and token[cut:] in vocab]
    merges = [(left, right) for _, _, left, right in sorted(pairs, key=lambda pair: pair[:2])]
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    spaces = normalizers.Replace(" ", "▁")
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces]) if prefix else spaces
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    backend.decoder = decoders.Sequence(steps if prefix else steps[:-1])
    if marks:
        backend.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous")
    specials = ["<unk>", "<s>", "</s>", *marks]
    backend.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in specials])
    backend.add_tokens([AddedToken("<tool>", special=False, normalized=False)])
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>",
                                        chat_template=TEMPLATE, **(dict(extra_special_tokens=marks) if marks else {}))
    tokenizer.save_pretrained(folder)
    about = json.loads((folder / "tokenizer_config.json").read_text())
    about |= {"add_bos_token": True, "add_eos_token": False}
    if with_model:
        (folder / "tokenizer.model").write_bytes(buffer.getvalue())
        added = {t.content: t for t in backend.get_added_tokens_decoder().values()}
        about["added_tokens_decoder"] = {
            str(i): {"content": t.content, "special": t.special, "normalized": t.normalized, "lstrip": False,
                     "rstrip": False, "single_word": False}
            for i, t in backend.get_added_tokens_decoder().items()}
        assert len(added) == 4
    (folder / "tokenizer_config.json").write_text(json.dumps(about, indent=1))


# ── the folder ──


EXPERTS = ".experts."


def quantise(model) -> dict:
    """Rounds gpt-oss's experts to MXFP4; returns what a published model has of them. The model keeps what transformers
    makes of that."""
    values = torch.tensor(FP4_VALUES)
    packed = {}
    for name, weight in model.named_parameters():
        if EXPERTS in name and not name.endswith("bias"):
            groups = weight.data.transpose(1, 2).unflatten(-1, (-1, 32))  # experts, rows, groups, 32
            exponents = (groups.abs().amax(-1).log2().floor() - 2).to(torch.int32)
            codes = (groups.ldexp(-exponents[..., None])[..., None] - values).abs().argmin(-1).to(torch.uint8)
            blocks = codes[..., ::2] | codes[..., 1::2] << 4
            scales = (exponents + 127).to(torch.uint8)
            weight.data = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).contiguous()
            assert weight.shape == (len(blocks), 32 * blocks.shape[2], blocks.shape[1])
            packed |= {f"{name}_blocks": blocks.contiguous(), f"{name}_scales": scales.contiguous()}
    return packed


def experts_apart(name: str, weight: torch.Tensor) -> dict:
    """What the first DeepSeek MoE calls its experts."""
    base, _, last = name.rpartition(".")
    if last == "gate_up_proj":
        gate, up = weight.chunk(2, dim=1)
        return experts_apart(f"{base}.gate_proj", gate) | experts_apart(f"{base}.up_proj", up)
    return {f"{base}.{i}.{last}.weight": one.clone() for i, one in enumerate(weight)}


# What the settings of the first DeepSeek MoE have and those of the Llama that stands for it lack.
DEEPSEEK = dict(model_type="deepseek", architectures=["DeepseekForCausalLM"], moe_layer_freq=1, norm_topk_prob=False,
                scoring_func="softmax")


# Ling 2 in place of the GLM-4.5 that stands for it: settings and names.
LING = dict(model_type="bailing_moe", architectures=["BailingMoeV2ForCausalLM"], score_function="sigmoid",
            norm_topk_prob=True, norm_head=False, use_qk_norm=True, use_bias=False, use_qkv_bias=False)
LING_NAMES = {"embed_tokens": "word_embeddings", "self_attn.joined": "attention.query_key_value.weight",
              "self_attn.o_proj": "attention.dense", "self_attn.q_norm": "attention.query_layernorm",
              "self_attn.k_norm": "attention.key_layernorm", "e_score_correction_bias": "expert_bias"}


def ling(name: str, weight: torch.Tensor) -> dict:
    """What Ling 2 calls a weight of the model that stands for it."""
    if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
        return {}
    for theirs, own in LING_NAMES.items():
        name = name.replace(theirs, own)
    return experts_apart(name, weight) if EXPERTS in name else {name: weight}


def add_prediction_layers(folder: pathlib.Path, shape: Shape, dtype: torch.dtype) -> None:
    """Adds a shard with layers that predict further tokens, which transformers leaves out of its model."""
    about = json.loads((folder / "model.safetensors.index.json").read_text())
    start, last = f"model.layers.{shape.layers}.", f"model.layers.{shape.layers - 1}."
    names = [start + name.removeprefix(last) for name in about["weight_map"] if name.startswith(last)]
    names += [start + name for name in ("eh_proj.weight", "enorm.weight", "hnorm.weight", "shared_head.norm.weight")]
    add_tensors(folder, "model-prediction.safetensors", names, dtype)


# LFM2 as published: which layers have attention, the width of an MLP before it is adjusted, and other names.
LFM2 = dict(full_attn_idxs=[1], block_ff_dim=72, block_auto_adjust_ff_dim=True, block_multiple_of=16,
            tie_embedding=True)
# Of Qwen's layer that predicts further tokens.
PREDICTION = ["fc", "norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "layers.0.input_layernorm",
              "layers.0.mlp.gate", "layers.0.self_attn.q_proj"]


def add_tensors(folder: pathlib.Path, shard: str, names: list, dtype: torch.dtype) -> None:
    """Adds a shard with tensors that are no weights of the model."""
    index = folder / "model.safetensors.index.json"
    about = json.loads(index.read_text())
    save_file({name: torch.zeros(1, 1, dtype=dtype) for name in names}, folder / shard, metadata={"format": "pt"})
    about["weight_map"] |= dict.fromkeys(names, shard)
    index.write_text(json.dumps(about, indent=1))


def within(folder: pathlib.Path, model, prefix: str, others: str, shard: str, fused: bool = True) -> None:
    """Rewrites the weights as those of the text model within a larger one, experts fused or not."""
    for path in folder.glob("*.safetensors*"):
        path.unlink()
    rename = lambda name: prefix + name.removeprefix("model.") if name.startswith("model.") else others + name
    kept = model._tied_weights_keys if model.config.tie_word_embeddings else []
    state = {rename(name): weight for name, weight in model.state_dict().items() if name not in kept}
    if not fused:
        apart = lambda name, weight: plain.separate_experts(name, weight) if ".experts." in name else {name: weight}
        state = {key: one for name, weight in state.items() for key, one in apart(name, weight).items()}
    save_torch_state_dict(state, folder, max_shard_size=shard)


def with_vision(folder: pathlib.Path, model, dtype: torch.dtype, shard: str) -> dict:
    """Rewrites the weights as Qwen 3.5 is published: the text model within one that sees. Returns the settings that go
    around those of the text model."""
    within(folder, model, "model.language_model.", "", shard)
    seen = [f"model.visual.{part}" for part in ("patch_embed.proj.weight", "merger.norm.bias")]
    add_tensors(folder, "model-vision.safetensors", seen, dtype)
    add_tensors(folder, "model-prediction.safetensors", [f"mtp.{part}.weight" for part in PREDICTION], dtype)
    return dict(architectures=["Qwen3_5MoeForConditionalGeneration"], model_type="qwen3_5_moe", image_token_id=3,
                tie_word_embeddings=False, vision_config=dict(model_type="qwen3_5_moe", depth=1, hidden_size=32))


def with_towers(folder: pathlib.Path, model, dtype: torch.dtype, shard: str) -> dict:
    """The same for Gemma 4, within a model that sees and hears."""
    within(folder, model, "model.language_model.", "", shard)
    towers = ["vision_tower.patch_embedder.input_proj", "audio_tower.output_proj", "embed_vision.embedding_projection",
              "embed_audio.embedding_projection"]
    add_tensors(folder, "model-towers.safetensors", [f"model.{part}.weight" for part in towers], dtype)
    return dict(architectures=["Gemma4ForConditionalGeneration"], model_type="gemma4", image_token_id=3,
                tie_word_embeddings=True, audio_config=None,
                vision_config=dict(model_type="gemma4_vision", num_hidden_layers=1, hidden_size=32))


def with_pixtral(folder: pathlib.Path, model, dtype: torch.dtype) -> dict:
    """The same for Ministral 3."""
    within(folder, model, "language_model.model.", "language_model.", "30KB")
    seen = ["vision_tower.patch_conv.weight", "multi_modal_projector.linear_1.weight"]
    add_tensors(folder, "model-vision.safetensors", seen, dtype)
    return dict(architectures=["Mistral3ForConditionalGeneration"], model_type="mistral3", image_token_index=10,
                vision_config=dict(model_type="pixtral", num_hidden_layers=1, hidden_size=32))


def with_glm_vision(folder: pathlib.Path, model, dtype: torch.dtype) -> dict:
    """The same for GLM-4.1V and GLM-4.5V."""
    within(folder, model, "model.language_model.", "", "60KB", fused=False)
    seen = ["model.visual.patch_embed.proj.weight", "model.visual.downsample.weight"]
    add_tensors(folder, "model-vision.safetensors", seen, dtype)
    kind, name = ("glm4v_moe", "Glm4vMoe") if "Moe" in type(model).__name__ else ("glm4v", "Glm4v")
    return dict(architectures=[f"{name}ForConditionalGeneration"], model_type=kind, image_token_id=12,
                tie_word_embeddings=False, vision_config=dict(model_type=f"{kind}_vision", depth=1, hidden_size=32))


def with_llama4_vision(folder: pathlib.Path, model, dtype: torch.dtype) -> dict:
    """The same for Llama 4."""
    within(folder, model, "language_model.model.", "language_model.", "80KB")
    seen = ["vision_model.patch_embedding.linear.weight", "multi_modal_projector.linear_1.weight"]
    add_tensors(folder, "model-vision.safetensors", seen, dtype)
    return dict(architectures=["Llama4ForConditionalGeneration"], model_type="llama4", image_token_index=12,
                vision_config=dict(model_type="llama4_vision_model", num_hidden_layers=1, hidden_size=32))


def write_folder(folder: pathlib.Path, name: str, case: Case, model) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shape = case.shape
    packed, around = quantise(model) if case.mxfp4 else {}, {}
    model.to(case.dtype).save_pretrained(folder, max_shard_size=case.shard)
    more = {}
    if shape.arch in kda.FAMILIES:
        for path in folder.glob("*.safetensors*"):
            path.unlink()
        save_torch_state_dict(kda.published_state(shape, model), folder, max_shard_size=case.shard)
    if shape.arch in mamba.NEMOTRON:
        for path in folder.glob("*.safetensors*"):
            path.unlink()
        save_torch_state_dict(mamba.published_state(shape, model), folder, max_shard_size=case.shard)
    if packed or shape.arch in ("deepseek", "bailingmoe2"):
        for path in folder.glob("*.safetensors*"):
            path.unlink()
        state = dict(packed)
        for key, weight in model.state_dict().items():
            if shape.arch == "bailingmoe2":
                state |= ling(key, weight)
            elif f"{key}_blocks" not in packed:
                apart = EXPERTS in key and shape.arch == "deepseek"
                state |= experts_apart(key, weight) if apart else {key: weight}
        save_torch_state_dict(state, folder, max_shard_size=case.shard)
    if family := plain.FAMILIES.get(shape.arch):
        more = family.settings(shape)
        if family.state:
            for path in folder.glob("*.safetensors*"):
                path.unlink()
            state = {key: weight.to(case.dtype) for key, weight in family.state(shape, model).items()}
            save_torch_state_dict(state, folder, max_shard_size=case.shard)
    elif packed:
        more = dict(quantization_config=dict(quant_method="mxfp4", modules_to_not_convert=[
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]))
    elif shape.arch == "deepseek":
        more = DEEPSEEK | dict(
            moe_intermediate_size=shape.inner, n_routed_experts=shape.experts, num_experts_per_tok=shape.top_k,
            n_shared_experts=shape.shared // shape.inner, first_k_dense_replace=shape.dense)
    elif shape.arch == "bailingmoe2":
        more = LING | dict(num_experts=shape.experts, num_shared_experts=shape.shared // shape.inner)
    elif shape.arch == "exaone-moe":
        more = dict(scoring_func="sigmoid")
    elif shape.arch == "afmoe":
        more = dict(score_func="sigmoid", route_norm=True, n_group=1, topk_group=1)
    elif shape.nextn:
        add_prediction_layers(folder, shape, case.dtype)
        more = dict(num_nextn_predict_layers=shape.nextn)
    elif shape.arch == "hunyuan-moe":
        more = dict(moe_topk=[shape.top_k] * shape.layers, moe_intermediate_size=[shape.inner] * shape.layers,
                    num_shared_expert=[1] * shape.layers)
    elif shape.arch == "dots1":
        more = dict(scoring_func="sigmoid")
    elif shape.arch == "deepseek2":
        more = dict(scoring_func="sigmoid" if shape.rank else "softmax", moe_layer_freq=1)
    elif shape.arch in kda.FAMILIES:
        more = kda.published(shape)
    elif shape.arch in mamba.FAMILIES:
        more = mamba.published(shape)
    elif shape.arch == "glm4_moe_lite":
        more = dict(topk_method="noaux_tc", first_k_dense_replace=shape.dense)
    elif shape.arch == "mistral4":
        around = with_pixtral(folder, model, case.dtype)
    elif shape.arch == "minimax-m2":
        more = dict(rotary_dim=shape.rotary, scoring_func="sigmoid")
    elif shape.arch == "cohere2":
        more = dict(rotary_pct=1.0)
    elif shape.arch == "phimoe":
        more = dict(architectures=["PhiMoEForCausalLM"])  # its name as published
    elif shape.arch == "lfm2":
        more = LFM2
    elif shape.arch == "qwen3next":
        add_tensors(folder, "model-prediction.safetensors", [f"mtp.{part}.weight" for part in PREDICTION], case.dtype)
        more = dict(full_attention_interval=shape.full[0] + 1)
    elif shape.arch == "gemma4" and shape.experts:
        more = dict(use_bidirectional_attention="vision")
        around = with_towers(folder, model, case.dtype, "40KB")
    elif shape.arch == "gemma4":  # as published; transformers writes the settings of each layer
        more = dict(global_head_dim=shape.full_head, num_global_key_value_heads=shape.full_kv_heads or None)
    elif shape.arch == "qwen35moe":
        around = with_vision(folder, model, case.dtype, "40KB")
    elif shape.arch == "mistral3":
        around = with_pixtral(folder, model, case.dtype)
    elif "mrope_section" in shape.rope:
        around = with_glm_vision(folder, model, case.dtype)
        more = dict(model_type=around["model_type"] + "_text")
    elif shape.arch == "llama4":
        around = with_llama4_vision(folder, model, case.dtype)
    model.to(torch.float32)
    if case.tokenizer.startswith("spm"):
        merges, bare = case.tokenizer == "spm-merges", case.tokenizer in ("spm-bare", "spm-merges")
        sentencepiece_style(folder, case.tokenizer != "spm-json" and not merges, not bare, MARKS if merges else [])
    else:
        byte_level(case.tokenizer).save_pretrained(folder, save_jinja_files=shape.experts > 0)
    if shape.arch == "internlm2":  # its converter looks for tokens after those of the model there
        (folder / "added_tokens.json").write_text(json.dumps({"<tool>": shapes.VOCAB - 1}))
    config = json.loads((folder / "config.json").read_text())
    end = "</s>" if case.tokenizer.startswith("spm") else "<|end|>"
    ids = {"eos_token_id": AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids(end)}
    config |= ids | more
    dropped = ["bos_token_id", "pad_token_id", "sep_token_id", "eod_token_id"]
    dropped += ["intermediate_size", "layer_types", "tie_word_embeddings"] if shape.arch == "lfm2" else []
    dropped += family.dropped if family else []
    dropped += ["architectures"] if shape.arch == "mistral4" else []  # the converter knows only that around it
    dropped += ["layer_types"] if shape.arch == "qwen3next" else []
    dropped += ["num_nextn_predict_layers"] if "mrope_section" in shape.rope else []
    dropped += ["n_routed_experts", "n_shared_experts"] if shape.arch == "bailingmoe2" else []
    dropped += kda.dropped(shape) if shape.arch in kda.FAMILIES else []
    dropped += mamba.dropped(shape) if shape.arch in mamba.FAMILIES else []
    for key in dropped + (["per_layer_config"] if "global_head_dim" in more else []):
        config.pop(key, None)
    if family and family.within:
        around = {key: config.pop(key) for key in more}
        config |= family.inner(shape)
    if around:
        predicts = dict(mtp_num_hidden_layers=1) if shape.arch in QWEN else {}
        config = around | dict(text_config=config | predicts)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    sampling = {"do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.8, "repetition_penalty": 1.05}
    (folder / "generation_config.json").write_text(json.dumps(sampling | ids, indent=1))


def llama_cpp(checkout: pathlib.Path, jobs: list) -> None:
    """Runs the converter for each job, (folder, the name of the pre-tokenizer, type, output, more options), in one
    process, because it takes longer to start than to convert."""
    code = ("import json, runpy, sys; sys.path.insert(0, '.'); import conversion.base as base; "
            "import conversion.hunyuan as hunyuan\n"
            "hunyuan.HunYuanMoEModel.set_vocab = lambda self: self._set_vocab_gpt2()\n"
            # transformers renames settings of these, which the converter reads by their published names.
            "class Auto:\n"
            "    plain = base.AutoConfig\n"
            "    def from_pretrained(folder, **more):\n"
            "        assert json.loads((folder / 'config.json').read_text())['model_type'] not in "
            "('bailing_hybrid', 'mimo_v2_flash', 'minimax_m3_vl', 'nemotron_h', 'step3p5')\n"
            "        return Auto.plain.from_pretrained(folder, **more)\n"
            "base.AutoConfig = Auto\n"
            "for folder, pre, kind, out, more in json.load(sys.stdin):\n"
            "    base.TextModel.get_vocab_base_pre = lambda self, tokenizer: pre\n"
            "    sys.argv = ['convert_hf_to_gguf.py', folder, '--outtype', kind, '--outfile', out, *more]\n"
            "    runpy.run_path(sys.argv[0], run_name='__main__')\n")
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run([sys.executable, "-c", code], cwd=checkout, env=environment, capture_output=True, text=True,
                           input=json.dumps(jobs))
    assert ended.returncode == 0, ended.stderr


def fnv1a(data: bytes) -> str:
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def describe(path: pathlib.Path) -> tuple[dict, dict]:
    """Metadata with types, and tensors: format, shape (innermost first), hash."""
    reader = gguf.GGUFReader(path)
    pairs = {}
    for key, field in reader.fields.items():
        if not key.startswith("GGUF."):
            pairs[key] = [" of ".join(kind.name for kind in field.types[:2]), field.contents()]
    tensors = {t.name: [t.tensor_type.name, [int(n) for n in t.shape], fnv1a(t.data.tobytes())] for t in reader.tensors}
    return pairs, tensors


def corrected(shape: Shape, pairs: dict) -> dict:
    """The metadata without what the converter makes up: it gives every Gemma the special tokens of one vocabulary, and
    EXAONE's epsilon the name of another norm's, which llama.cpp then does not find."""
    if shape.arch == "gemma":
        roles = [f"tokenizer.ggml.{role}_token_id" for role in ("prefix", "suffix", "middle", "fsep", "eot")]
        return {key: value for key, value in pairs.items() if key not in roles}
    if shape.arch in ("granitehybrid", *mamba.NEMOTRON):  # 2^20, whatever the settings say
        return pairs | {f"{shape.arch}.context_length": ["UINT32", shapes.CONTEXT]}
    if shape.arch == "mistral4":  # it leaves out the temperature of queries
        return pairs | {"mistral4.attention.temperature_scale": ["FLOAT32", float(np.float32(MINISTRAL["llama_4_scaling_beta"]))]}
    if shape.arch == "internlm2":  # true, the default
        return {key: value for key, value in pairs.items() if key != "tokenizer.ggml.add_space_prefix"}
    if shape.arch == "hunyuan-dense":  # transformers' default of another setting
        return pairs | {"tokenizer.ggml.eos_token_id": ["UINT32", shapes.VOCAB - 2]}
    if shape.arch == "exaone":
        return {key.replace("layer_norm_epsilon", "layer_norm_rms_epsilon"): value for key, value in pairs.items()}
    return pairs


@torch.no_grad()
def write(name: str, case: Case) -> dict:
    """Writes the folder and the logits; returns what the tokenizer makes of texts."""
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    shapes.VOCAB = 352 if case.tokenizer.startswith("spm") else 288  # SentencePiece wants every frequent character
    model = build(case.shape)
    randomise(model, case.shape, generator)
    for weight in model.parameters():  # what the files will hold
        weight.data = weight.data.to(case.dtype).float()
    for part, weight in model.named_parameters():
        if part.endswith("A_log"):  # torch's exponential of many numbers is not always the nearest
            nearest = torch.from_numpy(np.exp(weight.double().numpy()).astype(np.float32))
            weight.data[torch.exp(weight) != nearest] = 0
    folder, buffers = OUT / name, {buffer: values.clone() for buffer, values in model.named_buffers()}
    write_folder(folder, name, case, model)
    for buffer, values in model.named_buffers():  # computed ones are rounded with the weights
        values.copy_(buffers[buffer])

    least_gap = SELECTION_GAP if selection_biases(model) else ROUTER_GAP
    sequences = [draw(model, case.shape, length, least_gap, generator) for length in LENGTHS]
    logits = run(model, sequences)
    least = min(least_effect(model, case.shape, sequences, logits), bias_effect(model, sequences, logits))
    assert least > 100 * TOLERANCE["f32"], f"{name}: a block matters too little: {least}"
    write_logits(OUT / f"{name}.logits.gguf", TOLERANCE["f32"], sequences, logits)
    print(f"{name:12} {sum(f.stat().st_size for f in folder.iterdir()):9,} bytes, blocks move the logits by {least:.3f}")

    # transformers does not know all model types.
    load = PreTrainedTokenizerFast if case.tokenizer.startswith("spm") else AutoTokenizer
    tokenizer = load.from_pretrained(folder)
    return {"texts": [[text, tokenizer.encode(text)] for text in TEXTS], "metadata": {}, "tensors": {}}


def make(names: list, checkout: pathlib.Path) -> None:
    abouts = {name: write(name, CASES[name]) for name in names}
    with tempfile.TemporaryDirectory() as scratch:
        out = lambda name, kind: str(pathlib.Path(scratch) / f"{name}-{kind}.gguf")
        predicts = {name: CASES[name].shape.nextn or CASES[name].shape.arch in (*QWEN, "mimo2") for name in names}
        llama_cpp(checkout, [
            (str((OUT / name).resolve()), CASES[name].tokenizer, kind, out(name, kind), ["--no-mtp"] if predicts[name] else [])
            for name in names for kind in TYPES])
        for name, about in abouts.items():
            for kind in TYPES:
                pairs, about["tensors"][kind] = describe(pathlib.Path(out(name, kind)))
                about["metadata"] = corrected(CASES[name].shape, pairs) | {"general.file_type": None}
            lines = []
            for part, entries in about.items():
                rows = [json.dumps(e, ensure_ascii=False) for e in entries] if isinstance(entries, list) else [
                    f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in entries.items()]
                open_, close = "[]" if isinstance(entries, list) else "{}"
                lines.append(f"{json.dumps(part)}: {open_}\n" + ",\n".join(rows) + f"\n{close}")
            (OUT / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    shapes.ROUTED_SCALE = 1.0  # the first DeepSeek MoE has none
    OUT.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(2)
    make(sys.argv[2:] or list(CASES), pathlib.Path(sys.argv[1]))
    print(f"{sum(f.stat().st_size for f in OUT.rglob('*') if f.is_file()):,} bytes")
