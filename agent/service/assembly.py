"""Puts the agent together from its settings: driver, sources, sampler, identity."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ...rules.catalog.loader import Catalog, load_catalog
from ..config import AgentConfig
from ..jobs.allocation import Allocations
from ..jobs.attribution import NodeAttribution
from ..jobs.environ_helper import HelperVariables
from ..jobs.identity import identify
from ..jobs.kubernetes_files import KubernetesFiles
from ..jobs.listening_sockets import Listeners
from ..jobs.podresources import PodResources
from ..jobs.slurm import SlurmAllocations
from ..jobs.slurm_conf import SlurmConfReader
from ..model import Instant, Node
from ..sampler import Sampler, Survey
from ..sources.base import Source
from ..sources.infiniband import InfinibandSource
from ..sources.nvidia_driver import NvidiaDriver
from ..sources.registry import build_sources
from .bursts import MAX_GAP_SECONDS as BURST_GAP_SECONDS
from .bursts import Bursts, capabilities
from .driver_thread import DriverThread


@dataclass(frozen=True)
class Agent:
    """A put-together agent, probed once. `look` looks anew at what is here, and says what the node is now."""

    sampler: Sampler
    node: Node
    survey: Survey
    attribution: NodeAttribution
    driver: DriverThread
    bursts: Bursts
    look: Callable[[], Survey]


def assemble(
    config: AgentConfig,
    environ: Mapping[str, str],
    now: Callable[[], Instant],
    *,
    pause_seconds: float = 0.0,
    stopped: Callable[[], bool] = lambda: False,
) -> Agent:
    """Open what can be opened. Never raises for missing hardware: that is what absences are for.

    With `pause_seconds` the driver is left alone for that long. `stopped`: see `DriverThread`.
    """
    nvidia = NvidiaDriver(config.interval_seconds, config.max_gap_seconds)
    driver = DriverThread(nvidia, config.interval_seconds, config.max_gap_seconds, sysfs=config.sysfs, stopped=stopped)
    if pause_seconds > 0:
        driver.pause(now(), pause_seconds)
    else:
        driver.open(now())
    listeners = Listeners(config.procfs)
    sources: tuple[Source, ...] = (
        driver,
        *nvidia.beside,  # they wait on threads of their own, and tell while the driver hangs
        *build_sources(
            config, lambda: driver.gpus, nvidia.unread_gpus, lambda port: listeners.pids(port, time.monotonic())
        ),
    )
    sampler = Sampler(sources, config.interval_seconds, config.max_gap_seconds)
    catalog = load_catalog()

    def look() -> Survey:
        survey = name_gpus(sampler.probe(), catalog)
        node = identify(
            config_node=config.node,
            config_cluster=config.cluster,
            config_sku=config.node_sku,
            sysfs=config.sysfs,
            procfs=config.procfs,
            etc=Path("/etc"),
            environ=environ,
            gpus=survey.gpus,
            ports=survey.ports,
            node_skus=tuple(catalog.nodes.values()),
            unread_gpus=survey.unnamed_gpus,
        )
        lines = capabilities(survey.gpus, survey.capabilities, config.burst_every_seconds, config.burst_seconds)
        return replace(survey, node=node, capabilities=(*survey.capabilities, *lines))

    survey = look()
    node = survey.node
    assert node is not None
    bursts = Bursts(
        driver,
        InfinibandSource(config.sysfs, lambda: driver.gpus, BURST_GAP_SECONDS, config.fabric_roles),
        now,
        node=node.node,
        every_seconds=config.burst_every_seconds,
        seconds=config.burst_seconds,
    )
    attribution = _attribution(config, node)
    attribution.set_gpus(survey.gpus)
    return Agent(sampler, node, survey, attribution, driver, bursts, look)


def _attribution(config: AgentConfig, node: Node) -> NodeAttribution:
    cgroups = config.sysfs / "fs/cgroup"
    variables = HelperVariables(config.procfs, config.environ_socket)
    trusted = frozenset({0, os.getuid()})
    slurm = SlurmAllocations(
        config.allocations,
        config.procfs,
        cgroups,
        trusted,
        settings=SlurmConfReader(config.slurm_conf),
    )
    kubernetes = KubernetesFiles(
        node.cluster, node.node, config.pods_file, config.resource_slices_file, config.team_labels
    )
    kubelet = PodResources(config.pod_resources)
    allocations = Allocations(slurm, kubelet, cgroups, config.drained_marker, kubernetes)
    return NodeAttribution(
        config.procfs,
        node.boot_id,
        node.cluster,
        _user_name,
        node.node,
        allocations=allocations,
        variables=variables,
        trusted_uids=trusted,
    )


def name_gpus(survey: Survey, catalog: Catalog) -> Survey:
    """The survey with each GPU's SKU as the catalog spells it; None for one that it lacks. An instance has its
    parent's: it is a part of that product."""
    names = {gpu.uuid: gpu.name for gpu in survey.gpus}
    skus = [catalog.gpu(names.get(gpu.parent_uuid or "", gpu.name)) for gpu in survey.gpus]
    named = (replace(gpu, sku=sku.name if sku else None) for gpu, sku in zip(survey.gpus, skus, strict=True))
    return replace(survey, gpus=tuple(named))


def _user_name(uid: int) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None
