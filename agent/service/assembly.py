"""Puts the agent together from its settings: driver, sources, sampler, identity."""

import os
import pwd
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...rules.catalog.loader import load_catalog
from ..config import AgentConfig
from ..jobs.attribution import Allocations, NodeAttribution
from ..jobs.environ_helper import HelperVariables
from ..jobs.identity import identify
from ..jobs.kubernetes_files import KubernetesFiles
from ..jobs.podresources import PodResources
from ..jobs.processes import Listeners
from ..jobs.slurm import SlurmAllocations
from ..jobs.slurm_conf import SlurmConfReader
from ..model import Gpu, Instant, Node, Probe
from ..sampler import Sampler
from ..sources.base import Source, UnreadGpu
from ..sources.dcgm import DcgmSource
from ..sources.fabric import EthernetSource, InfinibandSource
from ..sources.host import HostSource
from ..sources.nvidia_driver import NvidiaDriver
from ..sources.pages import Locate, PageReader
from ..sources.serving import ServingSource
from .bursts import MAX_GAP_SECONDS as BURST_GAP_SECONDS
from .bursts import Bursts, capabilities
from .driver_thread import DriverThread


@dataclass(frozen=True)
class Agent:
    """A put-together agent, probed once. `look` looks again at what is here, and says what the node is now."""

    sampler: Sampler
    node: Node
    survey: Probe
    attribution: NodeAttribution
    driver: DriverThread
    bursts: Bursts
    look: Callable[[], Probe]


def assemble(
    config: AgentConfig,
    environ: Mapping[str, str],
    now: Callable[[], Instant],
    *,
    pause_seconds: float = 0.0,
    stopped: Callable[[], bool] = lambda: False,
) -> Agent:
    """Open what can be opened. Never raises for missing hardware: that is what absences are for. With `pause_seconds`
    the driver is left alone for that long. `stopped`: see `DriverThread`."""
    nvidia = NvidiaDriver(config.interval_seconds, config.max_gap_seconds)
    driver = DriverThread(nvidia, stopped=stopped)
    if pause_seconds > 0:
        driver.pause(now(), pause_seconds)
    else:
        driver.open(now())
    listeners = Listeners(config.procfs)
    others = other_sources(
        config, lambda: driver.gpus, nvidia.unread_gpus, lambda port: listeners.pids(port, time.monotonic())
    )
    # Those beside the driver wait on threads of their own, and report while it hangs.
    sources: tuple[Source, ...] = (driver, *nvidia.beside, *others)
    sampler = Sampler(sources, config.interval_seconds, config.max_gap_seconds)
    catalog = load_catalog()

    def look() -> Probe:
        survey = sampler.probe()
        # Each GPU's SKU as the catalog spells it; None for one that it lacks. An instance is a part of its parent.
        names = {gpu.uuid: gpu.name for gpu in survey.gpus}
        skus = [catalog.gpu(names.get(gpu.parent_uuid or "", gpu.name)) for gpu in survey.gpus]
        gpus = tuple(replace(gpu, sku=sku and sku.name) for gpu, sku in zip(survey.gpus, skus, strict=True))
        nodes, unread = tuple(catalog.nodes.values()), survey.unnamed_gpus
        node = identify(config, Path("/etc"), environ, gpus, survey.ports, node_skus=nodes, unread_gpus=unread)
        lines = capabilities(gpus, survey.capabilities, config.burst_every_seconds, config.burst_seconds)
        return replace(survey, gpus=gpus, node=node, capabilities=(*survey.capabilities, *lines))

    survey = look()
    node = survey.node
    assert node is not None
    fabric = InfinibandSource(config.sysfs, lambda: driver.gpus, BURST_GAP_SECONDS, config.fabric_roles)
    bursts = Bursts(driver, fabric, now, config.burst_seconds)
    cgroups, trusted = config.sysfs / "fs/cgroup", frozenset({0, os.getuid()})
    settings = SlurmConfReader(config.slurm_conf)
    slurm = SlurmAllocations(config.allocations, config.procfs, cgroups, trusted, settings=settings)
    kubernetes = KubernetesFiles(
        node.cluster, node.node, config.pods_file, config.resource_slices_file, config.team_labels
    )
    kubelet = PodResources(config.pod_resources)
    attribution = NodeAttribution(
        config.procfs,
        node.boot_id or node.node,
        node.cluster,
        _user_name,
        allocations=Allocations(slurm, kubelet, cgroups, config.drained_marker, kubernetes),
        variables=HelperVariables(config.procfs, config.environ_socket),
    )
    attribution.allocations.gpus = survey.gpus
    return Agent(sampler, node, survey, attribution, driver, bursts, look)


def other_sources(
    config: AgentConfig, gpus: Callable[[], Sequence[Gpu]], unread: Callable[[], Sequence[UnreadGpu]], locate: Locate
) -> list[Source]:
    """The sources beside the driver's. Of two that read the same metric of a device, the earlier counts. `gpus`: those
    that the driver knows now; `unread`: those whose activity it does not report; `locate`: the PIDs that listen on a
    port (slow)."""
    gap, roles, pages = config.max_gap_seconds, config.fabric_roles, PageReader(remote=config.scrape_remote)
    sources: list[Source] = [
        InfinibandSource(config.sysfs, gpus, gap, roles),
        EthernetSource(config.sysfs, gap, roles),
        HostSource(config.procfs, config.sysfs, gap),
        ServingSource(pages, config.serving_endpoints, config.serving_discover, locate),
    ]
    if config.dcgm_url:
        sources.append(DcgmSource(unread, pages, config.dcgm_url, config.dcgm_interval_seconds))
    return sources


def _user_name(uid: int) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None
