"""The agent's one settings object.

Layers, each over the one before: defaults, ``/etc/skuwise/skuwise.toml``, the user's file, ``SKUWISE_*`` variables,
flags. Unknown keys are errors: a filter that nothing reads is worse than none.
"""

from __future__ import annotations

import difflib
import math
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from ..rules.base.errors import UsageError
from ..rules.base.sanitize import QUOTED_MAX, clean, quoted
from ..rules.base.toml import line_of, read_toml
from .base.address import Address, parse_listen
from .base.durations import parse_bytes, parse_duration
from .base.page_url import PageError, split_url
from .base.retention_limits import MIN_BYTES, MIN_HOURS_SECONDS, MIN_MINUTES_SECONDS, MIN_RAW_SECONDS, Limits
from .base.setting_values import Reader, items_of, parse_flag, parse_labels, read_value, seconds_value, span_seconds
from .model import Role

SYSTEM_FILE = Path("/etc/skuwise/skuwise.toml")
USER_FILE = Path("skuwise/skuwise.toml")
SYSTEM_DATABASE = Path("/var/lib/skuwise/skuwise.db")
SYSTEM_SOCKET = Path("/run/skuwise/agent.sock")
MIN_BURST_EVERY_SECONDS = 10.0
# Under 5 s a burst has too few readings to tell a period from noise.
MIN_BURST_SECONDS, MAX_BURST_SECONDS = 5.0, 60.0
MIN_INTERVAL_SECONDS, MAX_INTERVAL_SECONDS = 0.1, 60.0
ENVIRONMENT_PREFIX = "SKUWISE_"
# kube-state-metrics exports a label that a site lists, and nothing but a team is called so.
DEFAULT_TEAM_LABELS = ("team",)


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Everything the agent can be told. `interval` is in seconds, 0.1 to 60."""

    db: Path = SYSTEM_DATABASE
    interval_seconds: float = 1.0
    duration_seconds: float | None = None
    node: str = ""
    cluster: str = ""
    node_sku: str = ""
    sysfs: Path = Path("/sys")
    procfs: Path = Path("/proc")
    fabric_roles: Mapping[str, Role] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    snapshot_folder: Path | None = None
    listen: Address | None = None
    pod_resources: Path = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    # Where Slurm's prolog and epilog leave their files: root's own, apart from what systemd gives the agent.
    allocations: Path = Path("/run/skuwise-slurm")
    # The folder of slurm.conf, gres.conf and cgroup.conf; None: where slurmd usually has it.
    slurm_conf: Path | None = None
    drained_marker: Path = Path("/run/skuwise/drained")
    environ_socket: Path = Path("/run/skuwise-environ/environ.sock")

    # [kubernetes]: what kubectl get ... -o json wrote of pods and of ResourceSlices (None: nothing), and the labels of
    # pods and namespaces that name a team, the best first.
    pods_file: Path | None = None
    resource_slices_file: Path | None = None
    team_labels: tuple[str, ...] = DEFAULT_TEAM_LABELS

    # Bursts of readings at 10 Hz: one in each `burst_every_seconds` (0: none), for `burst_seconds`.
    burst_every_seconds: float = 300.0
    burst_seconds: float = 10.0

    socket: Path | None = None

    @property
    def control_socket(self) -> Path:
        """Where `pause`, `resume` and `status` reach the agent: beside the database, but for the system's own."""
        if self.socket is not None:
            return self.socket
        return SYSTEM_SOCKET if self.db == SYSTEM_DATABASE else self.db.with_name(f"{self.db.name}.sock")

    # dcgm-exporter's page (empty: never read) and the interval at which it makes new values, at least 10 s.
    dcgm_url: str = "http://127.0.0.1:9400/metrics"
    dcgm_interval_seconds: float = 30.0
    # The metrics pages of inference servers; whether well-known local ports are looked at too.
    serving_endpoints: tuple[str, ...] = ()
    serving_discover: bool = False
    # Whether pages beyond loopback may be read.
    scrape_remote: bool = False

    @property
    def max_gap_seconds(self) -> float:
        """A counter's delta over more than this is a gap: ten ticks, and at least ten seconds."""
        return max(10.0, 10 * self.interval_seconds)


_MAX_ENDPOINTS = 16  # one thread reads them all in turn, each for up to 3 s


def _text(value: object, what: str) -> str:
    if not isinstance(value, (str, Path)):
        raise UsageError(f"{what} must be text, not {type(value).__name__}.", "Put it in quotes.")
    if any(unicodedata.category(character) == "Cc" for character in str(value)):
        raise UsageError(f"{what} holds a control character.", "Remove it.")
    return str(value)


def _path(value: object, what: str) -> Path:
    return Path(_text(value, what))


def _address(value: object, _what: str) -> Address | None:
    return parse_listen(clean(value)) if value not in ("", None) else None


def _roles(value: object, what: str) -> Mapping[str, Role]:
    if not isinstance(value, dict) or not all(role in get_args(Role) for role in value.values()):
        raise UsageError(f"{what} must map devices to {', '.join(get_args(Role))}.", "Fix the table.")
    return dict(value)


def _duration(value: object, what: str) -> float:
    span = span_seconds(value)
    if not 0 < span < math.inf:
        raise UsageError(f"{what} is not a span of time.", "Give a positive one.")
    return span


def _burst_every(value: object, what: str) -> float:
    span = 0.0 if isinstance(value, str) and value.strip() == "0" else span_seconds(value)
    if not (span == 0 or MIN_BURST_EVERY_SECONDS <= span <= 3600):
        raise UsageError(f"{what} is neither 0 nor within 10 s to 1 h.", "Choose one; 0: none.")
    return span


def _urls(value: object, what: str) -> tuple[str, ...]:
    urls = items_of(value)
    if not isinstance(urls, list) or not urls or not all(isinstance(url, str) for url in urls):
        raise UsageError(f"{what} must be addresses of pages.", 'Write "http://127.0.0.1:8000/metrics".')
    if len(urls) > _MAX_ENDPOINTS:
        raise UsageError(f"{what} names more than {_MAX_ENDPOINTS} pages.", "Name fewer.")
    for url in urls:
        try:
            split_url(url)
        except PageError as error:
            raise UsageError(f"{what} has a wrong address: {error.message}", "Fix it.") from None
    return tuple(urls)


def _at_least(least: float) -> Reader:
    """A reader of how long something is kept."""

    def read(value: object, what: str) -> float:
        span = parse_duration(clean(value))
        if span < least:
            raise UsageError(f"{what} is less than {least / 3600:g}h.", "Choose more.")
        return span

    return read


def _size(value: object, what: str) -> int:
    size = parse_bytes(clean(value))
    if size < MIN_BYTES:
        raise UsageError(f"{what} is less than {MIN_BYTES / 1e6:g}MB.", "Choose more.")
    return size


# The name of a setting in a file, in the environment (upper case) and as a flag -> the field it fills, what reads it.
_KEYS: Mapping[str, tuple[str, Reader]] = {
    "db": ("db", _path),
    "interval": ("interval_seconds", seconds_value(MIN_INTERVAL_SECONDS, MAX_INTERVAL_SECONDS, "0.1 s to 60 s")),
    "duration": ("duration_seconds", _duration),
    "burst_every": ("burst_every_seconds", _burst_every),
    "burst_seconds": ("burst_seconds", seconds_value(MIN_BURST_SECONDS, MAX_BURST_SECONDS, "5 s to 60 s")),
    "node": ("node", _text),
    "cluster": ("cluster", _text),
    "node_sku": ("node_sku", _text),
    "path_sysfs": ("sysfs", _path),
    "path_procfs": ("procfs", _path),
    "fabric_roles": ("fabric_roles", _roles),
    "keep_raw": ("limits.raw_seconds", _at_least(MIN_RAW_SECONDS)),
    "keep_minutes": ("limits.minutes_seconds", _at_least(MIN_MINUTES_SECONDS)),
    "keep_hours": ("limits.hours_seconds", _at_least(MIN_HOURS_SECONDS)),
    "max_size": ("limits.max_bytes", _size),
    "snapshot_folder": ("snapshot_folder", _path),
    "listen": ("listen", _address),
    "socket": ("socket", _path),
    "dcgm_url": ("dcgm_url", lambda value, what: _urls(value, what)[0] if value != "" else ""),
    "dcgm_interval": ("dcgm_interval_seconds", seconds_value(10, 3600, "10 s to 1 h")),
    "serving_endpoints": ("serving_endpoints", _urls),
    "serving_discover": ("serving_discover", parse_flag),
    "scrape_remote": ("scrape_remote", parse_flag),
    "pod_resources": ("pod_resources", _path),
    "allocations": ("allocations", _path),
    "slurm_conf": ("slurm_conf", _path),
    "drained_marker": ("drained_marker", _path),
    "environ_socket": ("environ_socket", _path),
    "kubernetes_pods_file": ("pods_file", _path),
    "kubernetes_resource_slices_file": ("resource_slices_file", _path),
    "kubernetes_team_labels": ("team_labels", parse_labels),
}
AGENT_VARIABLES = {f"{ENVIRONMENT_PREFIX}{key.upper()}": key for key in _KEYS if key != "fabric_roles"}
# Read by the NVML stub of the test suite, not by the agent.
_STUB_PREFIX = "SKUWISE_NVML_"
# The table [kubernetes] is the agent's and the advisor's; its keys have this before them.
KUBERNETES = "kubernetes"
# Tables of the files, and beginnings of variables, that are the advisor's: it reads them itself.
ADVISOR_SECTIONS = frozenset({"energy", "prices", "prometheus", "report", "serve", "slurm", "watch"})
_ADVISOR_PREFIXES = tuple(f"{ENVIRONMENT_PREFIX}{name.upper()}_" for name in ADVISOR_SECTIONS)


def load_config(
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    *,
    system_file: Path = SYSTEM_FILE,
    config_home: Path | None = None,
) -> AgentConfig:
    """Read every layer. `flags` holds only what was given; ``flags["config"]`` names a file that replaces both files.

    Raises `UsageError` for an unknown key, a value of the wrong type or out of range, or a named file that is missing.
    """
    config = AgentConfig()
    chosen = flags.get("config")
    if chosen is not None:
        config = _apply(config, _read_file(Path(chosen), must_exist=True), str(chosen))
    else:
        user_file = (config_home or _config_home(environ)) / USER_FILE
        for path in (system_file, user_file):
            config = _apply(config, _read_file(path, must_exist=False), str(path))
    config = _apply(config, _from_environment(environ), "the environment")
    config = _apply(config, {k: v for k, v in flags.items() if k != "config" and v is not None}, "the command line")
    if 0 < config.burst_every_seconds < 2 * config.burst_seconds:
        raise UsageError(
            f"A burst of {config.burst_seconds:g} s every {config.burst_every_seconds:g} s is on for most of the time.",
            "Set burst_every to at least twice burst_seconds.",
        )
    return config


def read_sections(
    name: str, environ: Mapping[str, str], *, system_file: Path = SYSTEM_FILE, config_home: Path | None = None
) -> list[tuple[str, Mapping[str, Any]]]:
    """The table `name` of each settings file that has it, and which file that is; the later goes over the earlier.

    Raises `UsageError` where a file cannot be read or has something else under this name.
    """
    found: list[tuple[str, Mapping[str, Any]]] = []
    for path in (system_file, (config_home or _config_home(environ)) / USER_FILE):
        whole = _read_file(path, must_exist=False)
        table = whole.get(name)
        if table is not None and not isinstance(table, dict):
            raise UsageError(
                f"{name} in {path}{line_of(whole, name)} is no table.", f"Write [{name}] above its settings."
            )
        if table is not None:
            found.append((str(path), table))
    return found


def _config_home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME", "/nonexistent")) / ".config")


def _read_file(path: Path, *, must_exist: bool) -> Mapping[str, Any]:
    try:
        return read_toml(path, f"The configuration file {path}")
    except FileNotFoundError:
        if must_exist:
            raise UsageError(f"The configuration file {path} does not exist.", "Name one that does.") from None
        return {}


def _from_environment(environ: Mapping[str, str]) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for name, value in environ.items():
        if not name.startswith(ENVIRONMENT_PREFIX) or name.startswith(_STUB_PREFIX):
            continue
        if name not in AGENT_VARIABLES and name.startswith(_ADVISOR_PREFIXES):
            continue
        if name not in AGENT_VARIABLES:
            near = _nearest(name, AGENT_VARIABLES)
            raise UsageError(f"The environment sets {clean(name)[:QUOTED_MAX]}, which skuwise does not know.", near)
        found[AGENT_VARIABLES[name]] = value
    return found


def _nearest(word: str, known: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(word[:QUOTED_MAX], known, n=1)
    return f"Did you mean {near[0]}?" if near else f"Known are: {', '.join(sorted(known))}."


def _apply(config: AgentConfig, values: Mapping[str, Any], origin: str) -> AgentConfig:
    changes: dict[str, Any] = {}
    for key, table, own in _flat(values):
        if key in ADVISOR_SECTIONS and isinstance(table[own], dict):
            continue
        if key not in _KEYS:
            raise UsageError(f"Unknown setting {quoted(key)} in {origin}{line_of(table, own)}.", _nearest(key, _KEYS))
        name, read = _KEYS[key]
        chosen = read_value(read, table, own, f"{key} in {origin}")
        limit = name.removeprefix("limits.")
        if limit == name:
            changes[name] = chosen
        else:
            changes["limits"] = replace(changes.get("limits", config.limits), **{limit: chosen})
    return replace(config, **changes) if changes else config


def _flat(values: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Each setting's name, and the table and the key that hold it; those of [kubernetes] by their names here."""
    for key, value in values.items():
        if key == KUBERNETES and isinstance(value, dict):
            yield from ((f"{KUBERNETES}_{own}", value, own) for own in value)
        else:
            yield key, values, key
