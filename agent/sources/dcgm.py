"""The page of this node's dcgm-exporter, for GPUs on which the driver's own GPM does not tell it.

The exporter's values are means over its own interval (30 s unless it was told otherwise), so its page is read once per
such interval and each value is given on the one tick on which its page arrived: never repeated as if it were new. Its
weight in the rollups is that tick's; between two pages the metric is not absent, only not new (`Reading.provides`).

Traffic per link counter (`nvlink`) and whatever else the driver tells wins over the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from ..base.page_url import PageError
from ..base.safe_text import clean_text
from ..config import AgentConfig
from ..model import Absence, Capability, Gpu, Instant, Probe, Reading
from .base import NOTHING_READ, STAYS_MISSING, Fault, SourceContext, SourceSpec, UnreadGpu
from .prometheus_text import Series
from .scraper import FetchedPage, PageReader, Pages, Target

DEFAULT_URL = "http://127.0.0.1:9400/metrics"
DEFAULT_EVERY_SECONDS = 30.0  # dcgm-exporter's own default (--collect-interval 30000)

_FIRST_PAGE_SECONDS = 4.0  # a probe before the first tick waits this long for the page; the page itself has 3 s
_STALE_PAGES = 3.0  # a page older than this many intervals tells nothing more


class _Field(NamedTuple):
    """A metric and the names under which exporters know it, best first; `csv` is the line that switches it on."""

    metric: str
    names: tuple[str, ...]
    most: float  # above: not a reading
    csv: str


def _ratio(metric: str, old: str, new: str, what: str) -> _Field:
    name = f"DCGM_FI_PROF_{old}"
    return _Field(metric, (name, *(f"DCGM_FI_PROF_{one}" for one in new.split())), 1.001, f"{name}, gauge, {what}")


# Numbers 1002-1012 of dcgm_fields.h. Newer releases call the ratios *_UTIL_RATIO and keep the old names as aliases; a
# page has either, so whichever is there is taken. Ratios may pass 1 by rounding; SM_ACTIVE was seen far above it on MIG
# (NVIDIA/DCGM#152), which is a fault and not a reading.
FIELDS = (
    _ratio("sm_active", "SM_ACTIVE", "SM_UTIL_RATIO", "Ratio of time an SM had a warp resident."),
    _ratio("sm_occupancy", "SM_OCCUPANCY", "SM_OCCUPANCY_UTIL_RATIO SM_OCCUPANCY_RATIO", "Ratio of warps."),
    _ratio(
        "tensor_active",
        "PIPE_TENSOR_ACTIVE",
        "PIPE_TENSOR_UTIL_RATIO TENSOR_UTIL_RATIO",
        "Ratio of cycles the tensor pipe was active.",
    ),
    _ratio("dram_active", "DRAM_ACTIVE", "DRAM_UTIL_RATIO", "Ratio of cycles memory was moving data."),
    _ratio("fp64_active", "PIPE_FP64_ACTIVE", "PIPE_FP64_UTIL_RATIO FP64_UTIL_RATIO", "Ratio of FP64 cycles."),
    _ratio("fp32_active", "PIPE_FP32_ACTIVE", "PIPE_FP32_UTIL_RATIO FP32_UTIL_RATIO", "Ratio of FP32 cycles."),
    _ratio("fp16_active", "PIPE_FP16_ACTIVE", "PIPE_FP16_UTIL_RATIO FP16_UTIL_RATIO", "Ratio of FP16 cycles."),
    *(
        _Field(metric, (f"DCGM_FI_PROF_{name}",), 1e14, f"DCGM_FI_PROF_{name}, gauge, {what}")
        for metric, name, what in (
            ("pcie_tx_bytes_per_second", "PCIE_TX_BYTES", "Bytes sent over PCIe a second."),
            ("pcie_rx_bytes_per_second", "PCIE_RX_BYTES", "Bytes received over PCIe a second."),
            ("nvlink_tx_bytes_per_second", "NVLINK_TX_BYTES", "Bytes sent over NVLink a second."),
            ("nvlink_rx_bytes_per_second", "NVLINK_RX_BYTES", "Bytes received over NVLink a second."),
        )
    ),
)
_RATIOS = frozenset(field.metric for field in FIELDS if field.most < 2)
# Not a metric of ours, only a witness: see _stuck.
_WITNESS = ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO")
_GRAPHICS = ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", "DCGM_FI_PROF_GR_UTIL_RATIO")
# Both directions in one number, in MB/s although the page calls it a counter: neither a rate of it nor a half of it is
# anybody's traffic. It is only named where somebody might take it for what is missing.
_NVLINK_TOTAL = "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"
WANTED = frozenset(name for field in FIELDS for name in field.names) | {*_WITNESS, *_GRAPHICS, _NVLINK_TOTAL}

# dcgm_fields.h: DCGM_INT32_BLANK 0x7ffffff0, DCGM_INT64_BLANK 0x7ffffffffffffff0, DCGM_FP64_BLANK 2^47; each is
# followed by "not found", "not supported" and "not permissioned".
_BLANKS = (0x7FFFFFF0, 2**47, 0x7FFFFFFFFFFFFFF0)
_RUN_EXPORTER = "Run dcgm-exporter on this node with its profiling fields switched on, or set dcgm_url to its address."
_EXPORTER_LOG = "See dcgm-exporter's log if it stays so."
_BLANK = Fault("dcgm-blank", "The exporter has no value for it yet.", _EXPORTER_LOG)
_MEANINGS = (
    _BLANK,
    Fault("dcgm-blank", "DCGM did not find the field on this GPU.", _EXPORTER_LOG),
    Fault("not-supported", "DCGM reports that this GPU does not support it.", STAYS_MISSING),
    Fault("no-permission", "DCGM may not read it.", "Run dcgm-exporter as root, with CAP_SYS_ADMIN."),
)
_NOT_A_NUMBER = Fault("not-a-number", "The exporter's value is not a number.", _EXPORTER_LOG)
_OUT_OF_RANGE = Fault("out-of-range", "The exporter's value is impossible.", "On MIG, update DCGM (NVIDIA/DCGM#152).")
_AMBIGUOUS = Fault(
    "ambiguous", "The exporter's page gives several different values for this GPU.", "Run one dcgm-exporter per node."
)
_STUCK = Fault(
    "profiling-stuck",
    "The exporter's profiling values are all 0 while kernels run (NVIDIA/DCGM#303).",
    "Restart dcgm-exporter and its host engine; look for an XID before that time.",
)
_NO_VALUE = Fault("dcgm-blank", "The exporter's page has no value of this GPU.", _EXPORTER_LOG)


class DcgmSource:
    """Profiling values of the GPUs that `unread_gpus` names. Where it names none, nothing is said and read."""

    name = "dcgm"

    def __init__(
        self,
        unread_gpus: Callable[[], Sequence[UnreadGpu]],
        reader: Pages,
        url: str = DEFAULT_URL,
        every_seconds: float = DEFAULT_EVERY_SECONDS,
    ) -> None:
        self._unread = unread_gpus
        self._reader = reader
        self._target = Target(url, WANTED, every_seconds)
        self._started = False
        self._primed = False  # the loop throws the first reading away: a page would be lost with it
        self._seen = 0  # the number of the page that was last given
        self._provides: frozenset[tuple[str, str]] = frozenset()
        self._absences: frozenset[Absence] = frozenset()

    def probe(self) -> Probe:
        """What the page tells of each GPU without GPM. Only the first call waits, for the first page."""
        devices = self._unread()
        if not devices:
            return Probe()
        if not self._started:
            self._start()
            self._reader.wait((self._target.url,), _FIRST_PAGE_SECONDS)
        page = self._reader.latest(self._target.url)
        if page is None or page.fault is not None:
            absence = _unread(page)
            return Probe(capabilities=(Capability(self.name, "source", self.name, "*", self._target.url, absence),))
        lines: list[Capability] = []
        for device, (values, missing) in _read_all(devices, page.series).items():
            for field in FIELDS:
                fault = missing.get(field.metric)
                absence = fault.of("gpu", device, field.metric) if fault else None
                if field.metric in values or absence is not None:
                    origin = f"dcgm-exporter {_name(field, page.series)}, every {self._target.every_seconds:g} s"
                    lines.append(Capability(self.name, "gpu", device, field.metric, origin, absence))
        return Probe(capabilities=tuple(lines))

    def read(self, instant: Instant) -> Reading:
        """The values of a page that arrived since the last reading; nothing where none did."""
        devices = self._unread()
        if not devices:
            return NOTHING_READ
        if not self._started:
            self._start()
        primed, self._primed = self._primed, True
        page = self._reader.latest(self._target.url)
        if page is None or not primed:
            return NOTHING_READ
        if page.number != self._seen:
            self._seen = page.number
            return self._take(page, devices)
        if instant.monotonic_seconds - page.instant.monotonic_seconds > _STALE_PAGES * self._target.every_seconds:
            self._provides = frozenset()
        return Reading(absences=self._absences, provides=self._provides)

    def close(self) -> None:
        """End the reader's thread, for all that read pages with it."""
        self._reader.close()

    def _take(self, page: FetchedPage, devices: Sequence[UnreadGpu]) -> Reading:
        if page.fault is not None:
            self._provides, self._absences = frozenset(), frozenset({_unread(page)})
            return Reading(absences=self._absences)
        gpus: dict[str, Mapping[str, float]] = {}
        absences: list[Absence] = []
        for uuid, (values, missing) in _read_all(devices, page.series).items():
            if values:
                gpus[uuid] = values
            # Traffic is counted, or said to be missing, by the source `nvlink`: that the page lacks it too is no news.
            absences += [fault.of("gpu", uuid, metric) for metric, fault in missing.items() if metric in _RATIOS]
        provides = frozenset((uuid, metric) for uuid, values in gpus.items() for metric in values)
        if provides != self._provides:
            self._provides = provides
        if (now := frozenset(absences)) != self._absences:
            self._absences = now
        return Reading(gpus=gpus, absences=self._absences, provides=self._provides)

    def _start(self) -> None:
        self._started = True
        self._reader.start((self._target,))


def _read_all(
    devices: Iterable[UnreadGpu], series: Sequence[Series]
) -> dict[str, tuple[dict[str, float], dict[str, Fault]]]:
    """Per GPU, by uuid: its values, and why others are missing."""
    by_gpu: dict[tuple[str, str], dict[str, list[Series]]] = {}
    exported: set[str] = set()
    for one in series:
        exported.add(one.name)
        # A MIG instance's values carry its parent's UUID: they are not the parent's.
        key = (one.labels.get("UUID", ""), one.labels.get("GPU_I_ID", ""))
        by_gpu.setdefault(key, {}).setdefault(one.name, []).append(one)
    hosts = sorted({clean_text(host, 64) for one in series if (host := _host(one))})
    elsewhere = _not_on_page(tuple(hosts))
    return {
        device.uuid: _read_gpu(by_gpu.get((device.page_uuid, device.instance_id)), exported, elsewhere)
        for device in devices
    }


def _read_gpu(
    found: Mapping[str, list[Series]] | None, exported: set[str], elsewhere: Fault
) -> tuple[dict[str, float], dict[str, Fault]]:
    values: dict[str, float] = {}
    missing: dict[str, Fault] = {}
    for field in FIELDS:
        name = next((name for name in field.names if name in exported), None)
        if name is None:
            missing[field.metric] = _not_exported(field, exported)
        elif found is None:
            missing[field.metric] = elsewhere
        else:
            value = _value([one for name in field.names for one in found.get(name, ())], field.most)
            if isinstance(value, Fault):
                missing[field.metric] = value
            else:
                values[field.metric] = value
    if found is not None and _stuck(found, values):
        for metric in _RATIOS & set(values):
            del values[metric]
            missing[metric] = _STUCK
    return values, missing


def _value(series: list[Series], most: float) -> float | Fault:
    """The one value of a metric. The exporter repeats it for every pod that shares the GPU; old and new names too."""
    if not series:
        return _NO_VALUE
    if len({one.number for one in series}) > 1:
        return _AMBIGUOUS
    number = series[0].number
    value = series[0].value
    if value is None:
        return _NOT_A_NUMBER
    whole = int(number) if number.isdecimal() else int(value)
    for blank in _BLANKS:
        if blank <= whole < blank + len(_MEANINGS) and whole == (int(number) if number.isdecimal() else value):
            return _MEANINGS[whole - blank]
    if value >= 2**47:
        return _BLANK  # written with an exponent, a blank has lost its end
    if not 0.0 <= value <= most:
        return _OUT_OF_RANGE
    return min(value, 1.0) if most < 2 else value


def _stuck(found: Mapping[str, list[Series]], values: Mapping[str, float]) -> bool:
    """Whether profiling stopped counting: each ratio exactly 0 while at least half the time a kernel ran."""
    ratios = [values[metric] for metric in _RATIOS if metric in values]
    graphics = [one.value for name in _GRAPHICS for one in found.get(name, ())]
    if not ratios or any(ratios) or any(graphics):
        return False
    for name in _WITNESS:
        for one in found.get(name, ()):
            share = one.value if name.endswith("_RATIO") else (one.value or 0.0) / 100
            if share is not None and 0.5 <= share <= 1.0:
                return True
    return False


def _not_exported(field: _Field, exported: set[str]) -> Fault:
    detail = f"dcgm-exporter does not export {field.names[0]}."
    if field.metric.startswith("nvlink") and _NVLINK_TOTAL in exported:
        detail += f" {_NVLINK_TOTAL} adds up both directions, so it is no substitute."
    return Fault("not-exported", detail, f"Add to its counters' CSV file (-f) and restart it: {field.csv}")


def _host(one: Series) -> str:
    """Older exporters write ``Hostname``, newer ones ``hostname``."""
    return one.labels.get("hostname") or one.labels.get("Hostname") or ""


def _not_on_page(hosts: tuple[str, ...]) -> Fault:
    said = f" (of {', '.join(hosts[:3])})" if hosts else ""
    return Fault(
        "gpu-not-on-page",
        f"The exporter's page{said} does not name this GPU.",
        "See that dcgm-exporter runs on this node and watches all its GPUs and MIG instances.",
    )


def _name(field: _Field, series: Iterable[Series]) -> str:
    names = {one.name for one in series}
    return next((name for name in field.names if name in names), field.names[0])


def _unread(page: FetchedPage | None) -> Absence:
    if page is None or page.fault is None:
        return Absence("source", "dcgm", "*", "not-read-yet", "The exporter's page has not arrived yet.", "Look again.")
    fault: PageError = page.fault
    remedy = _RUN_EXPORTER
    if fault.reason not in ("unreachable", "bad-url"):
        remedy = fault.remedy or remedy
    return Absence("source", "dcgm", "*", fault.reason, f"dcgm-exporter: {clean_text(fault.message)}", remedy)


def _build(context: SourceContext) -> DcgmSource | None:
    config = context.config
    if not config.dcgm_url:
        return None
    reader = context.shared(PageReader, lambda: PageReader(remote=config.scrape_remote))
    return DcgmSource(context.unread_gpus, reader, config.dcgm_url, config.dcgm_interval_seconds)


def _unasked(config: AgentConfig, _gpus: Sequence[Gpu], lines: Sequence[Capability]) -> Fault | None:
    if config.dcgm_url or not any(line.absence is not None and line.absence.reason == "no-gpm" for line in lines):
        return None
    return Fault(
        "not-configured",
        "dcgm_url is empty, so dcgm-exporter's page is not read, which may report what GPM does not.",
        "Set dcgm_url to the page's address.",
    )


DCGM = SourceSpec(
    name=DcgmSource.name,
    metrics=tuple(field.metric for field in FIELDS),
    needs="dcgm-exporter's page of metrics",
    remedy=_RUN_EXPORTER,
    build=_build,
    every_seconds=DEFAULT_EVERY_SECONDS,
    unasked=_unasked,
)
