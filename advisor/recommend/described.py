"""Finds what the modules of a package describe: a new rule or kind of recommendation is a new file there."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Protocol, TypeVar


class Ranked(Protocol):
    """`rank`: its place among the others."""

    @property
    def rank(self) -> int: ...


T = TypeVar("T", bound=Ranked)


def described_in(package: ModuleType, name: str, kind: type[T]) -> tuple[T, ...]:
    """The description of each module, by rank. Raises TypeError for a module without one."""
    found: list[tuple[int, str, T]] = []
    for module in iter_modules(package.__path__, f"{package.__name__}."):
        one = getattr(import_module(module.name), name, None)
        if not isinstance(one, kind):
            raise TypeError(f"{module.name} describes nothing: it needs a {kind.__name__} named {name}.")
        found.append((one.rank, module.name, one))
    return tuple(one for *_, one in sorted(found, key=lambda each: each[:2]))
