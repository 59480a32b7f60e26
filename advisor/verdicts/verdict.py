"""From a frame to verdicts (their shapes are in `facts`)."""

from __future__ import annotations

from .facts import BareGpu, FabricFacts, NodeFacts, Verdicts

__all__ = ["BareGpu", "FabricFacts", "NodeFacts", "Verdicts"]
