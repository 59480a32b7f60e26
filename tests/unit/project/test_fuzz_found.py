"""What spoiled input found once, what is unforeseen, and what is mistyped: each a short sentence."""

import sqlite3
from collections.abc import Callable
from datetime import date
from pathlib import Path

import click
import pytest
from skuwise.__main__ import main
from skuwise.advisor.advise import parse_prices
from skuwise.advisor.billing.bill import BillLine
from skuwise.advisor.cli.serve import load_serve_settings
from skuwise.advisor.notify.routes import load_mail_settings, load_routes
from skuwise.agent.base.settings import parse_listen
from skuwise.agent.config import load_config
from skuwise.agent.jobs.kubernetes_files import slice_devices
from skuwise.agent.jobs.scheduler_claims import SliceDevice
from skuwise.agent.jobs.slurm_conf import MAX_DIMENSIONS, expand, read_settings
from skuwise.agent.model import Instant
from skuwise.agent.slurm_jobs.read_jobs import expand_node_list
from skuwise.agent.sources.host import HostSource
from skuwise.rules.base.errors import UsageError, explained
from skuwise.rules.base.yaml_loader import parse_table
from skuwise.rules.catalog.loader import load_catalog
from skuwise.rules.catalog.price_files import StatedPrices, resolve_prices
from skuwise.rules.policy.thresholds import load_thresholds, load_waste_rules
from skuwise.tests.support.command_parsers import every_command

LONG = "A" * 70_000
WORD = "A" * 1000  # YAML takes no longer key
# More digits than Python writes, which TOML takes in base 16.
HUGE = "0x" + "F" * 4000


# What reads a file of this name.
READ: dict[str, Callable[[Path], object]] = {
    "bottlenecks.yaml": lambda file: load_thresholds(file.name, file.parent),
    "x.yaml": lambda file: parse_table(file.read_bytes(), file.name),
    "agent.toml": lambda file: load_config({"config": file}, {}),
    "serve.toml": lambda file: load_serve_settings({}, system_file=file, config_home=file.parent),
    "mail.toml": lambda file: load_mail_settings({}, system_file=file, config_home=file.parent),
    "routes.toml": load_routes,
}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bottlenecks.yaml", "thresholds:\n  network_util: {value: 1e308}\n"),
        ("bottlenecks.yaml", f"thresholds:\n  network_util: {{value: 1{'0' * 400}}}\n"),
        ("bottlenecks.yaml", f"thresholds:\n  {WORD}: {{value: 1}}\n"), ("x.yaml", f"{WORD}: 1\n{WORD}: 2\n"),
        *(("agent.toml", f"{key} = {HUGE}") for key in ("interval", "max_size", "listen", "scrape_remote")),
        ("agent.toml", f'interval = "{LONG}"'), ("agent.toml", f"{LONG} = 1"),
        ("agent.toml", f"[fabric_roles]\nx = '{LONG}'"), ("agent.toml", "duration = nan"),
        ("agent.toml", 'db = "a\\u0000b"'), ("agent.toml", 'listen = "127.0.0.1:0655350"'),
        *(("serve.toml", f"[serve]\nreport_hour = {value}") for value in (HUGE, f'"{LONG}"', "inf")),
        ("mail.toml", '[report]\nlist_unsubscribe = "mailto:ann\\u001b@example.org"\n'),
        ("routes.toml", f'[teams."{LONG}"]\n'), ("routes.toml", f"[teams.a]\n{LONG} = 1\n"),
        ("routes.toml", f"administrators = {'9' * 5000}\n"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_a_short_sentence(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError) as error:
        READ[name](tmp_path / name)
    said = str(error.value)
    assert said.isprintable() and "A" * 100 not in said and len(said) < 1500


def test_a_number_that_none_can_be_is_refused() -> None:
    said = StatedPrices(gpu=parse_prices({"H100-SXM5": int(HUGE, 16)}, "prices.gpu_hour_usd"))
    with pytest.raises(UsageError):
        resolve_prices(said, load_catalog(), date(2026, 11, 1))


@pytest.mark.parametrize("listed", [0.0, 4.4e-323])
def test_so_small_a_list_price_that_an_hour_of_it_is_nothing_is_none(listed: float) -> None:
    line = BillLine("aws/p5.48xlarge", "us-east-1", hours=216.0, effective=2e4, listed=listed, listed_hours=216.0)
    assert (line.rates[0], line.basis) == (None, "negotiated")


def test_texts_hold_no_control_characters_and_no_line_ends(tmp_path: Path) -> None:
    file = tmp_path / "waste" / "idle.yaml"
    file.parent.mkdir()
    file.write_text("id: idle\ntext: >-\n  one\n   two\n  three\n")  # a deeper line is not folded
    assert load_waste_rules(tmp_path)["idle"].text == "one two three"
    attributes = {"uuid": "GPU-\x1b0", "pciBusID": "", "parentUUID": "\x00", "profile": "1g\x07.10gb"}
    device = {"name": "gpu-\x1b0", "attributes": {name: {"string": text} for name, text in attributes.items()}}
    spec = {"driver": "gpu.nvidia.com", "pool": {"name": "p\x07"}, "devices": [device]}
    devices = slice_devices([{"kind": "ResourceSlice", "spec": spec}], "n1")
    assert devices == {"p/gpu-0": SliceDevice("GPU-0", None, None, "1g.10gb")}


def test_one_long_word_in_slurm_conf_is_read_at_once(tmp_path: Path) -> None:
    # Were each of its letters tried as the beginning of a key, this would take minutes.
    file = tmp_path / "slurm.conf"
    file.write_text(f'{"A" * 300_000}\nNodeName=n1 Gres=gpu:4\n{"B" * 300_000} = 1\nX="a b" Y = c\n')
    assert [line for line in read_settings(file) or [] if line] == [
        {"nodename": "n1", "gres": "gpu:4"}, {"x": "a b", "y": "c"},
    ]  # fmt: skip


def test_a_list_of_many_brackets_is_none() -> None:
    assert [expand("a" + "[1-2]" * count) is None for count in (MAX_DIMENSIONS, MAX_DIMENSIONS + 1)] == [False, True]
    assert expand("a[1]" + "b[3-4]" * 5000) is None
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


@pytest.mark.parametrize(
    "address",
    [
        ":9500", "a b:9500", "..:9500", f"{'a' * 64}:9500", f"{'a.' * 200}a:9500", "\udcff:9500", "a\0b:9500", "x:-1",
        "x:65536", "x:" + "9" * 5000, "x:٣", "[::1%a b]:9500", "[1.2.3.4]:9500", "[host]:9500", "::1:9500",
        "300.1.1.1:9500", "1.2.3.4.5:9500", "", "-a:1", "a..b:1", "a/b:1", "0655350", "65536", "0" * 5000 + "1", "٦٥",
    ],
    ids=ascii,
)  # fmt: skip
def test_what_can_never_be_listened_on_is_wrong_usage(address: str) -> None:
    with pytest.raises(UsageError):
        parse_listen(address)
    fine = ("9500", "127.0.0.1:9500", "0.0.0.0:9500", "node-1:0", "[::1]:9500")
    assert [str(parse_listen(text)) for text in fine] == ["127.0.0.1:9500", *fine[1:]]


@pytest.mark.parametrize(
    "error",
    [
        RecursionError(), MemoryError(), FileNotFoundError(2, "No such file", "/x"), sqlite3.Error("it is locked"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), RuntimeError("can't start new thread"),
        ImportError("no such library", name="scipy"), SystemError("error return without exception set"),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_what_is_unforeseen_is_a_sentence_with_a_remedy(error: Exception) -> None:
    sentence = explained(error)
    assert sentence is not None and sentence.message.endswith(".") and sentence.remedy.endswith((".", "?"))


def test_a_mistake_of_ours_is_not_explained_away() -> None:
    assert explained(KeyError("x")) is None and explained(TypeError("x")) is None
    assert explained(SystemError("bad argument to internal function")) is None


EVERY = {" ".join(words): context for words, context in every_command()}


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a wrong command line prints on stderr: one line, with exit status 2 and nothing on stdout."""
    status = main(arguments)
    shown = capsys.readouterr()
    assert (status, shown.out) == (2, "")
    assert shown.err.count("\n") == 1 and shown.err.startswith("skuwise: ")
    return shown.err.removeprefix("skuwise: ").rstrip("\n")


# What is typed, what is said of it, and the command whose usage would help (None: none is named).
@pytest.mark.parametrize(
    ("line", "said", "of"),
    [
        ("advize", "Unknown command 'advize'. Did you mean advise?", None),
        ("zzz", "Unknown command 'zzz'. Run 'skuwise --help' for a list of commands.", None),
        ("--halp", "Unknown option '--halp'. Did you mean --help?", None),
        ("agent onec", "Unknown command 'skuwise agent onec'. Did you mean once?", "agent"),
        ("advise --formt json", "Unknown option '--formt'. Did you mean --format?", "advise"),
        ("advise --db x --formt=json", "Unknown option '--formt'. Did you mean --format?", "advise"),
        ("agent once --zzz", "Unknown option '--zzz'.", "agent once"),
        ("advise --db x --format tabel", "Invalid value 'tabel' for --format. Did you mean table?", "advise"),
        ("rules list --format zzz", "Invalid value 'zzz' for --format. Use yaml or json.", "rules list"),
        ("simulate foundin --db x", "Invalid value 'foundin' for SCENARIO. Did you mean founding?", "simulate"),
        ("simulate founding --db x --days abc", "Invalid --days: 'abc'. Use 0.05 to 400 days.", "simulate"),
        ("advise --db", "Option '--db' requires an argument.", "advise"),
        ("man", "Unknown command 'man'. Did you mean plan?", None),
        ("skus", "Missing command.", "skus"),
        ("advise --db x --prometheus http://h", "--db and --prometheus exclude each other.", "advise"),
        ("skus list extra", "Got unexpected extra argument (extra).", "skus list"),
    ],
)
def test_what_is_mistyped_is_one_sentence_and_a_remedy(
    line: str, said: str, of: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(line.split(), capsys) == said + (f" Run 'skuwise {of} --help' for usage." if of else "")


def test_what_a_terminal_would_act_on_is_shown_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    assert "\x1b" not in refused(["advise", "--\x1b[31mred"], capsys)
    assert "\x1b" not in refused(["\x1b[31m"], capsys)


@pytest.mark.parametrize("words", EVERY)
def test_every_command_has_an_example_and_a_help_text_of_every_option(words: str) -> None:
    command, shown = EVERY[words].command, EVERY[words].get_help()
    is_group = isinstance(command, click.Group)
    assert (f"Run 'skuwise {words} COMMAND --help' for details." if is_group else f"\n  skuwise {words}") in shown
    assert [param.opts for param in command.params if isinstance(param, click.Option) and not param.help] == []
