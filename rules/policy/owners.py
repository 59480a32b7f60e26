"""Whose a workload is, and which owners an entry of the rules speaks of."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Protocol

from ..base.typed import Text

# In the order in which they decide where an owner fits several: the narrowest claim of a team comes first.
PARTS = ("team", "namespace", "account", "user")


class OwnerLike(Protocol):
    """Who owns a workload, as far as telemetry tells it; None: not told."""

    @property
    def team(self) -> str | None: ...
    @property
    def namespace(self) -> str | None: ...
    @property
    def account(self) -> str | None: ...
    @property
    def user(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Owners:
    """Owners by the exact names that fit. Empty: nobody."""

    team: frozenset[Text] = frozenset()
    namespace: frozenset[Text] = frozenset()
    account: frozenset[Text] = frozenset()
    user: frozenset[Text] = frozenset()

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) for field in fields(self))

    def rank(self, owner: OwnerLike) -> int | None:
        """Position in `PARTS` of the first part that fits; None: the owner is none of these."""
        fitting = (n for n, part in enumerate(PARTS) if getattr(owner, part) in getattr(self, part))
        return next(fitting, None)

    def fits(self, owner: OwnerLike) -> bool:
        return self.rank(owner) is not None
