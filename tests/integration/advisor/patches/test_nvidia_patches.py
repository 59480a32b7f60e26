"""Patches of GPU nodes: drop-ins in the real systemd-analyze, scripts in a shell with a recorded nvidia-smi, and MIG
configurations against the form that mig-parted reads."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import jsonschema
import pytest
import yaml
from skuwise.advisor.moves.predict.mig_packing import fits
from skuwise.tests.support.patch_cases import GROUNDS, ID, LIMITS, MIG_STATE, accepted, patch_of
from skuwise.tests.support.prometheus_engines import needed

pytestmark = pytest.mark.slow

# What NVIDIA/mig-parted reads (api/spec/v1/spec.go and its README of v0.14, read 2026-11-25): a version, and by name
# lists of devices ("all" or indexes) with their MIG mode and the count of each profile.
MIG_PARTED = {
    "type": "object", "required": ["version", "mig-configs"], "additionalProperties": False,
    "properties": {
        "version": {"const": "v1"},
        "mig-configs": {
            "type": "object", "minProperties": 1,
            "additionalProperties": {
                "type": "array", "minItems": 1,
                "items": {
                    "type": "object", "required": ["devices", "mig-enabled"], "additionalProperties": False,
                    "properties": {
                        "device-filter": {},
                        "devices": {"anyOf": [
                            {"const": "all"},
                            {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}},
                        ]},
                        "mig-enabled": {"type": "boolean"},
                        "mig-devices": {
                            "type": "object",
                            "propertyNames": {"pattern": r"^[1-7]g\.\d+gb(\+me(\.all)?)?$"},
                            "additionalProperties": {"type": "integer", "minimum": 1, "maximum": 7},
                        },
                    },
                    "if": {"properties": {"mig-enabled": {"const": True}}}, "then": {"required": ["mig-devices"]},
                    "else": {"properties": {"mig-devices": {"maxProperties": 0}}},
                },
            },
        },
    },
}  # fmt: skip
SERVICE = "[Unit]\nDescription=driver\n[Service]\nType=forking\nExecStart=/bin/true\n"


@pytest.mark.parametrize("devices", [(), (0, 1)])
@pytest.mark.parametrize(("action", "flag"), [("power-cap", "-pl 500"), ("lower-clock", "-lgc 0,1455")])
def test_a_drop_in_is_what_systemd_takes(action: str, flag: str, devices: tuple[int, ...], tmp_path: Path) -> None:
    needed("systemd-analyze")
    (part,) = patch_of(action, "nvidia", devices=devices).parts
    units = tmp_path / "units"
    folder = units / "nvidia-persistenced.service.d"
    folder.mkdir(parents=True)
    (units / "nvidia-persistenced.service").write_text(SERVICE)
    # The program itself is on GPU nodes alone.
    (folder / part.patch.name).write_text("# head\n" + part.patch.text.replace("/usr/bin/nvidia-smi", "/bin/echo"))
    command = ["systemd-analyze", "verify", "--man=no", str(units / "nvidia-persistenced.service")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr.strip() == "", done.stderr
    (folder / part.patch.name).write_text(part.patch.text.replace("/usr/bin/nvidia-smi", "/none"))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "/none" in done.stderr  # the drop-in was read
    chosen = " -i 0,1" if devices else ""
    assert part.patch.text == f"[Service]\nExecStartPost=+/usr/bin/nvidia-smi{chosen} {flag}\n"


def ran(script: str, folder: Path) -> list[list[str]]:
    """The commands that a script runs, of programs that only record their arguments."""
    calls = folder / "calls"
    calls.write_text("")
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for name in ("nvidia-smi", "systemctl", "rm"):
        program = programs / name
        program.write_text(f'#!/bin/sh\necho "{name} $*" >>{shlex.quote(str(calls))}\n')
        program.chmod(0o755)
    text = script.replace("/usr/bin/nvidia-smi", "nvidia-smi")
    done = subprocess.run(
        ["/bin/sh", "-eu", "-c", text], env={"PATH": f"{programs}"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [line.split() for line in calls.read_text().splitlines()]


def test_the_undo_takes_the_drop_in_away_and_sets_every_gpu_to_its_limit_of_before(tmp_path: Path) -> None:
    (part,) = patch_of("power-cap", "nvidia", ("limits.csv", LIMITS), nodes=("n1",)).parts
    assert "-i 0,1 -pl 500" in part.patch.text
    name = f"/etc/systemd/system/nvidia-persistenced.service.d/skuwise-{ID}.conf"
    assert ran(part.undo.text, tmp_path) == [
        ["rm", "-f", name], ["systemctl", "daemon-reload"], ["nvidia-smi", "-i", "0", "-pl", "700"],
        ["nvidia-smi", "-i", "1", "-pl", "650.5"],
    ]  # fmt: skip
    assert f" {name}" in part.apply[0]
    (bare,) = patch_of("power-cap", "nvidia").parts
    assert ran(bare.undo.text, tmp_path)[-1] == ["nvidia-smi", "-pl", "700"]
    (clock,) = patch_of("lower-clock", "nvidia").parts
    assert ran(clock.undo.text, tmp_path)[-1] == ["nvidia-smi", "-rgc"]


def test_a_mig_configuration_is_what_mig_parted_reads_and_fits_on_the_gpu() -> None:
    ground = GROUNDS["mig-slice"]
    many = accepted("mig-slice", **{**ground, "target": GROUNDS["reduce-gpus"]["target"], "nodes": ("n1", "n2")})
    for made in (
        patch_of("mig-slice", "nvidia"), patch_of("mig-slice", "nvidia", devices=(3, 5)),
        patch_of("mig-slice", "nvidia", entry=many), patch_of("mig-slice", "nvidia", mig_profile="3g.40gb"),
        patch_of("mig-slice", "nvidia", ("state.yaml", MIG_STATE), devices=(1, 2)),
    ):  # fmt: skip
        (part,) = made.parts
        value = yaml.safe_load(part.patch.text)
        jsonschema.validate(value, MIG_PARTED)
        jsonschema.validate(yaml.safe_load(part.undo.text), MIG_PARTED)
        for config in value["mig-configs"].values():
            assert len(config) == 1  # what no entry names stays as it is
            for name, count in config[0]["mig-devices"].items():
                compute, memory = int(name[0]), {"1g.10gb": 1, "3g.40gb": 4}[name]
                assert fits([(compute, memory)] * count) and not fits([(compute, memory)] * (count + 1))
