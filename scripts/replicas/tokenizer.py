"""Writes the tokenizer and the configuration of the built-in model as Hugging Face publishes them: tokenizer.py FOLDER."""

import json
import sys
from pathlib import Path

from gguf import GGUFReader
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

MODEL = Path(__file__).parents[2] / "crates/cli/model/gristmill-stories.gguf"
# The expression of Qwen 2's published tokenizer.json (Apache-2.0).
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    value = {name: field.contents() for name, field in GGUFReader(MODEL).fields.items()}
    tokens, merges = value["tokenizer.ggml.tokens"], value["tokenizer.ggml.merges"]
    end = tokens[value["tokenizer.ggml.eos_token_id"]]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [tuple(merge.split(" ")) for merge in merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN2), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(end, special=True)])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": end, "model_max_length": 2048,
        "chat_template": "{% for message in messages %}{{ message.content }}{% endfor %}"}))
    name = value["general.architecture"]
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "vocab_size": len(tokens),
        "max_position_embeddings": 2048, "num_hidden_layers": value[f"{name}.block_count"],
        "hidden_size": value[f"{name}.embedding_length"], "eos_token_id": vocabulary[end], "bos_token_id": None}))


main()
