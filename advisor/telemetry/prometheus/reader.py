"""A frame from a server of Prometheus' API: our agent's series, dcgm-exporter and node_exporter, or a mixture."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from ....agent.model import Role
from ....agent.store.reading import queries as store
from ....rules.base.errors import NothingToDo, SourceError
from ....rules.base.progress import Steps, no_steps
from ....rules.catalog.loader import Catalog
from ...core.coded_text import coded
from ...core.frame import Frame, Window
from ...core.timestamps import minute, span
from ..activity import with_activity
from ..resolution import HOUR, concat
from .client.cache import Cache
from .client.client import Client
from .client.range_planner import Log, Runner
from .client.response import Grid, SeriesAnswer
from .discovery import MAX_CORE_SERIES, SHORT_STEP_SECONDS, Discovery, advice_notes, discover, lacking_fields
from .owners.engines import read_engines
from .owners.kube import KubeState, declared_gpus, read_kube
from .owners.owned import holders_of, owned, pods_held
from .owners.owners import read_owners
from .promql import agent_queries
from .promql import promql as queries
from .promql.labels import NODE_LABELS, agent_node, gpu_of
from .questions import HostInfo, Questions
from .rows import ethernet, nodes
from .rows.dcgm import DcgmQuestions, KeyOf, read_dcgm
from .rows.fabric import PortRows, agent_hosts, agent_ports, beside, exporter_hosts, exporter_ports, merged
from .rows.gpus import GpuRows, agent_rows, combined, scrape_seconds
from .rows.identity import Past, external_labels, past_of
from .rows.series_to_rows import Cells
from .rows.unnamed import Fine
from .rows.workloads import agent_uses, dcgm_uses, workloads_of
from .short_rows import drained_nodes, short_asks, with_short_rows


@dataclass(frozen=True)
class ServerReading:
    """How a server is read. `matches`: label matchers of every query; `now`: Unix seconds.

    `fabric_roles`: device pattern -> role, for ports of which only node_exporter tells. `team_labels`: of pods and
    namespaces, the best first.
    """

    client: Client
    cache: Cache
    matches: tuple[str, ...]
    now: float
    concurrency: int = 4
    max_series: int = 200_000
    fabric_roles: Mapping[str, Role] = field(default_factory=dict)
    team_labels: tuple[str, ...] = ()
    progress: Callable[[str], None] = lambda _: None
    steps: Steps = no_steps


def read_frame(
    reading: ServerReading,
    catalog: Catalog,
    *,
    since_seconds: float = 14 * 86400.0,
    until: float | None = None,
    resolution: float = HOUR,
    wanted_gpus: Collection[str] = (),
) -> Frame:
    """The telemetry of a window from a server, reduced there to rows of an hour (of five minutes in short windows).

    `resolution`: seconds of a row; below an hour (300 or 60) only means and maxima are read, nodes out of service are
    absences, and nothing is cached. `wanted_gpus`: ids of those whose short rows are wanted; empty: of all.

    Without `until` the window ends with the newest whole row of data. Raises NothingToDo where the server holds no GPU
    data for it, SourceError where it cannot be asked.
    """
    is_short = resolution < HOUR
    refused = reading.cache.refused
    log = Log([coded("cache-refused", "{why}", why=refused)] if refused else [])
    found = discover(
        reading.client, reading.matches, since_seconds=since_seconds, until=until, now=reading.now,
        max_series=reading.max_series, step=SHORT_STEP_SECONDS if is_short else None,
    )  # fmt: skip
    if is_short:
        reading = replace(reading, cache=Cache(None, ""))
        found = with_short_rows(
            reading.client, reading.matches, found, since=since_seconds, until=until, now=reading.now, step=resolution
        )
    reading.progress(_greeting(found))
    labels = external_labels(reading.client)
    _recognize(reading, found, labels, log)
    runner = Runner(reading.client, reading.cache, log, reading.concurrency, reading.now)
    asked = Questions(
        runner, found, reading.matches, reading.steps,
        shaped=short_asks(resolution, found.scrape_seconds, wanted_gpus) if is_short else lambda ask: ask,
    )  # fmt: skip
    grid = Grid(found.window.start + found.step, found.window.end, found.step)
    kube = read_kube(asked.ask, asked.instant, found, reading.matches, grid)
    gpus, uses, key_of = read_gpus(asked, grid, log, kube)
    if not len(gpus.cells.rows) or not (gpus.cells.column("observed_seconds") > 0).any():
        if asked.exporters and not any(map(gpu_of, asked.exporters)):
            raise NothingToDo(
                "No dcgm-exporter time series has the label UUID, which identifies GPUs.",
                "Keep that label in metric_relabel_configs.",
            )
        said = f" ({log.notes[0]})" if log.notes else ""
        raise NothingToDo(
            f"No GPU data between {minute(found.window.start)} and {minute(found.window.end)}{said}.",
            "Choose another window with --since and --until.",
        )
    rows = gpu_rows_table(gpus, catalog)
    counts = nodes.gpu_counts(gpus.about)
    kube = kube.named_as(counts, (labels for labels in asked.exporters))
    uses = with_owners(asked, uses, kube, grid, reading.team_labels)
    declared = declared_gpus(kube, uses, {one.node for one in gpus.about.values() if one.kind == "mig"})
    counts = {**{node: one.gpus for node, one in declared.items()}, **counts}
    join = HostInfo(asked, counts, found)
    ports, hosts = read_ports_and_hosts(asked, grid, counts, join, reading.fabric_roles)
    node_table = nodes.node_table(
        gpus, ports, asked.given, dmi=join.dmi, kube=join.kube, catalog=catalog, declared=declared
    )
    own, workloads = workloads_of(uses, found.window)
    serving, tokens = read_engines(
        asked.ask, asked.instants, found.names, reading.matches, grid, uses=uses, series=found.series
    )
    frame = Frame(
        window=found.window,
        nodes=node_table,
        gpus=nodes.gpu_table(gpus, catalog),
        gpu=rows,
        fabric=_fabric_table(ports),
        host=hosts.table(store.HOST_HOURS.columns, {"node": lambda key: key}),
        workloads=workloads,
        uses=own,
        absences=drained_nodes(asked, set(node_table["node"]))
        if is_short
        else _absences(found, gpus, asked.given.get("nodes"), _without_rdma(asked, ports, join)),
        serving=serving,
        tokens=tokens,
        requests=kube.requests,
        source={},
        external_labels=labels,
    )
    if is_short:
        return replace(frame, source=_source(reading, found), notes=tuple(log.notes))
    since = float((frame.gpu["ts"] - frame.gpu["interval_seconds"]).min()) if len(frame.gpu) else 0.0
    frame = with_activity(frame, Fine(runner, found, reading.matches, gpus.about, key_of, since))
    reading.cache.prune()
    # How much was asked is known when all was.
    source = {**_source(reading, found), "asked": dict(sorted(asked.queries.items()))}
    return replace(frame, source=source, notes=(*log.notes, *advice_notes(found)))


def with_owners(
    asked: Questions, uses: pd.DataFrame, kube: KubeState, grid: Grid, team_labels: tuple[str, ...]
) -> pd.DataFrame:
    """The uses with what kube-state-metrics tells of the pods that hold GPUs."""
    found = asked.found
    held = pods_held(uses)
    if not held:
        return uses
    owners = read_owners(asked.instants, found.names, asked.matches, held, window=found.window, team_labels=team_labels)
    clusters = {
        node: labels.get("exported_cluster") or labels.get("cluster") or ""
        for labels in (asked.given["nodes"].labels if "nodes" in asked.given else ())
        if (node := agent_node(labels))
    }
    # Our agent's ids are made with the cluster that it was told, the others with the series' own label.
    own = pd.Series(
        [clusters.get(node, cluster) for node, cluster in zip(uses["node"], uses["cluster"], strict=True)], uses.index
    )
    return owned(uses.assign(cluster=own), owners, holders_of(kube.requests, asked.exporters), grid, team_labels)


def _recognize(reading: ServerReading, found: Discovery, labels: Mapping[str, str], log: Log) -> None:
    """Make the cache know which server this is, and say so where it is another than before behind this address."""
    cache = reading.cache
    if not cache.used:
        return
    try:
        past = past_of(reading.client, found.names, reading.matches, found.window, found.series)
    except SourceError as error:
        log.add(
            coded(
                "answers-not-cached", "Answers are not cached: the query for the server's history failed. {error}",
                error=error.message,
            )
        )  # fmt: skip
        past = Past()
    marks, told = past.marks(found.window), json.dumps(sorted(labels.items()))
    cache.mark = lambda grid: None if (mark := marks(grid)) is None else f"{told} {mark}"
    if past.told and past.differs(cache.told_before(past.query, past.told)):
        reading.progress(f"another server answers at {reading.client.url} than last time: cached answers are not used")


def read_gpus(asked: Questions, grid: Grid, log: Log, kube: KubeState) -> tuple[GpuRows, pd.DataFrame, KeyOf | None]:
    """Rows of GPUs of both roads, the uses of GPUs by workloads, and whose rows a series of dcgm-exporter speaks of."""
    found, matches, step = asked.found, asked.matches, asked.found.step
    empty = GpuRows(Cells(grid))
    agent, dcgm = empty, empty
    uses: list[pd.DataFrame] = []
    key_of: KeyOf | None = None
    if found.agent_gpus:
        asks = agent_queries.agent_gpu_asks(found.names, matches, step) + agent_queries.agent_about_asks(matches, step)
        answers = asked.ask(asks, found.agent_gpus)
        bins = asked.ask(agent_queries.agent_bin_asks(matches, step), found.agent_gpus * 28)
        agent = agent_rows(grid, answers, bins, log)
        ask = agent_queries.agent_work_ask(matches, step)
        uses.append(agent_uses(asked.ask([ask], 2 * found.agent_gpus)[ask.name], grid, agent.about))
    if found.dcgm_gpus:
        asking = DcgmQuestions(asked.ask, asked.daily)
        dcgm, answer, key_of = read_dcgm(asking, found, matches, grid, log=log, node=kube.node_of)
        asked.exporters = answer.labels
        interval = scrape_seconds(dcgm.cells.column("n"), step)
        intervals = {uuid: float(interval[row]) for uuid, row in dcgm.cells.rows.items()}
        taken = {one.uuid for one in agent.about.values()}
        uses.append(dcgm_uses(answer, grid, dcgm.about, intervals=intervals, taken=taken, key_of=key_of))
    rows = combined(agent, dcgm) if agent.about and dcgm.about else agent if agent.about else dcgm
    filled = [part for part in uses if not part.empty]
    return rows, pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(), key_of


def read_ports_and_hosts(
    asked: Questions, grid: Grid, counts: Mapping[str, int], join: HostInfo, roles: Mapping[str, Role]
) -> tuple[PortRows, Cells[str]]:
    """Rows of fabric ports and hosts, of both roads."""
    found, matches, step = asked.found, asked.matches, asked.found.step
    ports, hosts = PortRows(Cells(grid)), Cells(grid)
    if found.agent_gpus:
        node_count = len(counts)
        answers = asked.ask(agent_queries.agent_node_asks(matches, step), 10 * node_count)
        answers |= asked.ask(agent_queries.agent_fabric_asks(found.names, matches, step), 28 * 10 * node_count)
        ports = agent_ports(grid, answers)
        hosts = agent_hosts(grid, asked.ask(agent_queries.agent_host_asks(found.names, matches, step), node_count))
    other = PortRows(Cells(grid))
    if found.has_fabric:
        chosen = queries.selector(matches)
        kept = (*NODE_LABELS, "device", "port")
        rates = asked.instant(f"last_over_time(node_infiniband_rate_bytes_per_second{chosen}[1h])", kept)
        answers = asked.ask(queries.exporter_fabric_asks(found.names, matches, step), 10 * len(counts))
        other = exporter_ports(grid, answers, rates, node_of=join.node, gpu_counts=counts, configured=roles)
    if ethernet.has_ethernet(found.names):
        other = beside(other, _ethernet(asked, grid, len(counts), join, roles))
    if other.cells.rows:
        ports = PortRows(
            merged(ports.cells, other.cells), {**other.roles, **ports.roles}, {**other.layers, **ports.layers}
        )
    cores = 0 < found.core_series <= MAX_CORE_SERIES
    asks = queries.exporter_host_asks(found.names, matches, step, cores=cores)
    if asks:
        hosts = merged(hosts, exporter_hosts(grid, asked.ask(asks, len(counts)), join.node))
    return ports, hosts


def _ethernet(asked: Questions, grid: Grid, nodes: int, join: HostInfo, roles: Mapping[str, Role]) -> PortRows:
    found, matches = asked.found, asked.matches
    chosen = queries.selector(matches)
    about = {
        name: asked.instant(f"last_over_time({name}{chosen}[1h])", (*NODE_LABELS, "device", *labels))
        for name, labels in ((ethernet.SPEED, ()), (ethernet.INFO, ("operstate",)))
        if name in found.names
    }
    answers = asked.ask(ethernet.ethernet_asks(found.names, matches, found.step), 4 * nodes)
    return ethernet.ethernet_ports(grid, answers, about, node_of=join.node, configured=roles)


# Measures of GPUs that tell what a GPU is, beside their rows.
_OF_GPUS = ("observed_seconds", "mem_total_bytes", "power_limit_watts", "nvlink_bytes_per_second")


def gpu_rows_table(gpus: GpuRows, catalog: Catalog) -> pd.DataFrame:
    """The frame's table `gpu`, to which the measures of `gpus` go over but for `_OF_GPUS`."""
    about = gpus.about

    def node(uuid: str) -> str:
        return about[uuid].node

    texts = {"node": node, "gpu_uuid": lambda key: about[key].uuid or key}
    table = gpus.cells.table(store.GPU_HOURS.columns, texts, store.GPU_HOURS.bins, left=_OF_GPUS)
    index = {one.uuid or key: one.index for key, one in about.items()}
    total = {one.uuid or key: nodes.memory_of(one, catalog) for key, one in about.items()}
    table["gpu_index"] = table["gpu_uuid"].map(index).astype(float)
    table["mem_total_bytes"] = table["mem_total_bytes"].fillna(table["gpu_uuid"].map(total).astype(float))
    return table


def _fabric_table(ports: PortRows) -> pd.DataFrame:
    texts = {
        "node": lambda key: key[0],
        "device": lambda key: key[1],
        "role": lambda key: ports.roles.get(key, "unknown"),
        "link_layer": ports.layers.get,
        "port": lambda key: float(key[2]),
    }
    table = ports.cells.table(store.FABRIC_HOURS.columns, texts, store.FABRIC_HOURS.bins)
    return table.assign(port=table["port"].astype(float))


def _without_rdma(asked: Questions, ports: PortRows, join: HostInfo) -> set[str]:
    """Nodes that are known to have no RDMA device, by node_exporter."""
    if ethernet.COLLECTORS not in asked.found.names:
        return set()
    chosen = queries.selector(asked.matches, 'collector="infiniband"')
    answer = asked.instant(f"last_over_time({ethernet.COLLECTORS}{chosen}[1h])", NODE_LABELS)
    seen = {node for (node, device, port), layer in ports.layers.items() if layer != "Ethernet"}
    return ethernet.without_rdma(answer, seen, join.node)


def _absences(found: Discovery, gpus: GpuRows, told: SeriesAnswer | None, without_rdma: set[str]) -> pd.DataFrame:
    """What dcgm-exporter does not export, of each node of which it alone tells, and which of them have no RDMA device.
    `told`: the nodes with an agent."""
    agents = {agent_node(labels) for labels in told.labels} if told is not None else set()
    alone = sorted({one.node for one in gpus.about.values()} - agents)
    rows = [
        {
            "node": node, "gpu_uuid": None, "device": None, "scope": "source", "metric": metric,
            "reason": "not-exported", "detail": f"{detail} {remedy}", "remedy": remedy, "since": found.window.start,
            "until": np.nan,
        }
        for node in alone
        for metric, (detail, remedy) in lacking_fields(found).items()
    ]  # fmt: skip
    rows += [
        {
            "node": node, "gpu_uuid": None, "device": "infiniband", "scope": "source", "metric": "*",
            "reason": "no-fabric", "detail": "node_exporter found no RDMA device on this node.", "remedy": "",
            "since": found.window.start, "until": np.nan,
        }
        for node in sorted(without_rdma)
    ]  # fmt: skip
    return concat([pd.DataFrame(rows)] if rows else [], store.ABSENCES.columns)


def _source(reading: ServerReading, found: Discovery) -> dict[str, object]:
    counters = reading.client.counters
    return {
        "kind": "prometheus",
        "url": reading.client.url,
        "server": str(found.server),
        "match": list(reading.matches),
        "exporters": list(found.exporters),
        "row_seconds": found.step,
        "scrape_seconds": found.scrape_seconds,
        "retention": found.retention,
        "recording_rules": sorted(found.ruled),
        "queries": counters.queries,
        "answer_bytes": counters.bytes_read,
        "cached_answers": reading.cache.hits,
    }


def _greeting(found: Discovery) -> str:
    scraped = f", scraped every {span(found.scrape_seconds)}" if found.scrape_seconds else ""
    window: Window = found.window
    return (
        f"{found.server}: {found.series} GPU time series from {', '.join(found.exporters)}{scraped}; "
        f"{minute(window.start)} to {minute(window.end)}"
    )
