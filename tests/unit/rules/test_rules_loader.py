"""The strict reader: what it takes, and that everything else is refused with file and line."""

import re
from pathlib import Path
from typing import get_args

import pytest
from skuwise.advisor.core.verdict_types import Owner
from skuwise.agent.statistics.latency_bins import LATENCY_EDGES, REACH_SECONDS
from skuwise.rules.base.errors import RulesError
from skuwise.rules.base.yaml_loader import MAX_BYTES, parse_table
from skuwise.rules.policy.kind_priors import FILE, KindPriors, Subject, load_kind_priors
from skuwise.rules.policy.latency_classes import load_latency_classes
from skuwise.rules.policy.thresholds import check_template, fill, load_thresholds, load_waste_rules
from skuwise.tests.support.rulebooks import rules_folder


def test_values_are_read_as_yaml_1_2():
    table = parse_table(b"a: 1\nb:\n  - 2.5\n  - no\nc: {d: 2026-09-19, e: '7', f: null, g: true, h: 1:30}\n", "f.yaml")
    assert table == {"a": 1, "b": [2.5, "no"], "c": {"d": "2026-09-19", "e": "7", "f": None, "g": True, "h": "1:30"}}


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "is empty"),
        ("# only a comment\n", "is empty"),
        ("- a\n- b\n", "does not hold a mapping"),
        ("just text", "does not hold a mapping"),
        ("a: 1\n---\nb: 2\n", "file.yaml:2: a second document"),
        ("a: 1\n b: 2\n", "file.yaml:2: this is not valid YAML"),
        ("a: 'x\n", "this is not valid YAML"),
        ("? [a, b]\n: 1\n", "a key must be plain text"),
        ("{a: b}: 1\n", "a key must be plain text"),
        ("a: \x01\n", "this is not valid YAML"),
        ("a: 1\nb: 2\n\na: 3\n", "file.yaml:4: key 'a' is given twice"),
        (b"a: 1\nb: \xff\xfe\n", "file.yaml:2: this is not UTF-8"),
        ("a: !!python/object/apply:os.system ['true']", "file.yaml:1: anchors (&name) and tags"),
        ("!!map {a: 1}", "file.yaml:1: anchors (&name) and tags"),
        ("a: &a [x, x]\nb: &b [*a, *a, *a]\nc: [*b, *b, *b]\n", "file.yaml:1: anchors"),
        pytest.param(b"a: " + b"x" * 10 * MAX_BYTES, "is larger than 1 MiB", id="large"),
        pytest.param("a: [" + "1," * 60_000 + "]", "values", id="many"),
        pytest.param("[" * 100_000, "file.yaml", id="deep"),
        pytest.param("a: " + "{a: " * 50_000, "file.yaml", id="deep mappings"),
        ("a: " + "[" * 13 + "]" * 13, "file.yaml"),
    ],
)
def test_what_is_no_plain_mapping_is_refused(text, part):
    with pytest.raises(RulesError, match=re.escape(part)) as caught:
        parse_table(text if isinstance(text, bytes) else text.encode(), "file.yaml")
    assert caught.value.remedy and caught.value.exit_status == 2


WASTE = load_waste_rules()


def site(tmp_path: Path, name: str, text: str) -> Path:
    return rules_folder(tmp_path, {name: text})


def test_the_rules_ask_for_more_than_a_day_of_data():
    assert WASTE["idle-fabric"].value("util_p995_max") == 0.001 and WASTE["too-many-gpus"].value("u_p99_max") == 0.35
    floors = [rule.thresholds.get("coverage_hours") for rule in WASTE.values()]
    assert {floor.value for floor in floors if floor is not None} == {30.0}


def test_every_threshold_has_a_unit_a_reason_and_a_source_and_every_rule_what_would_change_it():
    everything = [*load_thresholds("kinds.yaml").values(), *load_thresholds("bottlenecks.yaml").values()]
    everything += [threshold for rule in WASTE.values() for threshold in rule.thresholds.values()]
    for threshold in everything:
        assert threshold.unit and threshold.resolution in ("sample", "second", "minute", "hour", "window")
        assert len(threshold.reason) > 10 and threshold.source
    for rule in WASTE.values():
        assert rule.would_change_if and rule.exceptions
        for sentence in (rule.text, *rule.would_change_if):
            assert check_template(sentence, rule.thresholds) is None


def test_a_site_replaces_one_threshold_and_keeps_the_rest(tmp_path):
    text = "id: idle-fabric\nseverity: low\nthresholds: {util_p995_max: {value: 0.02, reason: our storage is chatty}}\n"
    rule = load_waste_rules(site(tmp_path, "waste/ours.yaml", text))["idle-fabric"]
    assert (rule.severity, rule.value("util_p995_max"), rule.value("coverage_hours")) == ("low", 0.02, 30)
    assert rule.thresholds["util_p995_max"].reason == "our storage is chatty"
    assert "in place of 0.001" in rule.thresholds["util_p995_max"].source and rule.text == WASTE["idle-fabric"].text


def test_a_rules_folder_that_is_none_is_refused(tmp_path):
    with pytest.raises(RulesError, match="is not a folder of rules"):
        load_waste_rules(tmp_path / "none")


def test_gaps_are_filled_once_and_nothing_is_evaluated():
    values = {"workload": "{node} {0.__class__} %s", "node": "n1", "hours": 31.5}
    assert fill("{workload} on {node} for {hours} h", values) == "{node} {0.__class__} %s on n1 for 31.5 h"


LINE = """priors:
  ours:
    of: namespace
    names: [prod-llm]
    words: [llm*]
    log_odds: {online-inference: 4.0, interactive: -2.0}
    says: where only services run
    reason: nothing else is admitted there
"""


def loaded(folder: Path, text: str) -> KindPriors:
    return load_kind_priors(site(folder, FILE, text))


def test_every_subject_has_lines_and_every_line_its_reason() -> None:
    shipped = load_kind_priors()
    assert set(shipped.lines) == set(get_args(Subject))
    assert all(len(line.reason) > 15 and line.says and line.log_odds for line in shipped.every)
    kept = [shipped.first("owner", "Deployment", hours) for hours in (1.0, 2.0)]
    assert [one and one[0].name for one in kept] == ["owner-kept-new", "owner-kept"]


@pytest.mark.parametrize(
    ("word", "text", "fits"),
    [
        ("vllm", "docker.io/vllm/vllm-openai", True), ("vllm", "acme/notvllm", False), ("vllm*", "vllmserver", True),
        ("*fsdp*", "run_myfsdp2.py", True), ("api-server", "python -m a.api_server --x", True),
        ("api-server", "apiserver", False), ("api-server", "api / --- server", False), ("train", "pretraining", False),
    ],
)  # fmt: skip
def test_a_word_fits_whole_words_whatever_parts_them(tmp_path: Path, word: str, text: str, fits: bool) -> None:
    found = loaded(tmp_path, LINE.replace("[llm*]", f'["{word}"]')).first("namespace", text, 1.0)
    assert (found is not None and found[0].name == "ours") == fits


def test_a_sites_line_speaks_before_ours_replaces_one_of_its_name_and_silences_by_zeros(tmp_path: Path) -> None:
    one = loaded(tmp_path, LINE).first("namespace", "Prod-LLM", 0.0)
    assert one is not None and (one[0].name, one[0].origin, one[1]) == ("ours", "site", "prod-llm")
    renamed = LINE.replace("ours:", "owner-kept:").replace("of: namespace", "of: owner").replace("prod-llm", "Widget")
    own = loaded(tmp_path, renamed)
    assert own.first("owner", "Deployment", 100.0)[0].name == "owner-kept-new"  # type: ignore[index]
    assert own.first("owner", "Widget", 100.0)[0].name == "owner-kept"  # type: ignore[index]
    silent = loaded(tmp_path, LINE.replace("{online-inference: 4.0, interactive: -2.0}", "{training: 0}"))
    assert not any(silent.first("namespace", "llm-serving", 1.0)[0].log_odds.values())  # type: ignore[index]


def test_those_that_ship_are_told_strictest_first_and_their_limits_are_edges_of_the_bins() -> None:
    latency_classes = load_latency_classes()
    assert list(latency_classes.classes) == ["interactive", "documents", "waited-for", "batch"]
    assert latency_classes.classes["interactive"].limits == {
        "first_token_p90_seconds": 0.1, "output_token_p90_seconds": 0.05, "first_token_p99_seconds": 2.0,
    }  # fmt: skip
    assert latency_classes.classes["batch"].limits == {}
    limits = [limit for class_ in latency_classes.classes.values() for limit in class_.limits.values()]
    assert set(limits) <= set(LATENCY_EDGES) and max(limits) <= REACH_SECONDS
    assert latency_classes.kinds == {"online-inference": "waited-for", "batch-inference": "batch"}
    assert latency_classes.set_for(Owner(namespace="chat"), "chat", "s-1") is None


SITE = """classes:
  reads-along: {first_token_p90_seconds: 0.3, output_token_p90_seconds: 0.08, says: read as it comes, reason: agreed}
  documents: {first_token_p90_seconds: 1.0, reason: our prompts are longer}
services:
  chat: {class: interactive, match: {namespace: [chat]}, reason: people type}
  rest: {class: reads-along, match: {name: [api], series: [s-9], team: [assist]}, reason: agreed with them}
kinds: {online-inference: documents}
"""


def test_a_site_adds_classes_changes_figures_and_says_whose_is_which(tmp_path: Path) -> None:
    latency_classes = load_latency_classes(site(tmp_path, "latency_classes.yaml", SITE))
    assert list(latency_classes.classes) == ["reads-along", "interactive", "documents", "waited-for", "batch"]
    assert latency_classes.classes["documents"].limits == {"first_token_p90_seconds": 1.0}
    assert (
        latency_classes.classes["documents"].origin == "site"
        and latency_classes.kinds["online-inference"] == "documents"
    )

    def label(owner: Owner, name: str = "x", series: str = "s") -> str | None:
        said = latency_classes.set_for(owner, name, series)
        return said.label if said is not None else None

    assert label(Owner(namespace="chat"), "api") == "interactive"  # the first that fits
    assert {label(Owner(), "api"), label(Owner(), series="s-9"), label(Owner(team="assist"))} == {"reads-along"}
    assert label(Owner(namespace="chat-2")) is None


WRONG_RULES = [
    ("id: idle-fabrik\n", "x.yaml: id: unknown rule 'idle-fabrik'. Did you mean idle-fabric"),
    ("id: idle\nseverity: grave\n", "x.yaml: severity: unknown value 'grave'"),
    ("id: idle\nthresholds: {engine_min: {value: 1}}\n", "unknown threshold 'engine_min'"),
    ("id: idle\nthresholds: {engine_max: {value: -1}}\n", "impossible for unit ratio"),
    ("id: idle\nthresholds: {engine_max: {value: 1, unit: hours}}\n", "cannot become hours"),
    ("id: idle\nthresholds: {engine_max: {value: .1, resolution: hour}}\n", "cannot become hour"),
    ("id: idle\ntext: 'on {nod}'\n", "x.yaml: text: unknown placeholder {nod}"),
]
WRONG_CLASSES = [
    ("services:\n  a: {class: interactve, match: {name: [x]}, reason: r}\n", "services.a: unknown class 'interactve'"),
    ("services:\n  a: {class: batch, match: {}, reason: r}\n", "services.a.match: it names no service"),
    (
        "classes:\n  fast: {first_token_p90_seconds: 0, reason: r}\n",
        "fast.first_token_p90_seconds: expected a number >=",
    ),
    ("classes:\n  fast: {first_token_p90_seconds: 90, reason: r}\n", "expected a number <= 20"),
    ("classes:\n  fast: {first_token_p50_seconds: 0.1, reason: r}\n", "unknown key 'first_token_p50_seconds'"),
]
WRONG_PRIORS = [
    ("of: namespace", "of: namespce", "priors.ours.of: unknown value 'namespce'. Did you mean namespace?"),
    ("interactive: -2.0", "interaktive: -2.0", "unknown value 'interaktive'"),
    ("interactive: -2.0", "interactive: -9", "log_odds.interactive: expected a number >= -8"),
    ("interactive: -2.0", "interactive: .inf", "expected a number"),
    ("{online-inference: 4.0, interactive: -2.0}", "{}", "priors.ours.log_odds: "),
    ("llm*", '"(a+)+$"', "priors.ours: '(a+)+$' is no word"),
    ("llm*", '"*"', "is no word"),
]


@pytest.mark.parametrize(
    ("load", "name", "text", "said"),
    [
        *((load_waste_rules, "waste/x.yaml", *row) for row in WRONG_RULES),
        *((load_latency_classes, "latency_classes.yaml", *row) for row in WRONG_CLASSES),
        *((load_kind_priors, FILE, LINE.replace(old, new), said) for old, new, said in WRONG_PRIORS),
    ],
)
def test_what_is_wrong_is_refused_with_file_and_key(load, name: str, text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(RulesError, match=re.escape(said)) as refused:
        load(site(tmp_path, name, text))
    assert name in str(refused.value)
