"""What property tests draw from: always the same in the quick suite, anew in every run where slow tests run.

A run has one seed. It is drawn by the process that starts the run (the workers of a parallel one are told), printed at
its begin and its end, and given to Hypothesis as its seed; ``--run-seed N`` repeats the run, or any one test of it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest
from hypothesis import settings

_KEY = "skuwise_run_seed"
FEW = 4  # the quick suite draws one in so many of the cases of the slow one
_LEAST = 5


def examples(full: int) -> int:
    """For ``max_examples``: `full` where cases are drawn anew, some of them in the quick suite, whose never change."""
    return max(full // FEW, min(full, _LEAST)) if settings.default and settings.default.derandomize else full


def profile_of(config: pytest.Config) -> str:
    """Hypothesis' profile: what the command line or the environment names, else by what is run."""
    quick = "not slow" in str(config.getoption("markexpr"))
    named = config.getoption("hypothesis_profile", None) or os.environ.get("HYPOTHESIS_PROFILE")
    return str(named or ("same" if quick else "random"))


def settle(config: pytest.Config) -> None:
    """Give this run its seed, unless it always draws the same. A worker of a parallel run has it from `tell_worker`."""
    options = config.option
    if settings.default is not None and settings.default.derandomize:
        options.run_seed = None
        return
    told = getattr(config, "workerinput", {}).get(_KEY, options.run_seed)
    told = getattr(options, "hypothesis_seed", None) if told is None else told
    try:
        options.run_seed = random.SystemRandom().randrange(2**32) if told is None else int(told)
    except ValueError:
        raise pytest.UsageError(f"--hypothesis-seed {told!r} is not an integer") from None
    options.hypothesis_seed = options.run_seed


def tell_worker(workerinput: dict[str, object], config: pytest.Config) -> None:
    """Hand the run's seed to one of its workers."""
    workerinput[_KEY] = config.option.run_seed


def told(config: pytest.Config) -> str:
    """The line that is printed: how to draw the same again. Empty where nothing is drawn anew."""
    seed = config.option.run_seed
    return "" if seed is None else f"drawn with seed {seed}: --run-seed {seed} draws the same again"


def seeds(config: pytest.Config) -> Callable[[int], int]:
    """For a test's own generators. `number` tells a test's cases apart; it is the seed where nothing is drawn anew."""
    run = config.option.run_seed
    return lambda number: number if run is None else random.Random(f"{run}/{number}").randrange(2**32)


def is_drawn(item: pytest.Item) -> bool:
    """Whether the test claims something of cases that are drawn: by Hypothesis, or from the fixture ``seed_of``."""
    made = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
    return bool(made) or "seed_of" in getattr(item, "fixturenames", ())
