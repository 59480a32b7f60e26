"""The content of a page on an advice, whole or a team's part, with its head and foot: as a page or as a mail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....rules.catalog.types import Price
from ...core import formatting as words
from ...core.advice_types import Advice
from ...core.timestamps import day, minute
from ...core.worth import CAPACITY, RECOVERABLE, SLOWED, WASTED, selected
from .. import coverage
from ..document import Tile, brief
from ..titles import Row, covered_hours, monthly, recommendation_rows, short_usd, usd_per_month

if TYPE_CHECKING:
    from ...state.ledger import LedgerEntry

LISTED_MAX = 10  # recommendations of one report
_HINT_LENGTH = 320
# A team (None: of no team), its part of an advice, and that of the week before (None: there is none).
TeamRow = tuple[str | None, Advice, Advice | None]


@dataclass(frozen=True, slots=True)
class Story:
    """One report. `team` None: the whole fleet. `before`: the advice of the week before; None: there is none. `rows`:
    every recommendation, as lists have them; `reported`: ids in an earlier report within the cooldown; `moves`: those
    accepted, done or regressed. `teams`: the most waste first; empty where the fleet is not divided."""

    team: str | None
    advice: Advice
    before: Advice | None
    rows: tuple[Row, ...]
    reported: frozenset[str]
    moves: tuple[LedgerEntry, ...]
    teams: tuple[TeamRow, ...]

    def change(self, name: str) -> str:
        """A figure of the summary (``cost_usd``) against the week before: ``+4 % on last week``, or empty."""
        now, before = (getattr(a.summary, name) if a is not None else None for a in (self.advice, self.before))
        if now is None or before is None or before <= 0:
            return ""
        percent = (now / before - 1) * 100
        return f"{percent:+,.0f} % on last week" if abs(percent) >= 0.5 else "same as last week"

    @property
    def listed(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if not row.left_out)

    @property
    def proposed(self) -> tuple[str, ...]:
        """The ids that this report proposes first: not those accepted or in an earlier report within the cooldown."""
        ids = (row.recommendation.id for row in self.listed[:LISTED_MAX] if not row.accepted)
        return tuple(id_ for id_ in ids if id_ not in self.reported)

    @property
    def empty(self) -> bool:
        """Whether the telemetry has no workload, no finding and no GPU of it."""
        return not (self.advice.workloads or self.advice.findings or self.advice.summary.gpu_count)


def story_of(
    advice: Advice,
    before: Advice | None = None,
    moves: Sequence[LedgerEntry] = (),
    *,
    team: str | None = None,
    teams: Mapping[str | None, Advice] | None = None,
    teams_before: Mapping[str | None, Advice] | None = None,
    reported: frozenset[str] = frozenset(),
) -> Story:
    """The report of `advice`: the fleet's, or one team's part of it with its part of the week before and its moves.
    `teams`, `teams_before`: the parts of all teams, for the fleet's table; None: the fleet is not divided."""

    rows = [(name, part, (teams_before or {}).get(name)) for name, part in (teams or {}).items()]
    sums = {name: (part.summary.wasted_usd or 0.0, part.summary.cost_usd or 0.0) for name, part, _ in rows}
    rows.sort(key=lambda row: (*(-usd for usd in sums[row[0]]), -row[1].summary.gpu_hours, row[0] or ""))
    return Story(team, advice, before, recommendation_rows(advice), reported, tuple(moves), tuple(rows))


def mail_subject(story: Story) -> str:
    """``GPU report, team nlp: $734k/month spend, $72k/month recoverable (10 %) (week of 2026-11-16)``."""
    notes = "; ".join(filter(None, (f"week of {day(story.advice.start)}", coverage.short_words(story.advice))))
    team = "" if story.team is None else f", team {brief(story.team)}"
    return f"GPU report{team}: {_headline(story)} ({notes})"


def page_heading(story: Story) -> str:
    """The title of a page: the subject without the week, and the queue beside idle GPUs."""
    head = f"{'GPU fleet' if story.team is None else f'Team {brief(story.team)}'}: {_headline(story)}"
    return "; ".join(filter(None, (head, coverage.waiting_words(story.advice.summary))))


def _headline(story: Story) -> str:
    a, s = story.advice, story.advice.summary
    if story.empty:
        return "no GPU work observed"
    spend, cash, free = monthly(s.cost_usd, a), s.recoverable_usd_per_month, selected(a).capacity_gpu_hours
    if spend is None:
        spent = f"{words.hours(monthly(s.gpu_hours, a) or 0.0)}/month"
        gain = f"{words.hours(free)}/month recoverable" if free else ""
    else:
        spent = f"{short_usd(spend)}/month spend"
        share = f" ({words.percent(cash / spend)})" if cash and spend > 0 and cash / spend >= 0.005 else ""
        gain = f"{short_usd(cash)}/month recoverable{share}" if cash else ""
    none = f"no savings available now{', not all judged' if coverage.open_verdicts(a) else ''}"
    return f"{spent}, {gain or ('savings not judged yet' if s.nothing_judged else none)}"


def window_words(story: Story) -> str:
    """``2026-11-02 to 2026-11-16 UTC (14 of 14 days observed): all 16 GPUs, 5,376 GPU-hours``."""
    return f"{coverage.window_words(story.advice)}: {coverage.size_words(story.advice.summary)}"


def price_basis(story: Story) -> str:
    """The prices behind the dollars, or how to configure them; and what could not be judged."""
    a, s = story.advice, story.advice.summary
    prices = f"Costs are {words.price_note(a.prices)}. A month has 730 hours."
    if s.cost_usd is None:
        hints = " ".join(brief(note, _HINT_LENGTH) for note in a.notes if note.code in words.PRICE_NOTES)
        prices = hints or "No price is known. Costs are in GPU-hours."
    return f"{prices} {coverage.extent_sentence(s)}".rstrip()


def tiles(story: Story, open_most: int = 2) -> tuple[Tile, ...]:
    """Spend, waste and savings per month with the window's figures. `open_most`: lines on what was not judged."""
    a, s = story.advice, story.advice.summary
    hours, free = covered_hours(a), selected(a).capacity_gpu_hours
    days = f"{hours / 24:,.3g} days" if hours >= 48 else f"{hours:,.3g} h"
    capacity = f"up to {words.hours(free)}/month" if free else "none available now"
    covered = (
        Tile("Coverage", f"{coverage.observed_time(a)}; {coverage.gpus_words(s)}"),
        *(Tile("" if n else "Not judged", text) for n, text in enumerate(coverage.open_verdicts(a, open_most))),
    )

    def judged(label: str, value: str | None, change: str = "", meaning: str = "") -> Tile:
        """A sum that needs verdicts: not zero where nothing was judged, with its extent where some was."""
        if value is None:
            return Tile(label, coverage.not_judged(s) if s.nothing_judged else "unknown", "", meaning)
        part = coverage.judged_of(s) if s.partly_judged else ""
        return Tile(label, value, "; ".join(filter(None, (change, part))), meaning)

    def in_window(value: str, name: str) -> str:
        return ", ".join(filter(None, (f"{value} in {days}", story.change(name))))

    if s.cost_usd is None:
        idle = None if s.nothing_judged else f"{words.hours(sum(h.gpu_hours for h in coverage.holdings(a)))} in {days}"
        held = f"{words.hours(monthly(s.gpu_hours, a) or s.gpu_hours)}/month"
        return (
            Tile("GPU-hours", held, in_window(words.hours(s.gpu_hours), "gpu_hours")),
            judged("Idle", idle),
            judged("Capacity", None if s.nothing_judged and not free else capacity, "", CAPACITY),
            *covered,
        )

    def amount(name: str) -> tuple[str | None, str]:
        value = getattr(s, name)
        month = None if value is None else usd_per_month(monthly(value, a) or value)
        return month, in_window(words.usd(value), name)

    spend, change = amount("cost_usd")
    cash, spread = s.recoverable_usd_per_month, words.spread(s.recoverable_interval_usd_per_month).strip(" ()")
    gain = None if cash is None else usd_per_month(cash) if cash else "no cash savings available now"
    return (
        Tile("Spend", spend or "unknown", change),
        judged("Wasted", *amount("wasted_usd"), WASTED if s.wasted_usd else ""),
        judged("Slowed", *amount("slowed_usd"), SLOWED if s.slowed_usd else ""),
        judged("Recoverable", gain, spread and f"{spread}, 10th to 90th percentile", RECOVERABLE if cash else ""),
        *((judged("Capacity", capacity, "", CAPACITY),) if free else ()),
        *covered,
    )


def written_words(story: Story) -> str:
    """What wrote the page, when, and from what."""
    when = minute(story.advice.generated_at)
    return f"Written by skuwise, {when}, from telemetry alone: nothing was changed on any node."


def price_line(p: Price) -> str:
    """``azure/Standard_ND96is_H100_v5, eastus: $88.49 per node-hour at list price, 2026-09-19 (source)``."""
    return f"{p.sku}, {p.region}: {words.price_words(p)}"
