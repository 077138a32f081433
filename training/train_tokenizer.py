"""Trains the tokenizer on part of the stories and writes all of them as tokens.

    python train_tokenizer.py --data work

Byte-level BPE with Qwen 2's way of cutting text into words, 4,096 tokens. Writes tokenizer.json and
tokenizer_config.json to work/model, and work/train.npy and work/held.npy: uint16, each story followed by EOS.
"""

import argparse
import json
import pathlib

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from model import EOS, VOCAB

SAMPLE = 100_000
END = "<|endoftext|>"
# The expression of Qwen 2's published tokenizer.json (Apache-2.0).
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")


def main():
    arg = argparse.ArgumentParser()
    arg.add_argument("--data", type=pathlib.Path, required=True)
    arg = arg.parse_args()
    texts = {n: [json.loads(s) for s in (arg.data / f"{n}.jsonl").open()] for n in ("train", "held")}
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN2), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts["train"][:SAMPLE], trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=[END], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    assert tokenizer.get_vocab_size() == VOCAB and tokenizer.token_to_id(END) == EOS
    folder = arg.data / "model"
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(dict(
        tokenizer_class="PreTrainedTokenizerFast", eos_token=END, pad_token=END, model_max_length=512), indent=1))
    for name, stories in texts.items():
        encoded = tokenizer.encode_batch_fast(stories)
        tokens = np.concatenate([np.array(e.ids + [EOS], np.uint16) for e in encoded])
        np.save(arg.data / f"{name}.npy", tokens)
        print(f"{name}: {len(stories)} stories, {len(tokens)} tokens, "
              f"{sum(map(len, stories)) / len(tokens):.2f} characters a token")


if __name__ == "__main__":
    main()
