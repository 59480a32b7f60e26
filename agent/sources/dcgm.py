"""The page of this node's dcgm-exporter, for GPUs without the driver's own GPM.

The exporter's values are means over its own interval (30 s by default), so each is given on the one tick on which its
page arrived. Until the next it is not absent, only not new (`Reading.provides`). The driver's own values win.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..base.safe_text import clean_text
from ..metrics import GPU_METRICS
from ..model import Absence, Capability, Instant, Probe, Reading
from .base import NOT_A_NUMBER, NOTHING_READ, STAYS_MISSING, Fault, UnreadGpu, sort_out
from .pages import FetchedPage, PageReader, Series, Target

_STALE_PAGES = 3.0  # a page older than this many intervals is stale

# Our metric; its names without DCGM_FI_PROF_, best first; what the exporter's file of counters says of it. Numbers 1002
# to 1012 of dcgm_fields.h. Newer releases call the ratios *_UTIL_RATIO and keep the old names as aliases.
_TABLE = """
sm_active: SM_ACTIVE SM_UTIL_RATIO: Ratio of time an SM had a warp resident.
sm_occupancy: SM_OCCUPANCY SM_OCCUPANCY_UTIL_RATIO SM_OCCUPANCY_RATIO: Ratio of warps.
tensor_active: PIPE_TENSOR_ACTIVE PIPE_TENSOR_UTIL_RATIO TENSOR_UTIL_RATIO: Ratio of cycles the tensor pipe was active.
dram_active: DRAM_ACTIVE DRAM_UTIL_RATIO: Ratio of cycles memory was moving data.
fp64_active: PIPE_FP64_ACTIVE PIPE_FP64_UTIL_RATIO FP64_UTIL_RATIO: Ratio of FP64 cycles.
fp32_active: PIPE_FP32_ACTIVE PIPE_FP32_UTIL_RATIO FP32_UTIL_RATIO: Ratio of FP32 cycles.
fp16_active: PIPE_FP16_ACTIVE PIPE_FP16_UTIL_RATIO FP16_UTIL_RATIO: Ratio of FP16 cycles.
pcie_tx_bytes_per_second: PCIE_TX_BYTES: Bytes sent over PCIe a second.
pcie_rx_bytes_per_second: PCIE_RX_BYTES: Bytes received over PCIe a second.
nvlink_tx_bytes_per_second: NVLINK_TX_BYTES: Bytes sent over NVLink a second.
nvlink_rx_bytes_per_second: NVLINK_RX_BYTES: Bytes received over NVLink a second.
"""


class Field(NamedTuple):
    """A metric, the names under which exporters know it, best first, and the line of CSV that switches it on."""

    metric: str
    names: tuple[str, ...]
    csv: str


FIELDS: list[Field] = []
for _metric, _names, _meaning in (line.split(":") for line in _TABLE.strip().splitlines()):
    _exported = tuple(f"DCGM_FI_PROF_{name}" for name in _names.split())
    FIELDS.append(Field(_metric, _exported, f"{_exported[0]}, gauge,{_meaning}"))
MOST = {metric.name: metric.most for metric in GPU_METRICS}
_RATIOS = frozenset(field.metric for field in FIELDS if MOST[field.metric] == 1.0)
# Not metrics of ours, only witnesses: see _runs_kernels.
_KERNELS = {"DCGM_FI_DEV_GPU_UTIL": 100.0, "DCGM_FI_DEV_GPU_UTIL_RATIO": 1.0}  # each with its whole
_GRAPHICS = ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", "DCGM_FI_PROF_GR_UTIL_RATIO")
WANTED = frozenset(name for field in FIELDS for name in field.names) | {*_KERNELS, *_GRAPHICS}

_RUN_EXPORTER = "Run dcgm-exporter on this node with its profiling fields switched on, or set dcgm_url to its address."
_LOG = "See dcgm-exporter's log if it stays so."
_BLANK = Fault("dcgm-blank", "The exporter has no value of this GPU for it yet.", _LOG)
# dcgm_fields.h: DCGM_INT32_BLANK 0x7ffffff0, DCGM_INT64_BLANK 0x7ffffffffffffff0, DCGM_FP64_BLANK 2^47; each is
# followed by "not found", "not supported" and "not permissioned".
_MEANINGS = (
    _BLANK,
    _BLANK,
    Fault("not-supported", "DCGM reports that this GPU does not support it.", STAYS_MISSING),
    Fault("no-permission", "DCGM may not read it.", "Run dcgm-exporter as root, with CAP_SYS_ADMIN."),
)
_BLANKS: dict[float, Fault] = {
    blank + n: why for blank in (0x7FFFFFF0, 2**47, 0x7FFFFFFFFFFFFFF0) for n, why in enumerate(_MEANINGS)
}
_AMBIGUOUS = Fault("ambiguous", "The page gives several different values for this GPU.", "Run one exporter per node.")
_ELSEWHERE = Fault(
    "gpu-not-on-page", "The exporter's page does not name this GPU.", "See that it watches all GPUs and MIG instances."
)
_STUCK = Fault(
    "profiling-stuck", "All profiling values are 0 while kernels run (NVIDIA/DCGM#303).", "Restart DCGM; see its XIDs."
)


class DcgmSource:
    """Profiling values of the GPUs that `unread_gpus` names. Where it names none, nothing is said and read."""

    name = "dcgm"

    def __init__(
        self, unread_gpus: Callable[[], Sequence[UnreadGpu]], reader: PageReader, url: str, every_seconds: float
    ) -> None:
        self._unread = unread_gpus
        self._reader = reader
        self._target = Target(url, WANTED, every_seconds)
        self._primed = False
        self._seen: FetchedPage | None = None  # the page that was last given
        self._between = NOTHING_READ  # what holds until the next page

    def probe(self) -> Probe:
        devices, url = self._unread(), self._target.url
        if not devices:
            return Probe()
        self._reader.start((self._target,), wait=True)
        page = self._reader.latest(url)
        if page is None or page.fault is not None:
            return Probe(capabilities=(_not_read(page).line(self.name, url),))
        lines: list[Capability] = []
        for uuid, (_, absences) in _read_all(devices, page.series).items():
            missing = {absence.metric: absence for absence in absences}
            for metric, names, _ in FIELDS:
                origin = f"dcgm-exporter {names[0]}, every {self._target.every_seconds:g} s"
                lines.append(Capability(self.name, "gpu", uuid, metric, origin, missing.get(metric)))
        return Probe(capabilities=tuple(lines))

    def read(self, instant: Instant) -> Reading:
        """The values of a page that arrived since the last reading; nothing where none did."""
        devices = self._unread()
        if not devices:
            return NOTHING_READ
        self._reader.start((self._target,))
        primed, self._primed = self._primed, True
        page = self._reader.latest(self._target.url)
        if page is None or not primed:  # the loop throws the first reading away: a page would be lost with it
            return NOTHING_READ
        if page is self._seen:
            if instant.monotonic_seconds - page.instant.monotonic_seconds > _STALE_PAGES * self._target.every_seconds:
                self._between = Reading(absences=self._between.absences)
            return self._between
        self._seen = page
        if page.fault is not None:
            self._between = Reading(absences=frozenset({_not_read(page).of("source", self.name)}))
            return self._between
        gpus = _read_all(devices, page.series)
        # Traffic is counted, or said to be missing, by the driver's counters: that the page lacks it too is no news.
        absences = frozenset(absence for _, absent in gpus.values() for absence in absent if absence.metric in _RATIOS)
        provides = frozenset((uuid, metric) for uuid, (values, _) in gpus.items() for metric in values)
        self._between = Reading(absences=absences, provides=provides)
        return replace(self._between, gpus={uuid: values for uuid, (values, _) in gpus.items() if values})

    def close(self) -> None:
        """End the reader's thread, for all that read pages with it."""
        self._reader.close()


def _read_all(
    devices: Sequence[UnreadGpu], series: Sequence[Series]
) -> dict[str, tuple[dict[str, float], list[Absence]]]:
    by_gpu: dict[tuple[str, str], dict[str, list[Series]]] = {}
    for sample in series:
        # A MIG instance's values carry its parent's UUID: they are not the parent's.
        key = (sample.labels.get("UUID", ""), sample.labels.get("GPU_I_ID", ""))
        by_gpu.setdefault(key, {}).setdefault(sample.name, []).append(sample)
    exported = {sample.name for sample in series}
    readings: dict[str, tuple[dict[str, float], list[Absence]]] = {}
    for device in devices:
        gpu = by_gpu.get((device.page_uuid, device.instance_id))
        gpu_values: dict[str, float | Fault] = {}
        for metric, names, csv in FIELDS:
            if exported.isdisjoint(names):
                remedy = f"Add to its counters' CSV file (-f) and restart it: {csv}"
                gpu_values[metric] = Fault("not-exported", f"dcgm-exporter does not export {names[0]}.", remedy)
            elif gpu is None:
                gpu_values[metric] = _ELSEWHERE
            else:
                gpu_values[metric] = _value([sample for name in names for sample in gpu.get(name, ())])
        values, absences = sort_out("gpu", device.uuid, gpu_values, MOST)
        ratios = values.keys() & _RATIOS
        if gpu is not None and ratios and not any(values[metric] for metric in ratios) and _runs_kernels(gpu):
            absences += [_STUCK.of("gpu", device.uuid, metric) for metric in ratios]
            values = {metric: value for metric, value in values.items() if metric not in ratios}
        readings[device.uuid] = values, absences
    return readings


def _value(series: Sequence[Series]) -> float | Fault:
    """The one value of a metric. The exporter repeats it for every pod that shares the GPU; old and new names too."""
    if len({sample.number for sample in series}) != 1:
        return _AMBIGUOUS if series else _BLANK
    number, value = series[0].number, series[0].value
    if value is None:
        return NOT_A_NUMBER
    return _BLANKS.get(int(number) if number.isdecimal() and len(number) < 20 else value, value)


def _runs_kernels(gpu: Mapping[str, Sequence[Series]]) -> bool:
    """Whether a kernel ran for at least half the time, while the graphics engine's ratio, where reported, is 0."""
    shares = [(sample.value or 0.0) / whole for name, whole in _KERNELS.items() for sample in gpu.get(name, ())]
    counted = any(sample.value for name in _GRAPHICS for sample in gpu.get(name, ()))
    return not counted and any(0.5 <= share <= 1.0 for share in shares)


def _not_read(page: FetchedPage | None) -> Fault:
    if page is None or (fault := page.fault) is None:
        return Fault("not-read-yet", "The exporter's page has not arrived yet.", "Look again.")
    remedy = _RUN_EXPORTER if fault.reason in ("unreachable", "bad-url") else fault.remedy or _RUN_EXPORTER
    return Fault(fault.reason, f"dcgm-exporter: {clean_text(fault.message)}", remedy)
