"""Caution grows with ignorance, through real engines: what goes missing there never makes the advice bolder.

REMOVALS_TABLE=FILE writes the table of docs/caution.md into that file, of the same removals each time.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from skuwise.advisor.core.advice_types import Advice, Recommendation
from skuwise.advisor.core.unobservable import blind_nodes
from skuwise.advisor.telemetry.prometheus.client.cache import Cache
from skuwise.advisor.telemetry.prometheus.client.client import Client
from skuwise.advisor.telemetry.prometheus.reader import ServerReading, read_frame
from skuwise.advisor.telemetry.prometheus.settings import PrometheusSettings
from skuwise.advisor.verdicts.workloads.inventory import Inventory, inventory_of
from skuwise.rules.base.errors import NothingToDo
from skuwise.tests.fleets import Removal, series, truth
from skuwise.tests.fleets.truth import WorkloadTruth
from skuwise.tests.server_metrics.prometheus_series import Series
from skuwise.tests.support.engine_removals import HOURS, Store, chosen, fill, mixed
from skuwise.tests.support.prometheus_engines import needed
from skuwise.tests.support.removals import CATALOG, advice_of, violations
from skuwise.tests.support.shared_artifacts import once

pytestmark = pytest.mark.slow
FLEET = mixed()
KNOWN = truth(FLEET)
COUNT = 60
TABLE_SEED = 12
CASES = [("victoria-metrics", number) for number in range(COUNT)]
CASES += [("prometheus", number) for number in range(0, COUNT, 5)]


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


def told_by(url: str) -> Told | None:
    """None where nothing is left to judge."""
    client = Client(url, PrometheusSettings(), {})
    with contextlib.closing(client):
        reading = ServerReading(client, Cache(None, ""), (), FLEET.end + 600)
        try:
            frame = read_frame(reading, CATALOG, since_seconds=HOURS * 3600, until=FLEET.end)
        except NothingToDo:
            return None
    return Told(advice_of(frame), inventory_of(frame, CATALOG.node_gpu_count, blind_nodes(frame.absences)))


@cache
def whole_series() -> tuple[Series, ...]:
    return tuple(series(FLEET, np.random.default_rng(1)))


@cache
def removals(seed: int) -> list[Removal]:
    return chosen(FLEET, whole_series(), COUNT, seed)


class Engines:
    """What of each engine is made once: its store, and the advice on the whole of it."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._wholes: dict[str, Told] = {}

    def store(self, engine: str) -> Store:
        needed(*{"prometheus": ("prometheus", "promtool")}.get(engine, (engine,)))
        made = once(self._factory, f"caution-{engine}", lambda place: fill(engine, whole_series(), place / "store"))
        return Store(engine, made / "store", whole_series())

    def whole(self, engine: str) -> Told:
        if engine not in self._wholes:
            place = self._factory.mktemp("whole") / "engine"
            with self.store(engine).holding(whole_series(), place) as url:
                told = told_by(url)
            shutil.rmtree(place, ignore_errors=True)
            assert told is not None
            self._wholes[engine] = told
        return self._wholes[engine]


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Engines:
    return Engines(tmp_path_factory)


Rows = dict[str, list[str]]


@pytest.fixture(scope="module")
def rows() -> Iterator[Rows]:
    """What every removal did, for the table that REMOVALS_TABLE asks for."""
    found: Rows = {}
    yield found
    if place := os.environ.get("REMOVALS_TABLE"):
        _write_table(Path(place), found)


def _write_table(place: Path, rows: Rows) -> None:
    """In the place of the file's table, or at its end."""
    lines = [
        "| telemetry | cash claims | recoverable a month | GPUs observed | not observed |", "|---|---|---|---|---|",
        *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()),
    ]  # fmt: skip
    text = place.read_text().splitlines() if place.exists() else []
    ours = [n for n, line in enumerate(text) if line.startswith("|")]
    first, last = (ours[0], ours[-1] + 1) if ours else (len(text), len(text))
    place.write_text("\n".join([*text[:first], *lines, *text[last:]]) + "\n")


def _readable(name: str) -> str:
    return re.sub(r"since (\d+)", lambda at: f"from hour {(int(at[1]) - FLEET.start) / 3600:.1f} on", name)


def _row(told: Told | None) -> list[str]:
    if told is None:
        return ["nothing to judge", "", "", ""]
    own = [node for node in told.inventory.nodes.values() if node.moved_to is None]
    observed, not_observed = sum(len(node.observed) for node in own), sum(node.unobserved_count for node in own)
    return [str(told.claims), f"${told.recoverable:,.0f}", str(observed), str(not_observed)]


def test_the_whole_claims_cash(engines: Engines, rows: Rows) -> None:
    told = engines.whole("victoria-metrics")
    rows["whole"] = _row(told)
    assert told.claims >= 2 and told.recoverable > 5_000
    assert {one.rule for one in told.advice.findings} >= {"idle-fabric", "idle", "held-idle"}
    assert told.inventory.gpu_count == KNOWN.gpu_count
    assert _unaccounted(whole_series(), told.inventory) == []


@pytest.mark.parametrize(("engine", "number"), CASES, ids=[f"{engine}-{number}" for engine, number in CASES])
def test_less_data_never_makes_the_advice_bolder(
    engine: str, number: int, engines: Engines, rows: Rows, tmp_path: Path, seed_of: Callable[[int], int]
) -> None:
    removal = removals(TABLE_SEED if "REMOVALS_TABLE" in os.environ else seed_of(TABLE_SEED))[number]
    before, left = engines.whole(engine), removal(whole_series())
    with engines.store(engine).holding(left, tmp_path / "engine") as url:
        after = told_by(url)
    shutil.rmtree(tmp_path / "engine", ignore_errors=True)
    rows.setdefault(_readable(removal.name), _row(after))
    if after is not None:
        assert violations(before.advice, after.advice) == [], removal.name
        assert _unaccounted(left, after.inventory) == [], removal.name
        assert _called_idle(after.advice) <= _called_idle(before.advice), removal.name


def _called_idle(advice: Advice) -> set[str]:
    """GPUs and instances that worked and that a finding calls idle."""
    found = {gpu for f in advice.findings if f.rule in ("idle", "held-idle") for gpu in f.gpus}
    return {gpu for gpu in found if any(one.kind != "idle" for one in _holders(gpu))}


def _holders(gpu: str) -> tuple[WorkloadTruth, ...]:
    uuid, _, instance = gpu.partition("/gi")
    number = int(instance.partition(".")[0]) if instance else None
    if number is not None:
        return KNOWN.of_gpu(uuid, number)
    return tuple(one for one in KNOWN.workloads if any(held.uuid == uuid for held in one.held))


def _unaccounted(left: Iterable[Series], inventory: Inventory) -> list[str]:
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
