"""What the registries hold: whole descriptions, each of its own name, and nothing that the model does not know."""

from __future__ import annotations

from pathlib import Path

import pytest
from skuwise.agent.config import AgentConfig
from skuwise.agent.model import Instant
from skuwise.agent.sources.base import METRIC_NAMES, SourceContext, SourceSpec
from skuwise.agent.sources.gpu_backends import GPU_BACKENDS
from skuwise.agent.sources.registry import SOURCES

SPEC = {"name": "toy", "metrics": ["cpu_util"], "needs": "a toy", "remedy": "Get one.", "build": lambda _: None}


def test_every_source_has_a_name_of_its_own_and_bears_it() -> None:
    names = [spec.name for spec in SOURCES] + [name for one in GPU_BACKENDS for name in one.sources]
    assert len(names) == len(set(names)) > 5
    config = AgentConfig(sysfs=Path("/nonexistent"), procfs=Path("/nonexistent"))
    context = SourceContext(config)
    for spec in SOURCES:
        source = spec.built(context)
        assert source is not None and source.name == spec.name
        assert {line.metric for line in source.probe().capabilities} <= METRIC_NAMES | {"*"}
        source.close()
    for backend in GPU_BACKENDS:
        assert tuple(source.name for source in backend.connect(config).sources) == backend.sources


@pytest.mark.parametrize("left_out", sorted(SPEC))
def test_a_source_without_one_of_its_parts_is_none(left_out: str) -> None:
    assert SourceSpec(**SPEC).name == "toy"
    with pytest.raises((TypeError, ValueError)):
        SourceSpec(**{name: part for name, part in SPEC.items() if name != left_out})
    if left_out != "build":
        with pytest.raises(ValueError, match="leaves out"):
            SourceSpec(**{**SPEC, left_out: ""})


def test_what_cannot_be_built_says_what_it_needs_and_reads_nothing() -> None:
    def build(_: SourceContext) -> None:
        raise OSError("broken")

    source = SourceSpec(**{**SPEC, "build": build}).built(SourceContext(AgentConfig()))
    assert source is not None
    (absence,) = source.read(Instant(1.0, 1.0)).absences
    assert (absence.subject, absence.reason, absence.remedy) == ("toy", "source-failed", "Get one.")
    assert "a toy" in absence.detail and source.probe().capabilities[0].absence == absence
