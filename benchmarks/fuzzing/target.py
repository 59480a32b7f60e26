"""What is fuzzed: a reader, honest inputs for it, and how they are spoiled."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Seed:
    """One honest input. `name`: which of a reader's inputs it is (a file's name, a kind of answer)."""

    name: str
    data: bytes


class BrokenPromiseError(Exception):
    """What was read is not what the reader promises: a number that is not finite, a control character."""


# (a mutation's own random numbers, the seed, all seeds) -> the spoiled bytes
Mutator = Callable[[random.Random, Seed, Sequence[Seed]], bytes]
# (name of the seed, bytes) -> nothing; raises what the reader raises, and BrokenPromiseError
Read = Callable[[str, bytes], object]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A target made ready in a folder of its own."""

    seeds: Sequence[Seed]
    read: Read
    mutate: Mutator


@dataclass(frozen=True, slots=True)
class Target:
    """A reader by name. `prepare` is called once a process, with an empty folder that it may use.

    `refusals`: exceptions beside SkuwiseError by which the reader says what is wrong, caught by its only caller.
    `most`: so many mutations are enough (a reading that starts processes); None: as many as asked for.
    """

    name: str
    about: str
    prepare: Callable[[Path], Prepared]
    refusals: tuple[type[Exception], ...] = ()
    most: int | None = None


def mutation(prepared: Prepared, target: str, seed: int, number: int) -> tuple[Seed, bytes]:
    """The same bytes for the same target, seed and number, in whatever order they are asked for."""
    draw = random.Random(f"{seed}/{target}/{number}")
    chosen = prepared.seeds[draw.randrange(len(prepared.seeds))]
    return chosen, prepared.mutate(draw, chosen, prepared.seeds)
