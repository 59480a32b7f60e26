"""What recommendations and findings are called and what they are of the money, for pages.

The moves load numpy and pandas; pages are painted before that, so they are asked when there is something to say.
"""

from __future__ import annotations

from ..core.advice_types import Recommendation


def action_words(r: Recommendation) -> str:
    """What a recommendation does, in a few words; of one that another version made, its action."""
    from ..recommend import moves  # noqa: PLC0415

    return moves.action_words(r)


def recommendation_action(r: Recommendation, workload: str | None, nodes: tuple[str, ...]) -> str:
    """A recommendation as an action with its object: what to do, to which workload or nodes."""
    from ..recommend import moves  # noqa: PLC0415

    return moves.title(r, workload, nodes)


def fact_of(rule_id: str) -> str:
    """What findings of a rule say of their resource, in a few words."""
    from ..recommend import waste  # noqa: PLC0415

    return waste.fact_of(rule_id)


def waste_of(rule_id: str) -> str:
    """What findings of a rule are of the money; those of rules of one's own claim none."""
    from ..recommend import waste  # noqa: PLC0415

    return waste.waste_of(rule_id)


def is_waste(rule_id: str) -> bool:
    """Whether findings of a rule count as wasted."""
    return waste_of(rule_id) not in ("none", "slowed")
