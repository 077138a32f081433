#!/usr/bin/env python3
"""Writes the golden files of crates/conformance/tests/models.rs: tiny random models and their logits.

    pip install torch==2.15.0 transformers==5.23.0 gguf==0.19.0 numpy==2.*
    python scripts/golden/models.py [NAME…]

For each model NAME, crates/conformance/golden/ gets NAME.gguf, and NAME.logits.gguf with three token sequences and
the logits of every position as transformers computes them, in F32, from the weights decoded from NAME.gguf.

The weights are scaled so that every attention and MLP block matters: zeroing the output of any one moves the logits
by more than 100 times the tolerance, which is asserted here and again by the test. Tokens are drawn so that the
router's choice is never close to a tie.

Two models are not transformers' own as they stand. `deepseek` (the first DeepSeek MoE) is not in transformers: it is
built of transformers' Llama, whose MLPs behind the first layer are transformers' DeepseekV2Moe. And the `phimoe` of
transformers never uses LongRoPE's long factors: where the file asks for them, it is given them as its short ones.
"""

import pathlib
import sys

import numpy as np
import torch
from gguf import GGMLQuantizationType as Q

from tiny.build import build, kept_buffers, norm_shift, randomise, selection_biases
from tiny.draw import bias_effect, draw, least_effect, limit_effect, nmse, run, shared_weights
from tiny.files import write_logits, write_model
from tiny.formats import decode, encode, kind_of
from tiny import mamba
from tiny.recurrent import Order
from tiny.shapes import LENGTHS, MODELS, ROUTER_GAP, SELECTION_GAP, SPARSE_MIXER_GAP, TOLERANCE, Shape
from tiny.tensors import half, names, permute, prediction_layers, unpermute

OUT = pathlib.Path(__file__).parents[2] / "crates/conformance/golden"


def scales_of(weight: np.ndarray) -> np.ndarray:
    """The scale of an NVFP4 tensor, or of each of its experts: all different, and such that codes have their full range."""
    largest = np.abs(weight).max((-2, -1), keepdims=True)
    return (largest / (6 * 448) * np.linspace(1, 2, largest.size).reshape(largest.shape)).astype(np.float32)


def continued(model, shape: Shape, tokens: torch.Tensor, first: int) -> torch.Tensor:
    """The logits of tokens from `first` on, from the cache of those before."""
    cached = model(input_ids=tokens[None, :first], use_cache=True)
    if shape.arch == "mamba2":
        return model(input_ids=tokens[None, first:], cache_params=cached.cache_params).logits[0]
    if shape.arch in ("jamba", "bamba"):  # a later run starts without the state, or at position 0
        one = lambda i: model(input_ids=tokens[None, i:i + 1], past_key_values=cached.past_key_values, use_cache=True,
                              position_ids=torch.tensor([[i]]))
        return torch.cat([one(i).logits[0] for i in range(first, len(tokens))])
    return model(input_ids=tokens[None, first:], past_key_values=cached.past_key_values).logits[0]


@torch.no_grad()
def make(name: str, shape: Shape) -> None:
    mix = name.rsplit("-", 1)[1]
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    model = build(shape)
    randomise(model, shape, generator)
    parameters = dict(model.named_parameters()) | kept_buffers(model)

    tensors = {}
    for ours, theirs, heads in names(shape):
        shift = norm_shift(shape, theirs)
        weight = np.ascontiguousarray(half(parameters, theirs).numpy()) + np.float32(shift)
        own = weight
        if isinstance(heads, Order):
            weight = heads.take(weight)
        elif heads:
            weight = permute(weight, heads)
        kind = kind_of(ours, weight.shape[-1], mix)
        scales = scales_of(weight) if kind == Q.NVFP4 else np.float32(1)
        data = encode(weight / scales, kind)
        tensors[ours] = (data, kind)
        if kind == Q.NVFP4:
            tensors[ours.replace(".weight", ".scale")] = (scales.reshape(-1), Q.F32)
        decoded = decode(data, kind).reshape(weight.shape) * scales
        if isinstance(heads, Order):
            decoded = heads.give(own, decoded)
        elif heads:
            decoded = unpermute(decoded, heads)
        half(parameters, theirs).copy_(torch.from_numpy(np.ascontiguousarray(decoded - np.float32(shift))))
    assert shape.tied or "output.weight" in tensors
    tensors |= {name: (encode(values, kind_of(name, values.shape[-1], mix)), kind_of(name, values.shape[-1], mix))
                for name, values in prediction_layers(shape, tensors, generator)}

    shares = shape.arch == "phimoe" and mix == "f32"
    biased = SELECTION_GAP if selection_biases(model) else ROUTER_GAP
    least_gap = SPARSE_MIXER_GAP if shares else biased
    sequences = [draw(model, shape, length, least_gap, generator) for length in LENGTHS]
    assert not shares or shared_weights(model, sequences) >= 3, f"SparseMixer shares {shared_weights(model, sequences)} times"
    logits = run(model, sequences)
    assert mamba.is_unclamped(model, sequences, logits, run)
    cached = continued(model, shape, sequences[0], 20)
    assert nmse([cached], [logits[0][20:]]) < 1e-9
    least = least_effect(model, shape, sequences, logits)
    print(f"{name:18} blocks move the logits by {least:.3f} or more, which have a deviation of {logits[0].std():.2f}")
    assert least > 100 * TOLERANCE[mix], f"a block matters too little: {least}"
    biases = bias_effect(model, sequences, logits)
    assert biases > 20 * TOLERANCE[mix], f"a selection bias matters too little: {biases}"
    limits = limit_effect(model, sequences, logits) if shape.limits else np.inf
    assert limits > 20 * TOLERANCE[mix], f"a limit matters too little: {limits}"

    write_model(OUT / f"{name}.gguf", shape, tensors)
    write_logits(OUT / f"{name}.logits.gguf", TOLERANCE[mix], sequences, logits)


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(2)
    for name in sys.argv[1:] or MODELS:
        make(name, MODELS[name])
    print(f"{sum(f.stat().st_size for f in OUT.glob('*.gguf')):,} bytes")
