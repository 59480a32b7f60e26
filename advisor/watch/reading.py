"""The last hours of a fleet as arrays: made of a frame with rows of a minute, and one with rows of five before them."""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pandas as pd

from ...rules.base.errors import NothingToDo
from ...rules.catalog.loader import Catalog
from ...rules.catalog.types import slices_of
from ...rules.policy.kind_priors import KindPriors
from ...rules.policy.labels import WorkingKind
from ..classify.features.soundness import examine
from ..classify.kinds.clues import DEPLOYMENT_LIKE, image_name
from ..classify.types import NodeFacts
from ..core.fleet_identity import fleet_of
from ..core.frame import Frame
from ..core.incident_types import Hold, HolderKind, Recent, RecentGpu, RecentNode, Spans, Values
from ..core.scalars import Record, known, records, text
from ..core.verdict_types import Owner
from ..recommend.pricing import PriceBook
from ..rulebook import Rulebook
from ..telemetry.source import PrometheusServer, Source
from .signs import observed_from

# A hold counts as one of now up to so long before its node was last observed: a pod's ends with its last sample. Uses
# of one workload this close together are one: a scan or a scrape lies between.
_HELD_SECONDS = _APART_SECONDS = 300.0
_KINDS_OF: Mapping[HolderKind, tuple[WorkingKind, ...]] = {
    "job": ("training", "fine-tuning", "batch-inference"), "notebook": ("interactive",),
    "service": ("online-inference",),
}  # fmt: skip
_TEXTS = ("team", "user", "account", "namespace", "job_id", "pod", "name", "series_id", "scheduler")
# What names and owners say must weigh so much more for one kind of holder than for the next (natural logarithm; twice
# as likely).
_LEAD_MIN = 0.7


def current_holds(
    frames: Iterable[Frame], gpus: Sequence[RecentGpu], nodes: Sequence[RecentNode], priors: KindPriors, *,
    start: float, end: float,
) -> tuple[Hold, ...]:  # fmt: skip
    """The workloads that held GPUs when their nodes were last observed, by id. `start`, `end`: where the uses are cut
    (what begins at `start` began at an unknown time before)."""
    frames = [*frames]
    workloads = pd.concat([frame.workloads for frame in frames]).drop_duplicates("workload_id")
    engines = {str(id_) for frame in frames for id_ in frame.tokens.get("workload_id", ())}
    places = {(gpu.node, gpu.uuid): n for n, gpu in enumerate(gpus)}
    last_seen = {node.node: node.last_seen or end for node in nodes}
    held, bases = defaultdict[str, set[int]](set), defaultdict[str, set[str]](set)  # GPUs, and how these are known
    spans = defaultdict[str, list[tuple[float, float]]](list)
    for row in records(pd.concat([frame.uses for frame in frames])):
        key, node, last = str(row["workload_id"]), str(row["node"]), float(row["ts_end"])
        spans[key].append((float(row["ts_start"]), last))
        place = places.get((node, str(row["gpu_uuid"])))
        if place is not None and last >= last_seen.get(node, end) - _HELD_SECONDS:
            held[key].add(place)
            bases[key].add(str(row["basis"]))
    sharers = Counter(place for gpus_held in held.values() for place in gpus_held)
    holds = []
    for row in records(workloads[workloads["workload_id"].isin([*held])].sort_values("workload_id")):
        key, has_engine, since = str(row["workload_id"]), row["workload_id"] in engines, math.inf
        for first, last in sorted(spans[key], key=lambda span: -span[1]):
            if last < since - _APART_SECONDS < math.inf:
                break  # a job that was requeued began again
            since = min(since, first)
        since = min(known(row["first_seen"]) or since, since) if since <= start + _APART_SECONDS else since
        team, user, account, namespace, job_id, pod, name, series, scheduler = (text(row.get(of)) for of in _TEXTS)
        holds.append(Hold(
            workload_id=key, series_id=series or key, name=name or key,
            holder=holder_of(row, priors, has_engine=has_engine),
            owner=Owner(team=team, user=user, account=account, namespace=namespace), gpus=tuple(sorted(held[key])),
            since=since, basis=next((basis for basis in ("allocation", "process") if basis in bases[key]), "activity"),
            shared=any(sharers[place] > 1 for place in held[key]), engine=has_engine, scheduler=scheduler or "process",
            job_id=job_id, pod=pod,
        ))  # fmt: skip
    return tuple(holds)


def holder_of(workload: Record, priors: KindPriors, *, has_engine: bool) -> HolderKind:
    """The kind of holder: by what names, images, commands and owners say together, by its inference engine, by its
    scheduler. `workload`: a row of the frame's table `workloads`."""
    is_slurm, name = workload["scheduler"] == "slurm", text(workload["name"])
    owner = text(workload.get("controller_kind"))
    program = " ".join(filter(None, (text(workload["command"]), name)))
    about = {
        "framework": text(workload["framework"]), "image": image_name(text(workload.get("image"))), "program": program,
        "task": program, "owner": DEPLOYMENT_LIKE if owner == "ReplicaSet" else owner,
        "partition": text(workload.get("partition")), "namespace": text(workload["namespace"]),
        "job-name": name if is_slurm else None,
    }  # fmt: skip
    weights = dict.fromkeys(_KINDS_OF, 0.0)
    for of, words in about.items():
        # What Kubernetes keeps for a purpose is for that from its first minute on.
        line = priors.first(of, words, math.inf if of == "owner" else 0.0)
        log_odds = line[0].log_odds if line is not None else {}
        for holder, kinds in _KINDS_OF.items():
            weights[holder] += max((log_odds[kind] for kind in kinds if kind in log_odds), default=0.0)
    first, second, _ = sorted(weights, key=weights.__getitem__, reverse=True)
    named = first if weights[first] > max(0.0, weights[second] + _LEAD_MIN) else None
    if named == "notebook":
        return named
    if has_engine and named != "job":
        return "service"
    # Slurm's jobs end at their time limit, whatever they serve.
    return "job" if is_slurm else named or "process"


_MINUTE, _FIVE_MINUTES, _HOUR = 60.0, 300.0, 3600.0
# Rows of a minute are read of so long. More of them cost a server with a thousand GPUs seconds.
_MINUTES_SECONDS, _MINUTES_SECONDS_OF_SERVER = 2 * _HOUR, _HOUR
# GPUs that work in all of the newest minutes raise no question that the hours before could answer.
_NEWEST_SECONDS, _NEWEST_ROWS_MIN = 600.0, 5
_BUSY, _WAITS = 0.1, 0.02
# Frames by the seconds of their rows, the newest first.
Frames = Mapping[float, Frame]


def read_recent(
    source: Source, book: Rulebook, *, lookback_seconds: float, now: float, until: float | None = None,
    past_seconds: float = 0.0,
) -> Recent:  # fmt: skip
    """The last `lookback_seconds` of a source before its newest whole minute (`until`: before that moment, as of which
    it is then read), with the prices of its nodes. The hours before the rows of a minute are read of the GPUs that
    rest, wait or show nothing. `past_seconds`: for how long before that databases are read by the hour of GPUs that
    rested throughout; a server would take too long.

    Raises NothingToDo where there is no GPU data, SkuwiseError where the source cannot be read.
    """
    now = now if until is None else until
    is_server = isinstance(source, PrometheusServer)

    def read(since: float, until: float | None, resolution: float, gpus: Collection[str] = ()) -> Frame:
        frame = source.read(book.catalog, since=since, until=until, now=now, resolution=resolution, wanted_gpus=gpus)
        return examine(frame).frame

    frames: dict[float, Frame] = {}
    try:
        minutes = _MINUTES_SECONDS_OF_SERVER if is_server else _MINUTES_SECONDS
        fine = frames[_MINUTE] = read(min(minutes, lookback_seconds), until, _MINUTE)
    except NothingToDo:  # the newest data may be older: raises where there is none
        frames[_FIVE_MINUTES] = read(lookback_seconds, until, _FIVE_MINUTES)
        begin = end = frames[_FIVE_MINUTES].window.end
    else:
        begin, end = math.ceil(fine.window.start / _FIVE_MINUTES) * _FIVE_MINUTES, fine.window.end
        since = round((begin - end + lookback_seconds) / _FIVE_MINUTES) * _FIVE_MINUTES
        with suppress(NothingToDo):
            frames[_FIVE_MINUTES] = read(max(since, _FIVE_MINUTES), begin, _FIVE_MINUTES, _quiet_gpus(fine))
    newest, oldest = next(iter(frames.values())), [*frames.values()][-1]
    # Where rows of five minutes reach beyond the first row of a minute, that counts.
    start = oldest.window.start if _FIVE_MINUTES in frames else begin
    spans = _spans((start, begin, _FIVE_MINUTES), (begin, end, _MINUTE))
    gpus = _gpus(frames, book.catalog)
    nodes = _nodes(frames, gpus, PriceBook(book.catalog, tuple(book.team.prices), book.power, book.hourly))
    holds = current_holds(frames.values(), gpus, nodes, book.kind_priors, start=oldest.window.start, end=end)
    gpu_keys = pd.MultiIndex.from_tuples([(gpu.node, gpu.uuid) for gpu in gpus], names=["", ""])
    of_nodes = _arrays(spans, pd.Index([node.node for node in nodes], dtype=object), _of_nodes(frames))
    of_nodes["fabric_up"] /= of_nodes.pop("ports")
    recent = Recent(
        now, gpus, nodes, holds, spans, _arrays(spans, gpu_keys, _of_gpus(frames)), of_nodes,
        _arrays(spans, pd.Index([hold.workload_id for hold in holds], dtype=object), _of_services(frames)),
        fleet_of(newest), notes=tuple(dict.fromkeys(note for frame in frames.values() for note in frame.notes)),
    )  # fmt: skip
    resting = {gpus[n].uuid for n in np.flatnonzero(~(recent.gpu["engine"] > _BUSY).any(axis=1))}
    if past_seconds and not is_server and resting:
        with suppress(NothingToDo):
            past = read(past_seconds, math.ceil(observed_from(recent) / _HOUR) * _HOUR, _HOUR, resting)
            hours = _spans((past.window.start, past.window.end, _HOUR))
            return replace(recent, past=(hours, _arrays(hours, gpu_keys, _of_gpus({_HOUR: past}))))
    return recent


def _quiet_gpus(frame: Frame) -> frozenset[str]:
    """Ids of the GPUs of nodes on which one rests, waits or shows nothing in some of the newest minutes (all GPUs of
    a node explain its host's load); of one GPU where there is none, because node metrics are read with GPUs."""
    newest = frame.gpu[frame.gpu["ts"] > frame.window.end - _NEWEST_SECONDS]
    waits = (newest["tensor_active_mean"] < _WAITS) & (newest["dram_active_mean"] < _BUSY)
    works = (np.fmax(newest["gpu_util_mean"], newest["sm_active_mean"]) > _BUSY) & ~waits
    by_gpu = newest.assign(works=works).groupby("gpu_uuid")["works"].agg(["all", "size"])
    busy = by_gpu.index[by_gpu["all"] & (by_gpu["size"] >= _NEWEST_ROWS_MIN)]
    every = frame.gpus[frame.gpus["valid_to"].isna()]
    quiet = every["node"].isin(every.loc[~every["gpu_uuid"].isin(busy), "node"])
    return frozenset(every.loc[quiet, "gpu_uuid"].astype(str)) or frozenset(every["gpu_uuid"].astype(str)[:1])


def _spans(*parts: tuple[float, float, float]) -> Spans:
    ends = [np.arange(start + seconds, end + 1.0, seconds, dtype=np.float64) for start, end, seconds in parts]
    lengths = [np.full(len(part), seconds) for part, (_, _, seconds) in zip(ends, parts, strict=True)]
    return Spans(np.concatenate(ends), np.concatenate(lengths))


def _gpus(frames: Frames, catalog: Catalog) -> tuple[RecentGpu, ...]:
    """The GPUs that are there now, by node and id, as the newest frame that has them says; of one that is cut into MIG
    instances these."""
    rows = pd.concat([frame.gpu[["node", "gpu_uuid", "ts", "observed_seconds"]] for frame in frames.values()])
    last = rows[rows["observed_seconds"] > 0].groupby(["node", "gpu_uuid"])["ts"].max().to_dict()
    every = pd.concat([frame.gpus for frame in frames.values()]).drop_duplicates(["node", "gpu_uuid"])
    about = {(str(row["node"]), str(row["gpu_uuid"])): row for row in records(every[every["valid_to"].isna()])}
    gpus: list[RecentGpu] = []
    cut: set[tuple[str, str]] = set()
    for key, row in sorted(about.items()):
        parent = (key[0], str(row["parent_uuid"])) if row["kind"] == "mig" and text(row["parent_uuid"]) else None
        whole = about.get(parent, row) if parent is not None else row
        name = text(whole["sku"]) or text(whole["name"]) or text(row["sku"]) or text(row["name"])
        sku = catalog.gpu(name) if name else None
        part, limit = 1.0, known(row["power_limit_watts"]) or (sku.tdp_watts if sku else None)
        if parent is not None:
            cut.add(parent)
            slices = slices_of(text(row["mig_profile"]), sku)
            part, limit = slices.share if slices is not None else 1.0, None
        index = known(row["gpu_index"])
        gpus.append(RecentGpu(
            *key, int(index) if index is not None else None, sku.name if sku else name, part, limit, last.get(key)
        ))  # fmt: skip
    return tuple(gpu for gpu in gpus if (gpu.node, gpu.uuid) not in cut)


def _nodes(frames: Frames, gpus: Sequence[RecentGpu], prices: PriceBook) -> tuple[RecentNode, ...]:
    absences = next(iter(frames.values())).absences
    drained = set(absences.loc[(absences["reason"] == "drained") & absences["until"].isna(), "node"])
    table = pd.concat([frame.nodes for frame in frames.values()]).drop_duplicates("node").sort_values("node")
    recent_nodes = []
    for row in records(table):
        hosted = [gpu for gpu in gpus if gpu.node == row["node"]]
        skus = {gpu.sku for gpu in hosted} - {None}
        # A node whose GPUs cannot be read may report otherwise; what counts here are its GPUs.
        last_seen = max((gpu.last_seen or 0.0 for gpu in hosted), default=0.0)
        facts = NodeFacts(
            node=str(row["node"]), cluster="", provider=text(row["provider"]), region=text(row["region"]),
            node_sku=text(row["node_sku"]), node_sku_source=text(row["node_sku_source"]),
            gpu_sku=skus.pop() if len(skus) == 1 else None,
            gpu_count=int(known(row["gpu_count"]) or round(sum(gpu.part for gpu in hosted))), first_seen=0.0,
            last_seen=last_seen, hours_observed=0.0, fabric=None,
        )  # fmt: skip
        price = prices.of(facts) if facts.gpu_count else None
        where = "region assumed, " if price is not None and price.region_assumed else ""
        recent_nodes.append(RecentNode(
            facts.node, facts.node_sku, prices.per_gpu_hour(facts) if price is not None else None,
            f"{price.source} ({where}{price.basis}, {price.as_of})" if price is not None else None,
            facts.gpu_count or None, last_seen or None, facts.node in drained,
        ))  # fmt: skip
    return tuple(recent_nodes)


# Rows of spans of some seconds, what each is of, their numbers by measure, and whether several in one place are summed.
Part = tuple[float, pd.DataFrame, pd.Index, Mapping[str, pd.Series], bool]


def _arrays(spans: Spans, subjects: pd.Index, parts: Iterable[Part]) -> dict[str, Values]:
    """Arrays of (subjects, spans) by measure; NaN where there is no row. Of several rows in one place the largest value
    counts, or their sum, which is missing where one of them is."""
    arrays: dict[str, Values] = {}
    for step, table, keys, numbers, summed in parts:
        ends, moments = spans.ends, table["ts"].to_numpy(float)
        columns = np.minimum(np.searchsorted(ends, moments - 1e-3), len(ends) - 1)
        rows, past = subjects.get_indexer(keys), ends[columns] - moments
        inside = (rows >= 0) & (past > -1e-3) & (past < step - 1e-3) & (spans.seconds[columns] == step)
        at = (rows[inside], columns[inside])
        for name, column in numbers.items():
            values = arrays.setdefault(name, np.full((len(subjects), len(ends)), np.nan, np.float32))
            if summed:
                values[at] = 0.0
            (np.add if summed else np.fmax).at(values, at, column.to_numpy(np.float32)[inside])
    return arrays


def _of_gpus(frames: Frames) -> Iterator[Part]:
    links = [f"{link}_{direction}_bytes_per_second_mean" for link in ("pcie", "nvlink") for direction in ("tx", "rx")]
    for step, frame in frames.items():
        table, keys = frame.gpu, pd.MultiIndex.from_frame(frame.gpu[["node", "gpu_uuid"]])
        # What a workload usually does on its links and at which clock is in the rows of minutes.
        columns = [*links, "sm_clock_hertz_mean", "throttled_fraction"]
        of_minutes = pd.DataFrame(table if step == _MINUTE else None, table.index, columns, dtype=float)
        numbers = {
            "util": table["gpu_util_mean"], "sm": table["sm_active_mean"], "tensor": table["tensor_active_mean"],
            "dram": table["dram_active_mean"], "power_watts": table["power_watts_mean"],
            "engine": np.fmax(table["gpu_util_mean"], table["sm_active_mean"]),
            "engine_max": np.fmax(table["gpu_util_max"], table["sm_active_max"]),
            "engine_p95": np.fmax(table["gpu_util_p95"], table["sm_active_p95"]),
            "mem_used_ratio": table["mem_used_bytes_mean"] / table["mem_total_bytes"],
            "sm_clock_hertz": of_minutes["sm_clock_hertz_mean"], "throttled": of_minutes["throttled_fraction"],
            "links_bytes_per_second": of_minutes[links].sum(axis=1, min_count=1),
        }  # fmt: skip
        yield step, table, keys, numbers, False
        yield step, table, keys, {"observed": table["observed_seconds"] / step}, True


def _of_nodes(frames: Frames) -> Iterator[Part]:
    for step, frame in frames.items():
        host, ports = frame.host, frame.fabric
        disk = host["disk_read_bytes_per_second_mean"] + host["disk_write_bytes_per_second_mean"]
        hosts = {"cpu_util": host["cpu_util_mean"], "disk_bytes_per_second": disk}
        yield step, host, pd.Index(host["node"]), hosts, False
        ports = ports.assign(bytes=ports["tx_bytes_per_second_mean"] + ports["rx_bytes_per_second_mean"], one=1.0)
        compute, others = ports[ports["role"] == "compute"], ports[ports["role"] != "compute"]
        fabric = {
            "fabric_bytes_per_second": compute["bytes"], "ports": compute["one"],
            "fabric_line_bytes_per_second": compute["line_rate_bytes_per_second"],
            "fabric_up": compute["active_fraction"],
        }  # fmt: skip
        yield step, compute, pd.Index(compute["node"]), fabric, True
        network = {"network_bytes_per_second": others["bytes"].fillna(0.0)}
        yield step, others, pd.Index(others["node"]), network, True


def _of_services(frames: Frames) -> Iterator[Part]:
    rates = {
        "requests_running": ("running_seconds", "queue_seconds"),
        "requests_waiting": ("waiting_seconds", "queue_seconds"),
        "tokens_per_second": ("generated_tokens", "seconds"),
    }
    for step, frame in frames.items():
        table = frame.tokens.reindex(columns=["workload_id", "ts", *{name for pair in rates.values() for name in pair}])
        numbers = {name: (table[count] / table[seconds]).fillna(0.0) for name, (count, seconds) in rates.items()}
        yield step, table, pd.Index(table["workload_id"]), numbers, True
