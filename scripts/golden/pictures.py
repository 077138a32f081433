"""Golden files for pictures: crates/vision/tests/golden/*.json.

- resize.json: sizes, filters and the SHA-256 of what Pillow's resize makes of noise.
- files.json: small files of all formats, and their pixels as Pillow decodes them.
- processors.json: settings of image processors, and what the processors of transformers make of noise: the sizes of tiles,
  the SHA-256 of their bytes before normalising, some values after it, and the text that replaces the placeholder.

The processor of LFM2-VL has no form for Pillow, so this script replaces its resize by Pillow's.

Run with Python 3.11, Pillow 11.3.0, numpy 2.4, torch 2.15, torchvision 0.29 and transformers 5.24.0, without arguments.
"""

import hashlib
import io
import json
import random
import re
import struct
import zlib
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import torch
from PIL import Image, ImageOps
from transformers import processing_utils
from transformers.image_processing_backends import TorchvisionBackend
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.gemma3.processing_gemma3 import Gemma3Processor
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
from transformers.models.gemma4.processing_gemma4 import Gemma4Processor
from transformers.models.gemma4_unified import image_processing_gemma4_unified
from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil
from transformers.models.glm4v.processing_glm4v import Glm4vProcessor
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.idefics3.processing_idefics3 import Idefics3Processor
from transformers.models.lfm2_vl.image_processing_lfm2_vl import Lfm2VlImageProcessor
from transformers.models.lfm2_vl.processing_lfm2_vl import Lfm2VlProcessor
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
from transformers.models.pixtral.processing_pixtral import PixtralProcessor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor

OUT = Path(__file__).parent.parent.parent / "crates/vision/tests/golden"
RNG = random.Random(79)
FILTERS = {"bilinear": 2, "bicubic": 3, "lanczos": 1}


def noise(width, height, seed):
    """Pixels from a counter, which the tests compute too (splitmix64)."""
    with np.errstate(over="ignore"):
        x = np.arange(width * height * 3, dtype=np.uint64) + np.uint64(seed << 32)
        x = x * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    return Image.fromarray((x >> np.uint64(56)).astype(np.uint8).reshape(height, width, 3))


def sha(data):
    return hashlib.sha256(data).hexdigest()


def write(name, cases):
    OUT.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    (OUT / name).write_text(f"[\n{lines}\n]\n")


def resizes():
    side = lambda: RNG.choice([1, 2, 3, RNG.randint(1, 40), RNG.randint(1, 300)])
    for seed in range(90):
        old, new = (side(), side()), (side(), side())
        if seed % 9 == 0:
            new = (old[0], new[1])
        if seed % 9 == 1:
            new = (new[0], old[1])
        name = list(FILTERS)[seed % 3]
        pixels = noise(*old, seed).resize(new, FILTERS[name]).tobytes()
        yield {"filter": name, "seed": seed, "from": old, "to": new, "sha256": sha(pixels)}


def png(width, height, depth, colour, rows):
    """A PNG that Pillow does not write: 16 bits."""
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    raw = b"".join(b"\0" + row for row in rows)
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")


def files():
    picture = noise(11, 7, 1)
    smooth = noise(4, 3, 2).resize((37, 21), 3)
    alpha = picture.copy()
    alpha.putalpha(noise(11, 7, 3).getchannel(0))

    def saved(image, kind, **options):
        out = io.BytesIO()
        image.save(out, kind, **options)
        return out.getvalue()

    def case(name, data, tolerance=0, pixels=None):
        image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
        rgb = pixels if pixels is not None else image.convert("RGB").tobytes()
        of = bytes.hex
        width, height = image.size
        return {"name": name, "width": width, "height": height, "tolerance": tolerance, "file": of(data), "rgb": of(rgb)}

    for mode in ["1", "L", "P", "RGB"]:
        yield case(f"png {mode}", saved(picture.convert(mode), "PNG"))
    yield case("png LA", saved(alpha.convert("LA"), "PNG"))
    yield case("png RGBA", saved(alpha, "PNG"))
    yield case("png P with a transparent colour", saved(picture.convert("P"), "PNG", transparency=3))
    yield case("png with a profile", saved(picture, "PNG", icc_profile=b"no profile at all"))
    wide = np.random.RandomState(5).randint(0, 1 << 16, (7, 11, 3)).astype(">u2")
    high = (wide >> 8).astype(np.uint8)
    yield case("png RGB of 16 bits", png(11, 7, 16, 2, [row.tobytes() for row in wide]), pixels=high.tobytes())
    grey = np.repeat(high[:, :, :1], 3, axis=2)
    yield case("png grey of 16 bits", png(11, 7, 16, 0, [row[:, 0].tobytes() for row in wide]), pixels=grey.tobytes())
    yield case("bmp", saved(picture, "BMP"))
    yield case("bmp P", saved(picture.convert("P"), "BMP"))
    yield case("gif", saved(picture.convert("P"), "GIF"))
    frames = [noise(11, 7, seed).convert("P") for seed in (7, 8)]
    yield case("gif animated", saved(frames[0], "GIF", save_all=True, append_images=frames[1:]))
    yield case("webp lossless", saved(picture, "WEBP", lossless=True))
    yield case("webp RGBA", saved(alpha, "WEBP", lossless=True, exact=True))
    yield case("webp animated", saved(picture, "WEBP", lossless=True, save_all=True, append_images=[noise(11, 7, 9)]))
    # Decoders of lossy files round differently.
    yield case("webp lossy", saved(smooth, "WEBP", quality=90), 6)
    for name, options in [("4:4:4", {"subsampling": 0}), ("4:2:0", {"subsampling": 2}), ("progressive", {"progressive": True})]:
        yield case(f"jpeg {name}", saved(smooth, "JPEG", quality=95, **options), 6)
    yield case("jpeg grey", saved(smooth.convert("L"), "JPEG", quality=95), 3)
    yield case("jpeg CMYK", saved(smooth.convert("CMYK"), "JPEG", quality=95, subsampling=0), 6)
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        kinds = [("JPEG", {"quality": 95, "subsampling": 0}), ("PNG", {}), ("WEBP", {"lossless": True})]
        for kind, options in kinds if orientation in (3, 6) else kinds[:1]:
            data = saved(smooth, kind, exif=exif.tobytes(), **options)
            yield case(f"{kind.lower()} turned {orientation}", data, 3 if kind == "JPEG" else 0)


def pillow_resize(self, image, size, resample=None, **_):
    of = lambda one: Image.fromarray(one.permute(1, 2, 0).numpy()).resize((size.width, size.height), int(resample))
    return torch.stack([torch.from_numpy(np.array(of(one))).permute(2, 0, 1) for one in image])


TorchvisionBackend.resize = pillow_resize


def planes(image, patch):
    """Patches of (channel, dy, dx), row by row, of an image (channel, y, x)."""
    channels, height, width = image.shape
    grid = image.reshape(channels, height // patch, patch, width // patch, patch)
    return grid.transpose(1, 3, 0, 2, 4).reshape(height // patch, width // patch, -1)


def lfm2(settings, image):
    own = Lfm2VlImageProcessor(**settings)
    out = own(image, return_row_col_info=True, return_tensors="pt")
    patch = own.encoder_patch_size
    tiles = []
    for values, shape in zip(out["pixel_values"], out["spatial_shapes"]):
        rows, columns = map(int, shape)
        tile = values[: rows * columns].numpy().reshape(rows, columns, patch, patch, 3)
        tiles.append(tile.transpose(0, 1, 4, 2, 3).reshape(rows, columns, -1))
    text = made(
        Lfm2VlProcessor,
        image_processor=own,
        image_token="<image>",
        image_start_token="<|image_start|>",
        image_end_token="<|image_end|>",
        image_thumbnail_token="<|img_thumbnail|>",
    ).replace_image_token(out, 0, use_image_special_tokens=True)
    return tiles, text, own


def qwen(settings, image, processor=Qwen2VLImageProcessorPil, text=(Qwen3VLProcessor, "<|image_pad|>")):
    own = processor(**settings)
    out = own(image, return_tensors="np")
    _, rows, columns = map(int, out["image_grid_thw"][0])
    m, p = own.merge_size, own.patch_size
    values = out["pixel_values"].reshape(rows // m, columns // m, m, m, 3, 2, p, p)
    assert (values[:, :, :, :, :, 0] == values[:, :, :, :, :, 1]).all()
    values = values[:, :, :, :, :, 0].transpose(0, 2, 1, 3, 4, 5, 6).reshape(rows, columns, -1)
    kind, token = text
    text = made(kind, image_processor=own, image_token=token).replace_image_token(out, 0)
    return [values], text, own


def glm4v(settings, image):
    return qwen(settings, image, Glm4vImageProcessorPil, (Glm4vProcessor, "<|image|>"))


def gemma4(settings, image):
    own = Gemma4ImageProcessorPil(**settings)
    out = own(image, return_tensors="np")
    columns, rows = out["image_position_ids"][0].max(axis=0) + 1
    p = own.patch_size
    values = out["pixel_values"][0][: rows * columns].reshape(rows, columns, p, p, 3)
    values = values.transpose(0, 1, 4, 2, 3).reshape(rows, columns, -1)
    marks = {"boi_token": "<|image>", "image_token": "<|image|>", "eoi_token": "<image|>"}
    return [values], made(Gemma4Processor, **marks).replace_image_token(out, 0), own


def gemma4_unified(settings, image):
    """Patches of whole tokens."""
    module = image_processing_gemma4_unified
    own = module.Gemma4UnifiedImageProcessor(**settings)

    def resize(one, size, interpolation, antialias):
        resized = Image.fromarray(one.permute(1, 2, 0).numpy()).resize(size[::-1], int(interpolation))
        return torch.from_numpy(np.array(resized)).permute(2, 0, 1)

    # The processor has no form for Pillow.
    with mock.patch.object(module.tvF, "resize", resize):
        out = own(image, return_tensors="pt")
    columns, rows = map(int, out["image_position_ids"][0].amax(0) + 1)
    side = own.patch_size * own.pooling_kernel_size
    values = out["pixel_values"][0][: rows * columns].numpy().reshape(rows, columns, side, side, 3)
    return values.transpose(0, 1, 4, 2, 3).reshape(rows, columns, -1)


def gemma3(settings, image):
    own = Gemma3ImageProcessorPil(**settings)
    out = own(image, return_tensors="np")
    tokenizer = SimpleNamespace(
        boi_token="<start_of_image>",
        boi_token_id=1,
        eoi_token="<end_of_image>",
        image_token="<image_soft_token>",
        image_token_id=2,
    )
    kept = processing_utils.ProcessorMixin.__init__
    processing_utils.ProcessorMixin.__init__ = lambda *_, **__: None
    text = Gemma3Processor(own, tokenizer).replace_image_token({"num_crops": [0]}, 0)
    processing_utils.ProcessorMixin.__init__ = kept
    return [planes(out["pixel_values"][0], 14)], text, own


def pixtral(settings, image, patch, merge):
    own = PixtralImageProcessorPil(**settings)
    out = own(image, patch_size=patch * merge, return_tensors="np")
    marks = {"image_token": "[IMG]", "image_break_token": "[IMG_BREAK]", "image_end_token": "[IMG_END]"}
    text = made(PixtralProcessor, patch_size=patch, spatial_merge_size=merge, **marks).replace_image_token(out, 0)
    return [planes(out["pixel_values"][0], patch)], text, own


def idefics3(settings, image, patch, merge):
    own = Idefics3ImageProcessorPil(**settings)
    out = own(image, return_row_col_info=True, return_tensors="np")
    side = own.max_image_size["longest_edge"]
    marks = {"image_token": "<image>", "fake_image_token": "<fake_token_around_image>", "global_image_tag": "<global-img>"}
    text = made(Idefics3Processor, image_seq_len=(side // patch // merge) ** 2, **marks).replace_image_token(out, 0)
    return [planes(tile, patch) for tile in out["pixel_values"][0]], text, own


def made(kind, **attributes):
    """A processor without its tokenizer."""
    own = object.__new__(kind)
    own.__dict__.update(attributes)
    return own


def counted(text, token):
    return re.sub(f"(?:{re.escape(token)})+", lambda found: f"{token}*{len(found[0]) // len(token)}", text)


def case(name, settings, processor, model, size, seed, tiles, text, token, own):
    scale = own.rescale_factor if own.do_rescale else 1.0
    mean, std = (own.image_mean, own.image_std) if own.do_normalize else ([0.0] * 3, [1.0] * 3)
    stated = []
    for tile in tiles:
        rows, columns, length = tile.shape
        split = tile.reshape(rows, columns, 3, -1).astype(np.float64)
        back = (split * np.reshape(std, (3, 1)) + np.reshape(mean, (3, 1))) / scale
        assert np.abs(back - back.round()).max() < 1e-3
        places = [RNG.randrange(rows * columns * length) for _ in range(4)]
        samples = [[place, float(tile.reshape(-1)[place])] for place in places]
        stated.append({"rows": rows, "columns": columns, "sha256": sha(back.round().astype(np.uint8).tobytes()), "samples": samples})
    configs = {"preprocessor": {"image_processor_type": name, **settings}, "processor": processor, "model": model}
    return {**configs, "size": size, "seed": seed, "tiles": stated, "text": counted(text, token)}


SIZES = [(1, 1), (64, 64), (1, 70), (150, 1), (33, 200), (321, 123), (500, 499), (640, 480)]
LARGE = [(1000, 700), (700, 1500), (1024, 1024)]


def processors():
    seed = 0
    for settings in [{}, {"max_image_tokens": 20, "min_image_tokens": 4, "tile_size": 64, "max_tiles": 4}, {"do_image_splitting": False}]:
        for size in SIZES + LARGE[: 2 if not settings else 1]:
            seed += 1
            tiles, text, own = lfm2(settings, noise(*size, seed))
            yield case("Lfm2VlImageProcessorFast", settings, None, {}, size, seed, tiles, text, "<image>", own)
    halves = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    for settings in [
        {"patch_size": 16, "merge_size": 2, "size": {"shortest_edge": 65536, "longest_edge": 16777216}, **halves},
        {"patch_size": 14, "merge_size": 2, "min_pixels": 784, "max_pixels": 20000},
    ]:
        for size in SIZES + LARGE[:1]:
            seed += 1
            tiles, text, own = qwen(settings, noise(*size, seed))
            yield case("Qwen2VLImageProcessor", settings, None, {}, size, seed, tiles, text, "<|image_pad|>", own)
    for settings in [{}, {"max_soft_tokens": 70}]:
        for size in SIZES + LARGE[:1]:
            seed += 1
            tiles, text, own = gemma4(settings, noise(*size, seed))
            yield case("Gemma4ImageProcessor", settings, None, {}, size, seed, tiles, text, "<|image|>", own)
    settings = {"size": {"height": 896, "width": 896}}
    for size in [(2, 300), (640, 480), (1000, 1000)]:
        seed += 1
        tiles, text, own = gemma3(settings, noise(*size, seed))
        yield case("Gemma3ImageProcessor", settings, None, {"vision_config": {"patch_size": 14}}, size, seed, tiles, text, "<image_soft_token>", own)
    for settings, patch, merge in [({"size": {"longest_edge": 1540}}, 14, 2), ({"size": {"longest_edge": 200}}, 16, 1)]:
        for size in SIZES + LARGE[:1]:
            seed += 1
            tiles, text, own = pixtral(settings, noise(*size, seed), patch, merge)
            processor = {"patch_size": patch, "spatial_merge_size": merge}
            yield case("PixtralImageProcessor", settings, processor, {}, size, seed, tiles, text, "[IMG]", own)
    published = {"size": {"longest_edge": 2048}, "max_image_size": {"longest_edge": 512}}
    small = {"size": {"longest_edge": 224}, "max_image_size": {"longest_edge": 64}}
    for settings, merge, sizes in [(published, 4, [(640, 480)]), (small, 2, SIZES + LARGE[:2])]:
        for size in sizes:
            seed += 1
            tiles, text, own = idefics3(settings, noise(*size, seed), 16, merge)
            model = {"vision_config": {"patch_size": 16}, "scale_factor": merge}
            yield case("SmolVLMImageProcessor", settings, None, model, size, seed, tiles, text, "<image>", own)
    for settings in [{}, {"size": {"shortest_edge": 12544, "longest_edge": 60000}}]:
        for size in SIZES + LARGE[:1]:
            seed += 1
            tiles, text, own = glm4v(settings, noise(*size, seed))
            yield case("Glm4vImageProcessor", settings, None, {}, size, seed, tiles, text, "<|image|>", own)


if __name__ == "__main__":
    write("resize.json", resizes())
    write("files.json", files())
    write("processors.json", processors())
