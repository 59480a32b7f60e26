"""The pure parts of the NVML sources: the table, the union of a field value, lists of processes."""

import ctypes
import struct

import pytest
from skuwise.agent.metrics import GPU_METRICS
from skuwise.agent.sources import nvml_table as table
from skuwise.agent.sources.nvml_errors import UNKNOWN_LAYOUT


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


@pytest.mark.parametrize("entry_bytes", [24, 32])
@pytest.mark.parametrize("filled", ["entries", "all places", "entries but their last 8 bytes"])
@pytest.mark.parametrize("count", [1, 2, 48, 65])
def test_the_size_of_an_entry_is_how_far_the_driver_wrote(monkeypatch, entry_bytes, filled, count):
    def driver(_handle, found, room):
        found = ctypes.cast(found, ctypes.POINTER(ctypes.c_uint))
        places = found[0] if filled == "all places" else count
        last = 8 if filled == "entries but their last 8 bytes" else 0
        told = b"".join(struct.pack("=I4xQ", 10 + n, n).ljust(entry_bytes, b"\0") for n in range(count))
        told = told.ljust(places * entry_bytes, b"\0")
        ctypes.memmove(room, told, len(told) - last)
        found[0] = count
        return 0

    monkeypatch.setattr(table, "function", lambda _: driver)
    assert table.processes_of(None) == (0, [(10 + n, n) for n in range(count)])


def test_more_processes_than_were_asked_for_are_not_believed(monkeypatch):
    def driver(_handle, found, _room):
        ctypes.cast(found, ctypes.POINTER(ctypes.c_uint))[0] = 4_000_000_000
        return 0

    monkeypatch.setattr(table, "function", lambda _: driver)
    assert table.processes_of(None) == (UNKNOWN_LAYOUT, [])
