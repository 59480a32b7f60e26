"""`skuwise skus compare` as people call it."""

import json

import pytest
from skuwise.tests.support.in_process import skus


def test_json_has_the_agreed_shape(capsys):
    status, out, _ = skus(
        capsys, "compare", "H100-SXM5", "L40S", "--phase", "decode", "--precision", "fp8", "--params", "13B",
        "--format", "json",
    )  # fmt: skip
    document = json.loads(out)
    assert status == 0
    assert list(document) == [
        "from",
        "to",
        "phase",
        "precision",
        "time_ratio",
        "blocked_by",
        "basis",
        "speedup",
        "outside",
    ]
    assert list(document["time_ratio"]) == ["p10", "p50", "p90"]
    assert document["time_ratio"]["p50"] > 3


def test_a_batch_is_answered_by_the_token_and_says_what_lies_outside(capsys):
    words = ("H100", "H200-SXM", "--phase", "decode", "--precision", "fp8", "--params", "5000B", "--gpus", "64")
    status, out, _ = skus(capsys, "compare", *words, "--batch", "9999", "--attention-copies", "2",
                          "--cache-precision", "bf16")  # fmt: skip
    assert status == 0
    assert "for each token" in out
    assert "not 5,000 B: the interval is wider" in out
    assert "times as many tokens a second" in out
    status, out, _ = skus(capsys, "compare", *words, "--batch", "9999", "--format", "json")
    document = json.loads(out)
    assert {"size-not-calibrated", "batch-not-calibrated"} <= {one["code"] for one in document["outside"]}
    assert document["speedup"] > 1  # more sequences in flight, though each of them waits longer


def test_the_table_says_the_basis_and_what_forbids(capsys):
    status, out, _ = skus(capsys, "compare", "H100", "L40S", "--phase", "decode", "--precision", "fp8", "--params",
                         "70B", "--gpus", "4")  # fmt: skip
    assert status == 0
    assert "basis" in out
    assert "only PCIe" in out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("H100", "H999"), "no GPU 'H999'"),
        (("H100", "L40S", "--active-params", "13B"), "needs --params"),
        (("H100", "L40S", "--params", "7B", "--active-params", "13B"), "larger than --params"),
        (("H100", "L40S", "--params", "-3"), "not an amount"),
        (("H100", "L40S", "--params", "1e99"), "not an amount"),
        (("H100", "L40S", "--batch", "0"), "above zero"),
        (("H100", "L40S", "--precision", "fp7"), "Invalid value"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(capsys, words, told):
    status, _, err = skus(capsys, "compare", *words)
    assert status == 2
    assert told in err
    assert "Traceback" not in err
