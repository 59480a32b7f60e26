"""A frame from a server of Prometheus' API: our agent's series, dcgm-exporter and node_exporter, or a mixture."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from operator import itemgetter
from typing import TypeVar

import numpy as np
import pandas as pd

from ....agent.model import Role
from ....agent.sources.dcgm import FIELDS
from ....rules.base.errors import NothingToDo, SourceError
from ....rules.base.output import Steps, no_steps
from ....rules.catalog.loader import Catalog
from ...core.coded_text import coded
from ...core.frame import Frame, node_groups, of_nodes
from ...core.timestamps import minute, span
from .. import queries as store
from ..activity import with_activity
from ..resolution import HOUR, concat
from . import promql as queries
from . import questions
from .client.client import Client
from .client.range_planner import Cache, Log, Runner
from .client.response import Labels
from .engines import read_engines
from .node_identity import NodeIdentity, gpu_counts, gpu_table, memory_of, node_table, read_identity
from .owners import owned, read_kube, read_owners, requesting_pods, vendor_note
from .pending import with_pending
from .promql import AGENT_WORK_LABELS, HOST_LABELS, PORT_LABELS, agent_node, gpu_of
from .questions import Discovery, Questions
from .rows import fabric
from .rows.dcgm import KeyOf, fine_series, read_dcgm
from .rows.fabric import PortKey, PortRows
from .rows.gpus import Cells, GpuRows, agent_rows, combined, scrape_seconds
from .rows.workloads import agent_uses, dcgm_uses, with_groups, with_requests, workloads_of

K = TypeVar("K")
_COLLECTORS = "node_scrape_collector_success"
_REMEDY = "Run node_exporter with --collector.infiniband, or run the agent."
_NO_FABRIC = coded("no-fabric-series", f"No fabric metrics: idle fabrics are not detected. {_REMEDY}")


@dataclass(frozen=True)
class ServerReading:
    """How a server is read. `matches`: label matchers of every query; `now`: Unix seconds. `fabric_roles`: device
    pattern -> role, for ports that only node_exporter has. `team_labels`: of pods and namespaces, the best first."""

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


@dataclass(frozen=True)
class ServerTables:
    """A server's answers. `key_of`: the rows of a series of dcgm-exporter; `unread_fabric`: nodes without counters."""

    gpus: GpuRows
    ports: PortRows
    hosts: Cells[str]
    uses: pd.DataFrame
    nodes: pd.DataFrame
    requests: pd.DataFrame
    key_of: KeyOf | None
    unread_fabric: frozenset[str]


def read_frames(
    reading: ServerReading, catalog: Catalog, *, since_seconds: float = 14 * 86400.0, until: float | None = None,
    resolution: float = HOUR, wanted_gpus: Collection[str] = (), rows_at_once: int | None = None,
    joined: Callable[[Frame], Frame] = lambda frame: frame, with_queue: Callable[[Frame], Frame] = lambda frame: frame,
) -> Iterator[Frame]:  # fmt: skip
    """The telemetry of a window from a server, reduced there to rows of an hour (of five minutes in short windows): one
    frame, or with `rows_at_once` one for each group of nodes (`node_groups`). Notes come with the last.

    `resolution`: seconds of a row; below an hour (300 or 60) only means and maxima are read, nodes out of service are
    absences, and nothing is cached. `wanted_gpus`: ids of those whose short rows are wanted; empty: of all. `joined`:
    gives jobs the names by which their series are known. `with_queue`: adds what waits outside Kubernetes; every group
    has the whole queue. Without `until` the window ends with the
    newest whole row. Raises NothingToDo where the server holds no GPU data, SourceError where it cannot be asked.
    """
    is_short = resolution < HOUR
    refused = reading.cache.refused
    log = Log([coded("cache-refused", "{why}", why=refused)] if refused else [])
    survey = questions.discover(
        reading.client, reading.matches, since_seconds=since_seconds, until=until, now=reading.now,
        max_series=reading.max_series, step=questions.SHORT_STEP_SECONDS if is_short else None,
    )  # fmt: skip
    if is_short:
        reading = replace(reading, cache=Cache(None, ""))
        survey = questions.with_short_rows(
            reading.client, reading.matches, survey, since=since_seconds, until=until, now=reading.now, step=resolution
        )
    scraped = f", scraped every {span(survey.scrape_seconds)}" if survey.scrape_seconds else ""
    what = f"{survey.server}: {survey.series} GPU time series from {', '.join(survey.exporters)}{scraped}"
    reading.progress(f"{what}; {minute(survey.window.start)} to {minute(survey.window.end)}")
    labels = questions.external_labels(reading.client)
    _recognize_server(reading, survey, labels, log)
    number, steps = count(1), reading.steps
    runner = Runner(
        reading.client, reading.cache, log, reading.concurrency, reading.now, lambda _: steps(next(number), None)
    )
    asked = Questions(runner, survey, reading.matches)
    if is_short:
        asked = replace(asked, shaped=questions.short_asks(resolution, survey.scrape_seconds), wanted=wanted_gpus)
    tables = read_tables(asked, reading, catalog, log)
    gpus = tables.gpus
    seen = gpus.cells.column("observed_seconds") > 0
    if not seen.any():
        raise _nothing(asked, log)
    uses, workloads = workloads_of(tables.uses, survey.window)
    engines = {"uses": tables.uses, "series": survey.series}
    serving, tokens = read_engines(asked.ask, survey.names, reading.matches, asked.grid, **engines)
    nothing, names = pd.DataFrame(), set(tables.nodes["node"])
    absences = questions.drained_nodes(asked, names) if is_short else _absences(asked, tables, catalog)
    whole = Frame(
        window=survey.window, nodes=tables.nodes, gpus=gpu_table(gpus, catalog), gpu=nothing, fabric=nothing,
        host=nothing, workloads=workloads, uses=uses,
        absences=absences, serving=serving, tokens=tokens, requests=tables.requests, source={}, external_labels=labels,
    )  # fmt: skip
    whole = whole if is_short else with_queue(with_pending(whole, asked))
    rows_of: Counter[str] = Counter()
    for key, row in gpus.cells.rows.items():
        rows_of[gpus.about[key].node] += int(seen[row].sum())
    groups = [None] if rows_at_once is None else node_groups(joined(whole), rows_of, rows_at_once)
    done, ports, fine = frozenset[str](), tables.ports.cells, partial(fine_series, asked, gpus.about, tables.key_of)
    for n, group in enumerate(groups):
        part = _with_rows(whole, tables, catalog, None if group is None or len(groups) == 1 else frozenset(group))
        part = part if is_short else with_activity(part, fine)
        if n == len(groups) - 1:
            reading.cache.prune()
            sizes = list(reading.client.body_sizes)  # how much was asked is known when all was
            source = {
                "kind": "prometheus", "url": reading.client.url, "server": str(survey.server),
                "match": list(reading.matches), "exporters": list(survey.exporters), "row_seconds": survey.step,
                "scrape_seconds": survey.scrape_seconds, "recording_rules": sorted(survey.ruled), "queries": len(sizes),
                "answer_bytes": sum(sizes), "cached_answers": reading.cache.hits,
            }  # fmt: skip
            if not is_short:
                source["asked"] = dict(sorted(asked.queries.items()))
                if survey.dcgm_gpus and not survey.has_fabric:
                    log.add(_NO_FABRIC)
            part = replace(part, source=source, notes=(*whole.notes, *log.notes))
        yield part
        del part  # not held while the next group is made
        done |= frozenset(group or ())
        gpus.cells.keep({key for key in gpus.cells.rows if gpus.about[key].node not in done}, store.GPU_HOURS.columns)
        ports.keep({key for key in ports.rows if key[0] not in done}, store.FABRIC_HOURS.columns)


def _with_rows(whole: Frame, tables: ServerTables, catalog: Catalog, group: frozenset[str] | None) -> Frame:
    gpus, ports, hosts = tables.gpus, tables.ports, tables.hosts

    def only(keys: Iterable[K], node_of: Callable[[K], str]) -> set[K] | None:
        return None if group is None else {key for key in keys if node_of(key) in group}

    part = whole if group is None else of_nodes(whole, group)
    texts: dict[str, Callable[[PortKey], object]] = {
        "node": itemgetter(0), "device": itemgetter(1), "port": itemgetter(2),
        "role": lambda key: ports.roles.get(key, "unknown"), "link_layer": ports.layers.get,
    }  # fmt: skip
    columns, bins = store.FABRIC_HOURS.columns, store.FABRIC_HOURS.bins
    fabric_table = ports.cells.table(columns, texts, bins, only=only(ports.cells.rows, itemgetter(0)))
    return replace(
        part,
        gpu=_gpu_table(gpus, catalog, only(gpus.cells.rows, lambda key: gpus.about[key].node)),
        fabric=fabric_table.assign(port=fabric_table["port"].astype(float)),
        host=hosts.table(store.HOST_HOURS.columns, {"node": str}, only=only(hosts.rows, str)),
    )


def _nothing(asked: Questions, log: Log) -> NothingToDo:
    window = asked.survey.window
    if asked.exporters and not any(map(gpu_of, asked.exporters)):
        what = "No dcgm-exporter time series has the label UUID, which identifies GPUs."
        return NothingToDo(what, "Keep that label in metric_relabel_configs.")
    first = f" ({log.notes[0]})" if log.notes else ""
    what = f"No GPU data between {minute(window.start)} and {minute(window.end)}{first}."
    return NothingToDo(what, "Choose another window with --since and --until.")


def read_tables(asked: Questions, reading: ServerReading, catalog: Catalog, log: Log) -> ServerTables:
    """Ask for all but what inference servers report."""
    survey = asked.survey
    kube = read_kube(asked.ask, survey.names, asked.matches, asked.grid, survey.series)
    notes = list(kube.notes)
    if questions.AMD_ACTIVITY in survey.names and not any(note.fields["vendor"] == "AMD" for note in notes):
        devices = f"{questions.AMD_ACTIVITY}{queries.selector(asked.matches)}"
        gpus = asked.over_window(f"(group by (hostname, serial_number) ({devices}))", ("hostname", "serial_number"))
        notes.append(vendor_note("AMD", len(gpus.labels), sorted({gpu.get("hostname", "") for gpu in gpus.labels})))
    for note in notes:
        log.add(note)
    identity = read_identity(asked, kube, log)
    gpus, uses, key_of = _read_gpus(asked, log, identity, requesting_pods(kube.requests))
    named = [identity.named(*key) for key in zip(kube.requests["cluster"], kube.requests["node"], strict=True)]
    requests = kube.requests.assign(node=named).drop(columns="cluster")
    offered = {identity.named(*key): node for key, node in kube.nodes.items()}
    if "kube_pod_status_phase" in survey.names:  # without it pods that are over request GPUs as well
        counts = {name: node.gpus for name, node in offered.items()}
        uses = with_requests(uses, requests, gpus.about, asked.grid.step, offered=counts)
    uses = _with_owners(asked, uses, requests, reading.team_labels)
    counts = {**{node: offer.gpus for node, offer in offered.items()}, **gpu_counts(gpus.about)}

    def gpu_node(labels: Labels) -> str | None:
        node = identity.node_of(labels)
        return node if node in counts else None

    ports, hosts = _ports_and_hosts(asked, counts, gpu_node, reading.fabric_roles)
    agents, agent_counts = asked.agents, asked.given.get("node GPUs")
    table = node_table(gpus, ports, agents, agent_counts, identity=identity, catalog=catalog, declared=offered)
    readable = {node for (node, _, _), layer in ports.layers.items() if layer != "Ethernet"}
    failed = frozenset(_failed_collectors(asked, gpu_node)) - readable
    return ServerTables(gpus, ports, hosts, uses, table, requests, key_of, failed)


def _with_owners(
    asked: Questions, uses: pd.DataFrame, requests: pd.DataFrame, team_labels: tuple[str, ...]
) -> pd.DataFrame:
    survey = asked.survey
    uses = with_groups(uses, asked.ask, survey.names, asked.matches, asked.grid)
    if uses.empty:
        return uses
    requesting = requesting_pods(requests)
    how = {"window": survey.window, "team_labels": team_labels, "requests": requesting}
    owners = read_owners(asked.instants, survey.names, asked.matches, uses, **how)
    clusters = {node: at.get("exported_cluster") or at.get("cluster") or "" for node, at in asked.agents.items()}
    # Our agent's ids are made with the cluster in its configuration, the others with the series' own label.
    use_clusters = [clusters.get(node, cluster) for node, cluster in zip(uses["node"], uses["cluster"], strict=True)]
    uses = uses.assign(cluster=pd.Series(use_clusters, uses.index))
    return owned(uses, owners, asked.grid, team_labels, requesting)


def _recognize_server(reading: ServerReading, survey: Discovery, labels: Mapping[str, str], log: Log) -> None:
    """Keep answers under the server's external labels and what it held; none where that cannot be asked."""
    held: Mapping[float, str] = {}
    try:
        if reading.cache.used:
            held = questions.held_at_midnights(reading.client, survey.names, reading.matches, survey.window)
    except SourceError as error:
        text = "Answers are not cached: the query for the server's history failed. {error}"
        log.add(coded("answers-not-cached", text, error=error.message))
    reading.cache.mark_days(held, labels)


def _read_gpus(
    asked: Questions, log: Log, identity: NodeIdentity, requesting: Collection[tuple[str, str]]
) -> tuple[GpuRows, pd.DataFrame, KeyOf | None]:
    """Rows of GPUs by the agent and by dcgm-exporter, the uses of GPUs by workloads, and the key of a series' rows."""
    survey, matches, step, grid = asked.survey, asked.of_wanted("gpu_uuid"), asked.survey.step, asked.grid
    agent = dcgm = GpuRows(Cells(grid))
    uses: list[pd.DataFrame] = []
    key_of: KeyOf | None = None
    if survey.agent_gpus:
        answers = asked.ask(queries.agent_gpu_asks(survey.names, matches, step), survey.agent_gpus)
        bins = asked.ask(queries.agent_bin_asks(matches, step), survey.agent_gpus * 28)
        agent = agent_rows(grid, answers, bins, log)
        # Seconds that each workload had held each GPU by the end of each row.
        held = {"workloads": f"last_over_time({queries.AGENT_SERIES}@)"}
        work = asked.ask(queries.asks_of(held, AGENT_WORK_LABELS, matches, step), 2 * survey.agent_gpus)
        uses.append(agent_uses(work["workloads"], grid, agent.about))
    if survey.dcgm_gpus:
        dcgm, answer, key_of = read_dcgm(asked, log=log, node=identity.node_of)
        asked.exporters = answer.labels
        interval = scrape_seconds(dcgm.cells.column("n"), step)
        intervals = {uuid: float(interval[row]) for uuid, row in dcgm.cells.rows.items()}
        taken = {gpu.uuid for gpu in agent.about.values()}
        about = {"intervals": intervals, "taken": taken, "key_of": key_of, "requesting": requesting, "pods": dcgm.pods}
        uses.append(dcgm_uses(answer, grid, dcgm.about, **about))
    rows = combined(agent, dcgm) if agent.about and dcgm.about else agent if agent.about else dcgm
    filled = [part for part in uses if not part.empty]
    return rows, pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(), key_of


def _ports_and_hosts(
    asked: Questions, counts: Mapping[str, int], node_of: Callable[[Labels], str | None], roles: Mapping[str, Role]
) -> tuple[PortRows, Cells[str]]:
    """Rows of network ports and hosts, by the agent where it runs, else by node_exporter. `counts`: GPUs by node."""
    survey, matches, step, grid = asked.survey, asked.matches, asked.survey.step, asked.grid
    ports, hosts, chosen = PortRows(Cells(grid)), Cells(grid), queries.selector(matches)
    if survey.agent_gpus:
        answers = asked.ask(queries.agent_fabric_asks(survey.names, matches, step), 28 * 10 * len(counts))
        ports = fabric.agent_ports(grid, {**asked.given, **answers})
        asks = queries.agent_host_asks(survey.names, matches, step)
        hosts = fabric.host_rows(grid, asked.ask(asks, len(counts)), agent_node)
    asks = queries.exporter_fabric_asks(survey.names, matches, step) if survey.has_fabric else []
    if asks := [*asks, *fabric.ethernet_asks(survey.names, matches, step)]:
        about = {
            name: asked.over_window(f"{name}{chosen}", (*HOST_LABELS, *PORT_LABELS))
            for name in {fabric.RATE, fabric.SPEED} & survey.names
        }
        answers = asked.ask(asks, 10 * len(counts))
        other = fabric.exporter_ports(grid, answers, about, node_of=node_of, gpu_counts=counts, configured=roles)
        cells = fabric.merged(ports.cells, other.cells)
        ports = PortRows(cells, {**other.roles, **ports.roles}, {**other.layers, **ports.layers})
    cores = 0 < survey.core_series <= questions.MAX_CORE_SERIES
    if asks := queries.exporter_host_asks(survey.names, matches, step, cores=cores):
        hosts = fabric.merged(hosts, fabric.host_rows(grid, asked.ask(asks, len(counts)), node_of))
    return ports, hosts


def _failed_collectors(asked: Questions, node_of: Callable[[Labels], str | None]) -> Iterator[str]:
    """Nodes whose node_exporter's collector infiniband failed. It does so without any device, and as a whole where one
    is not as it expects, as with irdma (prometheus/node_exporter#2769): neither shows that there is no fabric."""
    if _COLLECTORS in asked.survey.names:
        chosen = queries.selector(asked.matches, 'collector="infiniband"')
        answer = asked.over_window(f"{_COLLECTORS}{chosen}", HOST_LABELS)
        for labels, value in zip(answer.labels, answer.values[:, 0].tolist(), strict=True):
            if value == 0 and (node := node_of(labels)) is not None:
                yield node


def _gpu_table(gpus: GpuRows, catalog: Catalog, only: Collection[str] | None) -> pd.DataFrame:
    about = gpus.about
    texts = {"node": lambda key: about[key].node, "gpu_uuid": lambda key: about[key].uuid or key}
    table = gpus.cells.table(store.GPU_HOURS.columns, texts, store.GPU_HOURS.bins, only=only)
    index = {gpu.uuid or key: gpu.index for key, gpu in about.items()}
    total = {gpu.uuid or key: memory_of(gpu, catalog) for key, gpu in about.items()}
    table["gpu_index"] = table["gpu_uuid"].map(index).astype(float)
    table["mem_total_bytes"] = table["mem_total_bytes"].fillna(table["gpu_uuid"].map(total).astype(float))
    return table


def _absences(asked: Questions, tables: ServerTables, catalog: Catalog) -> pd.DataFrame:
    """What dcgm-exporter does not export, for the nodes without an agent, and whose fabric could not be read."""
    survey, rows = asked.survey, []
    lacking = [dcgm_field for dcgm_field in FIELDS if not any(name in survey.names for name in dcgm_field.names)]
    for node in sorted({gpu.node for gpu in tables.gpus.about.values()} - set(asked.agents)):
        for missing in lacking:
            remedy = f"Add '{missing.csv}' to its counters CSV."
            detail = f"dcgm-exporter does not export {missing.names[0]}. {remedy}"
            rows.append((node, None, "source", missing.metric, "not-exported", detail, remedy))
    skus = dict(zip(tables.nodes["node"], tables.nodes["node_sku"], strict=True))
    for node in sorted(tables.unread_fabric):
        sku = catalog.node(skus[node]) if isinstance(skus.get(node), str) else None
        if sku is not None and sku.fabric.rdma is False:
            rows.append((node, "infiniband", "source", "*", "no-fabric", "This node type has no RDMA device.", ""))
            continue
        why = "node_exporter's infiniband collector failed on this node or found no device"
        detail = f"InfiniBand counters could not be read: {why}."
        remedy = "Compare with ibstat on the node, update node_exporter, or run the agent."
        rows.append((node, "infiniband", "fabric", "*", "collector-failed", detail, remedy))
    columns = ["node", "device", "scope", "metric", "reason", "detail", "remedy"]
    table = pd.DataFrame(rows, columns=columns, dtype=object)
    table = table.assign(gpu_uuid=None, since=survey.window.start, until=np.nan)
    return concat([table, pd.DataFrame(tables.gpus.absences)], store.ABSENCES.columns)
