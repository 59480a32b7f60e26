"""What is read of the files that kubectl wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from skuwise.agent.inventory.kubernetes.child import SIZE_LIMIT, main
from skuwise.agent.model import Gpu

UID = "8f3a2c11-0d6e-4b6a-9f0a-1c2d3e4f5a6b"
OTHER = "9f3a2c11-0d6e-4b6a-9f0a-1c2d3e4f5a6b"
GPUS = [Gpu(f"GPU-{i}", i, "H100", minor=i) for i in range(4)]
CREATED = "2026-09-21T08:00:00Z"


def item(kind: str, name: str, owner: tuple[str, str] | None = None, **about: Any) -> dict[str, Any]:
    """An object as the API server shows it."""
    owners = (
        [{"apiVersion": "x/v1", "kind": owner[0], "name": owner[1], "uid": "o", "controller": True}] if owner else []
    )
    labels = about.pop("labels", {})
    meta = {"name": name, "namespace": "ml", "uid": about.pop("uid", f"u-{name}"), "labels": labels}
    return {
        "apiVersion": "v1", "kind": kind, **about,
        "metadata": {**meta, "creationTimestamp": about.pop("created", CREATED), "ownerReferences": owners},
    }  # fmt: skip


def pod(name: str, owner: tuple[str, str] | None, image: str = "acme/train:1", **about: Any) -> dict[str, Any]:
    containers = [
        {"name": "main", "image": image, "resources": {"limits": {"nvidia.com/gpu": "1"}}},
        {"name": "istio-proxy", "image": "istio/proxyv2:1.22", "resources": {}},
    ]
    spec = {"nodeName": "n1", "containers": containers}
    return item("Pod", name, owner, spec=spec, status={"phase": "Running", "startTime": CREATED}, **about)


def written(path: Path, *items: Any) -> Path:
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)}))
    new.rename(path)
    return path


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "7", '{"items": 7}', '{"items": [7, null, {"kind": 7}, {"kind": "Pod"}]}', "[" * 100_000,
        '{"items": [{"kind": "Pod", "metadata": {"name": "x", "ownerReferences": [7, {"kind": 7}], "labels": [1]}}]}',
        '{"items": [{"kind": "Pod", "metadata": {"name": "x", "creationTimestamp": "never"}, "spec": {"containers":'
        ' [{"resources": {"limits": 3, "claims": {}}}]}, "status": {"phase": "Failed", "containerStatuses": [1]}}]}',
        '{"items": [{"kind": "Job", "metadata": {"name": "j"}, "spec": {"parallelism": 1e400}}]}',
    ],
)  # fmt: skip
def test_a_file_of_another_shape_gives_nothing_and_never_fails(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd.json"
    path.write_text(text)
    for what in ("pods", "slices"):
        assert main(what, str(path), "n1", "team") == 0
        answer = json.loads(capsys.readouterr().out)
        assert "error" in answer or not (answer.get("devices") or answer.get("pods"))


def test_a_file_that_is_too_large_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(SIZE_LIMIT + 1)
    main("pods", str(path), "n1")
    assert "larger than 64 MiB" in capsys.readouterr().out


@pytest.mark.parametrize("phase", [[], {}, None, 1, "x" * 5000])
def test_a_pod_of_another_shape_does_not_end_the_reading_of_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], phase: object
) -> None:
    odd = {**pod("odd", None), "status": {"phase": phase}}
    assert main("pods", str(written(tmp_path / "odd.json", odd, pod("well", None))), "n1") == 0
    assert "well" in {one["name"] for one in json.loads(capsys.readouterr().out)["pods"]}
