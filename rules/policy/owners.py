"""Whose a workload is, and which owners an entry of the rules speaks of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..base.typed_fields import Fields

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
    """Owners by exact names; `parts` maps team, namespace, account and user to the names that fit. Empty: nobody."""

    parts: tuple[tuple[str, frozenset[str]], ...] = ()

    def __bool__(self) -> bool:
        return any(names for _, names in self.parts)

    def rank(self, owner: OwnerLike) -> int | None:
        """Position in `PARTS` of the first part that fits; None: the owner is none of these."""
        for part, names in self.parts:
            if getattr(owner, part) in names:
                return PARTS.index(part)
        return None

    def fits(self, owner: OwnerLike) -> bool:
        return self.rank(owner) is not None


def read_owners(fields: Fields) -> Owners:
    """The keys team, namespace, account and user of an entry, each a list of exact names."""
    return Owners(tuple((part, frozenset(fields.texts(part))) for part in PARTS))
