# pyright: reportArgumentType=false
"""No waste is said to be found only where all was judged: else what was not, and what settles it, in every format."""

from dataclasses import replace

import pytest
from skuwise.advisor.core.advice_types import Advice
from skuwise.advisor.core.verdict_types import Alternative, KindVerdict
from skuwise.advisor.render import render
from skuwise.advisor.views.coverage import nothing_found_words, open_verdicts
from skuwise.tests.support.moves_builders import advice_of, fabric, node, usage, verdicts, workload


def served(training: float, **silent: object) -> Advice:
    """A service that uses its GPUs, and may be training."""
    kind = KindVerdict("online-inference", 0.99 - training, (), (Alternative("training", training),))
    w = workload("chat", kind=kind)
    return advice_of(verdicts([node(fabric=fabric(**silent))], [w], uses=[usage(w, u_c=0.6, u_n=0.4)]))


@pytest.mark.parametrize("form", ["table", "markdown", "html"])
def test_what_was_not_judged_stands_in_the_head_with_its_price_and_what_settles_it(form: str) -> None:
    advice = served(0.4)
    (told,) = open_verdicts(advice)
    assert "$7,177/month at stake" in told and "names of its jobs" in told
    page = " ".join(render(advice, form).split())
    assert "Not judged" in page and "$7,177/month at stake" in page.replace("\\", "")
    assert "No waste found" not in page and "No waste found" not in nothing_found_words(advice)


def test_no_waste_is_found_where_all_was_judged() -> None:
    advice = served(0.0, util_p995=0.2, util_max=0.4)
    assert not advice.findings and not open_verdicts(advice)
    assert nothing_found_words(advice) == "No waste found in this window."


def test_the_most_at_stake_comes_first_and_the_rest_is_counted() -> None:
    advice = served(0.4)
    (one,) = [n for n in advice.not_judged if n.rule == "idle-fabric"]
    others = (replace(one, rule="idle", usd_per_month=2.0), replace(one, rule="held-idle", usd_per_month=None))
    told = open_verdicts(replace(advice, not_judged=(*others, one)), most=2)
    assert [text.partition(":")[0] for text in told] == [
        "network fabric unused", "idle GPUs", "1 more in the JSON (not_judged)",
    ]  # fmt: skip
