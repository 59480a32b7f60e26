"""A fabric that carries nothing under a job that used it and goes on working."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..core.advice_types import Evidence
from ..core.coded_text import coded
from ..core.incident_types import Sighting
from ..core.timestamps import minute, span
from .scene import MINUTE, Scene
from .timeline import joined
from .words import gpus_of, who

_USED_SPANS_MIN = 10
_USUAL = 0.5


def fabric_silent(scene: Scene) -> Iterator[Sighting]:
    """Jobs on several nodes whose fabric fell silent while their GPUs work."""
    line, holds, rules = scene.line, scene.holds, scene.rules
    newest = line.since(line.end - rules.fabric_minutes * MINUTE)
    up = joined(scene.recent.node, "fabric_up", len(scene.recent.nodes), line)
    place = {node.node: n for n, node in enumerate(scene.recent.nodes)}
    for n, hold in enumerate(scene.recent.holds):
        nodes = sorted({scene.recent.gpus[gpu].node for gpu in hold.gpus})
        if len(nodes) < 2 or hold.holder not in ("job", "process") or not scene.is_fresh(hold):
            continue
        share, progress = holds.fabric[n], holds.progress[n]
        with np.errstate(invalid="ignore"):
            quiet = share <= rules.fabric_silent_max
            used = progress & ~quiet & np.isfinite(share)
        at = np.flatnonzero(used)
        if len(at) < _USED_SPANS_MIN or not (quiet & progress)[newest].all():
            continue
        usual = float(np.quantile(share[at], _USUAL))
        if usual < rules.fabric_used_min:
            continue
        since = float(line.ends[at[-1]])
        own = up[[place[node] for node in nodes if node in place]][:, newest]
        known = own[np.isfinite(own)]
        down = bool(len(known)) and float(known.min()) < 1.0
        subject = scene.of_hold(hold)
        code = "port-down" if down else "fabric-silent"
        cause = " A port of its nodes is not active." if down else ""
        yield scene.sighting(
            "fabric-silent", subject, code=code, severity="high", since=since, last_work=line.end,
            wasted_seconds=0.0, gpus=hold.gpus,
            evidence=(
                Evidence("fabric", float(np.nanmean(share[newest])), rules.fabric_silent_max, "ratio of line rate"),
                Evidence("fabric_usual", usual, None, "ratio of line rate"),
                *((Evidence("ports_active", float(known.min()), 1.0, "ratio"),) if len(known) else ()),
            ),
            text=coded(
                f"watch-{code}",
                "The fabric under {who} on {gpus} has carried nothing for {lasted}, since {since}; it usually carries "
                "{usual:.0%} of line rate. The GPUs still work.{cause}",
                who=who(subject), gpus=gpus_of(subject), lasted=span(line.end - since), since=minute(since),
                usual=usual, cause=cause,
            ),
            do_next=coded(
                "fabric-check",
                "Check the ports (ibstat) and NCCL's log: it may have fallen back to TCP, or the ranks work apart.",
            ),
        )  # fmt: skip
