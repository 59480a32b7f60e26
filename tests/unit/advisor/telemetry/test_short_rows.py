"""How rows shorter than an hour are asked for."""

from __future__ import annotations

import pytest
from skuwise.advisor.telemetry.prometheus.client.range_planner import Ask
from skuwise.advisor.telemetry.prometheus.promql.promql import of_gpus
from skuwise.advisor.telemetry.prometheus.short_rows import short_asks

MINUTE, FIVE = "[59s999ms]", "[299s999ms]"


@pytest.mark.parametrize(
    ("name", "query", "step", "wanted"),
    [
        # A row of a minute looks back for 2.5 scrapes, a rate for 4.
        ("gpu_util_mean", f"avg_over_time(DCGM_FI_X{MINUTE})", 60, "avg_over_time(DCGM_FI_X[149s999ms])"),
        ("fabric tx_mean", f"rate(node_x{MINUTE})", 60, "rate(node_x[239s999ms])"),
        ("fabric active", "avg_over_time((node_x == bool 4)[60s:5m])", 60, None),
        ("power_watts_mean", f"avg_over_time(a{FIVE})", 300, f"avg_over_time(a{FIVE})"),
        ("pcie_tx_bytes_per_second_mean", f"avg_over_time(a{FIVE})", 300, None),
        ("sm_active_p95", f"quantile_over_time(0.95, a{MINUTE})", 60, None),
        ("vllm time_to_first_token buckets", f"increase(a{MINUTE})", 60, None),
        ("sm_active", f"increase(a_bucket{MINUTE})", 60, None),
    ],
)  # fmt: skip
def test_an_ask_gets_a_range_that_scrapes_fill_or_is_left_out(name, query, step, wanted):
    asked = short_asks(step, 60.0)(Ask(name, query, ()))
    assert (asked and asked.query) == wanted


def test_some_gpus_are_chosen_by_id_where_that_needs_no_escaping():
    assert of_gpus(("GPU-b", "GPU-a/gi1")) == ('UUID=~"GPU-a|GPU-b"',)
    assert of_gpus(('GPU".*',)) == ()
