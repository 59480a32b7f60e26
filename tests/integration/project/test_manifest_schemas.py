"""The manifests against Kubernetes' own schemas, of its oldest and newest version at hand."""

from __future__ import annotations

from pathlib import Path

from skuwise.tests.support.kubernetes_schemas import validate, validator  # noqa: F401 - a fixture

ROOT = Path(__file__).parents[3]
MANIFESTS = [
    ROOT / "deploy/kubernetes" / name for name in ("namespace.yaml", "daemonset.yaml", "metrics.yaml", "watch.yaml")
]


def test_every_manifest_is_what_kubernetes_takes(tmp_path: Path, validator: Path) -> None:  # noqa: F811
    for version in ("1.25", "1.37"):
        done = validate(validator, version, *MANIFESTS)
        assert done.returncode == 0, done.stdout + done.stderr
        assert (done.stdout + done.stderr).count("passed for resource") == 8
    wrong = tmp_path / "daemonset.yaml"
    wrong.write_text(MANIFESTS[1].read_text().replace("hostPID:", "hostPid:"))
    done = validate(validator, "1.37", wrong)
    assert done.returncode != 0 and "hostPid" in done.stdout + done.stderr
