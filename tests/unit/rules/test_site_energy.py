"""What a site says of its energy, in skuwise.toml and in a price file: one set of checks, bad figures refused."""

import argparse
from importlib import resources
from pathlib import Path

import pytest
from skuwise.advisor.advise import load_rulebook
from skuwise.advisor.cli.price_options import said_prices
from skuwise.rules.base.errors import RulesError, UsageError
from skuwise.rules.catalog.hour_prices import StatedPrices
from skuwise.rules.catalog.price_files import load_prices
from skuwise.rules.catalog.site_energy import SiteEnergy, SiteFigure
from skuwise.rules.catalog.types import PowerPrice
from skuwise.rules.models.power_model import CLASSES, load_power_model, read_power_model

SOURCED = 'source = "bill", as_of = "2026-11-01"'
HOURS = [100.0 + n for n in range(24)]


def stated(tmp_path: Path, text: str, environ: dict[str, str] | None = None) -> SiteEnergy:
    file = tmp_path / "skuwise.toml"
    file.write_text(f"[energy]\n{text}\n")
    options = argparse.Namespace(gpu_hour_usd=[])
    return said_prices(options, environ or {}, system_file=file, config_home=tmp_path / "none").energy


def in_prices(tmp_path: Path, text: str) -> SiteEnergy:
    file = tmp_path / "prices.yaml"
    file.write_text(f"energy:\n  {text}\n")
    return load_prices(file).energy


def test_settings_and_price_files_say_the_same_in_their_own_forms(tmp_path: Path) -> None:
    toml = stated(
        tmp_path,
        f"usd_per_kwh = {{ value = 0.085, {SOURCED} }}\npue = {{ value = 1.25, source = 'bill', as_of = 2026-11-01 }}\n"
        f"co2_grams_per_kwh = {{ by_hour_utc = {HOURS}, {SOURCED} }}",
    )
    yaml = in_prices(
        tmp_path,
        "usd_per_kwh: {value: 0.085, source: bill, as_of: 2026-11-01}\n  pue: {value: 1.25, source: bill, as_of: "
        f"2026-11-01}}\n  co2_grams_per_kwh: {{by_hour_utc: {HOURS}, source: bill, as_of: 2026-11-01}}",
    )
    assert toml == yaml and toml.usd_per_kwh == SiteFigure((0.085,), "bill", "2026-11-01")
    carbon = toml.co2_grams_per_kwh
    assert carbon is not None and [carbon.at(hour) for hour in (0, 5, 23)] == [100.0, 105.0, 123.0]
    assert toml.pue is not None and toml.pue.at(7) == 1.25 and stated(tmp_path, "") == SiteEnergy()


BAD = [
    ("co2_grams_per_kwh", "value = 0", "above 0 and at most 2500"),
    ("co2_grams_per_kwh", "value = -3", "above 0 and at most 2500"),
    ("co2_grams_per_kwh", 'value = "green"', "'value' must be a number"),
    ("co2_grams_per_kwh", "value = 380000", "above 0 and at most 2500"),
    ("co2_grams_per_kwh", "by_hour_utc = [1, 2]", "'by_hour_utc' has 2 values"),
    ("co2_grams_per_kwh", f"by_hour_utc = {[*HOURS[:23], 0]}", "above 0 and at most 2500"),
    ("co2_grams_per_kwh", f"by_hour_utc = {[*HOURS[:23], 'x']}", "every item of 'by_hour_utc' must be a number"),
    ("co2_grams_per_kwh", f"value = 3, by_hour_utc = {HOURS}", "give either 'value' or 'by_hour_utc'"),
    ("co2_grams_per_kwh", "", "give either 'value' or 'by_hour_utc'"),
    ("pue", "value = 0.9", "from 1 to 3"),
    ("pue", "value = 3.5", "from 1 to 3"),
    ("pue", "value = true", "'value' must be a number"),
    ("usd_per_kwh", "value = 0", "above 0 and at most 5"),
    ("usd_per_kwh", "value = 85", "above 0 and at most 5"),
    ("usd_per_kwh", "valeu = 1", "give either 'value' or 'by_hour_utc'"),
    ("usd_per_kwh", "value = 1, unit = 3", "unknown key 'unit'"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "given", "said"), BAD)
def test_a_figure_that_cannot_be_is_refused_in_one_sentence_with_a_remedy(tmp_path, name, given, said):
    with pytest.raises(UsageError) as toml:
        stated(tmp_path, f"{name} = {{ {', '.join(part for part in (given, SOURCED) if part)} }}")
    assert said in toml.value.message and toml.value.message.count(". ") == 0
    assert f"energy.{name} in " in toml.value.message and toml.value.remedy.endswith((".", "?"))
    yaml = ", ".join(part for part in (given.replace(" = ", ": "), "source: bill, as_of: 2026-11-01") if part)
    with pytest.raises(RulesError) as refused:
        in_prices(tmp_path, f"{name}: {{{yaml}}}")
    assert said in refused.value.message and "prices.yaml:" in refused.value.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pue = 1.3", "energy.pue in .* is no table of a value with its source"),
        ("pue = { value = 1.3 }", "'source' is missing"),
        ("pue = { value = 1.3, source = 'x' }", "'as_of' is missing"),
        ("pue = { value = 1.3, source = 'x', as_of = 'May' }", "'as_of' must be a date"),
        ("pue = { value = nan, source = 'x', as_of = '2026-11-01' }", "is not a number"),
        ("carbon = 3", "Unknown setting 'carbon' of energy"),
    ],
)
def test_settings_without_a_source_a_date_or_a_name_are_refused(tmp_path, text, said):
    with pytest.raises(UsageError, match=said):
        stated(tmp_path, text)


def test_a_price_file_goes_over_the_settings_figure_by_figure(tmp_path: Path) -> None:
    site = stated(tmp_path, f"usd_per_kwh = {{ value = 0.1, {SOURCED} }}\npue = {{ value = 1.2, {SOURCED} }}")
    file = tmp_path / "prices.yaml"
    file.write_text("energy:\n  pue: {value: 1.5, source: meter, as_of: 2026-10-01}\n")
    book = load_rulebook(None, file, 1_790_000_000.0, StatedPrices(energy=site))
    assert book.energy.pue == SiteFigure((1.5,), "meter", "2026-10-01")
    assert book.energy.usd_per_kwh == SiteFigure((0.1,), "bill", "2026-11-01")
    # Rules that reckon what a lower clock saves take the site's price for electricity, too.
    assert book.power == (PowerPrice("global", 0.1, "bill", "2026-11-01"),)


TEXT = resources.files("skuwise.rules").joinpath("power_model.yaml").read_text()


def test_what_ships_is_read_and_says_what_it_rests_on():
    model = load_power_model()
    assert model.lines == 877 and model.runs == 138 and "zeus" in model.source and len(model.classes) == len(CLASSES)
    assert set(model.typical) == {"training", "fp32", "prefill", "one-pass", "mixed", "decode"}


def test_an_architecture_without_runs_is_never_narrower():
    model = load_power_model()
    assert model.measured("Volta") and not model.measured("hopper")
    for slowdown in (1.0, 1.1, 1.3, 3.0):
        here, there = model.spread(slowdown, "ampere"), model.spread(slowdown, "hopper")
        assert there[0] >= here[0] and there[1] >= here[1]
    assert model.spread(3.0, "ampere")[0] > model.spread(1.1, "ampere")[0]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("skuwise.power-model/1", "skuwise.power-model/9", "make power-model"),
        ("  follows: ", "  follows: -", "'follows'"),
        ("  clocked: ", "  clocked: 9", "'clocked'"),
        ("lowest_cap_share: ", "lowest_cap_share: 7", "'lowest_cap_share'"),
        ("name: light", "name: slight", "not one of"),
        (", up_to: 1.15", "", "must rise"),
    ],
)
def test_a_changed_file_is_refused_by_line(tmp_path, old, new, told):
    assert old in TEXT
    file = tmp_path / "power_model.yaml"
    file.write_text(TEXT.replace(old, new, 1))
    with pytest.raises(RulesError, match=r"power_model\.yaml") as caught:
        read_power_model(file)
    assert told in str(caught.value)
