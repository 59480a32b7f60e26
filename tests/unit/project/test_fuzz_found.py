"""What spoiled input found once, kept small: each ended in a hang, a traceback, or a sentence of 70,000 letters."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from skuwise.advisor.billing.billing_exports import _name
from skuwise.advisor.billing.cost_summary import BillLine
from skuwise.advisor.cli.price_options import _said
from skuwise.advisor.cli.serve import load_serve_settings
from skuwise.advisor.notify.routes import load_routes
from skuwise.advisor.notify.settings import load_mail_settings
from skuwise.agent.config import load_config
from skuwise.agent.jobs.kubernetes_files import slice_devices
from skuwise.agent.jobs.scheduler_claims import SliceDevice
from skuwise.agent.jobs.slurm_conf import MAX_DIMENSIONS, expand, read_settings
from skuwise.agent.model import Instant
from skuwise.agent.slurm_jobs.read_jobs import expand_node_list
from skuwise.agent.sources.host import HostSource
from skuwise.rules.base.errors import UsageError
from skuwise.rules.base.yaml_loader import parse_table
from skuwise.rules.catalog.hour_prices import StatedPrices, resolve_prices
from skuwise.rules.catalog.loader import load_catalog
from skuwise.rules.policy.thresholds import load_thresholds, load_waste_rules

LONG = "A" * 70_000
WORD = "A" * 1000  # YAML takes no longer key
# More digits than Python writes, which TOML takes in base 16.
HUGE = "0x" + "F" * 4000


def _config(file: Path) -> object:
    return load_config({"config": file}, {})


def _serve(file: Path) -> object:
    return load_serve_settings({}, system_file=file, config_home=file.parent)


def _mail(file: Path) -> object:
    return load_mail_settings({}, system_file=file, config_home=file.parent)


def _thresholds(file: Path) -> object:
    return load_thresholds("bottlenecks.yaml", file.parent)


@pytest.mark.parametrize(
    ("name", "read", "text"),
    [
        ("bottlenecks.yaml", _thresholds, "thresholds:\n  network_util: {value: 1e308}\n"),
        ("bottlenecks.yaml", _thresholds, f"thresholds:\n  network_util: {{value: 1{'0' * 400}}}\n"),
        ("bottlenecks.yaml", _thresholds, f"thresholds:\n  {WORD}: {{value: 1}}\n"),
        ("x.yaml", lambda file: parse_table(file.read_bytes(), "x.yaml"), f"{WORD}: 1\n{WORD}: 2\n"),
        *(("a.toml", _config, f"{key} = {HUGE}") for key in ("interval", "max_size", "listen", "scrape_remote")),
        ("a.toml", _config, f'interval = "{LONG}"'), ("a.toml", _config, f"{LONG} = 1"),
        ("a.toml", _config, f"[fabric_roles]\nx = '{LONG}'"),
        ("a.toml", _config, "duration = nan"), ("a.toml", _config, 'db = "a\\u0000b"'),
        ("a.toml", _config, 'listen = "127.0.0.1:0655350"'),
        *(("a.toml", _serve, f"[serve]\nreport_hour = {value}") for value in (HUGE, f'"{LONG}"', "inf")),
        ("a.toml", _mail, '[report]\nlist_unsubscribe = "mailto:ann\\u001b@example.org"\n'),
        ("routes.toml", load_routes, f'[teams."{LONG}"]\n'), ("routes.toml", load_routes, f"[teams.a]\n{LONG} = 1\n"),
        ("routes.toml", load_routes, f"administrators = {'9' * 5000}\n"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_a_short_sentence(
    tmp_path: Path, name: str, read: Callable[[Path], object], text: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError) as error:
        read(tmp_path / name)
    said = str(error.value)
    assert said.isprintable() and "A" * 100 not in said and len(said) < 1500


def test_a_number_that_none_can_be_is_refused() -> None:
    said = StatedPrices(gpu=_said({"H100-SXM5": int(HUGE, 16)}, "prices.gpu_hour_usd"))
    with pytest.raises(UsageError):
        resolve_prices(said, load_catalog(), date(2026, 11, 1))


@pytest.mark.parametrize("listed", [0.0, 4.4e-323])
def test_so_small_a_list_price_that_an_hour_of_it_is_nothing_is_none(listed: float) -> None:
    line = BillLine("aws/p5.48xlarge", "us-east-1", hours=216.0, effective=2e4, listed=listed, listed_hours=216.0)
    assert (line.list_usd_per_hour, line.basis) == (None, "negotiated")


def test_texts_hold_no_control_characters_and_no_line_ends(tmp_path: Path) -> None:
    assert _name("/a/b\x1b[2Jc") == "b[2Jc"
    file = tmp_path / "waste" / "idle.yaml"
    file.parent.mkdir()
    file.write_text("id: idle\ntext: >-\n  one\n   two\n  three\n")  # a deeper line is not folded
    assert load_waste_rules(tmp_path)["idle"].text == "one two three"
    told = {"uuid": "GPU-\x1b0", "pciBusID": "", "parentUUID": "\x00", "profile": "1g\x07.10gb"}
    device = {"name": "gpu-\x1b0", "attributes": {name: {"string": text} for name, text in told.items()}}
    spec = {"driver": "gpu.nvidia.com", "pool": {"name": "p\x07"}, "devices": [device]}
    found = slice_devices([{"kind": "ResourceSlice", "spec": spec}], "n1")
    assert found == {"p/gpu-0": SliceDevice("GPU-0", None, None, "1g.10gb")}


def test_one_long_word_in_slurm_conf_is_read_at_once(tmp_path: Path) -> None:
    # Were each of its letters tried as the beginning of a key, this would take minutes.
    file = tmp_path / "slurm.conf"
    file.write_text(f'{"A" * 300_000}\nNodeName=n1 Gres=gpu:4\n{"B" * 300_000} = 1\nX="a b" Y = c\n')
    assert [line for line in read_settings(file) or [] if line] == [
        {"nodename": "n1", "gres": "gpu:4"}, {"x": "a b", "y": "c"},
    ]  # fmt: skip


def test_a_list_of_many_brackets_is_none() -> None:
    assert expand("a" + "[1-2]" * MAX_DIMENSIONS) is not None
    assert expand("a[1]" + "b[3-4]" * 5000) is None
    assert expand("a" + "[1-2]" * (MAX_DIMENSIONS + 1)) is None
    assert expand_node_list("a" + "[1-2]" * 9) is None


def test_numbers_that_no_kernel_writes_are_none(tmp_path: Path) -> None:
    digits = "9" * 400
    (tmp_path / "meminfo").write_text(f"MemTotal: {digits} kB\nMemAvailable: 1 kB\n")
    (tmp_path / "diskstats").write_text(f"   8 0 {'d' * 3000} 1 0 {digits} 5 6 0 7 8 0 9 10\n")
    source = HostSource(tmp_path, tmp_path, 10.0)
    for second in range(3):
        (tmp_path / "stat").write_text(f"cpu  {second}{digits} 2 3 4 5 6 7 8 0 0\n")
        assert source.read(Instant(1.79e9 + second, float(second))).host == {}
    source.close()
