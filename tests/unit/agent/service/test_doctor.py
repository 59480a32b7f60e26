"""Doctor's lines: the exact reason of a refusal, what the settings do not ask for, and what reading costs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from skuwise.agent.config import AgentConfig
from skuwise.agent.model import Absence, Capability, Gpu, Tick
from skuwise.agent.sampler import Sampled, Survey
from skuwise.agent.service.diagnostics.doctor import not_configured, source_lines
from skuwise.agent.sources.gpu_backends import Privileges, explain
from skuwise.agent.sources.nvidia.nvml_errors import NO_GPM, NO_PERMISSION, fault_of

GPU = Gpu("GPU-a", 0, "NVIDIA H100")
REFUSED = Capability(
    "gpm", "gpu", GPU.uuid, "sm_active", "GPM", fault_of(NO_PERMISSION).of("gpu", GPU.uuid, "sm_active")
)
SURVEY = Survey((GPU,), (), (REFUSED,))
UNKNOWN = Privileges(None, None)
NOTHING_MORE = Sampled(Tick(1.0, 1.0), None, frozenset())


def proc(folder: Path, *, restricted: str | None, capabilities: str | None) -> Path:
    (folder / "driver/nvidia").mkdir(parents=True)
    (folder / "self").mkdir()
    if restricted is not None:
        (folder / "driver/nvidia/params").write_text(
            f"ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: {restricted}\n"
        )
    if capabilities is not None:
        (folder / "self/status").write_text(f"Name:\tpython\nCapEff:\t{capabilities}\n")
    return folder


@pytest.mark.parametrize(
    ("restricted", "capabilities", "said", "remedy"),
    [
        ("1", "0000000000000000", "RmProfilingAdminOnly: 1", "NVreg_RestrictProfilingToAdminUsers=0"),
        ("1", "0000004000000000", "does not take this process's capability", "Before R565"),
        ("1", "0000000000200000", "does not take this process's capability", "CAP_SYS_ADMIN"),
        ("0", "0000000000000000", "although RmProfilingAdminOnly is 0", "virtual machine's host"),
        (None, "0000000000000000", "does not let this user", "CAP_PERFMON"),
        ("1", None, "neither CAP_PERFMON nor CAP_SYS_ADMIN", "drop-in"),
    ],
)
def test_why_profiling_is_refused_is_told_with_the_remedy_that_follows(
    tmp_path: Path, restricted: str | None, capabilities: str | None, said: str, remedy: str
) -> None:
    procfs = proc(tmp_path, restricted=restricted, capabilities=capabilities)
    (line,) = source_lines(SURVEY, NOTHING_MORE, procfs)
    assert line.absence is not None
    assert said in line.absence.detail and remedy in line.absence.remedy
    assert (line.absence.reason, line.metric) == ("no-permission", "sm_active")
    burst = explain(replace(REFUSED, source="burst"), procfs)
    assert burst.absence == line.absence  # so that the table joins them


def test_pages_that_would_tell_something_but_are_not_asked_for_are_named() -> None:
    blind = replace(SURVEY, capabilities=(replace(REFUSED, absence=NO_GPM.of("gpu", GPU.uuid, "sm_active")),))
    lines = not_configured(AgentConfig(dcgm_url=""), blind)
    assert [(one.source, one.absence and one.absence.reason) for one in lines] == [
        ("dcgm", "not-configured"),
        ("serving", "not-configured"),
    ]
    assert [one.source for one in not_configured(AgentConfig(), blind)] == ["serving"]
    assert not_configured(AgentConfig(serving_endpoints=("http://127.0.0.1:8000/metrics",)), SURVEY) == ()
    found = not_configured(AgentConfig(serving_discover=True), SURVEY)
    assert found[0].absence is not None and "was found" in found[0].absence.detail
    assert not_configured(AgentConfig(dcgm_url=""), Survey((), (), ())) == ()


def test_what_the_first_reading_lacks_takes_the_place_of_what_was_promised() -> None:
    promised = replace(REFUSED, absence=None)
    late = Absence("gpu", GPU.uuid, "sm_active", "gpu-lost", "It fell off the bus.", "Reset it.")
    passing = replace(late, metric="dram_active", reason="first-reading")
    sampled = replace(NOTHING_MORE, absences=frozenset({late, passing}))
    assert [
        one.absence for one in source_lines(replace(SURVEY, capabilities=(promised,)), sampled, Path("/nonexistent"))
    ] == [late]
