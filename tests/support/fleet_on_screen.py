"""A small fleet for tests of the screens: read once, judged by the real advisor, with names that mean harm."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from threading import Event

from skuwise.advisor.classify.judge import judge
from skuwise.advisor.core.advice_types import Advice, Decision
from skuwise.advisor.pipeline import reason_on
from skuwise.advisor.plan.figures import Planner
from skuwise.advisor.rulebook import Rulebook
from skuwise.advisor.show.series.health import health_of
from skuwise.advisor.show.series.whatif_session import Workbench, workbench
from skuwise.advisor.state.file import State
from skuwise.rules.base.errors import SkuwiseError
from skuwise.tests.support.frame_builder import DECODE, HOUR, START, TRAINING, FrameBuilder
from skuwise.tests.support.rulebooks import rulebook
from skuwise.tui.data.loaders import Loader
from skuwise.tui.state import FINDINGS_WINDOW, Loaded, Look, WindowChoice, with_decision

HOURS = 48
NOW = START + HOURS * HOUR
# Markup of two kinds, an escape that clears the screen, text that runs backwards, wide letters, and far too much of it.
HOSTILE = "[red]x[/red] [@click=app.quit]y[/] \x1b[2J \u202egnp.exe 数据処理 " + "n" * 300


@cache
def fleet() -> Loaded:
    """A service on an InfiniBand node whose fabric is silent, training on another, and something it cannot read."""
    b = FrameBuilder(hours=HOURS)
    for node in ("n1", "n2"):
        b.node(node, 8)
        b.nodes[-1] |= {"provider": "azure", "region": "eastus"}
        b.port(0.0002 if node == "n1" else 0.4, node)
    for n in range(8):
        b.use(DECODE, "n1", f"GPU-n1-{n}", wave="dram_active")
        b.use(TRAINING, "n2", f"GPU-n2-{n}")
    b.work("w-serve", [("n1", f"GPU-n1-{n}") for n in range(8)], name="chat", series="s1", framework="vllm", user="ann")
    b.work("w-train", [("n2", f"GPU-n2-{n}") for n in range(8)], name=HOSTILE, series="s2", user="[b]bob")
    b.absences.append(
        {"node": "n2", "gpu_uuid": "GPU-n2-0", "scope": "gpu", "metric": "tensor_active", "reason": "no-gpm",
         "detail": f"The driver gave {HOSTILE}", "remedy": "Ask it.", "since": START}
    )  # fmt: skip
    # The agent reads NVLink counters itself, so zeros of them are believed.
    frame = replace(b.frame(), source={"kind": "sqlite", "databases": ["fleet.db"]})
    book = rulebook()
    reasoned = reason_on(judge(frame, book), book, NOW, 1, source=frame.source)
    return Loaded(FINDINGS_WINDOW, reasoned.advice, reasoned.advice, health_of(frame), NOW, frame, reasoned)


def planner(loaded: Loaded) -> Planner:
    """A clock that stands: the plan of a small fleet, which is proven, is the same in every run."""
    assert loaded.reasoned is not None
    return Planner(loaded.reasoned, loaded.frame, 60.0, lambda: 0.0)


def many(count: int) -> Loaded:
    """The fleet with so many workloads of different names and sizes."""
    loaded = fleet()
    first = loaded.advice.workloads[0]
    workloads = tuple(
        replace(first, id=f"w{n}", name=f"job-{n:05d}", gpu_hours=float(n * 7919 % count)) for n in range(count)
    )
    advice = replace(loaded.advice, workloads=workloads)
    return replace(loaded, advice=advice, shown=advice)


def wide(loaded: Loaded, nodes: int) -> Loaded:
    """The same with a frame of so many nodes of eight GPUs, which the workloads use in turn."""
    b = FrameBuilder(hours=1)
    ids = [w.id for w in loaded.shown.workloads]
    for n in range(nodes):
        node = f"node-{n:04d}"
        gpus = b.node(node, 8)
        b.port(n % 100 / 100, node)
        for gpu in gpus:
            b.use({**TRAINING, "sm_active": n % 10 / 10}, node, gpu)
        b.uses.append({"workload_id": ids[n % len(ids)], "node": node, "gpu_uuid": gpus[0], "basis": "process",
                       "ts_start": START, "ts_end": START + HOUR, "shared": 0.0})  # fmt: skip
    return replace(loaded, frame=b.frame())


@dataclass
class HandLoader(Loader):
    """Gives what it holds, or raises it. `gate`: reading waits for it. `plans`: what plans; None: the real planner.
    `earlier`: what an earlier run saw. It keeps what it was asked for."""

    held: Loaded | SkuwiseError | None = None
    gate: Event | None = None
    name: str = "fleet.db"
    key: str = "fleet"
    state_file: State | None = None
    plans: Planner | None = None
    earlier: Look | None = None
    windows: list[str] = field(default_factory=list)
    decided: list[tuple[str, str, float | None, str | None]] = field(default_factory=list)

    def load(self, window: WindowChoice, kept: Advice | None, tell: Callable[[str], None]) -> Loaded:
        self.windows.append(window.name)
        tell(f"reading {window.name} of telemetry")
        if self.gate is not None:
            self.gate.wait(30)
        held = self.held if self.held is not None else fleet()
        if isinstance(held, SkuwiseError):
            raise held
        for id_, act, until, why in self.decided:
            held = with_decision(held, id_, Decision(act, NOW, "ann", until, why))  # type: ignore[arg-type]
        return replace(held, window=window)

    def state(self) -> State | None:
        return self.state_file

    def recall(self, window: WindowChoice) -> Look | None:
        return self.earlier

    def keep(self, loaded: Loaded) -> None:
        self.earlier = Look(loaded.window, loaded.advice, loaded.shown, loaded.health, loaded.at)

    def decide(self, advice: Advice, id_: str, act, until: float | None, why: str | None) -> Decision:
        self.decided.append((id_, act, until, why))
        return Decision(act, NOW, "ann", until, why)  # type: ignore[arg-type]

    def bench(self, loaded: Loaded, workload: str, tell: Callable[[str], None]) -> Workbench | None:
        return workbench(loaded.frame, loaded.advice.workloads, workload, self.rulebook(), NOW)

    def planner(self, loaded: Loaded, tell: Callable[[str], None]) -> Planner:
        return self.plans if self.plans is not None else planner(loaded)

    def rulebook(self) -> Rulebook:
        return rulebook()
