"""Puts the agent together from its settings: session, sources, sampler, identity."""

from __future__ import annotations

import pwd
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...rules.library import Catalog, load_catalog
from ..config import AgentConfig
from ..inventory.attribution import Attribution
from ..inventory.identity import identify
from ..model import Gpu, Instant, Node
from ..sampler import Sampler, Survey
from ..sources.base import Source
from ..sources.gpm import GpmSource
from ..sources.host import HostSource
from ..sources.infiniband import InfinibandSource
from ..sources.nvlink import NvlinkSource
from ..sources.nvml import NvmlSource
from ..sources.nvml_session import NvmlSession
from .driver import GuardedDriver

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
    driver: GuardedDriver
    identify: Callable[[Survey], Node]

    def resurvey(self) -> Survey | None:
        """A new look at what is here, where a source asks for one; otherwise None. It says what the node is now."""
        if not (self.fabric.wants_probe or self.driver.wants_probe):
            return None
        self.fabric.set_gpus(_bus_ids(self.driver.probe().gpus))
        survey = name_gpus(self.sampler.probe(), self.catalog)
        return replace(survey, node=self.identify(survey))


def assemble(config: AgentConfig, environ: Mapping[str, str], instant: Instant) -> Agent:
    """Open what can be opened. Never raises for missing hardware: that is what absences are for."""
    session = NvmlSession()
    # Whatever calls NVML goes in here: it runs on the driver's own thread, with a deadline.
    gpu_sources: tuple[Source, ...] = (
        NvmlSource(session, config.max_gap_seconds),
        GpmSource(session, config.max_gap_seconds),
        NvlinkSource(session, config.max_gap_seconds),
    )
    driver = GuardedDriver(session, gpu_sources, config.interval_seconds, config.max_gap_seconds, sysfs=config.sysfs)
    driver.open(instant)
    bus_ids = _bus_ids(driver.probe().gpus)
    fabric = InfinibandSource(config.sysfs, bus_ids, config.max_gap_seconds, config.fabric_roles)
    sources: tuple[Source, ...] = (
        driver,
        fabric,
        HostSource(config.procfs, config.sysfs, config.max_gap_seconds),
    )
    sampler = Sampler(sources, config.interval_seconds, config.max_gap_seconds)
    catalog = load_catalog()
    survey = name_gpus(sampler.probe(), catalog)

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
    attribution = Attribution(config.procfs, node.boot_id, node.cluster, _user_name, node.node)
    return Agent(sampler, catalog, node, survey, attribution, fabric, driver, identify_now)


def name_gpus(survey: Survey, catalog: Catalog) -> Survey:
    """The survey with each GPU's SKU as the catalog spells it; None for one that it lacks."""
    skus = {gpu.name: catalog.gpu(gpu.name) for gpu in survey.gpus}
    named = (replace(gpu, sku=sku.name if (sku := skus[gpu.name]) else None) for gpu in survey.gpus)
    return replace(survey, gpus=tuple(named))


def _bus_ids(gpus: Sequence[Gpu]) -> list[str]:
    return [gpu.pci_bus_id for gpu in gpus if gpu.pci_bus_id]


def _user_name(uid: int) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None
