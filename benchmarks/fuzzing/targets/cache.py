"""Answers kept on disk, and what a server told of itself."""

from __future__ import annotations

import hashlib
import random
import zlib
from collections.abc import Sequence
from pathlib import Path

from ..documents import by_json
from ..spoil import spoiled
from ..target import BrokenPromiseError, Prepared, Seed, Target
from ..verdict import finite
from .answers import COUNT, START, STEP

_QUERY = "avg_over_time(DCGM_FI_PROF_SM_ACTIVE[1h])"
_LENGTH = 8  # bytes that tell how long the labels are
_DIGEST = hashlib.sha256().digest_size


def _prepare(folder: Path) -> Prepared:
    import numpy as np
    from skuwise.advisor.telemetry.prometheus.client.cache import Cache
    from skuwise.advisor.telemetry.prometheus.client.response import Grid, SeriesAnswer

    own = folder / "cache"
    own.mkdir(mode=0o700)
    grid = Grid(START, START + (COUNT - 1) * STEP, STEP)
    labels = tuple({"Hostname": f"gpu-{n}", "UUID": f"GPU-{n}", "gpu": "0"} for n in range(3))
    values = np.arange(3.0 * COUNT).reshape(3, COUNT)
    values[1, 2] = np.nan
    cache = Cache(own, "http://prometheus")
    cache.put(_QUERY, grid, ("Hostname", "UUID"), SeriesAnswer(labels, values))
    (answer,) = own.iterdir()
    cache.told_before(_QUERY, {START: "mark", START + 86400: "other"})
    paths = {"answer": answer, "server": next(own.glob("server-*.json"))}
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

    form = seeds[0].data[: seeds[0].data.index(b"\n") + 1]
    content = zlib.decompress(seeds[0].data[len(form) + _DIGEST :])
    end = _LENGTH + int.from_bytes(content[:_LENGTH], "little")
    kept, numbers = Seed("labels", content[_LENGTH:end]), content[end:]
    trees = by_json(b"1790000000.0", b'"nan"', b'"inf":', b"null")

    def mutate(draw: random.Random, seed: Seed, seeds: Sequence[Seed]) -> bytes:  # noqa: ARG001
        if seed.name == "server":
            return trees(draw, seed, [seed])
        what = draw.random()
        if what < 0.3:  # the file as it lies there
            return spoiled(draw, seed.data, [seed])
        told, rows = kept.data, numbers
        if what < 0.6:
            told = trees(draw, kept, [kept])
        if what > 0.5:
            rows = spoiled(draw, rows, [Seed("", numbers)])
        length = len(told) if draw.random() < 0.8 else draw.choice((0, 1, len(told) + 1, 2**31, 2**63, 2**64 - 1))
        inside = length.to_bytes(_LENGTH, "little") + told + rows
        if draw.random() < 0.01:  # little that becomes much
            inside += bytes(draw.choice((1 << 20, 1 << 24, 1 << 26)))
        # As somebody writes it who means it: the digest is right.
        whole = form + hashlib.sha256(inside).digest() + zlib.compress(inside, 1)
        return spoiled(draw, whole, [seed]) if draw.random() < 0.05 else whole

    return Prepared(seeds, read, mutate)


CACHE = Target("cache", "answers kept on disk (advisor/telemetry/prometheus/cache)", _prepare)
