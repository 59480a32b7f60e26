"""Reads ``providers.yaml``: whose nodes are rented, and in which region a price is assumed where none is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..base.sanitize import quoted
from ..base.typed_fields import Fields, read_named
from .node_files import ANY_REGION


@dataclass(frozen=True, slots=True)
class Provider:
    """`rented`: False where whoever runs the nodes owns them. `reference_region`: as in the node files; None: none."""

    name: str
    rented: bool
    reference_region: str | None
    source: str
    as_of: str


def load_providers(rules_dir: Path | None = None) -> Mapping[str, Provider]:
    """Every provider by its name; a site's file replaces those it names. Raises RulesError with file and line."""
    return read_named(rules_dir, "providers.yaml", "providers", "provider", _provider)


def _provider(name: str, entry: Fields) -> Provider:
    rented, region = entry.flag_or_none("rented"), entry.text_or_none("reference_region")
    if rented is None:
        raise entry.fault(None, "'rented' is missing", "Write true or false.")
    if region == ANY_REGION:
        raise entry.fault(
            "reference_region", f"{quoted(ANY_REGION)} is no region", "Remove the key: it assumes nothing."
        )
    if region is not None and not rented:
        raise entry.fault("reference_region", "owned nodes have no list price to assume", "Remove the key.")
    return Provider(name, rented, region, entry.text("source"), entry.as_of())
