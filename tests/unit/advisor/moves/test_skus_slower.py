"""`skuwise skus compare A A --power-limit W` and `--sm-clock HZ` as people call it."""

import json

import pytest
from skuwise.tests.support.in_process import skus


def document(capsys, *words):
    status, out, _ = skus(capsys, "compare", *words, "--format", "json")
    assert status == 0
    return json.loads(out)


def test_a_cap_is_answered_with_time_watts_and_joules(capsys):
    found = document(capsys, "H100", "H100", "--power-limit", "500W", "--phase", "prefill", "--power-at-work", "650")
    assert list(found)[:7] == ["from", "to", "phase", "precision", "time_ratio", "blocked_by", "basis"]
    assert 1.0 < found["time_ratio"]["p50"] < 1.2
    assert found["watts"]["before"] == 650
    assert found["watts"]["after"] < 500
    assert found["watts"]["measured"]
    assert found["joules_ratio"]["p50"] < 1
    assert found["joules_a_unit"]["unit"] == "request"
    ratio = found["joules_a_unit"]["after"] / found["joules_a_unit"]["before"]
    assert ratio == pytest.approx(found["joules_ratio"]["p50"])
    assert found["power_limit_watts"] == 500
    assert found["blocked_by"] == []
    assert "none on Hopper" in found["basis"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("H100", "H100", "--power-limit", "150"), "outside the 200 to 700 W"),
        (("H100", "H100", "--power-limit", "701W"), "outside the 200 to 700 W"),
        (("H100", "H100", "--power-limit", "210"), "the lowest cap with measurements"),
        (("B200-SXM", "B200-SXM", "--power-limit", "300"), "Ask for 333 to 1000 W"),
        (("H100", "H100", "--power-limit", "0"), "not a power"),
        (("H100", "H100", "--power-limit", "-5"), "not a power"),
        (("H100", "H100", "--power-limit", "nan"), "not a power"),
        (("H100", "H100", "--power-limit", "5e2"), "not a power"),
        (("H100", "L40S", "--power-limit", "300"), "are two"),
        (("H100", "L40S", "--sm-clock", "1110MHz"), "are two"),
        (("H100", "H100", "--sm-clock", "1110"), "not a clock"),
        (("H100", "H100", "--sm-clock", "500MHz"), "outside the 990 to 1980 MHz"),
        (("H100", "H100", "--sm-clock", "1110MHz", "--power-limit", "500"), "not allowed with"),
        (("H100", "H100", "--power-at-work", "500"), "needs --power-limit or --sm-clock"),
        (("H100", "H100", "--power-limit", "500", "--power-at-work", "900"), "at most 700 W"),
        (("H100", "H100", "--power-limit", "500", "--power-at-work", "20"), "at rest"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(capsys, words, told):
    status, out, err = skus(capsys, "compare", *words)
    assert status == 2
    assert not out
    assert told in err
    assert "Traceback" not in err
