"""Builds the self-contained agent: one folder that needs no Python on the node, packed as a tar.gz.

It runs on nodes whose glibc is at least as new as the newest symbol in the bundle: build it on the oldest distribution
that it is for (deploy/standalone/Containerfile). The file's name says which glibc that is. Prints what it made, how
large it is and how long it takes to start.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
LIBRARIES = "lib"  # the folder beside the program
# What the agent never loads: the advisor, and OpenSSL, for it speaks plain HTTP to loopback and gRPC to a Unix socket.
LEFT_OUT = ("skuwise.advisor", "ssl", "_ssl", "_hashlib", "tkinter", "unittest", "pydoc", "doctest", "lzma", "bz2")
_GLIBC = re.compile(rb"GLIBC_2\.(\d{1,3})\x00")
_STARTS = 7


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", metavar="DIR", help="where the archive goes")
    options = parser.parse_args()
    check_shared_python()
    with tempfile.TemporaryDirectory(prefix="skuwise-standalone-") as scratch:
        folder = freeze(Path(scratch))
        version = output([folder / "skuwise", "--version"]).split()[1]
        named = f"skuwise-agent-{version}-linux-{platform.machine()}-glibc2.{glibc_minor(folder)}"
        options.out.mkdir(parents=True, exist_ok=True)
        archive = options.out / f"{named}.tar.gz"
        pack(folder, f"skuwise-agent-{version}", archive)
        describe(Path(scratch), folder, archive)
        unpacked = sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())
        print(archive)
        print(f"packed {archive.stat().st_size / 1e6:.1f} MB, unpacked {unpacked / 1e6:.1f} MB")
        print(f"starts in {start_seconds(folder):.2f} s (skuwise --version, median of {_STARTS})")
    return 0


def check_shared_python() -> None:
    """PyInstaller needs Python's shared library and objdump, which Debian has in packages of their own."""
    packages = [] if shutil.which("objdump") else ["binutils"]
    library = str(sysconfig.get_config_var("INSTSONAME") or "")
    try:
        ctypes.CDLL(library if ".so" in library else None)
    except OSError:
        packages.append(f"libpython{sysconfig.get_python_version()}")
    if packages:
        names = " ".join(packages)
        raise SystemExit(f"skuwise: The self-contained build needs more packages. Install: apt-get install {names}")


def freeze(scratch: Path) -> Path:
    """The folder with the program, made in an environment from the wheel of this tree."""
    environment = scratch / "venv"
    venv.create(environment, with_pip=True)
    python = environment / "bin/python"
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    # Nothing is compiled: what a source archive is built with would come without a hash.
    run([*pip, "--require-hashes", "--only-binary=:all:", "-r", ROOT / "requirements/standalone.lock"])
    run([python, "-m", "build", "--no-isolation", "--outdir", scratch / "wheel", ROOT])
    (wheel,) = (scratch / "wheel").glob("*.whl")
    run([*pip, "--no-index", "--no-deps", wheel])
    run(
        [
            python, "-m", "PyInstaller", "--noconfirm", "--log-level=WARN", "--onedir", "--name=skuwise",
            f"--contents-directory={LIBRARIES}", "--collect-data=skuwise", "--collect-submodules=skuwise.agent",
            "--collect-submodules=skuwise.rules", *(f"--exclude-module={name}" for name in LEFT_OUT),
            *(["--strip"] if shutil.which("strip") else []), f"--distpath={scratch / 'dist'}",
            f"--workpath={scratch / 'work'}", f"--specpath={scratch}", HERE / "entry.py",
        ]
    )  # fmt: skip
    folder = scratch / "dist/skuwise"
    shutil.rmtree(folder / LIBRARIES / "skuwise/advisor", ignore_errors=True)  # its data, without its modules
    copy_licences(environment, folder / "licences")
    shutil.copy(ROOT / "LICENSE", folder)
    return folder


def describe(scratch: Path, folder: Path, archive: Path) -> None:
    """The archive's checksum, and its bill of materials: the packages, and the hash of every file in it."""
    tool = scratch / "sbom"
    venv.create(tool, with_pip=True)
    hashed = ("--require-hashes", "--only-binary=:all:", "-r", ROOT / "requirements/sbom.lock")
    run([tool / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *hashed])
    about: list[str | Path] = ["--lock", ROOT / "requirements/agent.lock", "--python", scratch / "venv/bin/python"]
    about += ["--name", "skuwise-agent", "--folder", folder, "--archive", archive]
    run([tool / "bin/python", ROOT / "deploy/sbom.py", *about, "--out", beside(archive, ".cdx.json")])
    beside(archive, ".sha256").write_text(f"{hashlib.sha256(archive.read_bytes()).hexdigest()}  {archive.name}\n")


def beside(archive: Path, ending: str) -> Path:
    return archive.with_name(archive.name + ending)


def copy_licences(environment: Path, target: Path) -> None:
    """What the authors of Python and of the packages it is built from want to travel with their work."""
    target.mkdir()
    python = Path(sysconfig.get_path("stdlib")) / "LICENSE.txt"
    if python.exists():  # distributions may keep it elsewhere
        shutil.copy(python, target / "Python.txt")
    for folder in sorted(environment.glob("lib/python3*/site-packages/*.dist-info")):
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            if re.match(r"(LICEN[CS]E|COPYING|NOTICE|AUTHORS)", file.name, re.IGNORECASE):
                shutil.copy(file, target / f"{folder.name.removesuffix('.dist-info')}-{file.name}")


def glibc_minor(folder: Path) -> int:
    """The newest glibc 2.x that any binary in `folder` asks for."""
    return max(minor for path in folder.rglob("*") if path.is_file() for minor in _asked_of(path))


def _asked_of(path: Path) -> Iterator[int]:
    data = path.read_bytes()
    if data.startswith(b"\x7fELF"):
        yield from (int(version) for version in _GLIBC.findall(data))


def pack(folder: Path, name: str, archive: Path) -> None:
    """`folder` as one archive: sorted, root's, and not writable for others, so that `agent install` accepts it."""
    stamp = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = "root"
        member.mtime = stamp
        member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
        return member

    unfinished = archive.with_name(f".{archive.name}.new")
    with tarfile.open(unfinished, "w:gz") as tar:
        tar.add(folder, name, recursive=False, filter=plain)
        for path in sorted(folder.rglob("*")):
            tar.add(path, f"{name}/{path.relative_to(folder)}", recursive=False, filter=plain)
    unfinished.replace(archive)


def start_seconds(folder: Path) -> float:
    """Median wall time of a start and an end."""
    spans = []
    for _ in range(_STARTS):
        began = time.monotonic()
        output([folder / "skuwise", "--version"])
        spans.append(time.monotonic() - began)
    return statistics.median(spans)


def run(command: list[str | Path]) -> None:
    output(command)


def output(command: list[str | Path]) -> str:
    # Modules come from the environments made here alone: PyInstaller would pack a whole tree that PYTHONPATH names.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run([str(part) for part in command], env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"standalone: {command[0]} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
