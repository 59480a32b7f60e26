"""The file of the model of power caps: strictly what it should be, or refused with file and line."""

from importlib import resources

import pytest
from skuwise.rules.base.errors import RulesError
from skuwise.rules.models.power_model import CLASSES, load_power_model, read_power_model

TEXT = resources.files("skuwise.rules").joinpath("power_model.yaml").read_text()


def test_what_ships_is_read_and_says_what_it_rests_on():
    model = load_power_model()
    assert model.lines == 877
    assert model.runs == 138
    assert "zeus" in model.source
    assert len(model.classes) == len(CLASSES)
    assert set(model.typical) == {"training", "fp32", "prefill", "one-pass", "mixed", "decode"}


def test_an_architecture_without_runs_is_never_narrower():
    model = load_power_model()
    assert model.measured("Volta")
    assert not model.measured("hopper")
    for slowdown in (1.0, 1.1, 1.3, 3.0):
        here, there = model.spread(slowdown, "ampere"), model.spread(slowdown, "hopper")
        assert there[0] >= here[0]
        assert there[1] >= here[1]
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
