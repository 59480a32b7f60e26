"""One answer as a file's content, and back. What comes back is hostile: whoever can write to the folder, or a disk that
flips bits, decides on its size and its structure.

A line that names the form, the SHA-256 of the content, then the content compressed with zlib: the length of the labels
(8 bytes, little-endian), the labels as JSON, the values row by row (IEEE 754 doubles, little-endian).
"""

from __future__ import annotations

import hashlib
import zlib

import numpy as np
import orjson

from .....agent.base.json_weight import json_memory_bytes
from .response import MAX_CELLS, SeriesAnswer, is_clean

_FORM = b"skuwise-answer-3\n"
_DIGEST_BYTES = 32
_LENGTH_BYTES = 8
# Of the content: an answer that is larger is asked for again.
MOST_BYTES = 48 * 1024 * 1024
# Of its labels once they are read.
_MOST_WEIGHT = 128 * 1024 * 1024
# Values of few bits shrink to a third; more effort gains little.
_EFFORT = 1


def packed(answer: SeriesAnswer) -> bytes | None:
    """The file's content; None: the answer is too large to be kept."""
    labels = orjson.dumps([dict(one) for one in answer.labels])
    values = np.ascontiguousarray(answer.values, dtype="<f8").tobytes()
    content = len(labels).to_bytes(_LENGTH_BYTES, "little") + labels + values
    if len(content) > MOST_BYTES:
        return None
    return _FORM + hashlib.sha256(content).digest() + zlib.compress(content, _EFFORT)


def unpacked(file: bytes, columns: int) -> SeriesAnswer | None:
    """The answer that a file holds, of so many moments; None: none that was written as it stands there."""
    head = len(_FORM) + _DIGEST_BYTES
    if not file.startswith(_FORM):
        return None
    inflater = zlib.decompressobj()
    try:
        content = inflater.decompress(memoryview(file)[head:], MOST_BYTES + 1)
    except zlib.error:
        return None
    if not inflater.eof or inflater.unused_data or len(content) > MOST_BYTES:
        return None
    if hashlib.sha256(content).digest() != file[len(_FORM) : head]:
        return None
    start = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")
    said = content[_LENGTH_BYTES:start]
    if start > len(content) or json_memory_bytes(said) > _MOST_WEIGHT:
        return None
    try:
        labels = orjson.loads(said)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(labels, list) or not all(isinstance(one, dict) and is_clean(one) for one in labels):
        return None
    cells = len(labels) * columns
    if cells > MAX_CELLS or len(content) - start != 8 * cells:
        return None
    values = np.frombuffer(content, dtype="<f8", offset=start).astype(float).reshape(len(labels), columns)
    if np.isinf(values).any():
        return None
    return SeriesAnswer(tuple(labels), values)
