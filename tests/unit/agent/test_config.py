"""Settings: every layer, and what each refuses."""

from pathlib import Path
from typing import Any

import pytest
from skuwise.advisor.core.timestamps import parse_moment
from skuwise.agent.base.settings import Address, parse_duration
from skuwise.agent.config import SlurmImportSettings, load_config, load_section
from skuwise.agent.model import Limits
from skuwise.rules.base.errors import UsageError


def load(tmp_path: Path, system: str = "", user: str = "", environ: dict[str, str] | None = None, **flags: object):
    (tmp_path / "system.toml").write_text(system)
    (tmp_path / "home" / "skuwise").mkdir(parents=True, exist_ok=True)
    (tmp_path / "home" / "skuwise" / "skuwise.toml").write_text(user)
    return load_config(flags, environ or {}, system_file=tmp_path / "system.toml", config_home=tmp_path / "home")


def test_each_layer_lies_over_the_one_before(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        system='cluster = "a"\nnode = "a"\nnode_sku = "a"\ninterval = "2s"\n',
        user='node = "b"\nnode_sku = "b"\ninterval = 3\n',
        environ={"SKUWISE_NODE_SKU": "c", "SKUWISE_INTERVAL": "500ms", "HOME": "/root"},
        interval="0.1s",
    )
    assert (config.cluster, config.node, config.node_sku, config.interval_seconds) == ("a", "b", "c", 0.1)


@pytest.mark.parametrize(
    ("system", "environ", "flags", "words"),
    [
        ("nodee = 'x'", {}, {}, "Did you mean node"),
        ("", {"SKUWISE_CLUSTERR": "x"}, {}, "Did you mean SKUWISE_CLUSTER"),
        ("", {}, {"interval": "50ms"}, "a number of seconds >= 0.1"),
        ("node = 3", {}, {}, "expected text"),
        ("", {}, {"listen": ":9500"}, "not an address to listen on"),
        ("[fabric_roles]\nmlx5_0 = 'fast'", {}, {}, "unknown value 'fast'"),
        ('serving_endpoints = ["https://127.0.0.1/"]', {}, {}, "wrong address"),
        ("serving_endpoints = []", {}, {}, "must be addresses"),
        ("", {"SKUWISE_DCGM_URL": "http://me:secret@127.0.0.1/"}, {}, "wrong address"),
        ('dcgm_interval = "5s"', {}, {}, "a number of seconds >= 10"),
        ('scrape_remote = "perhaps"', {}, {}, "expected true or false"),
        ("", {}, {"config": "/nonexistent/skuwise.toml"}, "does not exist"),
        ('keep_raw = "1h"', {}, {}, "seconds >= 7200"),
        ('keep_minutes = "1h"', {}, {}, "seconds >= 86400"),
        ('max_size = "1MB"', {}, {}, ">= 64000000"),
        ('max_size = "big"', {}, {}, "not a size"),
        ("keep_hours = true", {}, {}, "expected a number of seconds"),
        ('burst_every = "5s"', {}, {}, "most of the time"),
        ('burst_seconds = "1s"', {}, {}, "seconds >= 5"),
        ('burst_every = "30s"\nburst_seconds = "20s"', {}, {}, "most of the time"),
    ],
)
def test_what_is_wrong_is_refused_in_a_sentence(
    tmp_path: Path, system: str, environ: dict[str, str], flags: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words.replace("?", r"\?")):
        load(tmp_path, system=system, environ=environ, **flags)


PAGES = "http://127.0.0.1:8000/metrics", "http://[::1]:8002/metrics"


@pytest.mark.parametrize(
    ("system", "environ", "taken"),
    [
        ("", {}, {"listen": None, "burst_every_seconds": 300.0, "burst_seconds": 10.0, "serving_discover": False}),
        ('listen = ""', {}, {"listen": None}),
        ("listen = 9500", {}, {"listen": Address("127.0.0.1", 9500)}),
        ('listen = "9500"', {"SKUWISE_LISTEN": "[::]:1"}, {"listen": Address("::", 1)}),
        ('listen = "9500"', {"SKUWISE_LISTEN": ""}, {"listen": None}),
        (f"serving_endpoints = {list(PAGES)}\ndcgm_url = ''\nscrape_remote = true", {},
         {"serving_endpoints": PAGES, "dcgm_url": "", "scrape_remote": True}),
        ("", {"SKUWISE_SERVING_ENDPOINTS": ", ".join(PAGES), "SKUWISE_SERVING_DISCOVER": "1"},
         {"serving_endpoints": PAGES, "serving_discover": True}),
        ("", {"SKUWISE_DCGM_INTERVAL": "15s"}, {"dcgm_interval_seconds": 15.0}),
        ("burst_every = 600", {"SKUWISE_BURST_SECONDS": "20s"}, {"burst_every_seconds": 600.0, "burst_seconds": 20.0}),
        ("burst_every = 0", {}, {"burst_every_seconds": 0.0}),
        ('keep_raw = "24h"\nmax_size = "1GiB"\nkeep_minutes = "30d"\nsnapshot_folder = "/srv/x"',
         {"SKUWISE_KEEP_HOURS": "365d", "SKUWISE_MAX_SIZE": "200MB"},
         {"snapshot_folder": Path("/srv/x"), "limits": Limits(86400, 30 * 86400, 365 * 86400, 200_000_000)}),
    ],
)  # fmt: skip
def test_what_is_set_is_taken(tmp_path: Path, system: str, environ: dict[str, str], taken: dict[str, object]) -> None:
    config = load(tmp_path, system=system, environ=environ)
    assert {name: getattr(config, name) for name in taken} == taken


def test_a_variable_of_the_agent_is_none_of_a_section_that_begins_alike(tmp_path: Path) -> None:
    environ = {"SKUWISE_SLURM_CONF": "/etc/slurm", "SKUWISE_SLURM_SACCT": "/opt/slurm/bin/sacct"}
    files = {"system_file": tmp_path / "none", "config_home": tmp_path}
    assert load_config({}, environ, **files).slurm_conf == Path("/etc/slurm")
    assert load_section(SlurmImportSettings, "slurm", environ, **files).sacct == "/opt/slurm/bin/sacct"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("250ms", 0.25), ("30s", 30), ("10m", 600), ("24h", 86400), ("14d", 1209600), ("1.5h", 5400),
        *((text, "span of time") for text in ("", "14", "d", "-1d", "0s", "1 d", "1y", "1h30m", "1e3s", "１d")),
        ("2026-03-01T00:00:00Z", 1772323200), ("2026-03-01T01:00:00+01:00", 1772323200), ("2026-03-01", 1772323200),
        ("2026-03-01t00:00:00.5z", 1772323200.5),
        *((text, "Invalid time") for text in ("now", "2026-13-01", "2026-02-30T00:00:00Z", "2026-03-01T00:00:00")),
    ],
)  # fmt: skip
def test_spans_and_moments(text: str, value: float | str) -> None:
    read = parse_moment if text.startswith("2026") or value == "Invalid time" else parse_duration
    if isinstance(value, str):
        with pytest.raises(UsageError, match=value):
            read(text)
    else:
        assert read(text) == value
