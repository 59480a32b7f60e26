"""All kinds of recommendations, found by their modules in ``recommend/moves``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from ..core.advice_types import Action, Recommendation
from . import moves as kinds
from .described import described_in
from .recommendation_kind import RecommendationKind, TitleSubject

ALL_KINDS = described_in(kinds, "KIND", RecommendationKind)
KINDS: Mapping[str, RecommendationKind] = {action: kind for kind in ALL_KINDS for action in kind.actions}
if sorted(KINDS) != sorted(get_args(Action)):
    told = ", ".join(sorted(set(KINDS) ^ set(get_args(Action))))
    raise TypeError(f"{told}: an action is a label of advice_types.Action and of one module in recommend/moves.")


def title(r: Recommendation, of: TitleSubject) -> str:
    """The action with its object; of one that another version made, its action and what it is about."""
    kind = KINDS.get(r.action)
    return kind.title(r, of) if kind is not None else f"{of.name}: {r.action}"


def action_words(r: Recommendation) -> str:
    """What a recommendation does, in a few words; of one that another version made, its action."""
    kind = KINDS.get(r.action)
    return kind.words(r) if kind is not None else r.action
