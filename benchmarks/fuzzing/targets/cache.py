"""Answers kept on disk, and what a server told of itself."""

from __future__ import annotations

import io
import json
import random
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path

from ..documents import by_json
from ..spoil import spoiled
from ..target import BrokenPromiseError, Prepared, Seed, Target
from ..verdict import finite
from .answers import COUNT, START, STEP

_QUERY = "avg_over_time(DCGM_FI_PROF_SM_ACTIVE[1h])"
_HEADERS = (
    "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 12), }",
    "{'descr': '<f8', 'fortran_order': True, 'shape': (12, 3), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (9223372036854775807, 12), }",
    "{'descr': '|O', 'fortran_order': False, 'shape': (3, 12), }",
    "{'descr': '<U9999999', 'fortran_order': False, 'shape': (3,), }",
    "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (3,), }",
    "{'descr': '<M8[ns]', 'fortran_order': False, 'shape': (3, 12), }",
    "{'descr': '<c16', 'fortran_order': False, 'shape': (3, 12), }",
    "{'descr': '|b1', 'fortran_order': False, 'shape': (3, 12), }",
    "{'descr': '<i8', 'fortran_order': False, 'shape': (3, 12), }",
    "{'descr': '|V8', 'fortran_order': False, 'shape': (36,), }",
    "{'descr': '<f8', 'shape': (3, 12)}", "{" * 2000, "(" * 300 + ")" * 300, "__import__('os')", "{'descr': 1}", "",
    "{'descr': '<f8', 'fortran_order': False, 'shape': 'x', }", "\x00", "9" * 5000,
)  # fmt: skip


def _npy(header: str, body: bytes, version: int = 1) -> bytes:
    text = header.encode("latin-1", "replace")[:60000]
    length = struct.pack("<H", len(text)) if version == 1 else struct.pack("<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + body


def _prepare(folder: Path) -> Prepared:
    import numpy as np
    from skuwise.advisor.telemetry.prometheus.answers import Answer, Grid
    from skuwise.advisor.telemetry.prometheus.cache import Cache

    own = folder / "cache"
    own.mkdir(mode=0o700)
    grid = Grid(START, START + (COUNT - 1) * STEP, STEP)
    labels = tuple({"Hostname": f"gpu-{n}", "UUID": f"GPU-{n}", "gpu": "0"} for n in range(3))
    values = np.arange(3.0 * COUNT).reshape(3, COUNT)
    values[1, 2] = np.nan
    cache = Cache(own, "http://prometheus")
    cache.put(_QUERY, grid, ("Hostname", "UUID"), Answer(labels, values))
    cache.told_before(_QUERY, {START: "mark", START + 86400: "other"})
    paths = {"answer": next(own.glob("*.npz")), "server": next(own.glob("server-*.json"))}
    seeds = [Seed(name, path.read_bytes()) for name, path in paths.items()]

    def read(name: str, data: bytes) -> object:
        paths[name].write_bytes(data)
        again = Cache(own, "http://prometheus")
        if name == "server":
            before = again.told_before(_QUERY, {START: "mark"})
            if not all(isinstance(at, float) and isinstance(mark, str) for at, mark in before.items()):
                raise BrokenPromiseError("what was told before is of another kind")
            return before
        found = again.get(_QUERY, grid, ("Hostname", "UUID"))
        if found is not None:
            if np.isinf(found.values).any() or found.values.dtype != np.float64:
                raise BrokenPromiseError("a kept value is infinite")
            finite([dict(one) for one in found.labels], "kept labels")
        again.prune(10**9)
        return found

    trees = by_json(b"1790000000.0", b'"nan"', b'"inf":', b"null")
    kept = json.dumps([dict(one) for one in labels]).encode()
    body, honest = values.tobytes(), _HEADERS[0]

    def mutate(draw: random.Random, seed: Seed, seeds: Sequence[Seed]) -> bytes:  # noqa: ARG001
        if seed.name == "server":
            return trees(draw, seed, [seed])
        what = draw.random()
        if what < 0.4:
            return spoiled(draw, seed.data, [seed])
        inner = {"values.npy": _npy(honest, body), "labels.npy": _npy(_bytes_header(len(kept)), kept)}
        if what < 0.7:
            spoiled_labels = trees(draw, Seed("labels", kept), [Seed("labels", kept)])
            inner["labels.npy"] = _npy(_bytes_header(len(spoiled_labels)), spoiled_labels)
        else:
            name = draw.choice(("values.npy", "labels.npy"))
            header = draw.choice(_HEADERS) if draw.random() < 0.7 else spoiled(
                draw, honest.encode(), [Seed("", honest.encode())]
            ).decode("latin-1")  # fmt: skip
            inner[name] = _npy(
                header, draw.choice((body, b"", body[:-3], body * 30, kept)), draw.choice((1, 1, 1, 2, 3))
            )
        if draw.random() < 0.1:
            inner.pop(draw.choice(list(inner)))
        if draw.random() < 0.1:
            inner[draw.choice(("values.npy", "../x.npy", "labels", "a" * 300))] = b"\x80\x04."
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", draw.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED))) as archive:
            for name, data in inner.items():
                archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), data)
        packed = out.getvalue()
        return spoiled(draw, packed, [seed]) if draw.random() < 0.1 else packed

    return Prepared(seeds, read, mutate)


def _bytes_header(length: int) -> str:
    return f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({length},), }}"


CACHE = Target("cache", "answers kept on disk (advisor/telemetry/prometheus/cache)", _prepare)
