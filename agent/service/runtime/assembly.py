"""Puts the agent together from its settings: session, sources, sampler, identity."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ....rules.catalog.loader import Catalog, load_catalog
from ...config import AgentConfig
from ...inventory.attribution.allocation import Allocations
from ...inventory.attribution.attribution import Attribution
from ...inventory.identity.identity import identify
from ...inventory.kubernetes.files import KubernetesFiles
from ...inventory.kubernetes.podresources import PodResources
from ...inventory.processes.environ_helper import HelperVariables
from ...inventory.processes.listening_sockets import Listeners
from ...inventory.slurm.allocations import SlurmAllocations
from ...inventory.slurm.slurm_conf import SlurmSettings
from ...model import Gpu, Instant, Node
from ...sampler import Sampler, Survey
from ...sources.base import Source
from ...sources.fabric.ethernet import EthernetSource
from ...sources.fabric.infiniband import InfinibandSource
from ...sources.host import HostSource
from ...sources.nvidia.gpm import GpmSource
from ...sources.nvidia.nvlink import NvlinkSource
from ...sources.nvidia.nvml import NvmlSource
from ...sources.nvidia.nvml_errors import MIG_SHARED
from ...sources.nvidia.nvml_events import EventSource
from ...sources.nvidia.nvml_session import NvmlSession
from ...sources.scrape.dcgm import DcgmSource, Lacking
from ...sources.scrape.scraper import PageReader
from ...sources.scrape.serving import ServingSource
from ..driver.bursts import MAX_GAP_SECONDS as BURST_GAP_SECONDS
from ..driver.bursts import Bursts, capabilities
from ..driver.guarded_nvml import GuardedDriver

ETC = Path("/etc")


@dataclass(frozen=True)
class Agent:
    """A put-together agent, probed once."""

    sampler: Sampler
    catalog: Catalog
    node: Node
    survey: Survey
    attribution: Attribution
    fabric: InfinibandSource
    ethernet: EthernetSource
    driver: GuardedDriver
    bursts: Bursts
    identify: Callable[[Survey], Node]

    def resurvey(self) -> Survey | None:
        """A new look at what is here, where a source asks for one; otherwise None. It says what the node is now."""
        if not (self.fabric.wants_probe or self.driver.wants_probe or self.ethernet.wants_probe):
            return None
        bus_ids = _bus_ids(self.driver.probe().gpus)
        self.fabric.set_gpus(bus_ids)
        self.bursts.set_gpus(bus_ids)
        survey = name_gpus(self.sampler.probe(), self.catalog)
        return replace(survey, node=self.identify(survey))


def assemble(
    config: AgentConfig, environ: Mapping[str, str], now: Callable[[], Instant], *, pause_seconds: float = 0.0
) -> Agent:
    """Open what can be opened. Never raises for missing hardware: that is what absences are for.

    With `pause_seconds` the driver is left alone for that long.
    """
    session = NvmlSession()
    # Whatever calls NVML goes in here: it runs on the driver's own thread, with a deadline.
    gpu_sources: tuple[Source, ...] = (
        NvmlSource(session, config.max_gap_seconds),
        GpmSource(session, config.max_gap_seconds),
        NvlinkSource(session, config.max_gap_seconds, config.interval_seconds),
    )
    events = EventSource(session)  # not one of them: it waits on a thread of its own, and tells while the driver hangs
    driver = GuardedDriver(session, gpu_sources, config.interval_seconds, config.max_gap_seconds, sysfs=config.sysfs)
    if pause_seconds > 0:
        driver.pause(now(), pause_seconds)
    else:
        driver.open(now())
    bus_ids = _bus_ids(driver.probe().gpus)
    fabric = InfinibandSource(config.sysfs, bus_ids, config.max_gap_seconds, config.fabric_roles)
    ethernet = EthernetSource(config.sysfs, config.procfs, config.max_gap_seconds, config.fabric_roles)
    sources: tuple[Source, ...] = (
        driver,
        events,
        fabric,
        ethernet,
        HostSource(config.procfs, config.sysfs, config.max_gap_seconds),
        *_page_sources(config, session),
    )
    sampler = Sampler(sources, config.interval_seconds, config.max_gap_seconds)
    catalog = load_catalog()
    survey = name_gpus(sampler.probe(), catalog)
    lines = capabilities(survey.gpus, survey.capabilities, config.burst_every_seconds, config.burst_seconds)
    survey = replace(survey, capabilities=(*survey.capabilities, *lines))

    def identify_now(found: Survey) -> Node:
        return identify(
            config_node=config.node,
            config_cluster=config.cluster,
            config_sku=config.node_sku,
            sysfs=config.sysfs,
            procfs=config.procfs,
            etc=ETC,
            environ=environ,
            gpus=found.gpus,
            ports=found.ports,
            node_skus=tuple(catalog.nodes.values()),
        )

    node = identify_now(survey)
    bursts = Bursts(
        session,
        InfinibandSource(config.sysfs, bus_ids, BURST_GAP_SECONDS, config.fabric_roles),
        driver.aside,
        now,
        node=node.node,
        every_seconds=config.burst_every_seconds,
        seconds=config.burst_seconds,
    )
    attribution = _attribution(config, node)
    attribution.set_gpus(survey.gpus)
    return Agent(sampler, catalog, node, survey, attribution, fabric, ethernet, driver, bursts, identify_now)


def _attribution(config: AgentConfig, node: Node) -> Attribution:
    cgroups = config.sysfs / "fs/cgroup"
    variables = HelperVariables(config.procfs, config.environ_socket)
    trusted = frozenset({0, os.getuid()})
    slurm = SlurmAllocations(
        config.allocations,
        config.procfs,
        cgroups,
        variables,
        trusted,
        settings=SlurmSettings(config.slurm_conf),
        open_minors=variables.open_minors,
    )
    kubernetes = KubernetesFiles(
        node.cluster, node.node, config.pods_file, config.resource_slices_file, config.team_labels
    )
    kubelet = PodResources(config.pod_resources)
    allocations = Allocations(slurm, kubelet, cgroups, config.drained_marker, kubernetes)
    return Attribution(
        config.procfs,
        node.boot_id,
        node.cluster,
        _user_name,
        node.node,
        allocations=allocations,
        variables=variables,
        trusted_uids=trusted,
    )


def _page_sources(config: AgentConfig, session: NvmlSession) -> tuple[Source, ...]:
    """What is read from pages, by one thread, which starts when the first page is wanted."""
    reader = PageReader(remote=config.scrape_remote)
    listeners = Listeners(config.procfs)

    def lacking() -> list[Lacking]:
        if session.fault is not None:
            return []
        # What several instances share is no better on the page: it has the same counters.
        unread = [d for d in session.devices if d.no_gpm not in (None, MIG_SHARED) and d.lost is None]
        return [
            Lacking(d.uuid, d.parent.uuid, str(d.instance.gpu_instance))
            if d.parent is not None and d.instance is not None
            else Lacking(d.uuid, d.uuid)
            for d in unread
        ]

    def locate(port: int) -> frozenset[int]:
        return listeners.pids(port, time.monotonic())

    dcgm = DcgmSource(lacking, reader, config.dcgm_url, config.dcgm_interval_seconds)
    serving = ServingSource(reader, config.serving_endpoints, discover=config.serving_discover, locate=locate)
    return (*((dcgm,) if config.dcgm_url else ()), serving)


def name_gpus(survey: Survey, catalog: Catalog) -> Survey:
    """The survey with each GPU's SKU as the catalog spells it; None for one that it lacks. An instance has its
    parent's: it is a part of that product."""
    names = {gpu.uuid: gpu.name for gpu in survey.gpus}
    names |= {gpu.uuid: names.get(gpu.parent_uuid, gpu.name) for gpu in survey.gpus if gpu.parent_uuid}
    skus = {name: catalog.gpu(name) for name in names.values()}
    named = (replace(gpu, sku=sku.name if (sku := skus[names[gpu.uuid]]) else None) for gpu in survey.gpus)
    return replace(survey, gpus=tuple(named))


def _bus_ids(gpus: Sequence[Gpu]) -> list[str]:
    return [gpu.pci_bus_id for gpu in gpus if gpu.pci_bus_id]


def _user_name(uid: int) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None
