"""Settings files, every section of them, and routes files: TOML."""

from __future__ import annotations

import argparse
from datetime import date
from pathlib import Path

from ..lines import by_lines
from ..target import Prepared, Seed, Target
from ..verdict import finite

_SETTINGS = """node = "gpu-1"
cluster = "c1"
interval = "1s"
duration = 30.5
burst_every = "5m"
burst_seconds = 10
keep_raw = "2h"
keep_minutes = "14d"
keep_hours = "400d"
max_size = "1GB"
listen = "127.0.0.1:9700"
dcgm_url = "http://127.0.0.1:9400/metrics"
dcgm_interval = "30s"
serving_endpoints = ["http://127.0.0.1:8000/metrics", "http://[::1]:8000/metrics"]
serving_discover = true
fabric_roles = { mlx5_0 = "compute", mlx5_1 = "storage" }

[kubernetes]
pods_file = "/run/pods.json"
team_labels = ["team", "example.com/team"]

[prices]
gpu_hour_usd = { "H100-SXM5" = 2.10 }
node_hour_usd = { "aws/p5.48xlarge" = 55.0 }

[prometheus]
username = "u"
timeout = "60s"
concurrency = 4
max_series = 100000
tenant = "t"
headers = { "X-Name" = "value" }

[report]
db = ["/var/lib/skuwise/a.db"]
administrators = ["ann@example.org"]
from = "skuwise <skuwise@example.org>"
cooldown = "28d"
smtp_host = "mail.example.org"
smtp_port = 587
smtp_security = "starttls"
list_unsubscribe = "mailto:ann@example.org"

[serve]
report_day = "mon"
report_hour = 6
spread = "15m"
snapshot_db = "/var/lib/skuwise/skuwise.db"
snapshot_folder = "/srv/snapshots"

[slurm]
jobs = "/srv/jobs.txt"
slurmrestd = "http://127.0.0.1:6820"
slurmrestd_version = "v0.0.40"
time_zone = "Europe/Berlin"
scheduled = true
every = "10m"
"""
_ROUTES = """administrators = ["ann@example.org"]

[teams.search]
to = ["search@example.org", "bob@example.org"]
namespaces = ["search", "search-*"]
users = ["bob"]

[teams."a b"]
webhook_url_file = "/etc/skuwise/hook"
accounts = ["ml-*"]
"""


def _prepare(folder: Path) -> Prepared:
    from skuwise.advisor.cli.price_options import said_prices
    from skuwise.advisor.cli.serve import load_serve_settings
    from skuwise.advisor.mail.routes import PARTS, load_routes
    from skuwise.advisor.mail.settings import load_mail_settings as load_report
    from skuwise.advisor.telemetry.prometheus.settings import load_prometheus_settings as load_prometheus
    from skuwise.advisor.telemetry.teams import load_team_labels
    from skuwise.agent.config import load_config
    from skuwise.agent.slurm_jobs.settings import load_slurm_settings
    from skuwise.rules.base.errors import SkuwiseError
    from skuwise.rules.catalog.hour_prices import resolve_prices
    from skuwise.rules.catalog.loader import load_catalog

    catalog = load_catalog()
    path, none = folder / "skuwise.toml", folder / "none"
    options = argparse.Namespace(gpu_hour_usd=[])
    routes = _ROUTES
    for word in ("namespaces", "users", "accounts"):
        part = next((part for part in PARTS if part.startswith(word[:4])), word)
        routes = routes.replace(f"{word} =", f"{part} =")
    readers = (
        lambda: load_config({"config": path}, {}),
        lambda: resolve_prices(
            said_prices(options, {}, system_file=path, config_home=none), catalog, date(2026, 11, 1)
        ),
        lambda: load_report({}, system_file=path, config_home=none),
        lambda: load_serve_settings({}, system_file=path, config_home=none),
        lambda: load_prometheus({}, system_file=path, config_home=none),
        lambda: load_team_labels({}, system_file=path, config_home=none),
        lambda: load_slurm_settings({}, system_file=path, config_home=none),
    )

    def read(name: str, data: bytes) -> object:
        path.write_bytes(data)
        if name == "routes":
            return load_routes(path)
        refused: SkuwiseError | None = None
        for one in readers:  # each part of the program reads its own section, whatever is wrong with others
            try:
                finite(one(), "a setting")
            except SkuwiseError as error:
                refused = refused or error
                if str(error) != str(refused) and _worse(error):
                    refused = error
        if refused is not None:
            raise refused
        return None

    words = (b"[report]", b"[[report]]", b"a.b.c = 1", b"x = nan", b"x = -inf", b"= 1979-05-27T07:32:00Z",
             b'"""', b"'''", b"= [", b"= {", b"[kubernetes]\nteam_labels = 1",
             b"= 07:32:00", b"interval = inf", b"max_size = '1e999GB'",
             b"keep_raw = nan", b"interval = 1e400", b"x = 0xFFFFFFFFFFFFFFFFFFFF", b"listen = 1", b"db = 1979-05-27",
             b"a = {b = {c = {d = 1}}}", b'time_zone = "../../etc/passwd"', b'time_zone = "\\u0000"',
             *(name + b" = 0x" + b"F" * 4000 for name in (b"interval", b"max_size", b"report_hour", b"every")),
             b"smtp_port = 1e9", b"listen = 0x" + b"F" * 4000,
             b"duration = inf", b"duration = nan", b'db = "a\\u0000b"', b"'H100-SXM5' = 0x" + b"F" * 4000,
             b'listen = "[::1:9"', b'dcgm_url = "http://[::1"', b"time_zone = 'a/../b'")  # fmt: skip
    return Prepared([Seed("settings", _SETTINGS.encode()), Seed("routes", routes.encode())], read, by_lines(*words))


def _worse(error: Exception) -> bool:
    from ..verdict import unfit

    return bool(unfit(error))  # type: ignore[arg-type]


TOML = Target("toml", "settings files, every section, and routes files (agent/config, advisor/*/settings)", _prepare)
