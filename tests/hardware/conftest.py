"""What the hardware tests share: the GPU or the reason there is none, one watched run per workload."""

import os
import sys
from collections.abc import Callable, Iterator

import pytest
from skuwise.agent.model import Gpu
from skuwise.rules.base.errors import NothingToDo
from skuwise.rules.catalog.loader import load_catalog
from skuwise.rules.catalog.types import GpuSku
from skuwise.tests.hardware.watched import Watch, Watched, no_gpu_reason, watch_work

# Variables of the test run, not of skuwise, whose own prefix they must not carry.
PYTHON, SECONDS = "HARDWARE_PYTHON", "HARDWARE_SECONDS"


@pytest.fixture(scope="session")
def no_gpu() -> str | None:
    return no_gpu_reason()


@pytest.fixture(autouse=True)
def real_gpu(request: pytest.FixtureRequest, no_gpu: str | None) -> None:
    """Skips what is marked `hardware` where there is no GPU, and says why."""
    if no_gpu and request.node.get_closest_marker("hardware"):
        pytest.skip(f"needs a real GPU: {no_gpu}")


@pytest.fixture(scope="session")
def python_with_torch() -> str:
    """The Python that runs the work: HARDWARE_PYTHON, else this one."""
    return os.environ.get(PYTHON, sys.executable)


@pytest.fixture(scope="session")
def watch(no_gpu: str | None, python_with_torch: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watch]:
    """Runs the agent over a workload, once per workload and interval."""
    seconds = float(os.environ.get(SECONDS, "12"))
    kept: dict[tuple[str, float], Watched | str] = {}

    def run(name: str, interval_seconds: float) -> Watched:
        key = (name, interval_seconds)
        if key not in kept:
            try:
                folder = tmp_path_factory.mktemp(f"{name}-{interval_seconds:g}")
                kept[key] = watch_work(name, interval_seconds, seconds, python_with_torch, folder)
            except NothingToDo as reason:
                kept[key] = str(reason)
        result = kept[key]
        if isinstance(result, str):
            pytest.skip(result)
        return result

    if no_gpu:
        pytest.skip(f"needs a real GPU: {no_gpu}")
    yield run


@pytest.fixture(scope="session")
def sku_of() -> Callable[[Gpu], GpuSku]:
    """The catalog's figures of a GPU; skips where the catalog lacks it."""
    catalog = load_catalog()

    def find(gpu: Gpu) -> GpuSku:
        sku = catalog.gpu(gpu.sku or gpu.name)
        if sku is None:
            pytest.skip(f"the catalog lacks {gpu.name}")
        return sku

    return find
