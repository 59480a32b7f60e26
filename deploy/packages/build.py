"""Builds the .deb and the .rpm of the self-contained agent from its archive (deploy/standalone/build.py).

Both install the same tree: the program in /usr/lib/skuwise-agent, /usr/bin/skuwise, the units that `skuwise agent
install` writes, and settings in /etc/skuwise. The archive's name states the version, the architecture and the glibc
that the packages require.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from skuwise.agent.service.install import MARK, plan_files

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
PROGRAM = "usr/lib/skuwise-agent"
# What the agent's own build can run; report and watch need the advisor. Neither is enabled by the package.
OPTIONAL_UNITS = ("environ", "slurm")
ARCHIVE = re.compile(r"skuwise-agent-(?P<version>.+)-linux-(?P<machine>\w+)-glibc(?P<glibc>[\d.]+)\.tar\.gz")
DEBIAN_ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("archive", type=Path, help="skuwise-agent-VERSION-linux-MACHINE-glibcVERSION.tar.gz")
    parser.add_argument("--release", default="1", metavar="N", help="revision of the packages (default: 1)")
    parser.add_argument("--level", default="6", metavar="N", help="of xz, 0 (fast) to 9 (default: 6)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the packages go (default: beside the archive)")
    options = parser.parse_args()
    named = ARCHIVE.fullmatch(options.archive.name)
    if named is None:
        raise SystemExit(f"skuwise: {options.archive.name} is not a self-contained agent. Make it: make standalone")
    missing = [package for tool, package in (("dpkg-deb", "dpkg"), ("rpmbuild", "rpm")) if shutil.which(tool) is None]
    if missing:
        raise SystemExit(f"skuwise: The packages need more programs. Install: apt-get install {' '.join(missing)}")
    out = options.out or options.archive.parent
    about = {**named.groupdict(), "release": options.release, "level": options.level}
    with tempfile.TemporaryDirectory(prefix="skuwise-packages-") as scratch:
        tree = Path(scratch, "tree")
        lay_out(options.archive, tree)
        for package in (rpm(tree, about, Path(scratch), out), deb(tree, about, out)):  # deb adds its control files
            print(f"{package}: {package.stat().st_size / 1e6:.1f} MB")
    return 0


def lay_out(archive: Path, tree: Path) -> None:
    """The files that both packages install, under `tree`."""
    program = tree / PROGRAM
    with tarfile.open(archive) as tar:
        tar.extractall(tree / "usr/lib", filter="data")
    next((tree / "usr/lib").iterdir()).rename(program)
    (tree / "usr/bin").mkdir()
    (tree / "usr/bin/skuwise").symlink_to("../lib/skuwise-agent/skuwise")
    for path, text in plan_files(Path("/usr/bin/skuwise"), "", tree, OPTIONAL_UNITS).items():
        # A package's own files are under /usr; /etc is for the site's. Without the mark `agent uninstall` keeps them.
        place = tree / re.sub(r"^etc/(?!skuwise/)", "usr/lib/", str(path.relative_to(tree)))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text.replace(f"{MARK}\n", ""))
        place.chmod(0o755 if place.suffix == ".sh" else 0o644)
    shutil.copyfile(HERE / "skuwise.toml", tree / "etc/skuwise/skuwise.toml")
    copyright_file = tree / "usr/share/doc/skuwise-agent/copyright"
    copyright_file.parent.mkdir(parents=True)
    shutil.copyfile(ROOT / "LICENSE", copyright_file)


def rpm(tree: Path, about: dict[str, str], scratch: Path, out: Path) -> Path:
    defined = {
        **about,
        "tree": str(tree),
        "guard": str(HERE / "guard.sh"),
        "_topdir": str(scratch),
        "_rpmdir": str(out),
    }
    words = [word for name, value in defined.items() for word in ("--define", f"{name} {value}")]
    run(["rpmbuild", "-bb", *words, HERE / "skuwise-agent.spec"])
    return out / "skuwise-agent-{version}-{release}.{machine}.rpm".format(**about)


def deb(tree: Path, about: dict[str, str], out: Path) -> Path:
    control = tree / "DEBIAN"
    shutil.copytree(HERE / "debian", control)
    size = sum(path.lstat().st_size for path in tree.rglob("*") if path.is_file()) // 1024
    architecture = DEBIAN_ARCHITECTURE[about["machine"]]
    text = (control / "control").read_text().format(**about, architecture=architecture, kibibytes=size)
    (control / "control").write_text(text)
    settings = sorted(path for path in (tree / "etc").rglob("*") if path.is_file())
    (control / "conffiles").write_text("".join(f"/{path.relative_to(tree)}\n" for path in settings))
    shutil.copyfile(HERE / "guard.sh", control / "preinst")
    for name in ("preinst", "postinst", "prerm", "postrm"):
        (control / name).chmod(0o755)
    package = out / f"skuwise-agent_{about['version']}-{about['release']}_{architecture}.deb"
    compression = ("-Zxz", f"-z{about['level']}")  # dpkg of Debian 11 reads no zstd
    run(["dpkg-deb", "--build", "--root-owner-group", *compression, tree, package])
    return package


def run(command: list[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"packages: {command[0]} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")


if __name__ == "__main__":
    sys.exit(main())
