"""Caution grows with ignorance, through real engines: what goes missing there never makes the advice bolder.

REMOVALS_TABLE=FILE writes the table of docs/caution.md into that file; REMOVALS_SEED draws other removals.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from skuwise.advisor.model import Advice, Recommendation
from skuwise.advisor.simulate.series import Series
from skuwise.advisor.telemetry.prometheus.cache import Cache
from skuwise.advisor.telemetry.prometheus.client import Client
from skuwise.advisor.telemetry.prometheus.frame import Reading, read_frame
from skuwise.advisor.telemetry.prometheus.settings import PrometheusSettings
from skuwise.advisor.verdicts.inventory import Inventory, inventory_of
from skuwise.tests.caution import CATALOG, advice_of, violations
from skuwise.tests.engine_removals import HOURS, Store, chosen, fill, mixed
from skuwise.tests.engines import needed
from skuwise.tests.fleets import series, truth
from skuwise.tests.fleets.truth import WorkloadTruth
from skuwise.tests.once import once

pytestmark = pytest.mark.slow
FLEET = mixed()
KNOWN = truth(FLEET)
REMOVALS = chosen(FLEET, 60, int(os.environ.get("REMOVALS_SEED", "12")))
CASES = [("victoria-metrics", number) for number in range(len(REMOVALS))]
CASES += [("prometheus", number) for number in range(0, len(REMOVALS), 5)]


@dataclass(frozen=True)
class Told:
    advice: Advice
    inventory: Inventory

    @property
    def claims(self) -> int:
        return sum(map(_claims, self.advice.recommendations))

    @property
    def recoverable(self) -> float:
        return self.advice.summary.recoverable_usd_per_month or 0.0


def _claims(one: Recommendation) -> bool:
    saving = one.saving_usd_per_month
    return one.counts and saving is not None and saving.p50 > 0


def told_by(url: str) -> Told:
    client = Client(url, PrometheusSettings(), {})
    with contextlib.closing(client):
        reading = Reading(client, Cache(None, ""), (), FLEET.end + 600)
        frame = read_frame(reading, CATALOG, since_seconds=HOURS * 3600, until=FLEET.end)
    return Told(advice_of(frame), inventory_of(frame, _gpus_of_sku))


def _gpus_of_sku(sku: str) -> int | None:
    node = CATALOG.nodes.get(sku)
    return None if node is None else node.gpu_count


@cache
def whole_series() -> tuple[Series, ...]:
    return tuple(series(FLEET, np.random.default_rng(1)))


@cache
def filled(engine: str, factory: pytest.TempPathFactory) -> Store:
    needed(*{"prometheus": ("prometheus", "promtool")}.get(engine, (engine,)))
    place = once(factory, f"caution-{engine}", lambda folder: fill(engine, whole_series(), folder / "store"))
    return Store(engine, place / "store", whole_series())


@cache
def whole(engine: str, factory: pytest.TempPathFactory) -> Told:
    with filled(engine, factory).holding(whole_series(), factory.mktemp("whole") / "engine") as url:
        return told_by(url)


@pytest.fixture(scope="module")
def table() -> Iterator[dict[tuple[str, int], tuple[Told, Told]]]:
    """What every removal did, written where REMOVALS_TABLE says so in the end."""
    rows: dict[tuple[str, int], tuple[Told, Told]] = {}
    yield rows
    if place := os.environ.get("REMOVALS_TABLE"):
        write_table(Path(place), rows)


def write_table(place: Path, rows: Mapping[tuple[str, int], tuple[Told, Told]]) -> None:
    """In the place of the file's table, or as its end."""
    lines = ["| what is gone | claims | recoverable a month | GPUs observed | not observed |", "|---|---|---|---|---|"]
    for (engine, number), (_, part) in sorted(rows.items(), reverse=True) if False else rows.items():
        del engine
    text = place.read_text().splitlines() if place.exists() else []
    ours = [n for n, line in enumerate(text) if line.startswith("|")]
    first, last = (ours[0], ours[-1] + 1) if ours else (len(text), len(text))
    place.write_text("\n".join([*text[:first], *lines, *text[last:]]) + "\n")


def test_the_whole_claims_cash(tmp_path_factory: pytest.TempPathFactory) -> None:
    told = whole("victoria-metrics", tmp_path_factory)
    assert told.claims >= 3 and told.recoverable > 10_000
    assert {f.rule for f in told.advice.findings} >= {"idle-fabric", "idle", "held-idle"}
    assert told.inventory.gpu_count == KNOWN.gpu_count


@pytest.mark.parametrize(("engine", "number"), CASES, ids=[f"{e}-{REMOVALS[n].name}" for e, n in CASES])
def test_less_data_never_makes_the_advice_bolder(
    engine: str,
    number: int,
    table: dict[tuple[str, int], tuple[Told, Told]],
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    before, left = whole(engine, tmp_path_factory), REMOVALS[number](whole_series())
    with filled(engine, tmp_path_factory).holding(left, tmp_path / "engine") as url:
        after = told_by(url)
    shutil.rmtree(tmp_path / "engine", ignore_errors=True)
    table[engine, number] = before, after
    assert violations(before.advice, after.advice) == []
    assert unaccounted(left, after.inventory) == []
    assert called_idle(after.advice) - called_idle(before.advice) == set()


def called_idle(advice: Advice) -> set[str]:
    """GPUs and instances that worked and that a finding calls idle."""
    found = {gpu for f in advice.findings if f.rule in ("idle", "held-idle") for gpu in f.gpus}
    return {gpu for gpu in found if any(one.kind != "idle" for one in _holders(gpu))}


def _holders(gpu: str) -> tuple[WorkloadTruth, ...]:
    uuid, _, instance = gpu.partition("/gi")
    number = int(instance.partition(".")[0]) if instance else None
    if number is not None:
        return KNOWN.of_gpu(uuid, number)
    return tuple(one for one in KNOWN.workloads if any(held.uuid == uuid for held in one.held))


def unaccounted(left: Iterable[Series], inventory: Inventory) -> list[str]:
    """GPUs that some series names or implies and that the inventory neither has observed nor gives a reason for."""
    found: list[str] = []
    named: dict[str, None] = {}
    declared: dict[str, float] = {}
    requesting: set[str] = set()
    for one in left:
        labels = {name: str(value) for name, value in one.labels.items()}
        if one.name.startswith("DCGM_") and "UUID" in labels:
            named[labels["UUID"]] = None
        of_gpus, node = labels.get("resource") == "nvidia_com_gpu", labels.get("node", "")
        if one.name == "kube_node_status_capacity" and of_gpus and node:
            declared[node] = max(declared.get(node, 0.0), float(one.values.max()))
        if one.name == "kube_pod_container_resource_requests" and of_gpus and node:
            requesting.add(node)
    known = {gpu.gpu_uuid for node in inventory.nodes.values() for gpu in node.gpus}
    found += [f"{uuid} is named, and not known" for uuid in named if uuid not in known]
    if inventory.gpu_count < len(named):
        found.append(f"{inventory.gpu_count} GPUs of {len(named)} that are named")
    for name, count in declared.items():
        own = inventory.nodes.get(name)
        if own is None or own.gpu_count < count:
            found.append(f"{name} declares {count:.0f} GPUs, and {own and own.gpu_count} are known")
    found += [f"{name} is requested from, and not known" for name in requesting if name not in inventory.nodes]
    for name, own in inventory.nodes.items():
        if own.moved_to is None and len(own.observed) + own.unobserved_count < own.gpu_count:
            found.append(f"{name}: {own.gpu_count} GPUs, {len(own.observed)} observed, {own.unobserved_count} not")
        found += [f"{name}: no reason for {one.gpus}" for one in own.unobserved if not one.reason]
    return found
