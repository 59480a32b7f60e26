"""Ways out that keep the GPUs and slow their clock: a lower SM clock, or a power cap. They save energy, never cash."""

from __future__ import annotations

from ...core.advice_types import Recommendation, Yardstick
from ...core.coded_text import coded
from ...core.formatting import spread, usd
from ...core.ids import stable_id
from ..base.prediction import percentiles
from ..context.finding_context import Found, called
from ..context.move_context import DRAWS, Baseline, Option, Scene
from ..waste.energy import JOULES_PER_KILOWATT_HOUR


def slower_clock(scene: Scene, base: Baseline, found: Found) -> Option | None:
    """The change that an energy finding carries. Dollars only where the team pays for the power. None: no change."""
    group, change = base.group, found.clock
    if change is None:
        return None
    move = change.move
    kwh = change.joules_per_month / JOULES_PER_KILOWATT_HOUR
    price = scene.book.power_of(group.nodes[0])
    draws, paid = None, None
    if price is not None:
        ratio = (
            move.watts_after * move.prediction.draw(scene.draws("clock", group.series_id), DRAWS) / move.watts_before
        )
        at_work = move.watts_before * change.work_hours * 3600 / JOULES_PER_KILOWATT_HOUR
        paid = at_work * price.usd_per_kwh
        draws = (1 - ratio) * paid
    saving = percentiles(draws) if draws is not None else None
    capped = change.cap_watts is not None
    how = (
        f"a power cap of {change.cap_watts:.0f} W per GPU"
        if capped
        else f"an SM clock at {move.clock_share * 100:.0f} % of today's"
    )
    interval = move.prediction.interval
    text = (
        f"{called(group)} under {how}: x{interval.p50:.2f} the time ({interval.p10:.2f} to {interval.p90:.2f}), "
        f"{move.watts_before:.0f} to {move.watts_after:.0f} W per GPU at work, {kwh:,.0f} kWh a month less. "
    )
    text += (
        f"That is {usd(saving.p50)} a month{spread(saving)} at your price of power ({price.source}, {price.as_of})."
        if saving is not None and price is not None
        else "No dollars: rented nodes include their power, and no price file names a price of power for others."
    )
    action = "power-cap" if capped else "lower-clock"
    return Option(
        Recommendation(
            id=stable_id("r", group.identity, action, group.lead.node_sku),
            findings=(found.finding.id,),
            workload=group.lead.id,
            action=action,
            source=base.configuration,
            target=base.configuration,
            time_ratio=interval,
            saving_usd_per_month=saving,
            freed_gpu_hours_per_month=0.0,
            realisation="energy",
            risk=move.prediction.risk,
            blocked_by=(),
            rejected=(),
            would_change_if=(
                coded("latency-target", "a latency target leaves no room for the slowdown"),
                coded("clocks-reset", "the driver or the scheduler sets clocks anew at every start"),
            ),
            prices=(),
            text=text,
            yardstick=Yardstick(
                usd_per_month=paid,
                clock_share=move.clock_share,
                usd_per_kwh=price.usd_per_kwh if price is not None else None,
            ),
        ),
        draws,
        exclusive=f"clock:{group.series_id}",
        claim=base.claim(whole=False),
    )
