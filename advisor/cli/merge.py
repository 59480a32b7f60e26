"""``skuwise merge``: the advice of several shards into one."""

from __future__ import annotations

import argparse
from pathlib import Path

from ...rules.base.errors import EXIT_DONE, UsageError
from ...rules.policy.thresholds import load_bottleneck_thresholds
from ..core.dominant_label import DOMINANT
from ..render import format_names
from ..shards.advice_parser import Allowance, read_advice
from ..shards.merge import merge_advice

EXAMPLES = ("skuwise merge eu.json us.json --format table",)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("advice", nargs="+", type=Path, metavar="ADVICE.json", help="output of advise --format json")
    parser.add_argument("--format", choices=format_names(), default="json", help="output format (default: json)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write to FILE instead of stdout, all or nothing")


def run(options: argparse.Namespace) -> int:
    """Read all, join, print."""
    from .output import print_advice  # noqa: PLC0415

    advice, allowance = {}, Allowance()
    for path in options.advice:
        if str(path) in advice:
            raise UsageError(f"{path} is given twice.", "Give each shard once.")
        advice[str(path)] = read_advice(path, allowance)
    merged = merge_advice(advice, load_bottleneck_thresholds()[DOMINANT].value)
    print_advice(merged, options)
    return EXIT_DONE
