"""Writes the trained model as GGUF: matrices in F16, norms and routers in F32.

    python export.py --model work/model --out gristmill-stories-f16.gguf
"""

import argparse
import json
import pathlib

import gguf
import torch
from safetensors.torch import load_file

from model import CONFIG, CONTEXT, EOS, EPS, EXPERTS, HEAD, HEADS, HIDDEN, INNER, KV_HEADS, LAYERS, TOP_K, VOCAB

BLOCK = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.#.gate_proj", "ffn_up_exps": "mlp.experts.#.up_proj",
    "ffn_down_exps": "mlp.experts.#.down_proj",
}


def add_metadata(writer):
    writer.add_name("gristmill stories")
    writer.add_description("A small mixture of experts that writes short stories for children, made to test gristmill")
    writer.add_license("apache-2.0")
    writer.add_languages(["en"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(CONFIG["intermediate_size"])
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_rope_freq_base(CONFIG["rope_theta"])
    writer.add_layer_norm_rms_eps(EPS)
    writer.add_expert_count(EXPERTS)
    writer.add_expert_used_count(TOP_K)
    writer.add_expert_feed_forward_length(INNER)
    writer.add_vocab_size(VOCAB)


def add_tokenizer(writer, folder):
    tokenizer = json.loads((folder / "tokenizer.json").read_text())["model"]
    tokens = sorted(tokenizer["vocab"], key=tokenizer["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL if i == EOS else gguf.TokenType.NORMAL for i in range(len(tokens))])
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in tokenizer["merges"]])
    writer.add_eos_token_id(EOS)
    writer.add_pad_token_id(EOS)
    writer.add_add_bos_token(False)


def main():
    arg = argparse.ArgumentParser()
    arg.add_argument("--model", type=pathlib.Path, required=True)
    arg.add_argument("--out", type=pathlib.Path, required=True)
    arg = arg.parse_args()
    tensors = {n: w.float() for file in sorted(arg.model.glob("*.safetensors")) for n, w in load_file(file).items()}
    writer = gguf.GGUFWriter(arg.out, "qwen3moe")
    add_metadata(writer)
    add_tokenizer(writer, arg.model)

    def add(name, theirs):
        parts = [tensors.pop(theirs.replace("#", str(e))) for e in range(EXPERTS if "#" in theirs else 1)]
        weight = torch.stack(parts) if "#" in theirs else parts[0]
        small = weight.dim() == 1 or "gate_inp" in name
        writer.add_tensor(name, weight.numpy() if small else weight.half().numpy())

    add("token_embd.weight", "model.embed_tokens.weight")
    for i in range(LAYERS):
        for ours, theirs in BLOCK.items():
            add(f"blk.{i}.{ours}.weight", f"model.layers.{i}.{theirs}.weight")
    add("output_norm.weight", "model.norm.weight")
    assert not tensors, f"not written: {sorted(tensors)}"
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
