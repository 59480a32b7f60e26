"""The agent's one settings object.

Layers, each over the one before: defaults, ``/etc/skuwise/skuwise.toml``, the user's file, ``SKUWISE_*`` variables,
flags. Unknown keys are errors: a filter that nothing reads is worse than none.
"""

from __future__ import annotations

import difflib
import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_args

from ..rules.base.errors import UsageError
from ..rules.base.sanitize import QUOTED_MAX, clean, quoted
from ..rules.base.toml import read_toml
from .base.address import Address, parse_listen
from .base.durations import parse_bytes, parse_duration
from .base.page_url import PageError, split_url
from .base.retention_limits import MIN_BYTES, MIN_HOURS_SECONDS, MIN_MINUTES_SECONDS, MIN_RAW_SECONDS, Limits
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


# The name of a setting in a file, in the environment (upper case) and as a flag -> the field it fills.
_KEYS: Mapping[str, str] = {
    "db": "db",
    "interval": "interval_seconds",
    "duration": "duration_seconds",
    "burst_every": "burst_every_seconds",
    "burst_seconds": "burst_seconds",
    "node": "node",
    "cluster": "cluster",
    "node_sku": "node_sku",
    "path_sysfs": "sysfs",
    "path_procfs": "procfs",
    "fabric_roles": "fabric_roles",
    "keep_raw": "limits.raw_seconds",
    "keep_minutes": "limits.minutes_seconds",
    "keep_hours": "limits.hours_seconds",
    "max_size": "limits.max_bytes",
    "snapshot_folder": "snapshot_folder",
    "listen": "listen",
    "socket": "socket",
    "dcgm_url": "dcgm_url",
    "dcgm_interval": "dcgm_interval_seconds",
    "serving_endpoints": "serving_endpoints",
    "serving_discover": "serving_discover",
    "scrape_remote": "scrape_remote",
    "pod_resources": "pod_resources",
    "allocations": "allocations",
    "slurm_conf": "slurm_conf",
    "drained_marker": "drained_marker",
    "environ_socket": "environ_socket",
    "kubernetes_pods_file": "pods_file",
    "kubernetes_resource_slices_file": "resource_slices_file",
    "kubernetes_team_labels": "team_labels",
}
_PAGE_SETTINGS = frozenset({"dcgm_url", "serving_endpoints", "serving_discover", "scrape_remote"})
_LABEL = re.compile(r"(?:[a-z0-9.-]{1,253}/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_YES_NO = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_MAX_ENDPOINTS = 16  # one thread reads them all in turn, each for up to 3 s
AGENT_VARIABLES = {f"{ENVIRONMENT_PREFIX}{key.upper()}": key for key in _KEYS if key != "fabric_roles"}
# Read by the NVML stub of the test suite, not by the agent.
_STUB_PREFIX = "SKUWISE_NVML_"
# The table [kubernetes] is the agent's and the advisor's; its keys have this before them.
KUBERNETES = "kubernetes"
# Tables of the files, and beginnings of variables, that are the advisor's: it reads them itself.
ADVISOR_SECTIONS = frozenset({"prices", "prometheus", "report", "serve", "slurm"})
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
        table = _read_file(path, must_exist=False).get(name)
        if table is not None and not isinstance(table, dict):
            raise UsageError(f"{name} in {path} is no table.", f"Write [{name}] above its settings.")
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
    own = values.get(KUBERNETES)
    if isinstance(own, dict):
        values = {key: value for key, value in values.items() if key != KUBERNETES}
        values |= {f"{KUBERNETES}_{key}": value for key, value in own.items()}
    for key, value in values.items():
        if key in ADVISOR_SECTIONS and isinstance(value, dict):
            continue
        if key not in _KEYS:
            raise UsageError(f"Unknown setting {quoted(key)} in {origin}.", _nearest(key, _KEYS))
        name = _KEYS[key]
        if name.startswith("limits."):
            limits = changes.get("limits", config.limits)
            changes["limits"] = _limit(limits, name.removeprefix("limits."), key, value, origin)
        else:
            changes[name] = _convert(name, key, value, origin)
    return replace(config, **changes) if changes else config


def _convert(name: str, key: str, value: Any, origin: str) -> Any:  # noqa: ANN401 - files hold anything
    if name in _PAGE_SETTINGS:
        return _page_setting(name, key, value, origin)
    if name == "team_labels":
        return parse_labels(value, f"{key} in {origin}")
    if name in (
        "interval_seconds",
        "duration_seconds",
        "dcgm_interval_seconds",
        "burst_every_seconds",
        "burst_seconds",
    ):
        return _seconds(name, key, value, origin)
    if name == "listen":
        return parse_listen(clean(value)) if value not in ("", None) else None
    if name == "fabric_roles":
        if not isinstance(value, dict) or not all(role in get_args(Role) for role in value.values()):
            raise UsageError(
                f"fabric_roles in {origin} must map devices to {', '.join(get_args(Role))}.", "Mend the table."
            )
        return dict(value)
    if not isinstance(value, (str, Path)):
        raise UsageError(f"{key} in {origin} must be text, not {type(value).__name__}.", "Put it in quotes.")
    if any(unicodedata.category(character) == "Cc" for character in str(value)):
        raise UsageError(f"{key} in {origin} holds a control character.", "Remove it.")
    kind = {f.name: f.type for f in fields(AgentConfig)}[name]
    return Path(value) if kind in ("Path", "Path | None") else str(value)


def number_of(value: float) -> float:
    """A number of a file as a float: a whole one may be larger than any float is."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _shown(value: object) -> str:
    return clean(value)[:QUOTED_MAX]


def _seconds(name: str, key: str, value: Any, origin: str) -> float:  # noqa: ANN401 - files hold anything
    seconds = number_of(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    if seconds is None:
        is_off = name == "burst_every_seconds" and isinstance(value, str) and value.strip() == "0"
        seconds = 0.0 if is_off else parse_duration(clean(value))
    if name == "interval_seconds" and not MIN_INTERVAL_SECONDS <= seconds <= MAX_INTERVAL_SECONDS:
        raise UsageError(f"The interval {_shown(value)} in {origin} is outside 0.1 s to 60 s.", "Choose one inside.")
    if name == "dcgm_interval_seconds" and not 10 <= seconds <= 3600:
        raise UsageError(f"{key} = {_shown(value)} in {origin} is outside 10 s to 1 h.", "Choose one inside.")
    if name == "burst_every_seconds" and not (seconds == 0 or MIN_BURST_EVERY_SECONDS <= seconds <= 3600):
        raise UsageError(
            f"{key} = {_shown(value)} in {origin} is neither 0 nor within 10 s to 1 h.", "Choose one; 0: none."
        )
    if name == "burst_seconds" and not MIN_BURST_SECONDS <= seconds <= MAX_BURST_SECONDS:
        raise UsageError(f"{key} = {_shown(value)} in {origin} is outside 5 s to 60 s.", "Choose one inside.")
    if not math.isfinite(seconds) or (seconds <= 0 and name != "burst_every_seconds"):
        raise UsageError(f"{key} = {_shown(value)} in {origin} is not a span of time.", "Give a positive one.")
    return seconds


def _page_setting(name: str, key: str, value: Any, origin: str) -> Any:  # noqa: ANN401 - files hold anything
    if name == "serving_endpoints":
        return _urls(key, value, origin)
    if name == "dcgm_url":
        return _urls(key, value, origin)[0] if value != "" else ""
    return parse_flag(value, f"{key} in {origin}")


def parse_flag(value: object, what: str) -> bool:
    """True or false, as a file or the environment says it. `what` names the setting in the error (UsageError)."""
    chosen = value if isinstance(value, bool) else _YES_NO.get(clean(value).lower())
    if chosen is None:
        raise UsageError(f"{what} is neither true nor false.", "Choose one.")
    return chosen


def parse_labels(value: object, what: str) -> tuple[str, ...]:
    """Labels of Kubernetes, as a file (a list) or the environment (with commas) has them. `what` names the setting in
    the error (UsageError)."""
    labels = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not isinstance(labels, list) or not all(isinstance(one, str) and _LABEL.fullmatch(one) for one in labels):
        raise UsageError(f"{what} must be labels of Kubernetes.", 'Write ["team", "example.com/team"].')
    return tuple(labels)


def _urls(key: str, value: Any, origin: str) -> tuple[str, ...]:  # noqa: ANN401 - files hold anything
    urls = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not isinstance(urls, list) or not urls or not all(isinstance(url, str) for url in urls):
        raise UsageError(f"{key} in {origin} must be addresses of pages.", 'Write "http://127.0.0.1:8000/metrics".')
    if len(urls) > _MAX_ENDPOINTS:
        raise UsageError(f"{key} in {origin} names more than {_MAX_ENDPOINTS} pages.", "Name fewer.")
    for url in urls:
        try:
            split_url(url)
        except PageError as error:
            raise UsageError(f"{key} in {origin} has a wrong address: {error.message}", "Mend it.") from None
    return tuple(urls)


def _limit(limits: Limits, name: str, key: str, value: Any, origin: str) -> Limits:  # noqa: ANN401 - files hold anything
    """`limits` with one of them set: spans of time, and the size in bytes or with a unit."""
    least = {
        "raw_seconds": MIN_RAW_SECONDS,
        "minutes_seconds": MIN_MINUTES_SECONDS,
        "hours_seconds": MIN_HOURS_SECONDS,
        "max_bytes": MIN_BYTES,
    }[name]
    if name == "max_bytes":
        number: float = parse_bytes(clean(value))
        said = f"{least / 1e6:g}MB"
    else:
        number = parse_duration(clean(value))
        said = f"{least / 3600:g}h"
    if number < least:
        raise UsageError(f"{key} = {_shown(value)} in {origin} is less than {said}.", "Choose more.")
    return replace(limits, **{name: number})
