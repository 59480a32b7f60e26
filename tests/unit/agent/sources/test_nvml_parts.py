"""The pure parts of the NVML sources: the table, the union of a field value, lists of processes."""

import ctypes
import struct

import pytest
from skuwise.agent.metrics import GPU_METRICS
from skuwise.agent.sources import nvml_table as table


def test_the_table_has_every_metric_of_a_gpu_and_no_other():
    assert {row.metric for row in table.TABLE} == {metric.name for metric in GPU_METRICS} == table.MOST.keys()


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        (1, b"\x07\x00\x00\x00\xff\xff\xff\xff", 7),
        (3, struct.pack("<Q", 2**64 - 1), 2**64 - 1),
        (5, struct.pack("<i", -5) + b"\xff" * 4, -5),
        (6, b"\x09\x00" + b"\xff" * 6, 9),
    ],
)
def test_the_value_type_says_which_member_of_the_union_counts(monkeypatch, kind, data, expected):
    def driver(_handle, _count, block):
        ctypes.memmove(ctypes.addressof(block) + 24, struct.pack("=II8s", kind, 0, data), 16)
        return 0

    monkeypatch.setattr(table, "function", lambda _: driver)
    assert table.FieldBlock(None, [(83, 0)]).read() == [(0, expected)]
