"""Writes a bill of materials (CycloneDX JSON): what an installation, an image or the self-contained agent holds.

Which packages there are, what asks for which, and the hashes of their files are a lock's; their licenses are those of
the environment that holds them, as cyclonedx-py reads them. Run by an environment made from requirements/sbom.lock
(`make sbom`). The same input gives the same bytes: there is no serial number, and no time but SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packaging.markers import Marker

ROOT = Path(__file__).resolve().parents[1]
SPEC = "1.6"
_PINNED = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>\S+)(?: ; (?P<marker>.+))?")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_IMAGE = re.compile(r"(?P<name>[^:@]+)(?::(?P<tag>[^@]+))?@sha256:(?P<digest>[0-9a-f]{64})")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Locked:
    """A package of a lock. `wanted_by`: normalized names of what asks for it; `skuwise` is this project."""

    name: str
    version: str
    marker: str | None
    sha256: tuple[str, ...]
    wanted_by: frozenset[str]

    @property
    def ref(self) -> str:
        return f"pkg:pypi/{self.name}@{self.version}"


def normalized(name: str) -> str:
    """As PEP 503 compares names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(text: str) -> Iterator[Locked]:
    """What a lock pins. Raises ValueError for a line that pins nothing or lacks a hash."""
    for entry in re.split(r"\n(?=\S)", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).strip()):
        first, _, rest = entry.partition("\n")
        pinned = _PINNED.fullmatch(first.removesuffix("\\").strip())
        hashes = tuple(_HASH.findall(rest))
        if pinned is None or not hashes:
            raise ValueError(f"{first!r} is not a version with hashes")
        via = re.findall(r"# via (.*)", rest)
        wanted = re.sub(r"-c \S+|\([^)]*\)|-r \S+", "", ", ".join(via)).split(",")
        yield Locked(
            normalized(pinned["name"]), pinned["version"], pinned["marker"], hashes,
            frozenset(normalized(name.strip()) for name in wanted if name.strip()),
        )  # fmt: skip


def from_environment(python: Path) -> dict[str, Json]:
    """What cyclonedx-py finds installed for this interpreter, by normalized name."""
    command = [sys.executable, "-m", "cyclonedx_py", "environment", "--no-validate"]
    command += ["--output-reproducible", "--sv", SPEC, str(python)]
    document = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    by_name = {normalized(component["name"]): component for component in document["components"]}
    silent = [name for name, component in by_name.items() if not component.get("licenses")]
    for name, text in license_fields(python, silent).items():  # words of old metadata, which it leaves out
        by_name[name]["licenses"] = [{"license": {"name": text, "acknowledgement": "declared"}}]
    return {"": {"tools": document["metadata"]["tools"]}} | by_name


def license_fields(python: Path, names: list[str]) -> dict[str, str]:
    """The first line of what these packages call their license, where they do."""
    code = "import importlib.metadata as m, json, sys;"
    code += "print(json.dumps({n: m.metadata(n)['License'] for n in sys.argv[1:]}))"
    licenses = json.loads(subprocess.run([python, "-c", code, *names], capture_output=True, check=True).stdout)
    return {name: text.strip().splitlines()[0] for name, text in licenses.items() if text and text.strip()}


def component(package: Locked, installed: Json) -> Json:
    """One package: what its authors say of it, and every file that the lock accepts."""
    links = [link for link in installed.get("externalReferences", ()) if link["type"] != "distribution"]
    files = {
        "type": "distribution", "url": package.ref,
        "comment": "the files of this version that the lock accepts, one for each platform and Python, and the source",
        "hashes": [{"alg": "SHA-256", "content": digest} for digest in package.sha256],
    }  # fmt: skip
    kept = {name: installed[name] for name in ("description", "licenses") if name in installed}
    return kept | {
        "type": "library", "name": package.name, "version": package.version, "bom-ref": package.ref,
        "purl": package.ref, "externalReferences": [*links, files],
    }  # fmt: skip


def base_image(reference: str) -> Json:
    """An image that another is built on, which must be named by its digest."""
    match = _IMAGE.fullmatch(reference)
    if match is None:
        raise ValueError(f"{reference!r} has no digest: IMAGE:TAG@sha256:...")
    ref = f"pkg:oci/{match['name'].rpartition('/')[2]}@sha256%3A{match['digest']}"
    return {
        "type": "container", "name": match["name"], "version": match["tag"] or match["digest"], "bom-ref": ref,
        "purl": f"{ref}?tag={match['tag']}" if match["tag"] else ref,
        "hashes": [{"alg": "SHA-256", "content": match["digest"]}],
    }  # fmt: skip


def files_of(folder: Path) -> Iterator[Json]:
    """Every file of a folder with its hash: the interpreter and the system's libraries among them are no packages."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()):
        name = str(path.relative_to(folder))
        yield {
            "type": "file", "name": name, "bom-ref": f"file:{name}",
            "hashes": [{"alg": "SHA-256", "content": sha256(path)}],
        }  # fmt: skip


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def bill(
    lock: str, installed: dict[str, Json], *, name: str, version: str, more: list[Json], archive: Path | None = None
) -> Json:
    """The bill of what `lock` installs beside `more`. Raises ValueError where a package is missing or another one."""
    packages = [package for package in locked(lock) if package.marker is None or Marker(package.marker).evaluate()]
    wrong = [package.ref for package in packages if installed.get(package.name, {}).get("version") != package.version]
    if wrong:
        raise ValueError(f"not installed as locked: {', '.join(wrong)}")
    root = f"pkg:pypi/skuwise@{version}"
    own_package = installed.get("skuwise", {})
    component_of = {key: own_package[key] for key in ("description", "licenses") if key in own_package}
    component_of |= {"type": "application", "name": name, "version": version, "bom-ref": root, "purl": root}
    if archive is not None:
        component_of["hashes"] = [{"alg": "SHA-256", "content": sha256(archive)}]
    asks = {root: "skuwise"} | {package.ref: package.name for package in packages}
    metadata: Json = {"component": component_of, "tools": installed[""]["tools"]}
    if (moment := os.environ.get("SOURCE_DATE_EPOCH")) is not None:
        metadata["timestamp"] = datetime.fromtimestamp(int(moment), UTC).isoformat()
    return {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPEC}.schema.json", "bomFormat": "CycloneDX", "specVersion": SPEC,
        "version": 1, "metadata": metadata,
        "components": [*(component(package, installed[package.name]) for package in packages), *more],
        "dependencies": [
            {"ref": ref, "dependsOn": sorted(package.ref for package in packages if name in package.wanted_by)}
            for ref, name in asks.items()
        ] + [{"ref": part["bom-ref"]} for part in more],
    }  # fmt: skip


def check(text: str) -> None:
    """Raises ValueError where the schema that cyclonedx-py ships refuses the bill."""
    # Here alone, so that what reads locks needs none of it.
    from cyclonedx.schema import SchemaVersion  # noqa: PLC0415  # pyright: ignore[reportMissingImports]
    from cyclonedx.validation.json import JsonStrictValidator  # noqa: PLC0415  # pyright: ignore[reportMissingImports]

    error = JsonStrictValidator(SchemaVersion.from_version(SPEC)).validate_str(text)
    if error is not None:
        raise ValueError(f"not CycloneDX {SPEC}: {error}")


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--lock", type=Path, required=True, help="the lock that was installed")
    parser.add_argument("--python", type=Path, required=True, help="the interpreter that has its packages")
    parser.add_argument("--name", required=True, help="what is described")
    parser.add_argument("--base", default=None, metavar="IMAGE", help="the image that it is built on, with its digest")
    parser.add_argument("--folder", type=Path, help="a folder whose files come along")
    parser.add_argument("--archive", type=Path, help="the archive that is described, for its hash")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    options = parser.parse_args()
    (version,) = re.findall(r'^__version__ = "(.+)"', (ROOT / "__init__.py").read_text(), re.MULTILINE)
    more = [base_image(options.base)] if options.base else []
    more += list(files_of(options.folder)) if options.folder else []
    packages = from_environment(options.python)
    made = bill(
        options.lock.read_text(), packages, name=options.name, version=version, more=more, archive=options.archive
    )
    text = json.dumps(made, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    check(text)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(text)
    print(f"{options.out}: {len(made['components'])} components")
    return 0


if __name__ == "__main__":
    sys.exit(main())
