"""Puts the agent together from its settings: session, sources, sampler, identity."""

from __future__ import annotations

import pwd
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ...rules.library import Catalog, load_catalog
from ..config import AgentConfig
from ..inventory.attribution import Attribution
from ..inventory.identity import identify
from ..model import Instant, Node
from ..sampler import Sampler, Survey
from ..sources.base import Source
from ..sources.gpm import GpmSource
from ..sources.host import HostSource
from ..sources.infiniband import InfinibandSource
from ..sources.nvlink import NvlinkSource
from ..sources.nvml import NvmlSource
from ..sources.nvml_session import NvmlSession

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

    def resurvey(self) -> Survey | None:
        """A new look at what is here, where a source asks for one; otherwise None."""
        return name_gpus(self.sampler.probe(), self.catalog) if self.fabric.wants_probe else None


def assemble(config: AgentConfig, environ: Mapping[str, str], instant: Instant) -> Agent:
    """Open what can be opened. Never raises for missing hardware: that is what absences are for."""
    session = NvmlSession()
    session.open(instant)
    nvml = NvmlSource(session, config.max_gap_seconds)
    bus_ids = [gpu.pci_bus_id for gpu in nvml.probe().gpus if gpu.pci_bus_id]
    fabric = InfinibandSource(config.sysfs, bus_ids, config.max_gap_seconds, config.fabric_roles)
    sources: tuple[Source, ...] = (
        nvml,
        GpmSource(session, config.max_gap_seconds),
        NvlinkSource(session, config.max_gap_seconds),
        fabric,
        HostSource(config.procfs, config.sysfs, config.max_gap_seconds),
    )
    sampler = Sampler(sources, config.interval_seconds, config.max_gap_seconds)
    catalog = load_catalog()
    survey = name_gpus(sampler.probe(), catalog)
    node = identify(
        config_node=config.node,
        config_cluster=config.cluster,
        config_sku=config.node_sku,
        sysfs=config.sysfs,
        procfs=config.procfs,
        etc=ETC,
        environ=environ,
        gpus=survey.gpus,
        ports=survey.ports,
        node_skus=tuple(catalog.nodes.values()),
    )
    attribution = Attribution(config.procfs, node.boot_id, node.cluster, _user_name, node.node)
    return Agent(sampler, catalog, node, survey, attribution, fabric)


def name_gpus(survey: Survey, catalog: Catalog) -> Survey:
    """The survey with each GPU's SKU as the catalog spells it; None for one that it lacks."""
    skus = {gpu.name: catalog.gpu(gpu.name) for gpu in survey.gpus}
    named = (replace(gpu, sku=sku.name if (sku := skus[gpu.name]) else None) for gpu in survey.gpus)
    return replace(survey, gpus=tuple(named))


def _user_name(uid: int) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None
