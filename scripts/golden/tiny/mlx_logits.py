"""Logits of mlx-lm."""

import pathlib

import mlx.core as mx
import numpy as np
import torch

from .files import write_logits
from .shapes import TOLERANCE

LENGTHS = (5, 3, 2)


def write(path: pathlib.Path, model, vocabulary: int) -> None:
    """Writes token sequences and the logits that mlx-lm computes with scales, biases and activations in F32."""
    model.set_dtype(mx.float32)
    generator = torch.Generator().manual_seed(41)
    sequences = [torch.randint(vocabulary, (n,), generator=generator) for n in LENGTHS]
    logits = [torch.from_numpy(np.array(model(mx.array(tokens.numpy())[None])[0])) for tokens in sequences]
    assert all(values.dtype == torch.float32 and values.isfinite().all() for values in logits)
    write_logits(path, TOLERANCE["f32"], sequences, logits)
