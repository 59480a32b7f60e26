"""Fleets on which a plan has something to do: half-empty nodes, services with too many replicas, jobs that come and go.

Everything is drawn from a seed. Nothing here knows the planner.
"""

from __future__ import annotations

from datetime import UTC, datetime
from zlib import crc32

import numpy as np
from skuwise.advisor.demo import serving
from skuwise.advisor.demo.identities import ENGINES
from skuwise.advisor.demo.seeded_rng import log_uniform, salt, stream
from skuwise.advisor.demo.skus import (
    A10G_4,
    A100_ETHERNET,
    A100_IB,
    H100_ETHERNET,
    H100_IB,
    L4_4,
    L40S_4,
)

from .traffic import Cost, Traffic
from .world import DAY, JobSeries, Machine, Replica, Service, Session, World, catalog, gpu_of

# Node SKU, prefix of its nodes, least and most nodes, share of its GPUs that services hold, what jobs there are.
POOLS = (
    (H100_IB, "h100ib", (3, 5), (0.3, 0.6), ("training",)),
    (H100_ETHERNET, "h100", (3, 5), (0.35, 0.65), ("tuning",)),
    (A100_IB, "a100ib", (3, 4), (0.0, 0.35), ("training", "tuning")),
    (A100_ETHERNET, "a100", (3, 5), (0.25, 0.6), ("tuning", "batch")),
    (L40S_4, "l40s", (5, 9), (0.4, 0.7), ("batch",)),
    (A10G_4, "a10g", (4, 8), (0.4, 0.7), ()),
    (L4_4, "l4", (4, 8), (0.4, 0.75), ()),
)
_LARGE, _SMALL = (0, 1, 2, 3), (4, 5, 6)
_TEAMS = ("nlp", "vision", "speech", "search", "ads", "bio")
_USERS = ("amara", "bjorn", "chen", "dalia", "emre", "farah", "goran", "hana")
_ANSWERING = ("embed-api", "rerank", "moderation", "ocr", "asr", "detect", "doc-qa")
_CHATTING = ("chat", "assistant", "summarise", "code-complete", "rag-answer")
_JOBS = {
    "training": ("pretrain-7b", "moe-stage-2", "vit-large"),
    "tuning": ("sft-chat", "lora-8b", "dpo-round-3", "reward-model"),
    "batch": ("embed-corpus", "score-all", "label-images", "backfill"),
}
SILENT_SHARE = 0.15


def fleet(seed: int, *, now: float, small: bool = False) -> World:
    """Some 12 to 25 nodes of three or four kinds; `small`: of two. `now`: Unix seconds at which a plan is made."""
    rng = stream(seed, "fleet")
    if small:
        picked = [int(rng.choice(_LARGE)), int(rng.choice(_SMALL))]
    else:
        small_ones = rng.choice(_SMALL, int(rng.integers(1, 3)), replace=False)
        picked = sorted([*map(int, rng.choice(_LARGE, 2, replace=False)), *map(int, small_ones)])
    machines: list[Machine] = []
    services: list[Service] = []
    sessions: list[Session] = []
    jobs: list[JobSeries] = []
    for index in picked:
        sku, prefix, (least, most), shares, kinds = POOLS[index]
        count = least if small else int(rng.integers(least, most + 1))
        nodes = [f"{prefix}-{k + 1:02d}" for k in range(count)]
        machines += [Machine(name, sku) for name in nodes]
        _pool(stream(seed, "pool", sku), sku, nodes, shares, kinds, services, sessions, jobs)
    return World(seed, tuple(machines), tuple(services), tuple(sessions), tuple(jobs), _prices(seed, picked, now))


def _pool(rng, sku, nodes, shares, kinds, services, sessions, jobs) -> None:
    size = catalog().nodes[sku].gpu_count
    free = dict.fromkeys(nodes, size)
    # One node that nothing was ever put on, where the pool is large enough.
    empty = nodes[-1] if len(nodes) > 3 and rng.random() < 0.6 else None
    if len(nodes) > 2 and rng.random() < 0.5:
        count = size if rng.random() < 0.5 else size // 2
        sessions.append(Session(f"{sku}-held", _pick(rng, _USERS), True, nodes[-2], count))
        free[nodes[-2]] -= count
    if rng.random() < 0.5:
        for k in range(int(rng.integers(1, 4))):
            node = _emptiest(rng, free, 1, empty)
            if node is not None:
                user = _USERS[(k * 3 + int(rng.integers(0, 2))) % 8]
                sessions.append(Session(f"{sku}-desk-{k}", user, False, node, 1))
                free[node] -= 1
    wanted = rng.uniform(*shares) * size * len(nodes)
    held = 0
    number = 0
    while held < wanted:
        number += 1
        gpus = int(rng.choice((1, 1, 2, 4, 8) if size == 8 else (1, 1, 1, 2)))
        replicas = int(rng.integers(2, 3 if gpus == 8 else 4 if gpus == 4 else 8))
        places = []
        for k in range(replicas):
            node = _emptiest(rng, free, gpus, empty)
            if node is None:
                break
            free[node] -= gpus
            places.append(Replica(k + 1, node, gpus))
        if len(places) < 2:
            for r in places:
                free[r.node] += r.gpus
            if number > 12:
                break
            continue
        held += len(places) * gpus
        services.append(_service(rng, f"{sku}-{number}", sku, gpus, tuple(places)))
    room = sum(free.values())
    for what in kinds if room else ():
        for k in range(int(rng.integers(1, 3))):
            jobs.append(_jobs(rng, f"{sku}-{what}-{k}", sku, what, room / max(len(kinds), 1) / 2, free, size))


def _emptiest(rng: np.random.Generator, free: dict[str, int], gpus: int, empty: str | None) -> str | None:
    """As schedulers spread replicas: one of the nodes with most room."""
    fits = [n for n, count in free.items() if count >= gpus and n != empty]
    if not fits:
        return None
    most = max(free[n] for n in fits)
    return _pick(rng, tuple(n for n in fits if free[n] >= most - 1))


def _service(rng: np.random.Generator, key: str, sku: str, gpus: int, replicas: tuple[Replica, ...]) -> Service:
    gpu = gpu_of(sku)
    silent = bool(rng.random() < SILENT_SHARE)
    decode = gpus > 1 and rng.random() < 0.35
    names = _CHATTING if decode else _ANSWERING
    # Digits count for nothing in what tells series apart: letters make each service one of its own.
    deployment = f"{'app' if silent else _pick(rng, names)}-{_letters(key)}"
    model = serving.decode(rng, gpus, gpu) if decode else None
    cost = traffic = None
    if not decode:
        # Seconds that a request takes here, divided among computing, reading, the link and what no GPU shortens.
        seconds = log_uniform(rng, 0.004, 0.4)
        computing, reading = rng.uniform(0.5, 0.85) * seconds, rng.uniform(0.15, 0.6) * seconds
        linked = rng.uniform(0.03, 0.12) * seconds if gpus > 1 else 0.0
        rate = gpu.nvlink * gpu.eta_link or gpu.sku.pcie_bytes_per_second * min(gpu.eta_link, 0.5)
        cost = Cost(
            flops=computing * gpus * gpu.sustained_flops,
            bytes=reading * gpus * gpu.sustained_bandwidth,
            link_bytes=linked * rate * gpus / (gpus - 1) if gpus > 1 else 0.0,
            fixed_seconds=rng.uniform(0.02, 0.15) * seconds,
            mem_bytes=rng.uniform(0.15, 0.7) * gpus * gpu.sku.mem_bytes,
        )
        # Load of its busiest hours, mean of its replicas: from a service that nobody calls to one that is full.
        at_peak = rng.uniform(0.08, 0.68)
        traffic = Traffic(
            seed=salt(rng) % 2**40,
            peak=at_peak / cost.seconds(gpus, gpu)[3] * len(replicas),
            night_share=rng.uniform(0.08, 0.6),
            weekend_share=rng.uniform(0.4, 1.0),
            peak_hour_utc=rng.uniform(0, 24),
            day_spread=rng.uniform(0.02, 0.12),
            burstiness=rng.uniform(0.05, 0.3),
        )
    return Service(
        key=key, namespace=_pick(rng, _TEAMS), deployment=deployment,
        command=_pick(rng, ENGINES) if decode else "tritonserver --model-repository=/models", silent=silent, sku=sku,
        first=len(replicas), gpus_first=gpus, replicas=replicas, traffic=traffic, cost=cost, decode=model,
        context_power=rng.uniform(0.3, 0.6), cpu=rng.uniform(0.02, 0.12),
    )  # fmt: skip


def _jobs(rng, key, sku, what, room, free, size) -> JobSeries:
    wholes = sum(1 for count in free.values() if count == size)
    most = max(*free.values(), 1)
    if what == "training" and wholes >= 3:
        nodes, gpus, hours = 2, size, (20, 60)
    elif what == "training":
        nodes, gpus, hours = 1, min(size // 2, most), (20, 60)
    elif what == "tuning":
        nodes, gpus, hours = 1, min(int(rng.choice((1, 2, 4))), most), (3, 18)
    else:
        nodes, gpus, hours = 1, min(int(rng.choice((1, 2))), most), (2, 12)
    mean = (hours[1] - hours[0]) / np.log(hours[1] / hours[0])
    # GPUs that it holds at a time, on average.
    share = rng.uniform(0.1, 0.4) * room
    per_day = float(np.clip(24 * share / (mean * gpus * nodes), 0.07, 10.0))
    name = f"{_pick(rng, _JOBS[what])}-{_letters(key)}"
    return JobSeries(
        key, _pick(rng, _TEAMS), _pick(rng, _USERS), name, sku, what, nodes, gpus, per_day, hours
    )  # fmt: skip


def _prices(seed: int, picked: list[int], now: float) -> str:
    """A price file: of some pools a commitment that ends within a year, of some that they are owned."""
    rng = stream(seed, "prices")
    lines = []
    for index in picked:
        sku = POOLS[index][0]
        node = catalog().nodes[sku]
        basis = str(rng.choice(("list", "list", "committed", "owned")))
        ends = datetime.fromtimestamp(now + rng.uniform(30, 300) * DAY, UTC).date().isoformat()
        if basis == "list":
            continue
        price = node.prices[0]
        lines += [
            f"  - sku: {sku}", f"    region: {price.region}", f"    usd_per_hour: {0.6 * price.usd_per_hour:.2f}",
            f"    basis: {basis}", *([f"    committed_until: {ends}"] if basis == "committed" else []),
            "    source: contract", f"    as_of: {datetime.fromtimestamp(now - 30 * DAY, UTC).date().isoformat()}",
        ]  # fmt: skip
    return "\n".join(["prices:", *lines, ""]) if lines else ""


def _letters(key: str) -> str:
    number = crc32(key.encode()) % 26**3
    return "".join(chr(97 + number // 26**k % 26) for k in range(3))


def _pick(rng: np.random.Generator, names: tuple[str, ...]) -> str:
    return names[int(rng.integers(0, len(names)))]
