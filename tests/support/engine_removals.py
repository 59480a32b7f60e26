"""A small mixed fleet behind real engines, and removals from what they hold: a filled store is copied, what goes is
deleted through the engine's own API, and what reads otherwise is written anew."""

from __future__ import annotations

import itertools
import json
import shutil
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from skuwise.tests.fleets import Fleet, Observed, Removal, compose, removals
from skuwise.tests.fleets import hardware as hw
from skuwise.tests.fleets import removal as take
from skuwise.tests.fleets.blocks import TRITON, founding, idle, instances, office, serving, training
from skuwise.tests.server_metrics.prometheus_series import Series
from skuwise.tests.support.prometheus_engines import prometheus, victoria

ENGINES = {"victoria-metrics": victoria, "prometheus": prometheus}
_FLAGS = {"victoria-metrics": (), "prometheus": ("--web.enable-admin-api",)}
_DELETE = "/api/v1/admin/tsdb/delete_series"
_LABELED = Observed(node_labels=True)
HOURS = 36.0


def mixed() -> Fleet:
    """Eight nodes of 52 GPUs: 48 observed, of which some sell well (the founding case, an idle node), some are held for
    nothing, six are divided and sixteen communicate over InfiniBand, and four that pods alone name."""
    return compose(
        "mixed",
        founding("serve-01", hw.ND_H100, _LABELED),
        idle("idle-01", hw.G2, _LABELED),
        office("office-01", hw.LAMBDA_H100),
        instances("mig-01", hw.P4DE, ("", "", "2221", "3211", "223", "33", "1111111", "2221"), busy=10, held=4,
                  whole="decode", observed=_LABELED),
        serving("light-01", "light", hw.G4DN, observed=Observed(pods="exported"), image=TRITON),
        training("train", "train_network", hw.ND_H100, 2, observed=Observed(more_prof=True, node_labels=True)),
        serving("dark-01", "decode", hw.G6, observed=Observed(dcgm=False, node_exporter=False)),
        days=HOURS / 24,
    )  # fmt: skip


def chosen(fleet: Fleet, series: Sequence[Series], count: int, seed: int) -> list[Removal]:
    """Removals that are told of most, and others by chance: `count` together, none twice, none that takes nothing."""
    by_name = {one.name: one for one in (*_usual(fleet), *removals(fleet, np.random.default_rng(seed), 3 * count))}
    whole = {id(one) for one in series}
    changing = (one for one in by_name.values() if {id(left) for left in one(series)} != whole)
    return list(itertools.islice(changing, count))


def _usual(fleet: Fleet) -> Iterator[Removal]:
    rng = np.random.default_rng(0)
    serve, idle_node, mig, light, train = (
        fleet.node(name) for name in ("serve-01", "idle-01", "mig-01", "light-01", "train-01")
    )
    middle = fleet.start + fleet.days * 43200
    for metric in (
        "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_DEV_FB_USED",
        "DCGM_FI_DEV_POWER_USAGE", "node_dmi_info", "kube_node_labels", "kube_node_status_capacity",
        "kube_pod_container_resource_requests",
    ):  # fmt: skip
        yield take.without_metric(metric)
    for prefix in ("DCGM_FI_PROF_", "node_infiniband_", "node_", "kube_"):
        yield take.without_exporter(prefix)
    yield take.without_metric_of_node("DCGM_FI_PROF_DRAM_ACTIVE", fleet, serve)
    yield take.without_metric_of_node("node_infiniband_port_data_received_bytes_total", fleet, serve)
    yield take.without_metric_of_node("DCGM_FI_PROF_GR_ENGINE_ACTIVE", fleet, mig)
    yield take.without_exporter_of_node("DCGM_", fleet, mig)
    yield take.without_gpu(serve, 3)
    yield take.without_gpu(idle_node, 1)
    yield take.without_node(fleet, train)
    for label in ("pod", "namespace", "Hostname", "UUID", "modelName", "GPU_I_PROFILE"):
        yield take.without_label(label)
    for prefix, node, where in (
        ("DCGM_FI_PROF_", serve, " of serve-01"), ("DCGM_FI_DEV_GPU_UTIL", train, " of train-01"),
        ("DCGM_FI_PROF_", mig, " of mig-01"),
    ):  # fmt: skip
        yield take.stuck_at_zero(prefix, take.of_node(fleet, node), where, middle)
    yield take.repeated("DCGM_", take.of_node(fleet, light), " of light-01", middle)
    yield take.repeated("DCGM_", take.everything, "", middle)
    # At rest at that moment: an instance of a notebook.
    yield take.repeated("DCGM_", take.everything, "", fleet.start + 33827)
    training_nodes = [take.of_node(fleet, fleet.node(name)) for name in ("train-01", "train-02")]
    of_both: take.Chooses = lambda one: any(test(one) for test in training_nodes)  # noqa: E731
    yield take.stuck_at_zero(take.IB_BYTES, of_both, " of train-01 and train-02", fleet.start)
    yield take.repeated(take.IB_BYTES, of_both, " of train-01 and train-02", fleet.start + 600)
    for metric, share in (("DCGM_FI_DEV_GPU_UTIL", 1.0), ("DCGM_FI_PROF_DRAM_ACTIVE", 0.3)):
        yield take.blanks(metric, take.everything, "", take.BLANKS[2], share, rng)
    yield take.without_hours(fleet, 0.05, rng)
    yield take.without_hours(fleet, 0.3, rng)
    yield take.without_hours(fleet, 0.3, rng, serve)


@dataclass(frozen=True)
class Store:
    """An engine with the folder of one that holds `series`."""

    engine: str
    filled: Path
    series: Sequence[Series]

    @contextmanager
    def holding(self, left: Sequence[Series], folder: Path) -> Iterator[str]:
        """The address of a fresh engine that holds what is left."""
        before, after = {id(one) for one in self.series}, {id(one) for one in left}
        gone = [one for one in self.series if id(one) not in after]
        anew = [one for one in left if id(one) not in before]
        shutil.copytree(self.filled, folder)
        start = ENGINES[self.engine]
        if gone:
            with start(folder, (), *_FLAGS[self.engine]) as url:
                _delete(url, gone)
        with start(folder, anew) as url:
            yield url


def fill(engine: str, series: Sequence[Series], folder: Path) -> None:
    with ENGINES[engine](folder, series):
        pass


def _delete(url: str, series: Iterable[Series]) -> None:
    chosen = [("match[]", _selector(one)) for one in series]
    for first in range(0, len(chosen), 500):
        body = urllib.parse.urlencode(chosen[first : first + 500]).encode()
        with urllib.request.urlopen(urllib.request.Request(url + _DELETE, body, method="POST"), timeout=60) as answer:
            answer.read()


def _selector(one: Series) -> str:
    labels = {"__name__": one.name, **{name: str(value) for name, value in one.labels.items() if value}}
    return "{" + ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items()) + "}"
