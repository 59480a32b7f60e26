"""The agent's settings.

Layers, each over the one before: defaults, ``/etc/skuwise/skuwise.toml``, the user's file, ``SKUWISE_*`` variables,
flags. Unknown keys are errors: a filter that nothing reads is worse than none.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar
from zoneinfo import ZoneInfo

from msgspec import Meta

from ..rules.base.errors import UsageError
from ..rules.base.files import read_toml
from ..rules.base.sanitize import QUOTED_MAX, clean, suggest
from .base.settings import Address, Layer, PageError, keys_of, read_layers, split_url
from .model import MIN_BYTES, MIN_HOURS_SECONDS, MIN_MINUTES_SECONDS, MIN_RAW_SECONDS, Limits, Role

SYSTEM_FILE = Path("/etc/skuwise/skuwise.toml")
USER_FILE = Path("skuwise/skuwise.toml")
SYSTEM_DATABASE = Path("/var/lib/skuwise/skuwise.db")
SYSTEM_SOCKET = Path("/run/skuwise/agent.sock")
ENVIRONMENT_PREFIX = "SKUWISE_"
# kube-state-metrics exports a label that a site lists, and nothing but a team is called so.
DEFAULT_TEAM_LABELS = ("team",)
_LABEL = r"^(?:[a-z0-9.-]{1,253}/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$"
Environ = Mapping[str, str]
_T = TypeVar("_T")
_LIMITS = Limits()
_LONGEST, _DAY = 3.2e9, 86400.0  # seconds: a hundred years


def _pages(value: Any, what: str) -> tuple[str, ...]:  # noqa: ANN401 - a TOML value
    if not isinstance(value, (list, tuple)) or not value or not all(isinstance(url, str) for url in value):
        raise UsageError(f"{what} must be addresses of pages.", 'Write ["http://127.0.0.1:8000/metrics"].')
    for url in value:
        try:
            split_url(url)
        except PageError as error:
            raise UsageError(f"{what} has a wrong address: {error.message}", "Fix it.") from None
    return tuple(value)


def _page(value: object, what: str) -> str:
    return _pages([value], what)[0] if value != "" else ""


@dataclass(frozen=True, slots=True)
class AgentConfig:
    db: Path = SYSTEM_DATABASE
    interval_seconds: Annotated[float, Meta(ge=0.1, le=60)] = 1.0
    duration_seconds: Annotated[float, Meta(gt=0, le=_LONGEST)] | None = None
    node: str = ""
    cluster: str = ""
    node_sku: str = ""
    sysfs: Path = field(default=Path("/sys"), metadata={"key": "path_sysfs"})
    procfs: Path = field(default=Path("/proc"), metadata={"key": "path_procfs"})
    fabric_roles: Mapping[str, Role] = field(default_factory=dict)
    keep_raw_seconds: Annotated[float, Meta(ge=MIN_RAW_SECONDS, le=_LONGEST)] = _LIMITS.raw_seconds
    keep_minutes_seconds: Annotated[float, Meta(ge=MIN_MINUTES_SECONDS, le=_LONGEST)] = _LIMITS.minutes_seconds
    keep_hours_seconds: Annotated[float, Meta(ge=MIN_HOURS_SECONDS, le=_LONGEST)] = _LIMITS.hours_seconds
    max_size_bytes: Annotated[int, Meta(ge=MIN_BYTES, le=10**15)] = _LIMITS.max_bytes
    snapshot_folder: Path | None = None
    # Where the metrics page is served; None: nowhere.
    listen: Address | None = None
    socket: Path | None = None

    # What the scheduler leaves for us: Slurm's prolog and epilog (root's own folder, apart from what systemd gives the
    # agent), slurm.conf (None: where slurmd usually has it), who marks the node as out of service.
    allocations: Path = Path("/run/skuwise-slurm")
    slurm_conf: Path | None = None
    drained_marker: Path = Path("/run/skuwise/drained")
    environ_socket: Path = Path("/run/skuwise-environ/environ.sock")
    pod_resources: Path = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    # [kubernetes]: what kubectl get ... -o json wrote of pods and of ResourceSlices (None: nothing), and the labels of
    # pods and namespaces that name a team, the best first.
    pods_file: Path | None = field(default=None, metadata={"key": "kubernetes_pods_file"})
    resource_slices_file: Path | None = field(default=None, metadata={"key": "kubernetes_resource_slices_file"})
    team_labels: tuple[Annotated[str, Meta(pattern=_LABEL)], ...] = field(
        default=DEFAULT_TEAM_LABELS, metadata={"key": "kubernetes_team_labels"}
    )

    # Bursts of readings at 10 Hz: one in each `burst_every_seconds` (0: none), for `burst_seconds`. Under 5 s a burst
    # has too few readings to distinguish a period from noise.
    burst_every_seconds: Annotated[float, Meta(ge=0, le=3600)] = 300.0
    burst_seconds: Annotated[float, Meta(ge=5, le=60)] = field(default=10.0, metadata={"key": "burst_seconds"})

    # dcgm-exporter's page (empty: never read) and the interval at which it makes new values.
    dcgm_url: str = field(default="http://127.0.0.1:9400/metrics", metadata={"parse": _page})
    dcgm_interval_seconds: Annotated[float, Meta(ge=10, le=3600)] = 30.0
    # The metrics pages of inference servers; whether well-known local ports are checked too; whether pages beyond
    # loopback may be read.
    serving_endpoints: tuple[str, ...] = field(default=(), metadata={"parse": _pages})
    serving_discover: bool = False
    scrape_remote: bool = False

    @property
    def limits(self) -> Limits:
        """How long what is kept, and how large the database may grow."""
        return Limits(self.keep_raw_seconds, self.keep_minutes_seconds, self.keep_hours_seconds, self.max_size_bytes)

    @property
    def control_socket(self) -> Path:
        """Where `pause`, `resume` and `status` reach the agent: beside the database, but for the system's own."""
        if self.socket is not None:
            return self.socket
        return SYSTEM_SOCKET if self.db == SYSTEM_DATABASE else self.db.with_name(f"{self.db.name}.sock")

    @property
    def max_gap_seconds(self) -> float:
        """A counter's delta over more than this is a gap: ten ticks, and at least ten seconds."""
        return max(10.0, 10 * self.interval_seconds)


AGENT_VARIABLES = {f"{ENVIRONMENT_PREFIX}{key.upper()}": key for key in keys_of(AgentConfig)}
# Tables of the files, and beginnings of variables, that are the advisor's.
ADVISOR_SECTIONS = frozenset({"cards", "energy", "prices", "prometheus", "report", "serve", "slurm", "state", "watch"})
# SKUWISE_PLAIN is for output, SKUWISE_NVML_* for the NVML stub of the test suite.
_OTHERS = (
    f"{ENVIRONMENT_PREFIX}PLAIN",
    *(f"{ENVIRONMENT_PREFIX}{name.upper()}_" for name in (*ADVISOR_SECTIONS, "nvml")),
)
# This table is the agent's and the advisor's; its keys have its name before them.
_KUBERNETES = "kubernetes"


def load_config(
    flags: Mapping[str, Any], environ: Environ, *, system_file: Path = SYSTEM_FILE, config_home: Path | None = None
) -> AgentConfig:
    """Read every layer. `flags` holds only what was given; ``flags["config"]`` names a file that replaces both files.
    Raises `UsageError` for an unknown key, a wrong value, or a named file that is missing."""
    given = {key: value for key, value in flags.items() if key != "config" and value is not None}
    layers: list[Layer] = []
    for origin, whole in _files(environ, system_file, config_home, flags.get("config")):
        settings = copy(whole)  # it still knows the lines
        shared = settings.pop(_KUBERNETES, {}) if isinstance(settings.get(_KUBERNETES, {}), dict) else {}
        for section in [name for name in settings if name in ADVISOR_SECTIONS and isinstance(settings[name], dict)]:
            del settings[section]
        layers += [(origin, settings), (origin, {f"{_KUBERNETES}_{key}": value for key, value in shared.items()})]
    layers += [("the environment", _variables(environ)), ("the command line", given)]
    config = read_layers(AgentConfig, layers)
    if 0 < config.burst_every_seconds < 2 * config.burst_seconds:
        raise UsageError(
            f"A burst of {config.burst_seconds:g} s every {config.burst_every_seconds:g} s is on for most of the time.",
            "Set burst_every to 0 (none), or to at least twice burst_seconds.",
        )
    return config


def load_section(
    kind: type[_T], section: str, environ: Environ, *, system_file: Path = SYSTEM_FILE, config_home: Path | None = None
) -> _T:
    """The table ``[section]`` of the settings files, then ``SKUWISE_SECTION_*``, as the dataclass `kind`. Raises
    `UsageError` for an unknown key or a value that cannot be."""
    prefix = f"{ENVIRONMENT_PREFIX}{section.upper()}_"
    named_so = {name: name.removeprefix(prefix).lower() for name in environ if name.startswith(prefix)}
    # SKUWISE_SLURM_CONF is the agent's own setting slurm_conf, not a key of the section [slurm].
    variables = {
        key: environ[name] for name, key in named_so.items() if key in keys_of(kind) or name not in AGENT_VARIABLES
    }
    layers: list[Layer] = []
    for origin, whole in _files(environ, system_file, config_home):
        table = whole.get(section)
        if table is not None and not isinstance(table, dict):
            raise UsageError(f"{section} in {origin} is no table.", f"Write [{section}] above it.")
        layers += [(origin, table)] if table is not None else []
    return read_layers(kind, [*layers, ("the environment", variables)], prefix=f"{section}.")


@dataclass(frozen=True, slots=True)
class SlurmImportSettings:
    """``[slurm]``. `jobs`: the job table of advice, where --jobs names none; `queue`: what ``squeue --json`` wrote,
    where --queue names none, brought up to date by each import. `sacct`, `squeue`: the programs. `slurmrestd`: its
    address (http on loopback, https, or ``unix:/PATH``), asked instead; `slurmrestd_token_file` holds the JWT,
    `slurmrestd_user` is sent with it; `slurmrestd_version`: of its data, None: found out. `cluster`: Slurm's name of
    this cluster, where the agent's is another. `time_zone`: where sacct wrote a file (None: this machine's).
    `scheduled`: whether ``skuwise serve`` brings `jobs` up to date every `every_seconds`; what ended longer ago than
    `keep_seconds` leaves it."""

    jobs: Path | None = None
    queue: Path | None = None
    sacct: str = "sacct"
    squeue: str = "squeue"
    slurmrestd: str = ""
    slurmrestd_token_file: Path | None = None
    slurmrestd_user: str = ""
    slurmrestd_version: Annotated[str, Meta(pattern=r"^v0\.0\.\d{1,3}$")] | None = None
    cluster: str | None = None
    time_zone: ZoneInfo | None = None
    scheduled: bool = False
    every_seconds: Annotated[float, Meta(ge=60, le=_DAY)] = 600.0
    keep_seconds: Annotated[float, Meta(ge=_DAY, le=730 * _DAY)] = 90 * _DAY


def _files(
    environ: Environ, system_file: Path, config_home: Path | None, chosen: Path | str | None = None
) -> list[tuple[str, dict[str, Any]]]:
    home = config_home or Path(environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME", "/nonexistent")) / ".config")
    tables: list[tuple[str, dict[str, Any]]] = []
    for path in (system_file, home / USER_FILE) if chosen is None else (Path(chosen),):
        try:
            tables.append((str(path), read_toml(path, f"The configuration file {path}")))
        except FileNotFoundError:
            if chosen is not None:
                raise UsageError(f"The configuration file {path} does not exist.", "Name one that does.") from None
    return tables


def _variables(environ: Environ) -> Mapping[str, Any]:
    merged: dict[str, Any] = {}
    for name, value in environ.items():
        if name in AGENT_VARIABLES:
            merged[AGENT_VARIABLES[name]] = value
        elif name.startswith(ENVIRONMENT_PREFIX) and not name.startswith(_OTHERS):
            near = suggest(name[:QUOTED_MAX], AGENT_VARIABLES) or f"Known are: {', '.join(sorted(AGENT_VARIABLES))}."
            raise UsageError(f"The environment sets {clean(name)[:QUOTED_MAX]}, which skuwise does not know.", near)
    return merged
