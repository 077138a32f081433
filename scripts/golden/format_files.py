"""The golden files of formats, crates/kernels/tests/golden/formats/NAME.bin: a header of lines, an empty line, rows of blocks, and
after the last of them the floats that they decode to, in little-endian binary32.

The first line of the header has the type number, bytes of a row's scale, blocks of a row, elements and bytes of a block. The
others are those of tensors of encoders/values.bin: name, and the root mean square error of llama.cpp's quantiser.
"""

import dataclasses
import pathlib

import numpy as np

GOLDEN = pathlib.Path(__file__).parents[2] / "crates/kernels/tests/golden"


@dataclasses.dataclass
class FormatFile:
    number: int
    row_scale: int
    blocks: int
    elements: int
    bytes: int
    # By name of the tensor, as text.
    errors: dict[str, str]
    # Bytes and floats, a row each.
    rows: np.ndarray
    values: np.ndarray

    def write(self, name: str) -> None:
        count = len(self.rows)
        assert self.rows.dtype == np.uint8 and self.rows.shape == (count, self.row_scale + self.blocks * self.bytes)
        assert self.values.dtype == np.float32 and self.values.shape == (count, self.blocks * self.elements)
        lines = [f"{self.number} {self.row_scale} {self.blocks} {self.elements} {self.bytes}"]
        lines += [f"{tensor} {error}" for tensor, error in self.errors.items()]
        header = "\n".join(lines) + "\n\n"
        path = GOLDEN / f"formats/{name}.bin"
        path.write_bytes(header.encode() + self.rows.tobytes() + self.values.astype("<f4").tobytes())


def read(name: str) -> FormatFile:
    header, data = (GOLDEN / f"formats/{name}.bin").read_bytes().split(b"\n\n", 1)
    first, *errors = header.decode().split("\n")
    number, row_scale, blocks, elements, size = map(int, first.split())
    row = row_scale + blocks * size
    count = len(data) // (row + 4 * blocks * elements)
    rows = np.frombuffer(data, np.uint8, count * row).reshape(count, row)
    values = np.frombuffer(data, "<f4", offset=count * row).reshape(count, -1)
    return FormatFile(number, row_scale, blocks, elements, size, dict(line.split() for line in errors), rows, values)
