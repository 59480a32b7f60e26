"""How a server is reached: the section ``[prometheus]`` of the settings files, then ``SKUWISE_PROMETHEUS_*``.

A setting never contains a secret, only the name of its file (advisor/core.http_session.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from ....agent.config import SYSTEM_FILE, load_section
from ....rules.base.errors import UsageError

SECTION = "prometheus"
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}", re.ASCII)


def _headers(value: object, what: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(
        _HEADER.fullmatch(name) and isinstance(text, str) and text.isprintable() for name, text in value.items()
    ):
        raise UsageError(f"Invalid {what}: expected a table of HTTP headers.", 'Use { "X-Name" = "value" }.')
    return value


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """`login`: the cloud whose own credentials sign requests; `aws_region`: of a workspace whose URL does not name it;
    `timeout_seconds`: for one answer to its last byte; `concurrency`: queries at once; `max_series`: of a measure;
    `cache`: folder of answers, empty: none is kept; None: the usual place; `tenant`: sent as ``X-Scope-OrgID``."""

    bearer_token_file: str = ""
    username: str = ""
    password_file: str = ""
    login: Literal["aws", "google", "azure", ""] = ""
    aws_region: str = ""
    ca_file: str = ""
    client_cert_file: str = ""
    client_key_file: str = ""
    proxy: str = ""
    tenant: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, metadata={"parse": _headers})
    header_files: Mapping[str, str] = field(default_factory=dict, metadata={"parse": _headers})
    timeout_seconds: Annotated[float, Meta(ge=1, le=3600)] = 120.0
    concurrency: Annotated[int, Meta(ge=1, le=32)] = 4
    max_series: Annotated[int, Meta(ge=1, le=10_000_000)] = 200_000
    cache: str | None = None

    @property
    def identity(self) -> tuple[object, ...]:
        """The identity of the requests: another one may get other series."""
        return (
            self.tenant, self.username, self.bearer_token_file, self.login, self.client_cert_file,
            sorted(self.headers.items()), sorted(self.header_files.items()),
        )  # fmt: skip


def load_prometheus_settings(
    environ: Mapping[str, str], *, system_file: Path = SYSTEM_FILE, config_home: Path | None = None
) -> PrometheusSettings:
    """Every layer over the one before. Raises `UsageError` for an unknown key or a value that cannot be."""
    return load_section(PrometheusSettings, SECTION, environ, system_file=system_file, config_home=config_home)
