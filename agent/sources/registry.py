"""The agent's sources of metrics beside the driver's, and what is missed of them where the settings do not ask."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..config import AgentConfig
from ..model import Capability, Gpu
from .base import Fault, Source, UnreadGpu
from .dcgm import DcgmSource
from .ethernet import EthernetSource
from .host import HostSource
from .infiniband import InfinibandSource
from .pages import Locate, PageReader
from .serving import ServingSource


def build_sources(
    config: AgentConfig,
    gpus: Callable[[], Sequence[Gpu]],
    unread_gpus: Callable[[], Sequence[UnreadGpu]],
    listeners: Locate,
) -> list[Source]:
    """The best first: of two sources of the same metric of a device, the earlier counts.

    `gpus`: those that the driver knows now; `unread_gpus`: those whose activity the driver does not report;
    `listeners`: the PIDs that listen on a port (slow).
    """
    gap, roles, pages = config.max_gap_seconds, config.fabric_roles, PageReader(remote=config.scrape_remote)
    sources: list[Source] = [
        InfinibandSource(config.sysfs, gpus, gap, roles),
        EthernetSource(config.sysfs, config.procfs, gap, roles),
        HostSource(config.procfs, config.sysfs, gap),
        ServingSource(pages, config.serving_endpoints, config.serving_discover, listeners),
    ]
    if config.dcgm_url:
        sources.append(DcgmSource(unread_gpus, pages, config.dcgm_url, config.dcgm_interval_seconds))
    return sources


def not_asked(config: AgentConfig, gpus: Sequence[Gpu], lines: Sequence[Capability]) -> dict[str, Fault]:
    """What is missed because a source is switched off, by its name. `gpus` and `lines`: what was found here."""
    missed: dict[str, Fault] = {}
    if not config.dcgm_url and any(line.absence is not None and line.absence.reason == "no-gpm" for line in lines):
        detail = "dcgm_url is empty, so dcgm-exporter's page is not read, which may report what GPM does not."
        missed["dcgm"] = Fault("not-configured", detail, "Set dcgm_url to the page's address.")
    if gpus and not config.serving_endpoints:
        detail = "No inference server's metrics page was found, so the use of KV caches, queues and tokens is unknown."
        missed["serving"] = Fault("not-configured", detail, "Name it in serving_endpoints, or set serving_discover.")
    return missed
