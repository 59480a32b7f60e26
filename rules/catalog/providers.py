"""Reads ``providers.yaml``: whose nodes are rented, and in which region a price is assumed where none is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..base.typed import AsOf, Text
from ..base.yaml_loader import read_named
from .node_files import ANY_REGION


@dataclass(frozen=True, slots=True)
class Provider:
    """`rented`: False where whoever runs the nodes owns them. `reference_region`: as in the node files; None: none."""

    rented: bool
    source: Text
    as_of: AsOf
    reference_region: Text | None = None

    def __post_init__(self) -> None:
        if self.reference_region == ANY_REGION:
            raise ValueError(
                f"'reference_region' is {ANY_REGION}, which is no region", "Remove it: it assumes nothing."
            )
        if self.reference_region is not None and not self.rented:
            raise ValueError("owned nodes have no list price to assume", "Remove 'reference_region'.")


def load_providers(rules_dir: Path | None = None) -> Mapping[str, Provider]:
    """Every provider by its name; a site's file replaces those it names. Raises RulesError with file and key."""
    return read_named(rules_dir, "providers.yaml", Provider)
