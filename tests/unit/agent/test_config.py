"""Settings: every layer, and what each refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from skuwise.advisor.core.timestamps import day, minute, parse_moment, rfc3339
from skuwise.agent.base.durations import parse_duration
from skuwise.agent.config import load_config
from skuwise.agent.slurm_jobs.settings import load_slurm_settings
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
        (f"serving_endpoints = {['http://127.0.0.1/m'] * 17}", {}, {}, "more than 16"),
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


@pytest.mark.parametrize(
    ("system", "environ", "address"),
    [
        ("", {}, None),
        ('listen = ""', {}, None),
        ("listen = 9500", {}, "127.0.0.1:9500"),
        ('listen = "9500"', {"SKUWISE_LISTEN": "[::]:1"}, "[::]:1"),
        ('listen = "9500"', {"SKUWISE_LISTEN": ""}, None),
    ],
)
def test_nothing_listens_unless_asked(
    tmp_path: Path, system: str, environ: dict[str, str], address: str | None
) -> None:
    listen = load(tmp_path, system=system, environ=environ).listen
    assert (None if listen is None else str(listen)) == address


def test_pages_come_as_a_list_or_with_commas(tmp_path: Path) -> None:
    one, two = "http://127.0.0.1:8000/metrics", "http://[::1]:8002/metrics"
    config = load(tmp_path, f'serving_endpoints = ["{one}", "{two}"]\ndcgm_url = ""\nscrape_remote = true')
    assert config.serving_endpoints == (one, two)
    assert (config.dcgm_url, config.scrape_remote, config.serving_discover) == ("", True, False)
    environ = {"SKUWISE_SERVING_ENDPOINTS": f"{one}, {two}", "SKUWISE_SERVING_DISCOVER": "1"}
    config = load(tmp_path, environ=environ | {"SKUWISE_DCGM_INTERVAL": "15s"})
    assert config.serving_endpoints == (one, two)
    assert (config.serving_discover, config.dcgm_interval_seconds) == (True, 15.0)


def test_limits_of_the_database(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        system='keep_raw = "24h"\nmax_size = "1GiB"\nkeep_minutes = "30d"\nsnapshot_folder = "/srv/x"\n',
        environ={"SKUWISE_KEEP_HOURS": "365d", "SKUWISE_MAX_SIZE": "200MB"},
    )
    limits = config.limits
    assert (limits.raw_seconds, limits.minutes_seconds, limits.hours_seconds) == (86400, 30 * 86400, 365 * 86400)
    assert limits.max_bytes == 200_000_000
    assert config.snapshot_folder == Path("/srv/x")
    assert limits.file_bytes + limits.log_bytes < limits.max_bytes


def test_bursts_can_be_set_and_switched_off(tmp_path: Path) -> None:
    config = load(tmp_path)
    assert (config.burst_every_seconds, config.burst_seconds) == (300.0, 10.0)
    config = load(tmp_path, system='burst_every = "10m"\n', environ={"SKUWISE_BURST_SECONDS": "20s"})
    assert (config.burst_every_seconds, config.burst_seconds) == (600.0, 20.0)
    assert load(tmp_path, system="burst_every = 0\n").burst_every_seconds == 0.0
    assert load(tmp_path, environ={"SKUWISE_BURST_EVERY": "0"}).burst_every_seconds == 0.0


def test_a_variable_of_the_agent_is_none_of_a_section_that_begins_alike(tmp_path: Path) -> None:
    environ = {"SKUWISE_SLURM_CONF": "/etc/slurm", "SKUWISE_SLURM_SACCT": "/opt/slurm/bin/sacct"}
    assert load_config({}, environ, system_file=tmp_path / "none", config_home=tmp_path).slurm_conf == Path(
        "/etc/slurm"
    )
    found = load_slurm_settings(environ, system_file=tmp_path / "none", config_home=tmp_path)
    assert found.sacct == "/opt/slurm/bin/sacct"


@pytest.mark.parametrize(
    ("text", "seconds"), [("250ms", 0.25), ("30s", 30), ("10m", 600), ("24h", 86400), ("14d", 1209600), ("1.5h", 5400)]
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "14", "d", "-1d", "0s", "1 d", "1y", "1h30m", "14days", "1e3s", "１d", "nan s"])
def test_what_is_no_duration(text):
    with pytest.raises(UsageError, match="not a span of time"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "ts"),
    [
        ("2026-03-01T00:00:00Z", 1772323200),
        ("2026-03-01T01:00:00+01:00", 1772323200),
        ("2026-03-01", 1772323200),
        ("2026-03-01t00:00:00.5z", 1772323200.5),
    ],
)
def test_moments(text, ts):
    assert parse_moment(text) == ts


@pytest.mark.parametrize("text", ["", "now", "2026-13-01", "2026-02-30T00:00:00Z", "2026-03-01T00:00:00", "20260301"])
def test_what_is_no_moment(text):
    with pytest.raises(UsageError, match="Invalid time"):
        parse_moment(text)


def test_moments_are_written_in_utc():
    assert rfc3339(1772323200.9) == "2026-03-01T00:00:00Z"
    assert day(1772323200) == "2026-03-01"
    assert minute(1772323260) == "2026-03-01 00:01 UTC"
