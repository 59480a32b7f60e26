"""``skuwise monitoring rules``: alerts on the metrics page of ``skuwise serve``."""

from __future__ import annotations

import argparse

from ....rules.base.errors import EXIT_DONE
from ....rules.base.output import write_stdout
from ...monitoring.alert_rules import rules_text

EXAMPLES = ("skuwise monitoring rules",)


def configure(parser: argparse.ArgumentParser) -> None:
    """It takes no options: the rules are text for a file."""


def run(options: argparse.Namespace) -> int:  # noqa: ARG001 - it has none
    """Print the rules file."""
    write_stdout(rules_text())
    return EXIT_DONE
