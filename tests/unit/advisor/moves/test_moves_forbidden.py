# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOperatorIssue=false
"""Moves known to go backwards or to be blocked are not recommended, whatever the price says."""

from dataclasses import replace

import pytest
from skuwise.rules.catalog.types import Price
from skuwise.tests.support.moves_builders import advice_of, fabric, node, usage, verdicts, workload

PLAIN_FABRIC = fabric(util_p995=0.2, util_max=0.4)  # in use, so that no waste of it is found
OCI, L40S, B200 = "oci/BM.GPU.H100.8", "oci/BM.GPU.L40S.4", "oci/BM.GPU.B200.8"


def at(sku, provider, region, name="n1"):
    return node(name, sku, provider=provider, region=region, fabric=PLAIN_FABRIC)


def cheap(sku, region="global"):
    """A team's price at which any move would pay."""
    return Price("team", sku, region, 1.0, "reserved", "contract", "2026-09-01")


def moves_to(advice, gpu):
    """Recommendations of another GPU that nothing blocks."""
    return [r for r in advice.recommendations if r.target.gpu_sku == gpu and not r.blocked_by]


def service(sku, **changes):
    return workload("chat", ("n1",), node_sku=sku, features={"mem_flat": 0.0, "cpu": 0.02}, **changes)


def test_a_saturated_decode_does_not_move_to_l40s_for_money():
    busy = service(OCI)
    use = usage(busy, u_c=0.10, u_m=0.90, g=0.98, memory=0.3)
    advice = advice_of(verdicts([at(OCI, "oci", "global")], [busy], uses=[use]))
    assert not moves_to(advice, "L40S")
    told = [j for r in advice.recommendations for j in r.rejected if "L40S" in j.sku]
    told += [r for r in advice.recommendations if r.target.gpu_sku == "L40S"]
    assert told or not advice.recommendations


@pytest.mark.parametrize("nvlink", [0.3, 0.0])
def test_work_over_nvlink_does_not_move_to_pcie_however_cheap(nvlink):
    parallel = service(OCI)
    use = usage(parallel, u_c=0.10, u_m=0.05, u_n=nvlink, g=0.95, memory=0.3)
    advice = advice_of(verdicts([at(OCI, "oci", "global")], [parallel], uses=[use]), prices=(cheap(L40S),))
    why = [j.reason for r in advice.recommendations for j in r.rejected if "L40S" in j.sku]
    # Without traffic it is weighed like any other.
    assert any("only by PCIe" in reason.text for reason in why) == (nvlink > 0)
    if nvlink:
        assert not moves_to(advice, "L40S")


def test_training_across_nodes_keeps_its_fabric_however_cheap_the_node_without():
    both = workload("pretrain", ("n1", "n2"), kind="training", features={"mem_flat": 0.0, "cpu": 0.02})
    use = usage(both, u_c=0.7, u_m=0.4, u_n=0.3, u_i=0.3, g=0.97, label="compute")
    nodes = [replace(node(name), fabric=PLAIN_FABRIC) for name in ("n1", "n2")]
    cheap = Price("team", "azure/Standard_ND96is_H100_v5", "eastus", 1.0, "reserved", "contract", "2026-09-01")
    advice = advice_of(verdicts(nodes, [both], uses=[use]), prices=(cheap,))
    assert not [
        r
        for r in advice.recommendations
        if r.target.node_sku == cheap.sku and r.action == "move-sku" and not r.blocked_by
    ]
