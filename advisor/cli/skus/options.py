"""Options of several commands on the catalog, and what their values mean."""

from __future__ import annotations

import argparse
import math
import re

from ....rules.base.errors import UsageError
from ....rules.base.sanitize import suggest
from ....rules.catalog.loader import Catalog
from ....rules.catalog.types import GpuSku, NodeSku
from ...recommend.sustained_rates import PRECISIONS
from ..price_options import add_rules

_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
_WATTS = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)\s*W?", re.IGNORECASE)
_CLOCK = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*([kmg]?hz)?", re.IGNORECASE)
_CLOCKS = {"": 1.0, "hz": 1.0, "khz": 1e3, "mhz": 1e6, "ghz": 1e9}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?(?:e\d+)?)\s*([kmbt]?)", re.IGNORECASE)


def add_catalog(parser: argparse.ArgumentParser) -> None:
    """Which catalog is read, and how it is printed."""
    parser.add_argument("--format", choices=("table", "json"), default="table", help="output format (default: table)")
    add_rules(parser, "catalog")


def add_provider(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--provider", metavar="P", help="only nodes of this provider")


def add_model(parser: argparse.ArgumentParser, *, params_required: bool = False) -> None:
    """What is known of a model, for the commands that estimate without telemetry."""
    parser.add_argument(
        "--params", type=parse_amount, metavar="N", required=params_required, help="parameters of the model: 70B, 350M"
    )
    parser.add_argument(
        "--active-params",
        type=parse_amount,
        metavar="N",
        help="parameters used per token (mixture of experts): 13B (default: all)",
    )
    parser.add_argument(
        "--precision", choices=PRECISIONS, default="bf16", help="precision of weights and arithmetic (default: bf16)"
    )


def check_model(options: argparse.Namespace) -> None:
    """Raises UsageError for a model whose part is larger than the whole."""
    if options.active_params and options.active_params > options.params:
        raise UsageError("--active-params is larger than --params.", "Give at most the value of --params.")


def parse_amount(text: str) -> float:
    """A number above zero with a unit: 70B, 1.5M, 8e9."""
    match = _AMOUNT.fullmatch(text.strip())
    value = float(match[1]) * _UNITS[match[2].lower()] if match else math.nan
    if not 0 < value < 1e15:
        raise argparse.ArgumentTypeError(f"{text!r} is not an amount. Use a number with a unit, as in 70B or 350M")
    return value


def parse_watts(text: str) -> float:
    """Power of one GPU: 500, 500W."""
    match = _WATTS.fullmatch(text.strip())
    value = float(match[1]) if match else math.nan
    if not 0 < value < 1e5:
        raise argparse.ArgumentTypeError(f"{text!r} is not a power. Use watts, as in 500 or 500W")
    return value


def parse_hertz(text: str) -> float:
    """A clock: 1110MHz, 1.11GHz, 1110000000 (hertz)."""
    match = _CLOCK.fullmatch(text.strip())
    value = float(match[1]) * _CLOCKS[(match[2] or "").lower()] if match else math.nan
    if not 1e6 <= value < 1e11:
        raise argparse.ArgumentTypeError(f"{text!r} is not a clock. Use 1110MHz, or hertz")
    return value


def parse_whole(text: str) -> int:
    """A whole number above zero."""
    if not text.isdecimal() or not 0 < int(text) <= 10**9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above zero. Use a whole number above zero")
    return int(text)


def asked_gpu(catalog: Catalog, name: str) -> GpuSku:
    """The GPU a person means. Raises UsageError, with what was probably meant."""
    found = catalog.gpu_asked(name)
    if found is None:
        near = suggest(name, [*catalog.gpus]) or "Run 'skuwise skus list' for a list."
        raise UsageError(f"The catalog has no GPU {name!r}.", near)
    return found


def nodes_of_provider(catalog: Catalog, provider: str | None) -> list[NodeSku]:
    """The nodes of a provider; None: of all. Raises UsageError for one that the catalog does not know."""
    known = sorted({node.provider for node in catalog.nodes.values()})
    if provider is not None and provider not in known:
        raise UsageError(f"The catalog has no provider {provider!r}.", f"Use {', '.join(known)}.")
    return [node for node in catalog.nodes.values() if provider in (None, node.provider)]
