"""The pure parts of the NVML sources: the union of a field value, the meaning of codes, the set of absences."""

from __future__ import annotations

import ctypes
import math
import struct
from pathlib import Path

import pynvml
import pytest
from skuwise.agent.config import AgentConfig
from skuwise.agent.model import Instant
from skuwise.agent.sources import gpm, nvml_fields
from skuwise.agent.sources import nvml_gauges as gauges
from skuwise.agent.sources.base import METRIC_NAMES, SourceContext, SourceSpec
from skuwise.agent.sources.nvidia_driver import NvidiaDriver
from skuwise.agent.sources.nvml_errors import fault_of
from skuwise.agent.sources.nvml_fields import FieldBlock
from skuwise.agent.sources.registry import SOURCES


def _driver(answers):
    """A driver's nvmlDeviceGetFieldValues that writes (value type, code, 8 bytes) into each entry."""

    def call(handle, count, buffer):
        assert count.value == len(answers)
        for place, (kind, code, data) in enumerate(answers):
            struct.pack_into("=II8s", buffer, place * 40 + 24, kind, code, data)
        return 0

    return call


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        (0, struct.pack("<d", 2.5), 2.5),
        (1, b"\x07\x00\x00\x00\xff\xff\xff\xff", 7),
        (2, struct.pack("<Q", 2**63), 2**63),
        (3, struct.pack("<Q", 2**64 - 1), 2**64 - 1),
        (4, struct.pack("<q", -5), -5),
        (5, struct.pack("<i", -5) + b"\xff" * 4, -5),
        (6, b"\x09\x00" + b"\xff" * 6, 9),
    ],
)
def test_the_value_type_says_which_member_of_the_union_counts(kind, data, expected):
    block = FieldBlock(_driver([(kind, 0, data)]), ctypes.c_void_p(1), [(83, 0)])
    assert block.read() == 0
    assert block.values() == [(0, expected)]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (3, "not-supported"),
        (4, "no-permission"),
        (9, "no-driver"),
        (15, "gpu-lost"),
        (16, "reset-required"),
        (18, "driver-mismatch"),
        (999, "nvml-error"),
    ],
)
def test_codes_have_a_reason_and_a_sentence(code, reason):
    fault = fault_of(code, "Unknown Error")
    assert fault.reason == reason
    assert fault.detail.endswith(".")


def test_the_packed_layouts_are_those_of_the_binding():
    field = pynvml.c_nvmlFieldValue_t
    assert nvml_fields._ENTRY.size == ctypes.sizeof(field)
    assert (field.valueType.offset, field.nvmlReturn.offset, field.value.offset) == (24, 28, 32)
    metric = pynvml.c_nvmlGpmMetric_t
    assert gpm._METRIC.size == ctypes.sizeof(metric)
    assert (metric.nvmlReturn.offset, metric.value.offset) == (4, 8)
    assert pynvml.c_nvmlGpmMetricsGet_t.metrics.offset == gpm._HEAD.size
    assert gpm._ROOM >= pynvml.NVML_GPM_METRIC_MAX


@pytest.mark.parametrize(
    ("place", "code", "value", "whole"),
    [
        (0, 0, 100.0, True),
        (0, 0, 100.05, False),
        (3, 0, math.nan, False),
        (5, 0, -0.1, False),
        (9, 3, 1.0, False),
        (10, 0, 99e6, True),
        (10, 0, 2e8, False),
        (8, 0, math.inf, False),
    ],
)
def test_gpm_answers_are_taken_together_only_where_each_is_sound(place, code, value, whole):
    answers = bytearray(gpm._METRIC.size * len(gpm._ALL))
    for number, asked in enumerate(gpm._ALL):
        told = (code, value) if number == place else (0, 50.0)
        gpm._METRIC.pack_into(answers, number * gpm._METRIC.size, asked.number, *told, 0, 0, 0)
    values = gpm._usual(memoryview(answers))
    assert (values is not None) == whole
    if values is not None:
        assert list(values) == [asked.metric for asked in gpm._ALL]
        assert values[gpm._ALL[place].metric] == value * gpm._ALL[place].scale


def test_where_the_gauges_leave_their_numbers_is_where_the_bindings_structures_have_them():
    places = (
        (gauges._UTIL_AT, pynvml.c_nvmlUtilization_t, "gpu"),
        (gauges._TEMPERATURE_AT, pynvml.c_nvmlTemperature_v1_t, "temperature"),
        (gauges._MEMORY_AT, pynvml.c_nvmlMemory_v2_t, "used"),
    )
    room = bytearray(gauges._ROOM.size)
    for number, (at, structure, field) in enumerate(places, start=1):
        setattr(structure.from_buffer(room, at), field, number)
    for number, at in ((4, gauges._SM_AT), (5, gauges._MEM_AT)):
        ctypes.c_uint.from_buffer(room, at).value = number
    ctypes.c_ulonglong.from_buffer(room, gauges._REASONS_AT).value = 6
    assert gauges._ROOM.unpack(room) == (1, 4, 5, 2, 6, 3)


SPEC = {"name": "toy", "metrics": ["cpu_util"], "needs": "a toy", "remedy": "Get one.", "build": lambda _: None}


def test_every_source_has_a_name_of_its_own_and_bears_it() -> None:
    driver = NvidiaDriver(1.0, 10.0)
    names = [one.name for one in (*SOURCES, *driver.sources, *driver.beside)]
    assert len(names) == len(set(names)) > 5
    config = AgentConfig(sysfs=Path("/nonexistent"), procfs=Path("/nonexistent"))
    context = SourceContext(config)
    for spec in SOURCES:
        source = spec.built(context)
        assert source is not None and source.name == spec.name
        assert {line.metric for line in source.probe().capabilities} <= METRIC_NAMES | {"*"}
        source.close()


def test_what_cannot_be_built_says_what_it_needs_and_reads_nothing() -> None:
    def build(_: SourceContext) -> None:
        raise OSError("broken")

    source = SourceSpec(**{**SPEC, "build": build}).built(SourceContext(AgentConfig()))
    assert source is not None
    (absence,) = source.read(Instant(1.0, 1.0)).absences
    assert (absence.subject, absence.reason, absence.remedy) == ("toy", "source-failed", "Get one.")
    assert "a toy" in absence.detail and source.probe().capabilities[0].absence == absence
