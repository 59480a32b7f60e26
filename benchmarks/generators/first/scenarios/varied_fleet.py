"""Every kind in many sorts, on any GPU, for any length: what the model of kinds learns from.

Nothing is decisive: a service may hold memory at any level and rest all night, a queue may run for weeks and a
training stop for an hour, a notebook may train. What differs between kinds is what an expert would go by.
"""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from skuwise.advisor.demo import builder
from skuwise.advisor.demo.builder import Placed
from skuwise.advisor.demo.hardware import Model, SimGpu, SimNode
from skuwise.advisor.demo.seeded_rng import log_uniform, stream
from skuwise.agent.model import Workload
from skuwise.rules.policy.labels import KindLabel

from .. import skus
from ..builder import Builder, Truth, notebook
from ..nodes import Sliced, slice_of
from ..varied import draws
from ..varied.work import AtDesk, Course, Demand, Remembering, Work, context_power

_HOUR, _DAY = 3600.0, 86400.0
# Small nodes are the more: GPUs of an allocation of eight all look the same.
_SMALL = (
    skus.A10G_1,
    skus.L4_1,
    skus.T4_1,
    skus.A100_PCIE,
    skus.A100_PCIE,
    skus.A10G_4,
    skus.L4_4,
    skus.L40S_4,
    skus.T4_4,
)
_LARGE = (
    skus.L40S_PCIE,
    skus.L40S_EFA,
    skus.A100_ETHERNET,
    skus.A100_IB,
    skus.H100_ETHERNET,
    skus.H100_IB,
    skus.H200_IB,
    skus.B200_EFA,
)
_TOGETHER = (
    skus.H100_IB,
    skus.A100_IB,
    skus.B200_EFA,
    skus.L40S_EFA,
    skus.H100_ETHERNET,
    skus.A100_PCIE,
    skus.A10G_4,
    skus.L40S_4,
)
_SMALL_NODES, _LARGE_NODES = 7, 2
_CUTS = ((1, 1, 1, 1, 1, 1, 1), (2, 2, 1, 1, 1), (3, 2, 2), (3, 3), (4, 3), (4, 2, 1), (7,))
_KINDS: tuple[KindLabel, ...] = (
    "online-inference", "training", "fine-tuning", "batch-inference", "interactive", "idle",
)  # fmt: skip
_SHARES = (0.32, 0.19, 0.15, 0.17, 0.15, 0.02)
_T = TypeVar("_T")
_LEAST_SEEN = 1200.0  # seconds: less is too little to judge


@dataclass(frozen=True, slots=True)
class _Place:
    """GPUs of one node, or one instance (`slices` of seven)."""

    node: SimNode
    gpus: tuple[int, ...]
    slices: int | None = None

    @property
    def gpu(self) -> SimGpu:
        return slice_of(self.node.gpu, self.slices) if self.slices else self.node.gpu

    def model(self, model: Model) -> Model:
        return Sliced(inner=model, slices=self.slices) if self.slices else model


def varied(b: Builder) -> None:
    rng = stream(b.seed, "varied", "layout")
    for number in range(_SMALL_NODES + _LARGE_NODES):
        among = _SMALL if number < _SMALL_NODES else _LARGE
        (node,) = b.nodes("one", 1, among[int(rng.integers(0, len(among)))])
        width = int(rng.choice([w for w in (1, 1, 2, 2, 4, 8) if w <= len(node.gpus)]))
        places = [_Place(node, node.whole[at : at + width]) for at in range(0, len(node.gpus), width)]
        _fill(b, places, str(number))
    for number in range(2):
        sku = skus.H100_ETHERNET if rng.random() < 0.08 else skus.A100_PCIE
        cut = _CUTS[int(rng.integers(0, len(_CUTS)))]
        (node,) = b.nodes("cut", 1, sku, instances=cut)
        places = [_Place(node, (at,), gpu.slices) for at, gpu in enumerate(node.gpus) if gpu.slices]
        _fill(b, places[: 2 * len(cut)], f"cut-{number}")
    if rng.random() < 0.7:
        _together(b, rng)


def _fill(b: Builder, places: list[_Place], name: str) -> None:
    """Work on all places of a node: one deployment with replicas, or something else on each."""
    rng = stream(b.seed, "varied", name)
    if len(places) > 1 and rng.random() < 0.2:
        _replicas(b, rng, places[: int(rng.integers(2, 5))])
        places = places[4:]
    for number, place in enumerate(places):
        if rng.random() < 0.9:  # some GPUs are unused
            _timeline(b, stream(b.seed, "varied", name, str(number)), place)


def _timeline(b: Builder, rng: np.random.Generator, place: _Place) -> None:
    """One thing after the other on the same GPUs, most often of one kind."""
    usual = str(rng.choice(_KINDS, p=_SHARES))
    at = b.start - (rng.uniform(0, 2 * _DAY) if rng.random() < 0.5 else 0)
    for _ in range(60):
        if at > b.end - _LEAST_SEEN:
            break
        kind = usual if rng.random() < 0.8 else str(rng.choice(_KINDS, p=_SHARES))
        at = _ADDED[kind](b, rng, place, at) + log_uniform(rng, 120, 20000)


def _add(
    b: Builder, rng: np.random.Generator, place: _Place, drawn: draws.Drawn, workload: Workload, *, kind: KindLabel,
    span: tuple[float, float], restarts: int = 0, basis: str = "allocation",
) -> float:  # fmt: skip
    """Place one run; gives its end. One of which too little falls into the window is left out."""
    begin, stop = span
    seen = min(stop, b.end) - max(begin, b.start)
    if seen >= _LEAST_SEEN:
        truth = Truth(workload.workload_id, kind, drawn.bottleneck, sort=drawn.sort)
        runs = b.runs(rng, begin, stop, restarts=restarts, pause=(60, 3000))
        nodes = {place.node.node.node: place.gpus}
        b.add(Placed(workload, place.model(drawn.model), nodes, runs, basis, truth))
    return stop


def _job(rng: np.random.Generator, place: _Place) -> Workload:
    return builder.slurm_job(rng, place.node.node.cluster, names=("run",), command="python3 main.py")


def _of_series(workload: Workload, first: Workload) -> Workload:
    """Another run of the same thing."""
    return dataclasses.replace(workload, name=first.name, series_id=first.series_id)


def _online(b: Builder, rng: np.random.Generator, place: _Place, at: float) -> float:
    drawn = draws.service(rng, len(place.gpus), place.gpu)
    begin, stop = _life_of_a_service(b, rng, at)
    deployment, namespace, silent = builder.deployment_name(rng)
    pod = builder.pod(rng, place.node.node.cluster, namespace, deployment, replica=1, silent=silent)
    return _add(
        b, rng, place, drawn, pod, kind="online-inference", span=(begin, stop), restarts=int(rng.integers(0, 5))
    )


def _life_of_a_service(b: Builder, rng: np.random.Generator, at: float) -> tuple[float, float]:
    """From hours to weeks; one in three begins or ends while somebody watches."""
    begin = b.start - log_uniform(rng, 1.0, 60 * 24) * _HOUR if at <= b.start and rng.random() < 0.75 else at
    stop = b.end if rng.random() < 0.75 else max(begin, b.start) + log_uniform(rng, 2.0, 120) * _HOUR
    return begin, stop


def _replicas(b: Builder, rng: np.random.Generator, places: list[_Place]) -> None:
    drawn = draws.service(rng, len(places[0].gpus), places[0].gpu)
    begin, stop = _life_of_a_service(b, rng, b.start)
    deployment, namespace, silent = builder.deployment_name(rng)
    for number, place in enumerate(places, start=1):
        pod = builder.pod(rng, place.node.node.cluster, namespace, deployment, replica=number, silent=silent)
        run_work = dataclasses.replace(drawn, model=_reseeded(drawn.model, 1000 * number))
        _add(b, rng, place, run_work, pod, kind="online-inference", span=(begin, stop), restarts=2)


def _reseeded(part: _T, by: int) -> _T:
    """The same with other randomness; what all replicas are asked stays."""
    if not isinstance(part, (Model, Course)) or isinstance(part, Demand):
        return part
    return part.but(**{n: v + by if n == "seed" else _reseeded(v, by) for n, v in vars(part).items()})


def _train(b: Builder, rng: np.random.Generator, place: _Place, at: float) -> float:
    hours = log_uniform(rng, 20, 340)
    begin = at - rng.uniform(0, 0.6) * hours * _HOUR if at <= b.start else at
    stop = begin + hours * _HOUR
    if min(stop, b.end) - begin < 12 * _HOUR:
        return at  # too young to distinguish from fine-tuning
    drawn = draws.trained(rng, begin, len(place.gpus), place.gpu, nodes=1)
    return _add(
        b, rng, place, drawn, _job(rng, place), kind="training", span=(begin, stop), restarts=int(rng.integers(0, 5))
    )


def _tune(b: Builder, rng: np.random.Generator, place: _Place, at: float) -> float:
    """A run of minutes to hours, often one of a series that comes again with other settings."""
    longest = log_uniform(rng, 0.4, 20)
    count = int(rng.integers(2, 9)) if rng.random() < 0.6 else 1
    drawn, first = draws.tuned(rng, at, len(place.gpus), place.gpu), _job(rng, place)
    pause = log_uniform(rng, 60, 30000)
    for run in range(count):
        stop = at + min(max(longest * rng.uniform(0.3, 1.0), 0.2), 20) * _HOUR
        held = draws.of_an_allocator(rng, 3600.0)
        run_work = dataclasses.replace(
            drawn,
            model=Remembering(
                inner=_reseeded(drawn.model, run), held=held, context_power=context_power(rng, place.gpu)
            ),
        )
        at = _add(b, rng, place, run_work, _of_series(_job(rng, place), first), kind="fine-tuning", span=(at, stop))
        at += pause * rng.uniform(0.3, 1.7)
        if at > b.end:
            break
    return at


def _queue(b: Builder, rng: np.random.Generator, place: _Place, at: float) -> float:
    drawn, first = draws.queue(rng, len(place.gpus), place.gpu), _job(rng, place)
    how = rng.random()
    if how < 0.25:  # for weeks
        begin = b.start - log_uniform(rng, 2, 20 * 24) * _HOUR if at <= b.start else at
        stop = begin + log_uniform(rng, 48, 700) * _HOUR
        return _add(
            b, rng, place, drawn, first, kind="batch-inference", span=(begin, stop), restarts=int(rng.integers(0, 4))
        )
    if how < 0.65:  # once, or one part after the other
        for run in range(int(rng.integers(1, 6))):
            stop = at + log_uniform(rng, 0.4, 60) * _HOUR
            run_work = dataclasses.replace(drawn, model=_reseeded(drawn.model, run))
            at = _add(
                b, rng, place, run_work, _of_series(_job(rng, place), first), kind="batch-inference", span=(at, stop)
            )
            at += log_uniform(rng, 60, 7200)
        return at
    hour, hours = rng.uniform(0, 24), log_uniform(rng, 0.6, 9)
    for run, night in enumerate(_days(b, at, hour)):  # on schedule
        stop = night + hours * rng.uniform(0.6, 1.3) * _HOUR
        run_work = dataclasses.replace(drawn, model=_reseeded(drawn.model, run))
        _add(b, rng, place, run_work, _of_series(_job(rng, place), first), kind="batch-inference", span=(night, stop))
    return b.end


def _days(b: Builder, at: float, hour: float) -> Iterator[float]:
    day = np.floor(at / _DAY) * _DAY
    while day < b.end:
        if day + hour * _HOUR >= at:
            yield day + hour * _HOUR
        day += _DAY


def _desk(b: Builder, rng: np.random.Generator, place: _Place, at: float) -> float:
    drawn = draws.session(rng, len(place.gpus), place.gpu)
    cluster = place.node.node.cluster
    if rng.random() < 0.55:  # kept for days, used or not
        begin = b.start - log_uniform(rng, 1, 30 * 24) * _HOUR if at <= b.start else at
        stop = b.end if rng.random() < 0.7 else max(begin, b.start) + log_uniform(rng, 12, 150) * _HOUR
        workload = notebook(rng, cluster, begin)
        return _add(
            b, rng, place, drawn, workload, kind="interactive", span=(begin, stop), restarts=int(rng.integers(0, 3))
        )
    hour = rng.uniform(0, 24)
    first = notebook(rng, cluster, at)
    for run, morning in enumerate(_days(b, at, hour)):  # started for the day and stopped
        weekend = (int(np.floor(morning / _DAY)) + 3) % 7 >= 5
        if rng.random() < (0.85 if weekend else 0.25):
            continue
        stop = morning + log_uniform(rng, 0.7, 12) * _HOUR
        run_work = dataclasses.replace(drawn, model=_there(drawn.model, hour, run))
        workload = _of_series(notebook(rng, cluster, morning), first)
        _add(b, rng, place, run_work, workload, kind="interactive", span=(morning, stop))
    return b.end


def _there(model: Model, hour: float, run: int) -> Model:
    """The session with its person at the desk from its start on."""
    model = _reseeded(model, run)
    if isinstance(model, Work) and isinstance(model.course, AtDesk):
        desk = model.course.but(first_hour_utc=(hour - 2) % 24, day_hours=16.0, weekday_chance=1.0, weekend_chance=1.0)
        return model.but(course=desk)
    return model


def _hold(b: Builder, rng: np.random.Generator, place: _Place, at: float) -> float:
    stop = at + log_uniform(rng, 3, 200) * _HOUR
    workload = builder.leftover(rng, place.node.node.cluster, at)
    return _add(b, rng, place, draws.leftover(rng, place.gpu), workload, kind="idle", span=(at, stop), basis="process")


_ADDED: dict[str, Callable[[Builder, np.random.Generator, _Place, float], float]] = {
    "online-inference": _online, "training": _train, "fine-tuning": _tune, "batch-inference": _queue,
    "interactive": _desk, "idle": _hold,
}  # fmt: skip


def _together(b: Builder, rng: np.random.Generator) -> None:
    """Some nodes that do one thing: a training over all of them, or a service that is larger than a node."""
    sku = _TOGETHER[int(rng.integers(0, len(_TOGETHER)))]
    few = sku not in (skus.A100_PCIE, skus.A10G_4, skus.L40S_4)
    count = int(rng.choice([2, 3], p=[0.8, 0.2]) if few else rng.choice([2, 4, 8], p=[0.5, 0.35, 0.15]))
    nodes = b.nodes("gang", count, sku, tcp_port_counted=bool(rng.random() < 0.7))
    gpu, every = nodes[0].gpu, {node.node.node: node.whole for node in nodes}
    place = _Place(nodes[0], nodes[0].whole)
    if rng.random() < 0.68:
        at = b.start
        while at < b.end - 6 * _HOUR:
            hours = log_uniform(rng, 10, 340)
            begin = at - rng.uniform(0, 0.6) * hours * _HOUR if at <= b.start else at
            drawn = draws.trained(rng, begin, len(place.gpus), gpu, nodes=count)
            workload, stop = _job(rng, place), begin + hours * _HOUR
            runs = b.runs(rng, begin, stop, restarts=int(rng.integers(0, 5)), pause=(300, 7200))
            truth = Truth(workload.workload_id, "training", drawn.bottleneck, sort=drawn.sort)
            b.add(Placed(workload, drawn.model, every, runs, "allocation", truth))
            at = stop + log_uniform(rng, 600, 20000)
        return
    sort = str(rng.choice(("experts", "prefill-half", "decode-half")))
    drawn = draws.across(rng, gpu, sort=sort)
    begin, stop = _life_of_a_service(b, rng, b.start)
    deployment, namespace, silent = builder.deployment_name(rng)
    pod = builder.pod(rng, nodes[0].node.cluster, namespace, deployment, replica=1, silent=silent)
    runs = b.runs(rng, begin, stop, restarts=2, pause=(60, 600))
    truth = Truth(pod.workload_id, "online-inference", drawn.bottleneck, sort=sort)
    b.add(Placed(pod, drawn.model, every, runs, "allocation", truth))
