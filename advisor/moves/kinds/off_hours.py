"""Nodes switched off in the hours of the day in which nobody ever uses them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ...core.advice_types import Recommendation, Risk, Yardstick
from ...core.coded_text import coded
from ...core.ids import stable_id
from ...verdicts.types import Verdicts
from ..base.prediction import percentiles
from ..base.pricing import realisation
from ..base.workload_groups import AVAILABLE, HOURS_PER_MONTH
from ..context.evidence import REST
from ..context.finding_context import called
from ..context.move_context import DRAWS, Baseline, Option, Scene, saving_sentence

# The highest engine activity of an hour up to which nobody used it: monitors and health checks stay below.
OFF_ENGINE_MAX = 0.05
# Shorter than this, loading the models again eats what is saved.
OFF_HOURS_MIN = 6
# A working week and two days: fewer mornings tell nothing of a habit.
OFF_DAYS_MIN = 7


@dataclass(frozen=True, slots=True)
class OffHours:
    """A stretch of the day (UTC hours `begin` to `end`, over midnight where `end` is smaller) that was quiet on every
    one of `days` days."""

    begin: int
    end: int
    days: int

    @property
    def length(self) -> int:
        return (self.end - self.begin) % 24 or 24

    @property
    def risk(self) -> Risk:
        """How likely it is that a new day differs, by the rule of succession: 1 in (days + 2)."""
        chance = 1 / (self.days + 2)
        return "very-low" if chance < 0.02 else "low" if chance < 0.10 else "medium" if chance < 0.25 else "high"


def off_hours(usage: pd.DataFrame) -> OffHours | None:
    """The longest stretch of the day in which none of these GPUs ever worked. None: there is none, or too few days.

    An hour that was not observed tells nothing; the highest sample counts, not the mean.
    """
    if "g_max" not in usage or usage.empty:
        return None
    most = usage["g_max"].to_numpy(float)
    known = np.isfinite(most) & (usage["seconds"].to_numpy(float) > 0)
    hours = np.ceil(usage["ts"].to_numpy(float)[known] / 3600).astype(np.int64) - 1
    of_day, day = hours % 24, hours // 24
    used = np.zeros(24, dtype=bool)
    np.logical_or.at(used, of_day, most[known] > OFF_ENGINE_MAX)
    if used.all() or not used.any():
        return None
    pairs = np.unique(np.stack([of_day, day]), axis=1)
    seen = np.bincount(pairs[0], minlength=24)
    quiet = ~used & (seen >= OFF_DAYS_MIN)
    begin, length = _longest(quiet)
    if length < OFF_HOURS_MIN:
        return None
    stretch = [(begin + n) % 24 for n in range(length)]
    return OffHours(begin, (begin + length) % 24, int(seen[stretch].min()))


def _longest(quiet: np.ndarray) -> tuple[int, int]:
    """Begin and length of the longest run around the clock."""
    best, run = (0, 0), 0
    for n in range(48):
        run = run + 1 if quiet[n % 24] else 0
        if best[1] < run <= 24:
            best = ((n - run + 1) % 24, run)
    return best


def schedule_off(scene: Scene, base: Baseline, verdicts: Verdicts, findings: tuple[str, ...]) -> Option | None:
    """Its nodes off in its quiet hours, whole nodes for cash. None: people use it around the clock."""
    group = base.group
    if group.kind not in AVAILABLE or not group.current or group.shared or group.stands_by:
        return None
    quiet = off_hours(verdicts.usage_of({w.id for w in group.now}))
    if quiet is None:
        return None
    share = quiet.length / 24
    whole = base.right_nodes if base.whole and not base.mixed else 0
    realised, date = realisation(base.price, whole, scene.at)
    draws = None
    if realised in ("cash-now", "cash-at") and base.price is not None:
        draws = base.right_nodes_draws * base.price.usd_per_hour * HOURS_PER_MONTH * share
        draws = np.broadcast_to(draws, (DRAWS,))
    saving = percentiles(draws) if draws is not None else None
    text = (
        f"{called(group)} was not used once between {quiet.begin:02d}:00 and {quiet.end:02d}:00 UTC on {quiet.days} "
        f"days (engine never above {OFF_ENGINE_MAX * 100:.0f} % in any sample). Switched off in these "
        f"{quiet.length} hours, "
    )
    text += (
        f"its nodes are not paid for. {saving_sentence(saving, [base.price], realised, date)}"
        if saving is not None
        else f"its {base.gpus} GPUs are free for other work; no whole node falls free, so no dollars are claimed."
    )
    return Option(
        Recommendation(
            id=stable_id("r", group.identity, "schedule-off", group.lead.node_sku),
            findings=findings,
            workload=group.lead.id,
            action="schedule-off",
            source=base.configuration,
            target=base.configuration,
            time_ratio=None,
            saving_usd_per_month=saving,
            freed_gpu_hours_per_month=base.gpus * HOURS_PER_MONTH * share,
            realisation=realised if saving is not None else "capacity-freed",
            risk=quiet.risk,
            blocked_by=(),
            rejected=(),
            would_change_if=(
                coded("needed-at-that-hour", "somebody needs it at once at such an hour (on call, another time zone)"),
                coded("memory-lost", "what it holds in memory is lost when it is switched off"),
            ),
            prices=(base.price.id,) if base.price is not None and saving is not None else (),
            text=text,
            available_from=date if saving is not None else None,
            yardstick=Yardstick(
                usd_per_month=base.month_usd(base.right_nodes) if saving is not None else None,
                off_hours=(quiet.begin, quiet.end),
            ),
        ),
        draws,
        exclusive=f"place:{group.series_id}",
        claim=base.claim(whole=saving is not None, measures=REST),
    )
