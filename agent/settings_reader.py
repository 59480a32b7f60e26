"""A section of the settings files (``[report]``), then its variables (``SKUWISE_REPORT_*``): each layer over the one
before. Every key has a reader, which says what its value may be; unknown keys are errors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..rules.base.errors import UsageError
from ..rules.base.sanitize import quoted
from ..rules.base.suggestions import suggest
from ..rules.base.toml import line_of
from .base.setting_values import Reader, read_value
from .config import AGENT_VARIABLES, ENVIRONMENT_PREFIX, SYSTEM_FILE, read_sections


def read_section(
    section: str,
    keys: Mapping[str, tuple[str, Reader]],
    environ: Mapping[str, str],
    *,
    system_file: Path = SYSTEM_FILE,
    config_home: Path | None = None,
) -> dict[str, Any]:
    """The fields that some layer gives. `keys`: name in the file -> (field, reader).

    Raises `UsageError` for an unknown key or a value that cannot be.
    """
    layers = read_sections(section, environ, system_file=system_file, config_home=config_home)
    prefix = f"{ENVIRONMENT_PREFIX}{section.upper()}_"
    named = {name: name.removeprefix(prefix).lower() for name in environ if name.startswith(prefix)}
    # SKUWISE_SLURM_CONF is the agent's own setting slurm_conf, not a key of the section [slurm].
    own = {key: environ[name] for name, key in named.items() if key in keys or name not in AGENT_VARIABLES}
    found: dict[str, Any] = {}
    for origin, table in (*layers, ("the environment", own)):
        for key in table:
            if key not in keys:
                remedy = suggest(key, keys) or f"Known are {', '.join(sorted(keys))}."
                raise UsageError(
                    f"Unknown setting {quoted(key)} of {section} in {origin}{line_of(table, key)}.", remedy
                )
            field, read = keys[key]
            found[field] = read_value(read, table, key, f"{section}.{key} in {origin}")
    return found
