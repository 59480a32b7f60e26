"""How a server is reached: the section ``[prometheus]`` of the settings files, then ``SKUWISE_PROMETHEUS_*``.

No secret stands in a setting, only the name of the file that holds it. A name without a slash is a systemd credential:
a file of ``$CREDENTIALS_DIRECTORY``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ....agent.config import SYSTEM_FILE, read_sections
from ....agent.durations import parse_duration
from ....rules.errors import UsageError
from ....rules.fields import suggest

SECTION = "prometheus"
ENVIRONMENT_PREFIX = "SKUWISE_PROMETHEUS_"
MAX_SECRET_BYTES = 65536
_WHOLE = re.compile(r"[0-9]{1,9}")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """How to reach a server and how hard to press it. Files are read when the connection is made.

    `timeout_seconds`: for one answer, from the request to its last byte. `concurrency`: queries at once.
    `max_series`: a measure with more series than this is refused with their count. `cache`: folder of answers, empty:
    none is kept; None: the usual place. `tenant`: sent as ``X-Scope-OrgID``.
    """

    bearer_token_file: str = ""
    username: str = ""
    password_file: str = ""
    ca_file: str = ""
    client_cert_file: str = ""
    client_key_file: str = ""
    proxy: str = ""
    tenant: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    header_files: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: float = 120.0
    concurrency: int = 4
    max_series: int = 200_000
    cache: str | None = None

    @property
    def identity(self) -> tuple[object, ...]:
        """As whom we ask: whoever asks as another may be shown other series."""
        return (
            self.tenant, self.username, self.bearer_token_file, self.client_cert_file, sorted(self.headers.items()),
            sorted(self.header_files.items()),
        )  # fmt: skip


_KEYS = {f.name.removesuffix("_seconds"): f.name for f in fields(PrometheusSettings)}
_TABLES = ("headers", "header_files")


def load_settings(
    environ: Mapping[str, str], *, system_file: Path = SYSTEM_FILE, config_home: Path | None = None
) -> PrometheusSettings:
    """Every layer over the one before. Raises `UsageError` for an unknown key or a value that cannot be."""
    settings = PrometheusSettings()
    for origin, table in read_sections(SECTION, environ, system_file=system_file, config_home=config_home):
        settings = _apply(settings, table, origin)
    own = {
        name.removeprefix(ENVIRONMENT_PREFIX).lower(): value
        for name, value in environ.items()
        if name.startswith(ENVIRONMENT_PREFIX)
    }
    return _apply(settings, own, "the environment")


def secret(name: str, environ: Mapping[str, str]) -> str:
    """The content of a file of secrets, without the blanks around it. Raises UsageError; the content is never told."""
    path = Path(name)
    if "/" not in name:
        folder = environ.get("CREDENTIALS_DIRECTORY")
        if not folder:
            raise UsageError(
                f"{name} is a systemd credential, and no credentials are given to this process.",
                "Give a path, or set LoadCredential= in the unit.",
            )
        path = Path(folder) / name
    try:
        with path.open("rb") as file:
            content = file.read(MAX_SECRET_BYTES + 1)
        text = content.decode("utf-8").strip()
    except OSError as error:
        raise UsageError(f"The file {path} cannot be read: {error.strerror}.", "Mend the setting.") from error
    except UnicodeDecodeError:
        raise UsageError(f"The file {path} holds no text.", "Put the secret there, and nothing else.") from None
    if not text or len(content) > MAX_SECRET_BYTES or not text.isprintable():
        raise UsageError(f"The file {path} holds no secret of one line.", "Put it there, and nothing else.")
    return text


def _apply(settings: PrometheusSettings, table: Mapping[str, Any], origin: str) -> PrometheusSettings:
    changes: dict[str, Any] = {}
    for key, value in table.items():
        name = _KEYS.get(key)
        if name is None:
            raise UsageError(f"Unknown setting {key!r} of {SECTION} in {origin}.", suggest(key, list(_KEYS)) or "")
        changes[name] = _value(name, key, value, origin)
    return replace(settings, **changes)


def _value(name: str, key: str, value: Any, origin: str) -> Any:  # noqa: ANN401 - files hold anything
    what = f"{SECTION}.{key} in {origin}"
    if name in _TABLES:
        if not isinstance(value, dict) or not all(isinstance(v, str) and v.isprintable() for v in value.values()):
            raise UsageError(f"{what} is no table of texts.", 'Write { "X-Name" = "value" }.')
        for header in value:
            if not _HEADER.fullmatch(header):
                raise UsageError(f"{what} names an impossible header.", "Use letters, digits and hyphens.")
        return dict(value)
    if name == "timeout_seconds":
        seconds = float(value) if isinstance(value, (int, float)) and value is not True else parse_duration(str(value))
        if not 1 <= seconds <= 3600:
            raise UsageError(f"{what} is outside 1 s to 1 h.", "Choose one inside.")
        return seconds
    if name in ("concurrency", "max_series"):
        most = 32 if name == "concurrency" else 10_000_000
        if not _WHOLE.fullmatch(str(value)) or not 1 <= int(value) <= most:
            raise UsageError(f"{what} is no number from 1 to {most}.", "Choose one inside.")
        return int(value)
    if not isinstance(value, str) or not (value == "" or value.isprintable()):
        raise UsageError(f"{what} must be text.", "Put it in quotes.")
    return value
