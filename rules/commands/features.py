"""``skuwise rules features``: what a custom rule may ask for."""

from __future__ import annotations

import argparse

from ..base.errors import EXIT_DONE
from ..base.output import write_lines
from ..base.text_table import columns
from ..policy.features import FEATURES

EXAMPLES = ("skuwise rules features",)


def configure(parser: argparse.ArgumentParser) -> None:
    """It has no options."""


def run(_: argparse.Namespace) -> int:
    write_lines(columns(("feature", "unit", "meaning"), [(name, *about) for name, about in FEATURES.items()]))
    return EXIT_DONE
