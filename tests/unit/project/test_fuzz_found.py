"""What the fuzz harness found once, kept small: each ended in a hang, a traceback, or a sentence of 70,000 letters."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
from skuwise.advisor.billing.billing_exports import _name, _word
from skuwise.advisor.billing.cost_summary import BillLine
from skuwise.advisor.cli.price_options import _said
from skuwise.advisor.cli.serve import load_serve_settings
from skuwise.advisor.mail.routes import load_routes
from skuwise.advisor.mail.settings import load_mail_settings
from skuwise.agent.base.address import parse_listen
from skuwise.agent.config import load_config
from skuwise.agent.inventory.dra import SliceDevice
from skuwise.agent.inventory.identity.hostlist import MAX_DIMENSIONS, expand
from skuwise.agent.inventory.kubernetes.child import slice_devices
from skuwise.agent.inventory.kubernetes.files import _devices
from skuwise.agent.inventory.kubernetes.podresources import _parse
from skuwise.agent.inventory.processes.device_cgroup import parse_devices_list, read_majors
from skuwise.agent.inventory.slurm.slurm_conf import read_settings
from skuwise.agent.model import Instant
from skuwise.agent.service.runtime.control import ask
from skuwise.agent.service.runtime.db_lock import Holder, _read
from skuwise.agent.slurm_jobs.choice import expand_node_list
from skuwise.agent.sources.host import HostSource
from skuwise.agent.store.retention.trusted_clock import trusted_now
from skuwise.rules.base.errors import SkuwiseError, UsageError
from skuwise.rules.base.yaml_loader import parse_table
from skuwise.rules.catalog.hour_prices import StatedPrices, resolve_prices
from skuwise.rules.catalog.loader import load_catalog
from skuwise.rules.catalog.price_files import load_prices
from skuwise.rules.policy.thresholds import load_bottleneck_thresholds, load_waste_rules

LONG = "A" * 70_000
WORD = "A" * 1000  # YAML takes no longer key
# More digits than Python writes, which TOML takes in base 16.
HUGE = "0x" + "F" * 4000
NESTED = b"[" * 5000 + b"]" * 5000


def refused(error: pytest.ExceptionInfo[SkuwiseError]) -> str:
    text = str(error.value)
    assert text.isprintable()
    assert "A" * 100 not in text
    assert len(text) < 1500
    return text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bottlenecks.yaml", "thresholds:\n  network_util: {value: 1e308}\n"),
        ("bottlenecks.yaml", f"thresholds:\n  network_util: {{value: 1{'0' * 400}}}\n"),
        ("bottlenecks.yaml", f"thresholds:\n  network_util: {{{WORD}: 1}}\n"),
        ("bottlenecks.yaml", f"thresholds:\n  {WORD}: {{value: 1}}\n"),
        ("bottlenecks.yaml", f"thresholds:\n  network_util: {{value: 1, unit: {WORD}}}\n"),
        ("waste/idle.yaml", f"id: {WORD}\n"),
    ],
)
def test_a_long_word_of_a_rule_is_cut_where_it_is_quoted(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    with pytest.raises(UsageError) as error:
        (load_waste_rules if name.startswith("waste") else load_bottleneck_thresholds)(tmp_path)
    refused(error)


def test_a_long_key_is_cut_wherever_it_stands(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        parse_table(f"{WORD}: 1\n{WORD}: 2\n".encode(), "x.yaml")
    assert "given twice" in refused(error)
    file = tmp_path / "prices.yaml"
    file.write_text(f"prices:\n  - {{sku: {WORD}, region: r}}\n")
    with pytest.raises(UsageError) as error:
        load_prices(file, ["aws/p5.48xlarge"])
    assert "unknown node SKU" in refused(error)


def test_the_text_of_a_rule_is_one_line(tmp_path: Path) -> None:
    shipped = load_waste_rules()["idle"]
    file = tmp_path / "waste" / "idle.yaml"
    file.parent.mkdir()
    file.write_text("id: idle\ntext: >-\n  one\n   two\n  three\n")  # a deeper line is not folded
    assert load_waste_rules(tmp_path)["idle"].text == "one two three"
    assert "\n" not in shipped.text


@pytest.mark.parametrize(
    "line",
    [
        f"interval = {HUGE}", f"max_size = {HUGE}", f"keep_raw = {HUGE}", f"listen = {HUGE}", f"scrape_remote = {HUGE}",
        f'interval = "{LONG}"', f'max_size = "{LONG}"', f'listen = "{LONG}"', f"{LONG} = 1", "duration = inf",
        "duration = nan", "duration = -inf", 'db = "a\\u0000b"', 'listen = "127.0.0.1:0655350"',
    ],
)  # fmt: skip
def test_a_setting_that_cannot_be_is_refused(tmp_path: Path, line: str) -> None:
    file = tmp_path / "skuwise.toml"
    file.write_text(f"{line}\n")
    with pytest.raises(UsageError) as error:
        load_config({"config": file}, {})
    refused(error)


@pytest.mark.parametrize("value", [HUGE, f'"{LONG}"', "inf", "nan"])
def test_a_setting_of_a_section_that_cannot_be_is_refused(tmp_path: Path, value: str) -> None:
    file = tmp_path / "skuwise.toml"
    for key in ("report_hour", "spread", "report_day", LONG):
        file.write_text(f"[serve]\n{key} = {value}\n")
        with pytest.raises(UsageError) as error:
            load_serve_settings({}, system_file=file, config_home=tmp_path)
        refused(error)


def test_a_port_has_five_digits() -> None:
    assert parse_listen("65535").port == 65535
    for port in ("0655350", "65536", "0" * 5000 + "1", "٦٥"):
        with pytest.raises(UsageError) as error:
            parse_listen(port)
        refused(error)


def test_a_price_that_no_number_can_be_is_refused() -> None:
    from datetime import date

    said = StatedPrices(gpu=_said({"H100-SXM5": int(HUGE, 16)}, "prices.gpu_hour_usd"))
    with pytest.raises(UsageError) as error:
        resolve_prices(said, load_catalog(), date(2026, 11, 1))
    refused(error)


@pytest.mark.parametrize(
    "text",
    [
        f"{LONG} = 1\n", f'[teams."{LONG}"]\n', '[teams."a\\u0000b"]\n', f'[teams.a]\n{LONG} = 1\n',
        f'[teams.a]\nto = ["a@example.org"]\nuser = ["{LONG}*"]\n'
        f'[teams.b]\nto = ["b@example.org"]\nuser = ["{LONG}b"]\n',
        f"administrators = {'9' * 5000}\n",
    ],
)  # fmt: skip
def test_a_route_that_cannot_be_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "routes.toml"
    file.write_text(text)
    with pytest.raises(UsageError) as error:
        load_routes(file)
    refused(error)


def test_what_stands_in_a_mails_header_holds_no_control_character(tmp_path: Path) -> None:
    file = tmp_path / "skuwise.toml"
    for address in ("mailto:ann\\u001b@example.org", "https://example.org/\\u0000x", "mailto:a\\u007fb@example.org"):
        file.write_text(f'[report]\nlist_unsubscribe = "{address}"\n')
        with pytest.raises(UsageError):
            load_mail_settings({}, system_file=file, config_home=tmp_path)
    file.write_text('[report]\nlist_unsubscribe = "mailto:ann@example.org?subject=stop"\n')
    assert load_mail_settings({}, system_file=file, config_home=tmp_path).list_unsubscribe.startswith("mailto:")


def test_so_small_a_list_price_that_an_hour_of_it_is_nothing_is_none() -> None:
    line = BillLine("aws/p5.48xlarge", "us-east-1", hours=216.0, effective=2e4, listed=4.4e-323, listed_hours=216.0)
    assert line.list_usd_per_hour is None
    assert line.basis == "negotiated"


def test_a_list_price_of_nothing_is_none() -> None:
    line = BillLine("aws/p5.48xlarge", "us-east-1", hours=24.0, effective=100.0, listed=0.0, listed_hours=24.0)
    assert line.list_usd_per_hour is None
    assert line.basis == "negotiated"


def test_names_of_a_bill_hold_no_control_characters() -> None:
    assert _name("/a/b\x1b[2Jc") == "b[2Jc"
    assert _word("Virtual\x00 Machines") == "Virtual Machines"
    assert _word("\x07", "no service named") == "no service named"


def test_one_long_word_in_slurm_conf_is_read_at_once(tmp_path: Path) -> None:
    # Were each of its letters tried as the beginning of a key, this would take minutes.
    file = tmp_path / "slurm.conf"
    file.write_text(f'{"A" * 300_000}\nNodeName=n1 Gres=gpu:4\n{"B" * 300_000} = 1\nX="a b" Y = c\n')
    assert [line for line in read_settings(file) or [] if line] == [
        {"nodename": "n1", "gres": "gpu:4"}, {"x": "a b", "y": "c"},
    ]  # fmt: skip


def test_a_host_list_of_many_brackets_is_none() -> None:
    assert expand("a" + "[1-2]" * MAX_DIMENSIONS) is not None
    assert expand("a" + "[1-2]" * (MAX_DIMENSIONS + 1)) is None
    assert expand("a[1]" + "b[3-4]" * 5000) is None
    assert expand(",".join(["a[1-2]"] * 20)) is not None
    assert expand_node_list("a" + "[1-2]" * 9) is None


def test_what_is_nested_ends_no_reader_of_json(tmp_path: Path) -> None:
    assert isinstance(_parse(NESTED), str)
    file = tmp_path / "lock"
    file.write_bytes(b'{"pid": ' + NESTED + b"}")
    descriptor = os.open(file, os.O_RDONLY)
    try:
        assert _read(descriptor) == Holder()
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("said", [NESTED[:2000] + b"\n", b"nonsense\n", b"\xff\xff\n", b""])
def test_who_listens_on_the_agents_socket_may_say_anything(tmp_path: Path, said: bytes) -> None:
    path = tmp_path / "agent.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen(1)

        def answer() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(4096)
                client.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(SkuwiseError) as error:
            ask(path, {"do": "status"})
        thread.join()
    assert "does not answer as an agent does" in refused(error)


def test_a_disks_name_may_be_longer_than_a_file_can_be_called(tmp_path: Path) -> None:
    (tmp_path / "diskstats").write_text(f"   8 0 {'d' * 3000} 1 0 2 5 6 0 7 8 0 9 10\n")
    source = HostSource(tmp_path, tmp_path, 10.0)
    assert not any(c.absence is None for c in source.probe().capabilities if c.metric.startswith("disk"))
    source.close()


def test_numbers_that_no_kernel_writes_are_none(tmp_path: Path) -> None:
    digits = "9" * 400
    (tmp_path / "devices").write_text(f"Character devices:\n{'9' * 5000} nvidia\n195 nvidia\n")
    assert read_majors(tmp_path).gpus == {195}
    assert parse_devices_list(f"c {'9' * 5000}:0 rwm\n") is None
    (tmp_path / "meminfo").write_text(f"MemTotal: {digits} kB\nMemAvailable: 1 kB\n")
    (tmp_path / "diskstats").write_text(f"   8 0 sda 1 0 {digits} 5 6 0 7 8 0 9 10\n")
    (tmp_path / "block" / "sda" / "device").mkdir(parents=True)
    source = HostSource(tmp_path, tmp_path, 10.0)
    for second in range(3):
        (tmp_path / "stat").write_text(f"cpu  {second}{digits} 2 3 4 5 6 7 8 0 0\n")
        assert source.read(Instant(1.79e9 + second, float(second))).host == {}
    source.close()


def test_devices_of_a_resource_slice_hold_no_control_characters() -> None:
    told = {"uuid": "GPU-\x1b0", "pciBusID": "", "parentUUID": "\x00", "profile": "1g\x07.10gb"}
    device = {"name": "gpu-\x1b0", "attributes": {name: {"string": text} for name, text in told.items()}}
    spec = {"driver": "gpu.nvidia.com", "pool": {"name": "p\x07"}, "devices": [device]}
    (known,) = _devices({"devices": slice_devices([{"kind": "ResourceSlice", "spec": spec}], "n1")}).items()
    assert known == ("p/gpu-0", SliceDevice("GPU-0", None, None, "1g.10gb"))


@pytest.mark.parametrize("kept", ["[NaN, null]", "[Infinity, null]", "[1e999, 1]", "[1, NaN]", "[" * 5000, "[1]", "{}"])
def test_a_time_that_is_none_is_not_trusted(kept: str) -> None:
    now = 1_790_000_000.0
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript("CREATE TABLE meta (key PRIMARY KEY, value); CREATE TABLE node (last_seen)")
        trusted_now(db, now)
        db.execute("UPDATE meta SET value = ?", (kept,))
        assert trusted_now(db, now) == now
        (told,) = db.execute("SELECT value FROM meta").fetchone()
        assert json.loads(told) == [now, None]
