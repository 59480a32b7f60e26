"""A site's YAML: prices, rules, exceptions, teams, thresholds; and the catalog's files, which take longer."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path

from ..lines import by_lines
from ..target import Prepared, Read, Seed, Target
from ..verdict import finite

_PRICES = """prices:
  - sku: azure/Standard_ND96isr_H100_v5
    region: eastus
    usd_per_hour: 61.20
    basis: committed
    committed_until: 2027-06-30
    source: contract 4711
    as_of: 2026-10-01
  - {sku: aws/p5.48xlarge, region: global, usd_per_hour: 55, basis: owned, source: "bought", as_of: 2026-01-01}
power:
  - region: eastus
    usd_per_kwh: 0.085
    source: utility bill, October
    as_of: 2026-10-01
"""
_CUSTOM = """id: slow-input
severity: medium
reason: below this our loaders cannot keep an H100 busy
kinds: [training, fine-tuning]
when:
  - {feature: cpu, operator: above, value: 0.8}
  - {feature: engine_active, operator: below, value: 0.6}
text: "{workload} waits for its input: CPUs {cpu} busy, GPUs at work {engine_active} of the time."
would_change_if:
  - The loader is given more cores.
"""
_EXCEPTIONS = """exceptions:
  leaving:
    rules: [idle, held-idle]
    match: {namespace: [search], name: [web]}
    reason: it is moved in December
    until: 2026-12-31
"""
_TEAM = "namespace: [search, search-staging]\naccount: [srch]\n"
_WORDS = (b"&a [*a, *a]", b"*a", b"<<: *a", b"!!python/object/apply:os.system [ls]", b"!!binary aGk=", b"--- ", b"...",
          b"? a\n: b", b"{a: {b: {c: [1, [2, [3]]]}}}", b"- - - - 1", b"|", b">-", b"'", b'"\\x00"', b"%YAML 9.9",
          b".nan", b".inf", b"1e999", b"0x1F", b"2026-13-45", b"1:30", b"no", b"~", b"key: value: other",
          b"\xef\xbb\xbf",
          b"<<<<<<< HEAD", b"{__class__}", b"{0.__class__}", b"{cpu!r:>9999999999}", b"{cpu", b"}{")  # fmt: skip
_ROOT = Path(__file__).parents[3] / "rules"


def _files(folder: Path, loaders: dict[str, Callable[[Path], object]]) -> Read:
    """Reads one file of a site's folder that holds nothing else, by what ships as it is."""
    site = folder / "site"

    def read(name: str, data: bytes) -> object:
        shutil.rmtree(site, ignore_errors=True)
        path = site / name
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        found = loaders[name](site)
        finite(found, "a rule")
        return found

    return read


def _seeds(names: Sequence[str]) -> list[Seed]:
    return [Seed(name, (_ROOT / name).read_bytes()) for name in names]


def _prepare(folder: Path) -> Prepared:
    from skuwise.rules.catalog.premiums import load_premiums
    from skuwise.rules.catalog.price_files import load_prices
    from skuwise.rules.catalog.providers import load_providers
    from skuwise.rules.policy.custom import load_custom_rules
    from skuwise.rules.policy.exceptions import load_exceptions
    from skuwise.rules.policy.teams import load_teams
    from skuwise.rules.policy.thresholds import load_bottleneck_thresholds, load_kind_thresholds, load_waste_rules

    known = [*load_waste_rules(), "custom/slow-input"]
    loaders: dict[str, Callable[[Path], object]] = {
        "prices.yaml": lambda site: load_prices(site / "prices.yaml", None, today=date(2026, 11, 1)),
        "custom/slow-input.yaml": load_custom_rules,
        "teams/search/team.yaml": load_teams,
        "exceptions.yaml": lambda site: load_exceptions(site, known_rules=known),
        "kinds.yaml": load_kind_thresholds,
        "providers.yaml": load_providers,
        "premiums.yaml": load_premiums,
        "bottlenecks.yaml": load_bottleneck_thresholds,
        "waste/idle.yaml": load_waste_rules,
    }
    seeds = [
        *[Seed("prices.yaml", _PRICES.encode())] * 3, *[Seed("custom/slow-input.yaml", _CUSTOM.encode())] * 3,
        *[Seed("teams/search/team.yaml", _TEAM.encode())] * 2,
        *[Seed("exceptions.yaml", _EXCEPTIONS.encode())] * 2,
        *_seeds(("kinds.yaml", "providers.yaml", "premiums.yaml",
                 "bottlenecks.yaml", "waste/idle.yaml")),
    ]  # fmt: skip
    return Prepared(seeds, _files(folder, loaders), by_lines(*_WORDS))


def _prepare_catalog(folder: Path) -> Prepared:
    from skuwise.rules.catalog.gpu_files import load_gpus
    from skuwise.rules.catalog.node_files import load_nodes

    gpus = load_gpus().gpus
    nodes = ("nodes/denvr.yaml", "nodes/together.yaml", "nodes/scaleway.yaml")
    own = ("gpus/amd.yaml", "gpus/other.yaml")
    loaders: dict[str, Callable[[Path], object]] = {
        **{name: lambda site: load_nodes(site, gpus) for name in nodes}, **dict.fromkeys(own, load_gpus),
    }  # fmt: skip
    return Prepared(_seeds((*nodes, *own)), _files(folder, loaders), by_lines(*_WORDS))


YAML = Target("yaml", "a site's prices, rules, exceptions, teams and thresholds (rules)", _prepare)
CATALOG = Target("catalog", "a site's own GPUs and nodes, over those that ship (rules)", _prepare_catalog, most=20_000)
