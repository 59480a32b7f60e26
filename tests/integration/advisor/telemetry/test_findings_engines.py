"""What is wasted, found on exporters' series a minute apart over five days, with and without names; and near misses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from skuwise.advisor.core.frame import Frame
from skuwise.advisor.pipeline import AdviseOptions, advise
from skuwise.advisor.telemetry.prometheus.client.cache import Cache
from skuwise.advisor.telemetry.prometheus.client.client import Client
from skuwise.advisor.telemetry.prometheus.reader import ServerReading, read_frame
from skuwise.advisor.telemetry.prometheus.settings import PrometheusSettings
from skuwise.benchmarks.withheld import hidden
from skuwise.rules.catalog.loader import load_catalog
from skuwise.tests.fleets import hardware as hw
from skuwise.tests.fleets.blocks import JUPYTER, PYTORCH, TRITON, VLLM, Part, compose, gpus, training
from skuwise.tests.fleets.description import USUAL, Fleet, Node, Observed, Workload
from skuwise.tests.fleets.generate import series
from skuwise.tests.fleets.hardware import Machine
from skuwise.tests.support.prometheus_engines import victoria
from skuwise.tests.support.rulebooks import rulebook

pytestmark = pytest.mark.slow
CATALOG = load_catalog()
RULES = frozenset({"held-idle", "under-tier", "too-many-gpus", "over-tier", "idle-nvlink", "fix-first"})
NVLINK = Observed(prof_nvlink=tuple(range(8)))
# Node -> the one of RULES that is true of what runs there; none: it is a near miss of one.
TRUE: Mapping[str, str] = {
    "left": "held-idle", "left-job": "held-idle", "dead": "held-idle", "weekend": "held-idle", "never": "held-idle",
    "nightly": "", "stalled": "", "seldom": "", "notebook": "",
    "ethernet": "under-tier", "cards": "under-tier", "fabric": "", "launches": "",
    "eight": "too-many-gpus", "replicas": "too-many-gpus", "light": "too-many-gpus", "pool": "",
    "alone": "idle-nvlink", "experts": "", "sharded": "", "partly": "", "unread": "",
    "starved": "fix-first",
}  # fmt: skip


def one(
    name: str, behavior: str, machine: Machine, count: int = 0, *, owner: str = "Deployment", image: str = VLLM,
    observed: Observed = USUAL, apart: bool = False, job: str = "",
) -> Part:  # fmt: skip
    node = Node(name, machine, observed)
    held = gpus(node, *range(count or machine.gpus))
    space, per = "" if job else "work", "hold" if apart else "node"
    return Part((node,), (Workload(f"{name}-w", behavior, held, space, owner, image, job, pod_per=per),))


def fleet() -> Fleet:
    slurm = Observed(kube=False, pods="none", hpc_job=True)
    return compose(
        "findings",
        one("left", "held_after_job", hw.ND_H100_ETHERNET, owner="Job", image=PYTORCH),
        one("left-job", "held_after_job", hw.P4DE, observed=slurm, job="77"),
        one("dead", "held_after_use", hw.G6, image=TRITON, apart=True),
        one("weekend", "held_notebook", hw.G6, owner="Notebook", image=JUPYTER, apart=True),
        one("never", "held_full", hw.G6),
        one("nightly", "nightly", hw.G6, apart=True),
        one("stalled", "stalled", hw.G6, owner="Job", image=PYTORCH),
        one("seldom", "seldom", hw.G6, apart=True),
        one("light", "light", hw.G6, apart=True),
        one("notebook", "interactive", hw.G6, owner="Notebook", image=JUPYTER, apart=True),
        training("ethernet", "train_network", hw.ND_H100_ETHERNET, 2),
        training("cards", "train_pcie", hw.SUPERMICRO_L40S),
        training("fabric", "train_network", hw.ND_H100, 2),
        training("launches", "train_launch", hw.SUPERMICRO_L40S),
        one("eight", "oversized", hw.ND_H100_ETHERNET),
        one("replicas", "oversized", hw.ND_H100_ETHERNET, apart=True),
        one("pool", "oversized_pool", hw.ND_H100_ETHERNET),
        one("alone", "alone", hw.DGX_H100, apart=True, observed=NVLINK),
        one("experts", "experts", hw.DGX_H100, observed=NVLINK),
        one("sharded", "decode_together", hw.DGX_H100, observed=NVLINK),
        one("partly", "alone", hw.DGX_H100, apart=True, observed=Observed(prof_nvlink=(0, 1, 2))),
        one("unread", "alone", hw.DGX_H100, apart=True),
        training("starved", "train_input", hw.SUPERMICRO_L40S),
        days=5.0, interval_s=60.0,
    )  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with victoria(tmp_path_factory.mktemp("engine"), series(fleet(), np.random.default_rng(11))) as url:
        yield url


def read(url: str, seconds: float) -> Frame:
    end = fleet().end
    reading = ServerReading(Client(url, PrometheusSettings(), {}), Cache(None, ""), (), end + 600)
    return read_frame(reading, CATALOG, since_seconds=seconds, until=end)


@pytest.fixture(scope="module")
def frame(server: str) -> Frame:
    return read(server, fleet().days * 86400)


def found(frame: Frame) -> dict[str, set[str]]:
    """Node (without its number) -> the rules that flag it."""
    options = AdviseOptions(fleet().end + 600)
    advice = advise(frame, rulebook(CATALOG), options, np.random.default_rng(1))
    told: dict[str, set[str]] = {name: set() for name in TRUE}
    for one in advice.findings:
        for node in one.nodes:
            told[node.rsplit("-0", 1)[0]].add(one.rule)
    return {name: rules & RULES for name, rules in told.items()}


@pytest.mark.parametrize("names", ["told", "hidden"])
def test_each_is_found_where_it_is_true_and_nowhere_else(frame: Frame, names: str) -> None:
    assert found(hidden(frame) if names == "hidden" else frame) == {
        name: {rule} if rule else set() for name, rule in TRUE.items()
    }


def test_a_window_of_six_hours_calls_nothing_waste(server: str) -> None:
    assert not any(rules - {"fix-first"} for rules in found(read(server, 6 * 3600.0)).values())
