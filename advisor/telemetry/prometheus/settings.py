"""How a server is reached: the section ``[prometheus]`` of the settings files, then ``SKUWISE_PROMETHEUS_*``.

No secret stands in a setting, only the name of the file that holds it (advisor/core/credentials.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from ....agent.base.setting_values import Reader, among, seconds_value, text_value, whole_value
from ....agent.config import SYSTEM_FILE
from ....agent.settings_reader import read_section
from ....rules.base.errors import UsageError

SECTION = "prometheus"
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """`login`: the cloud whose own credentials sign requests; `aws_region`: of a workspace whose URL does not name it;
    `timeout_seconds`: for one answer to its last byte; `concurrency`: queries at once; `max_series`: of a measure;
    `cache`: folder of answers, empty: none is kept; None: the usual place; `tenant`: sent as ``X-Scope-OrgID``."""

    bearer_token_file: str = ""
    username: str = ""
    password_file: str = ""
    login: str = ""
    aws_region: str = ""
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
            self.tenant, self.username, self.bearer_token_file, self.login, self.client_cert_file,
            sorted(self.headers.items()), sorted(self.header_files.items()),
        )  # fmt: skip


def load_prometheus_settings(
    environ: Mapping[str, str], *, system_file: Path = SYSTEM_FILE, config_home: Path | None = None
) -> PrometheusSettings:
    """Every layer over the one before. Raises `UsageError` for an unknown key or a value that cannot be."""
    given = read_section(SECTION, _KEYS, environ, system_file=system_file, config_home=config_home)
    return PrometheusSettings(**given)


def _headers(value: object, what: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(
        _HEADER.fullmatch(name) and isinstance(text, str) and text.isprintable() for name, text in value.items()
    ):
        raise UsageError(f"Invalid {what}: expected a table of HTTP headers.", 'Use { "X-Name" = "value" }.')
    return value


_READERS: Mapping[str, Reader] = {
    "headers": _headers, "header_files": _headers, "login": among("aws", "google", "azure"),
    "timeout_seconds": seconds_value(1, 3600, "1 s to 1 h"),
    "concurrency": whole_value(1, 32), "max_series": whole_value(1, 10_000_000),
}  # fmt: skip
_KEYS = {
    f.name.removesuffix("_seconds"): (f.name, _READERS.get(f.name, text_value)) for f in fields(PrometheusSettings)
}
