"""``skuwise rules`` and ``skuwise skus`` as a person calls them, and what is printed for people."""

import io
import json
import re
import shlex
import sys
from pathlib import Path
from typing import get_args

import pytest
import yaml
from skuwise.__main__ import main
from skuwise.advisor.core.advice_types import Action
from skuwise.rules.base.output import Progress, install_command
from skuwise.rules.base.sanitize import clean
from skuwise.rules.policy.labels import BottleneckLabel, KindLabel
from skuwise.tests.support.rulebooks import rules_folder
from skuwise.tests.support.rules_files import CUSTOM
from skuwise.tests.support.schemas import schema

HOSTILE = CUSTOM.replace("waits", "\u202e[red]")


def printed(capsys: pytest.CaptureFixture[str], command: str) -> str:
    assert main(command.split()) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def test_rules_check_passes_for_what_ships_wherever_it_is_called(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = printed(capsys, "rules check")
    assert re.search(r"^gpus: \d+, valid$", text, re.MULTILINE) and "grade C" in text


def test_rules_check_names_the_first_wrong_file_of_each_part(tmp_path, capsys):
    wrong = {
        "waste/idle.yaml": "id: idle\nfooo: 1\n", "watch.yaml": "thresholds: [\n", "nodes/a.yaml": "provider: a\n",
        "kinds.yaml": "thresholds: !!python/object/apply:os.system ['true']\n", "custom/a.yaml": "id: A b\n",
        "exceptions.yaml": "exceptions: {x: {reason: 3}}\n",
    }  # fmt: skip
    assert main(["rules", "check", str(rules_folder(tmp_path, wrong))]) == 2
    captured = capsys.readouterr()
    assert [name for name in wrong if captured.out.count(f"{name}:") != 1] == []
    assert "idle.yaml: unknown key 'fooo'." in captured.out and "watch.yaml:2: this is not valid YAML" in captured.out
    assert re.search(r"^gpus: \d+, valid$", captured.out, re.MULTILINE)
    assert "parts of the rules cannot be used." in captured.err and "Traceback" not in captured.err


def test_rules_list_as_json(capsys):
    document = json.loads(printed(capsys, "rules list --format json"))
    assert document["schema"] == "skuwise.rules/1"
    names = ("mixture-of-experts", "disaggregated-serving", "rdma-storage", "standby-capacity")
    assert {entry["id"]: entry["origin"] for entry in document["exceptions"]} == dict.fromkeys(names, "shipped")
    for entries in (document["kind_priors"], document["latency_classes"]["classes"]):
        assert {entry["origin"] for entry in entries} == {"shipped"}
    by_id = {rule["id"]: rule for rule in document["waste"]}
    assert by_id["idle-fabric"]["thresholds"]["util_p995_max"]["value"] == 0.001
    assert document["bottlenecks"]["throttled_share"]["reason"]


def test_rules_list_tells_what_a_site_and_a_team_set_and_nothing_in_it_has_an_effect(tmp_path, capsys):
    files = {
        "waste/idle.yaml": "id: idle\nthresholds: {engine_max: {value: 0.1, reason: ours}}\n",
        "teams/search/team.yaml": "namespace: [search]\n",
        "teams/search/waste/idle.yaml": 'id: held-idle\nthresholds: {sm_max: {value: 0.2, reason: "\u202eevil"}}\n',
        "custom/a.yaml": HOSTILE,
        "teams/search/custom/b.yaml": HOSTILE.replace("slow-input", "slower"),
        "exceptions.yaml": "exceptions: {rdma-storage: {match: {node: [g1]}, reason: staging}}\n",
    }
    text = printed(capsys, f"rules list --rules {rules_folder(tmp_path, files)}")
    plain = yaml.safe_load(text)
    of_idle = next(rule for rule in plain["waste"] if rule["id"] == "idle")["thresholds"]
    assert (of_idle["engine_max"]["value"], of_idle["engine_max"]["origin"]) == (0.1, "site")
    assert "\u202e" not in text and "\\u202Eevil" in text
    (team,) = next(rule for rule in plain["waste"] if rule["id"] == "held-idle")["teams"]
    assert list(team["thresholds"]) == ["sm_max"]
    custom = [(rule["id"], rule["team"]) for rule in plain["custom"]]
    assert custom == [("custom/slow-input", None), ("custom/slower", "search")]


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        ("rules features", ("cpu ", "host CPU busy", "tensor_fabric_correlation")),
        ("skus list", ("ND96isr_H100_v5 8 x H100-SXM5 nvswitch infiniband 3200 Gb/s eastus 98.320 2026-09-19",)),
        ("skus show NVIDIA-H100-80GB-HBM3", ("H100-SXM5 ", "989.4 T(FL)OP/s", "98.320 2026-09-19")),  # by its driver
        ("skus show azure/Standard_ND96isr_H100_v5",
         ("9.832 USD/h, 10.0 % of the price in eastus, over azure/Standard_ND96is_H100_v5, ethernet",)),
        ("skus show aws/p5.48xlarge", ("fabric alone", "assumed (fabric-added, from pairs elsewhere)")),
    ],
)  # fmt: skip
def test_what_a_command_prints_has_its_figures(capsys, command, parts):
    text = " ".join(printed(capsys, command).split())
    assert [part for part in parts if part not in text] == []


def test_skus_show_tells_the_price_of_the_interconnect_alone(capsys):
    document = json.loads(printed(capsys, "skus show hyperstack/n3-H100-SXM5x8 --format json"))
    (nvlink,) = document["node"]["interconnect"]
    assert (nvlink["part"], nvlink["basis"], nvlink["over"]) == ("nvlink", "pair", "hyperstack/n3-H100x8")
    assert nvlink["usd_per_hour"] == pytest.approx(5.6)
    assert "alone" not in printed(capsys, "skus show azure/Standard_NC6s_v3")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("show", "H1000-SXM5"), "Did you mean H100-SXM5"),
        (("show", "ND96isr_H200"), "Did you mean azure/Standard_ND96isr_H200_v5?"),
        (("show", "zzz"), "'skuwise skus list' names all it has."),
        (("list", "--provider", "acme"), "The catalog has no provider 'acme'. Use aws, azure,"),
    ],
)
def test_what_the_catalog_lacks_is_said_with_a_remedy(capsys, arguments, part):
    assert main(["skus", *arguments]) == 2
    assert part in capsys.readouterr().err


def test_an_extra_comes_from_the_checkout_that_was_installed() -> None:
    words = shlex.split(install_command("tui"))
    assert Path(words[0]).resolve() == Path(sys.executable).resolve() and words[1:4] == ["-m", "pip", "install"]
    folder, _, extra = words[-1].partition("[")
    assert (Path(folder) / "pyproject.toml").is_file() and extra == "tui]"


@pytest.mark.parametrize(
    ("outside", "plain"),
    [
        ("H100 80GB", "H100 80GB"), ("Grüße, 日本", "Grüße, 日本"), ("a\x00\u202eb", "a\\x00\\u202eb"),
        ("\x1b[2J", "\\x1b[2J"), ("one\ntwo\u2028three", "one\\x0atwo\\u2028three"),
        ("\ud800\U000e0001", "\\ud800\\U000e0001"),
    ],
)  # fmt: skip
def test_what_is_invisible_is_shown_and_has_no_effect(outside, plain):
    assert clean(outside) == plain


def test_the_labels_are_those_of_the_schema():
    def enums(value):
        if isinstance(value, dict):
            yield from [set(value["enum"])] if "enum" in value else []
            value = list(value.values())
        for item in value if isinstance(value, list) else ():
            yield from enums(item)

    labels_of_schema = list(enums(schema("advice")))
    assert all(set(get_args(labels)) in labels_of_schema for labels in (KindLabel, BottleneckLabel, Action))


@pytest.mark.parametrize("live", [True, False])
def test_progress_is_one_line_that_is_removed_at_the_end(monkeypatch: pytest.MonkeyPatch, live: bool) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: live)
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with pytest.raises(KeyError), Progress("reading \x1b[31mred", "databases") as progress:
        progress.step(1, 62)
        progress.step(2, 62)  # too soon after the first
        progress.step(62, 62)
        progress.stage("evaluating workloads")
        raise KeyError
    reading = "reading \\x1b[31mred"
    assert re.split(r"\r\x1b\[K", stream.getvalue()) == (
        ["", f"{reading} ...", f"{reading}: 1 of 62 databases", f"{reading}: 62 of 62 databases",
         "evaluating workloads ...", ""]
        if live
        else ["reading \x1b[31mred ...\n"]
    )  # fmt: skip
