"""Which labels of pods and namespaces name a team: ``team_labels`` in ``[kubernetes]`` of the settings files.

The table is the agent's too: what it alone reads is left to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...agent.base.setting_values import parse_labels, path_value
from ...agent.config import DEFAULT_TEAM_LABELS, KUBERNETES, SYSTEM_FILE
from ...agent.settings_reader import read_section

_KEYS = {
    "team_labels": ("team_labels", parse_labels),
    "pods_file": ("pods_file", path_value),
    "resource_slices_file": ("resource_slices_file", path_value),
}


def load_team_labels(
    environ: Mapping[str, str], *, system_file: Path = SYSTEM_FILE, config_home: Path | None = None
) -> tuple[str, ...]:
    """The labels, the best first. Raises `UsageError` for an unknown key or a value that cannot be."""
    given = read_section(KUBERNETES, _KEYS, environ, system_file=system_file, config_home=config_home)
    return given.get("team_labels", DEFAULT_TEAM_LABELS)
