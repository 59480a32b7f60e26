"""Hardware that no catalog knows: nothing crashes, no dollar is made up, and the text says what is missing."""

from __future__ import annotations

import pytest
from skuwise.tests.support.moves_builders import advice_of, founding, node, usage, verdicts, workload


@pytest.mark.parametrize(
    ("node_sku", "gpu_sku"),
    [("acme/x900-8", None), (None, None), ("acme/x900-8", "H100-SXM5"), ("azure/Standard_ND96isr_H100_v5", None)],
)
def test_an_unknown_sku_limits_the_advice_and_invents_nothing(node_sku, gpu_sku):
    w = workload(gpu_sku=gpu_sku, node_sku=node_sku)
    given = verdicts([node(sku=node_sku, gpu_sku=gpu_sku, gpu_name="NVIDIA X900")], [w], uses=[usage(w)])
    told = advice_of(given)
    known = node_sku is not None and node_sku.startswith("azure/")
    assert (told.summary.cost_usd is not None) is known
    assert any(n.text.startswith("No price for 1 node (") for n in told.notes) is not known
    if not known:
        assert told.summary.recoverable_usd_per_month is None
        assert all(f.cost_usd is None for f in told.findings)
        assert all(r.saving_usd_per_month is None for r in told.recommendations)
    unknown_gpu = gpu_sku is None
    moves = [r for r in told.recommendations if r.action == "move-sku" and not r.blocked_by]
    assert not (unknown_gpu and any(r.target.gpu_sku for r in moves))


def test_one_unknown_node_leaves_the_others_priced():
    given = founding()
    stranger = node("n9", "acme/x900-8", gpu_sku=None, gpu_name="NVIDIA X900")
    both = advice_of(verdicts([*given.nodes, stranger], given.workloads, uses=[usage(w) for w in given.workloads]))
    assert both.summary.cost_usd == advice_of(given).summary.cost_usd
    assert any("No price for 1 of 3 nodes (n9), not included in dollar amounts" in n.text for n in both.notes)
