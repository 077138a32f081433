"""The two ends of train_head.py: a GGUF file's weights in F16, and the file with a prediction head added.

    python head_gguf.py unpack --model gristmill-stories.gguf --out work/trunk.npz
    python head_gguf.py add --model gristmill-stories.gguf --head work/head.npz --out with-head.gguf

The tensors of the model are copied as they are. The head is block 4: a decoder block with a dense MLP, and the tensors
`nextn.*`.
"""

import argparse
import pathlib

import gguf
import numpy as np
from gguf.quants import dequantize, quantize

from model import HIDDEN, LAYERS

PREFIX = f"blk.{LAYERS}."
Q5_0, Q8_0 = gguf.GGMLQuantizationType.Q5_0, gguf.GGMLQuantizationType.Q8_0
# The width of the MLP, which only the head has, and the number of blocks are written anew.
REPLACED = [f"qwen3moe.{name}" for name in ("block_count", "feed_forward_length", "nextn_predict_layers")]


def unpack(arg):
    reader = gguf.GGUFReader(arg.model)
    tensors = {t.name: dequantize(t.data, t.tensor_type).astype(np.float16)
               for t in reader.tensors if not t.name.startswith(PREFIX)}
    arg.out.parent.mkdir(parents=True, exist_ok=True)
    np.savez(arg.out, **tensors)


def copy_metadata(reader, writer):
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ["general.architecture", *REPLACED]:
            continue
        kind, inner = field.types[0], field.types[-1] if len(field.types) > 1 else None
        writer.add_key_value(field.name, field.contents(), kind, inner)


def add(arg):
    reader, head = gguf.GGUFReader(arg.model), np.load(arg.head)
    writer = gguf.GGUFWriter(arg.out, "qwen3moe")
    copy_metadata(reader, writer)
    writer.add_block_count(LAYERS + 1)
    writer.add_uint32("qwen3moe.nextn_predict_layers", 1)
    writer.add_feed_forward_length(head["ffn_gate"].shape[0])
    for t in reader.tensors:
        if not t.name.startswith(PREFIX):
            writer.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
    for name, weight in head.items():
        if weight.ndim == 1:
            writer.add_tensor(f"{PREFIX}{name}.weight", weight.astype(np.float32))
        else:
            kind = Q8_0 if name == "nextn.eh_proj" else Q5_0
            writer.add_tensor(f"{PREFIX}{name}.weight", quantize(weight.astype(np.float32), kind), raw_dtype=kind)
    assert head["nextn.eh_proj"].shape == (HIDDEN, 2 * HIDDEN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    arg = argparse.ArgumentParser()
    arg.add_argument("command", choices=["unpack", "add"])
    arg.add_argument("--model", type=pathlib.Path, required=True)
    arg.add_argument("--head", type=pathlib.Path)
    arg.add_argument("--out", type=pathlib.Path, required=True)
    arg = arg.parse_args()
    {"unpack": unpack, "add": add}[arg.command](arg)


if __name__ == "__main__":
    main()
