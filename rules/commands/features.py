"""``skuwise rules features``: what a custom rule may ask for."""

from __future__ import annotations

import argparse

from ..base.errors import EXIT_DONE
from ..base.output import columns, write_lines
from ..policy.custom import load_features

EXAMPLES = ("skuwise rules features",)


def configure(parser: argparse.ArgumentParser) -> None:
    """It has no options."""


def run(_: argparse.Namespace) -> int:
    rows = [(name, one.unit, one.meaning) for name, one in load_features().items()]
    write_lines(columns(("feature", "unit", "meaning"), rows))
    return EXIT_DONE
