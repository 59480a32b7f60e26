"""The strict reader: the values of valid files, and a refusal with file and key (or line) for all others."""

import re
from datetime import date
from functools import partial
from pathlib import Path
from typing import get_args

import pytest
from skuwise.advisor.core.verdict_types import Owner
from skuwise.agent.statistics.latency_bins import LATENCY_EDGES, REACH_SECONDS
from skuwise.rules.base.errors import RulesError
from skuwise.rules.base.yaml_loader import parse_table
from skuwise.rules.catalog.gpu_files import load_gpus
from skuwise.rules.catalog.loader import load_catalog, load_providers
from skuwise.rules.catalog.price_files import load_prices
from skuwise.rules.policy.kind_priors import KindPriors, Subject, load_kind_priors
from skuwise.rules.policy.latency_classes import load_latency_classes
from skuwise.rules.policy.teams import load_exceptions
from skuwise.rules.policy.thresholds import fill, load_custom_rules, load_thresholds, load_waste_rules
from skuwise.tests.support.rulebooks import rules_folder
from skuwise.tests.support.rules_files import CUSTOM, GPU, NODES, PRICES, PRIOR, PROVIDER

WASTE = load_waste_rules()


def test_values_are_read_as_yaml_1_2_and_text_is_folded():
    text = b"a: 1\nb:\n  - 2.5\n  - no\nc: {d: 2026-09-19, e: '7', f: null, g: true, h: 1:30}\ni: |\n  x\n   y\n"
    assert parse_table(text, "f.yaml") == {
        "a": 1, "b": [2.5, "no"], "c": {"d": "2026-09-19", "e": "7", "f": None, "g": True, "h": "1:30"}, "i": "x y",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("# only a comment\n", "is empty"), ("- a\n- b\n", "does not hold a mapping"),
        ("a: 1\n---\nb: 2\n", "file.yaml:2: a second document"),
        ("a: 1\n b: 2\n", "file.yaml:2: this is not valid YAML"), ("a: \x01\n", "this is not valid YAML"),
        ("? [a, b]\n: 1\n", "a key must be plain text"),
        ("a: 1\nb: 2\n\na: 3\n", "file.yaml:4: key 'a' is given twice"),
        (b"a: 1\nb: \xff\xfe\n", "file.yaml:2: this is not UTF-8"),
        ("a: !!python/object/apply:os.system ['true']", "file.yaml:1: anchors (&name) and tags"),
        ("a: &a [x, x]\nb: &b [*a, *a, *a]\nc: [*b, *b, *b]\n", "file.yaml:1: anchors"),
        pytest.param("[" * 100_000, "file.yaml", id="deep"),
        pytest.param("a: " + "{a: " * 50_000, "file.yaml", id="deep mappings"),
        ("a: " + "[" * 13 + "]" * 13, "file.yaml"),
    ],
)  # fmt: skip
def test_what_is_no_plain_mapping_is_refused(text, part):
    with pytest.raises(RulesError, match=re.escape(part)) as caught:
        parse_table(text if isinstance(text, bytes) else text.encode(), "file.yaml")
    assert caught.value.remedy and caught.value.exit_status == 2


def test_every_rule_says_when_it_is_wrong_and_needs_more_than_a_day_of_data():
    assert all(rule.would_change_if and rule.exceptions for rule in WASTE.values())
    assert WASTE["idle-fabric"].value("util_p995_max") == 0.001 and WASTE["too-many-gpus"].value("u_p99_max") == 0.35
    floors = [rule.thresholds.get("coverage_hours") for rule in WASTE.values()]
    assert {floor.value for floor in floors if floor is not None} == {30.0}


def test_placeholders_are_filled_once_and_nothing_is_evaluated():
    values = {"workload": "{node} {0.__class__} %s", "node": "n1", "hours": 31.5}
    assert fill("{workload} on {node} for {hours} h", values) == "{node} {0.__class__} %s on n1 for 31.5 h"


def priors(folder: Path, text: str) -> KindPriors:
    return load_kind_priors(rules_folder(folder, {"kind_priors.yaml": text}))


def first_of(entries: KindPriors, text: str, hours: float = 1.0, of: str = "namespace") -> str | None:
    match = entries.first(of, text, hours)
    return next((name for name, prior in entries.priors.items() if match and prior is match[0]), None)


def test_every_subject_has_entries_and_every_entry_its_reason() -> None:
    shipped = load_kind_priors()
    entries = shipped.priors.values()
    assert {prior.of for prior in entries} == set(get_args(Subject)) and all(len(p.reason) > 15 for p in entries)
    assert [first_of(shipped, "Deployment", hours, "owner") for hours in (1.0, 2.0)] == ["owner-kept-new", "owner-kept"]


@pytest.mark.parametrize(
    ("word", "text", "fits"),
    [
        ("vllm", "docker.io/vllm/vllm-openai", True), ("vllm", "acme/notvllm", False), ("vllm*", "vllmserver", True),
        ("*fsdp*", "run_myfsdp2.py", True), ("api-server", "python -m a.api_server --x", True),
        ("api-server", "apiserver", False), ("api-server", "api / --- server", False), ("train", "pretraining", False),
    ],
)  # fmt: skip
def test_a_word_matches_whole_words_with_any_separators(tmp_path: Path, word: str, text: str, fits: bool) -> None:
    assert (first_of(priors(tmp_path, PRIOR.replace("[llm*]", f'["{word}"]')), text) == "ours") == fits


def test_a_sites_prior_precedes_ours_replaces_its_namesake_and_disables_by_zeros(tmp_path: Path) -> None:
    ours = priors(tmp_path, PRIOR)
    assert ours.first("namespace", "Prod-LLM", 0.0) == (ours.priors["ours"], "prod-llm")
    renamed = PRIOR.replace("ours:", "owner-kept:").replace("of: namespace", "of: owner").replace("prod-llm", "Widget")
    replaced = priors(tmp_path, renamed)
    names = [first_of(replaced, owner, 100.0, "owner") for owner in ("Deployment", "Widget")]
    assert names == ["owner-kept-new", "owner-kept"]
    silent = priors(tmp_path, PRIOR.replace("{online-inference: 4.0, interactive: -2.0}", "{training: 0}"))
    match = silent.first("namespace", "llm-serving", 1.0)
    assert match is not None and not any(match[0].log_odds.values())


LATENCY = """classes:
  reads-along: {first_token_p90_seconds: 0.3, output_token_p90_seconds: 0.08, says: read as it comes, reason: agreed}
  documents: {first_token_p90_seconds: 1.0, reason: our prompts are longer}
services:
  chat: {class: interactive, match: {namespace: [chat]}, reason: people type}
  rest: {class: reads-along, match: {name: [api], series: [s-9], team: [assist]}, reason: agreed with them}
kinds: {online-inference: documents}
"""


def test_latency_classes_are_strictest_first_and_a_site_assigns_them(tmp_path: Path) -> None:
    shipped = load_latency_classes()
    assert list(shipped.classes) == ["interactive", "documents", "waited-for", "batch"]
    limits = [limit for latency_class in shipped.classes.values() for limit in latency_class.limits.values()]
    assert set(limits) <= set(LATENCY_EDGES) and max(limits) <= REACH_SECONDS
    assert shipped.set_for(Owner(namespace="chat"), "chat", "s-1") is None and not shipped.classes["batch"].limits

    site = load_latency_classes(rules_folder(tmp_path, {"latency_classes.yaml": LATENCY}))
    assert list(site.classes) == ["reads-along", "interactive", "documents", "waited-for", "batch"]
    assert site.classes["documents"].limits == {"first_token_p90_seconds": 1.0}
    assert site.kinds == {"online-inference": "documents", "batch-inference": "batch"}

    chat = ("chat", site.services["chat"])
    assert site.set_for(Owner(namespace="chat"), "api", "s") == chat and chat[1].label == "interactive"  # the first
    for owner, name, series in ((Owner(), "api", "s"), (Owner(), "x", "s-9"), (Owner(team="assist"), "x", "s")):
        assert site.set_for(owner, name, series) == ("rest", site.services["rest"])
    assert site.set_for(Owner(namespace="chat-2"), "x", "s") is None


exceptions, kinds = partial(load_exceptions, known_rules=WASTE), partial(load_thresholds, "kinds.yaml")


def prices(folder: Path) -> object:
    return load_prices(folder / "prices.yaml", load_catalog().nodes, today=date(2026, 11, 21))


# The loader, the file, what of the template is replaced by what, and the refusal.
RATES = "fp16: 989.4, bf16: 989.4, fp8: 1978.9, int8: 1978.9"
PUE = "energy: {pue: {value: 0.9, source: bill, as_of: 2026-11-01}}\n"
WASTE_FILE, BOUNDS = "id: idle\nthresholds: {engine_max: {value: 1}}\n", "thresholds: {mem_flat_level_%s: {value: %s}}"
WRONG = [
    (load_waste_rules, "waste/x.yaml", WASTE_FILE, [
        ("idle", "idel", "x.yaml: id: unknown rule 'idel'. Did you mean idle"),
        ("thr", "severity: grave\nthr", "x.yaml: severity: unknown value 'grave'"),
        ("engine_max", "engine_min", "thresholds: unknown threshold 'engine_min'"),
        ("1", "-1", "impossible for unit ratio"), ("1", "1, unit: hours", "cannot become hours"),
        ("1", "1, resolution: hour", "cannot become hour"),
        ("value", "valeu", "unknown key 'valeu'. Did you mean value?"),
        ("thr", "text: on {nod}\nthr", "x.yaml: text: unknown placeholder 'nod'. Did you mean node"),
    ]),
    (kinds, "kinds.yaml", "thresholds: {}", [
        ("thresholds: {}", BOUNDS % ("min", 0.991), "mem_flat_level_min is 0.991, above "),
        ("thresholds: {}", BOUNDS % ("max", 0.2), "mem_flat_level_min is 0.85, above "),
    ]),
    (load_latency_classes, "latency_classes.yaml", LATENCY, [
        ("class: interactive", "class: interactve", "services.chat: unknown class 'interactve'. Did you mean"),
        ("{namespace: [chat]}", "{}", "services.chat.match: it names no service"),
        ("0.3", "0", "classes.reads-along.first_token_p90_seconds: expected a number >= 0.005"),
        ("0.3", "90", "expected a number <= 20"),
    ]),
    (load_kind_priors, "kind_priors.yaml", PRIOR, [
        ("of: namespace", "of: namespce", "priors.ours.of: unknown value 'namespce'. Did you mean namespace?"),
        ("interactive", "interaktive", "unknown value 'interaktive'"), ("-2.0", ".inf", "expected a number"),
        ("-2.0", "-9", "log_odds.interactive: expected a number >= -8"),
        ("llm*", '"(a+)+$"', "priors.ours.words.1: expected two letters"), ("llm*", '"a*"', "expected two letters"),
    ]),
    (load_custom_rules, "custom/a.yaml", CUSTOM, [
        ("feature: cpu", "feature: cpus", "a.yaml: when.1: unknown feature 'cpus'. Did"),
        ("value: 0.8", "value: cpu > 0.8", "a.yaml: when.1.value: expected a number"),
        ("value: 0.8", "value: 0.8, unit: percent", "a.yaml: when.1: the unit of 'cpu' is ratio, not 'percent'"),
        ("  - {feature: engine_active, operator: below", "  - {feature: cpu, operator: above", "same operator twice"),
        ("kinds: [training", "kinds: [trainin", "a.yaml: kinds.1: unknown value 'trainin'. Did you mean"),
    ]),
    (exceptions, "exceptions.yaml", "exceptions: {rdma-storage: {reason: r, match: {user: [a]}}}", [
        ("rdma-storage", "mine", "exceptions.mine: 'rules' is missing"),
        (", match: {user: [a]}", "", "'match' is missing"),
        ("match", "rules: [idel], match", "exceptions.rdma-storage: unknown rule 'idel'. Did"),
    ]),
    (load_catalog, "nodes/own.yaml", NODES, [
        ("gpu: H100-SXM5", "gpu: H100", "own.yaml: nodes.box-8: unknown gpu 'H100'. Did you mean H100-"),
        ("source: contract, as_of", "source: hearsay, as_of", "unknown source 'hearsay'"),
    ]),
    (load_gpus, "gpus/own.yaml", GPU, [
        ("tdp_watts", "tdp_wats", "gpus.X100: unknown key 'tdp_wats'. Did you mean tdp_watts?"),
        ('["NVIDIA X100"]', '["NVIDIA L4"]', "already names gpu 'L4'"),
        ("vendor: NVIDIA\n", "", "'vendor' is missing"),
        (RATES, "fp16: 1979", "is it the rate with sparsity?"), (RATES, "fp16: 494.7", "is it one die of two?"),
        ("fp16: 989.4, bf16: 989.4", "fp16: 940, bf16: 940", "the fp16 rate over SMs x FLOP x clock is 0.95"),
        ("sm: 4096", "sm: 8192", "flop_per_clock_per_sm is 8192 and must be from 0 to 4096"),
        # solving the clock from a sparse rate passes the formula and needs an impossible clock
        (f"1830, flop_per_clock_per_sm: 4096, basis: published}}\n    dense_tflops: {{fp32: 66.9, {RATES}",
         "3660, flop_per_clock_per_sm: 4096, basis: back-solved}\n    dense_tflops: {fp16: 1978.9",
         "the clock that the fp16 rate asks for is 3660"),
        ("fp32: 66.9", "fp32: 33.5", "fp32 rate is 33.5"), ("bf16: 989.4", "bf16: 494", "bf16 rate is 494"),
        ("fp8: 1978.9", "fp8: 3958", "fp8 rate is 3958"), ("int8: 1978.9", "int8: 3958", "int8 rate is 3958"),
        ("int8: 1978.9", "int8: 1978.9, fp4: 9000", "fp4 rate is 9000"),
        ("gb_per_second: 3350", "gb_per_second: 1675", "gb_per_second of HBM3 is 1675"),
        ("gb: 80,", "gb: 80, mib: 40960,", "mib of memory beside its gb is 40"),
    ]),
    (prices, "prices.yaml", PRICES, [
        ("61.2", "0", "prices.yaml: prices.1.usd_per_hour: expected a number > 0"),
        ("    usd_per_hour: 61.2\n", "", "prices.yaml: prices.1: 'usd_per_hour' is missing"),
        ("ND96isr_H100_v5", "ND96ist_H100_v5", " or azure/Standard_ND96isr_H100_v5"),
        ("2027-06-30", "30.6.2027", "prices.1.committed_until: "), ("2027", "2025", "ended on 2025-06-30, before"),
        ("    committed_until: 2027-06-30\n", "", "'committed_until' is missing"),
        ("prices:", f"{PUE}prices:", "prices.yaml: energy.pue.value: expected a number >= 1"),
    ]),
    (load_providers, "providers.yaml", PROVIDER, [
        ("true", "maybe", "providers.mine.rented: expected true or false"),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("load", "name", "text", "part"),
    [(load, name, text.replace(old, new, 1), part) for load, name, text, rows in WRONG for old, new, part in rows],
)
def test_what_cannot_be_meant_is_refused_with_file_and_key(load, name: str, text: str, part: str, tmp_path: Path):
    with pytest.raises(RulesError, match=re.escape(part)) as refused:
        load(rules_folder(tmp_path, {name: text}))
    assert name in str(refused.value) and refused.value.remedy


@pytest.mark.parametrize(
    ("files", "part"),
    [
        ({"teams/a/team.yaml": "user: [ann]\n", "teams/b/team.yaml": "account: [x]\nuser:\n  - ann\n"},
         "teams/b/team.yaml: user: 'ann' is already of team 'a'."),
        ({"teams/a/waste/x.yaml": "id: idle\n"}, "a/waste/x.yaml: id: findings are about nodes"),
        ({"teams/a/kinds.yaml": "thresholds: {}\n"}, "a/kinds.yaml: this is no part of the rules."),
        ({"teams/a.yaml": "user: [x]\n"}, "a.yaml: this is no part of the rules."),
        ({"teams/a/team.yaml": "users: [x]\n"}, "team.yaml: unknown key 'users'. Did you mean user?"),
        ({"waste/deep/x.yaml": "id: idle\n"}, "waste/deep/x.yaml: this is no part of the rules."),
        ({"waste/a.yaml": "id: idle\n", "waste/b.yaml": "id: idle\n"}, "b.yaml: {root}/waste/a.yaml has 'idle'"),
    ],
)  # fmt: skip
def test_files_that_contradict_one_another_or_are_ignored_are_refused(tmp_path, files, part):
    with pytest.raises(RulesError, match=re.escape(part.replace("{root}", str(tmp_path)))) as caught:
        load_waste_rules(rules_folder(tmp_path, files))
    assert caught.value.remedy
    with pytest.raises(RulesError, match="is not a folder of rules"):
        load_waste_rules(tmp_path / "none")


def test_a_rule_in_ten_lines(tmp_path):
    for operator, held in (("at-least", (0, 1, 1)), ("below", (1, 0, 0)), ("at-most", (1, 1, 0)), ("above", (0, 0, 1))):
        rules = load_custom_rules(rules_folder(tmp_path, {"custom/slow-input.yaml": CUSTOM.replace("above", operator)}))
        (custom,) = rules.of(Owner(user="ann"))
        assert tuple(custom.conditions[0].holds(value) for value in (0.7, 0.8, 0.9)) == held
    assert (custom.id, custom.severity, len(custom.kinds)) == ("custom/slow-input", "medium", 2)
    conditions = [(c.feature, c.value, c.unit) for c in custom.conditions]
    assert conditions == [("cpu", 0.8, "ratio"), ("engine_active", 0.6, "ratio")]


def test_a_teams_rule_is_for_its_workloads_and_replaces_the_sites_of_that_name(tmp_path):
    files = {
        "custom/a.yaml": CUSTOM,
        "teams/ml/custom/a.yaml": CUSTOM.replace("0.8", "0.9"),
        "teams/ml/custom/b.yaml": CUSTOM.replace("slow-input", "other"),
        "teams/ml/team.yaml": "user: [ann]\n",
    }
    rules = load_custom_rules(rules_folder(tmp_path, files))
    values = {r.id: r.conditions[0].value for r in rules.of(Owner(user="ann"))}
    assert values == {"custom/slow-input": 0.9, "custom/other": 0.8}
    assert [r.conditions[0].value for r in rules.of(Owner(user="bob"))] == [0.8] and len(rules.ids) == 2


def test_work_is_excepted_by_words_of_its_command_or_by_its_team(tmp_path):
    text = "exceptions: {mixture-of-experts: {reason: we route between nodes}}\n"
    files = {"teams/moe/exceptions.yaml": text, "teams/moe/team.yaml": "namespace: [moe]\n"}
    excepted = load_exceptions(rules_folder(tmp_path, files), known_rules=WASTE)

    def why(command=None, namespace=None, rule="idle-fabric"):
        exception = excepted.of_workload(rule, Owner(namespace=namespace), "chat", command, "2026-11-21")
        return exception and (exception.id, exception.origin)

    of_experts = "python -m sglang.launch_server --ep-size=8"
    assert why(of_experts) == ("mixture-of-experts", "shipped") and why(of_experts, rule="too-many-gpus") is None
    assert why("vllm serve m --kv-transfer-config {}") == ("disaggregated-serving", "shipped")
    assert why("vllm serve my--enable-expert-parallel-model") is None and why() is None
    assert why(namespace="moe") == ("mixture-of-experts", "team moe") and why(namespace="other") is None


HELD = "id: held-idle\nthresholds: {sm_max: {value: %s, reason: %s}}\n"


def test_a_team_lies_over_its_site_and_a_site_over_what_ships(tmp_path):
    files = {
        "waste/held.yaml": "id: held-idle\nseverity: low\nthresholds: {sm_max: {value: 0.1}, minutes: {value: 60}}\n",
        "teams/search/waste/held.yaml": HELD % (0.2, "our probes"),
        "teams/search/team.yaml": "namespace: [search, search-staging]\naccount: [srch]\n",
    }
    rules = load_waste_rules(rules_folder(tmp_path, files))
    held = rules["held-idle"]
    of_team = held.of(Owner(namespace="search"))
    assert [r.value("sm_max") for r in (held, of_team)] == [0.1, 0.2]
    assert of_team.value("minutes") == 60  # the site's, which the team left alone
    origins = [of_team.thresholds[name].origin for name in ("sm_max", "minutes", "dram_max")]
    assert origins == ["team search", "site", "shipped"]
    threshold = of_team.thresholds["sm_max"]
    assert threshold.source.endswith("teams/search/waste/held.yaml), in place of 0.1")
    assert (threshold.reason, of_team.severity, of_team.text) == ("our probes", "low", WASTE["held-idle"].text)
    assert held.of(Owner(namespace="Search")) is held  # names match whole and as they are
    assert held.of(Owner(user="ann")) is held and rules["idle"].of(Owner(namespace="search")) is rules["idle"]


def test_a_label_or_namespace_decides_before_an_account_and_that_before_a_user(tmp_path):
    files = {
        "teams/a/team.yaml": "user: [ann]\nnamespace: [one]\n",
        "teams/b/team.yaml": "account: [acc]\nnamespace: [two]\n",
        "teams/a/waste/held.yaml": HELD % (0.2, "a"),
        "teams/b/waste/held.yaml": HELD % (0.3, "b"),
    }
    held = load_waste_rules(rules_folder(tmp_path, files))["held-idle"]
    values = {
        Owner(user="ann"): 0.2,
        Owner(user="ann", account="acc"): 0.3,
        Owner(user="ann", account="acc", namespace="one"): 0.2,
        Owner(namespace="one", team="b"): 0.3,  # telemetry labels it with the team's name
        Owner(): 0.05,
    }
    assert {owner: held.of(owner).value("sm_max") for owner in values} == values
