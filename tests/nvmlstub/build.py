"""Builds the NVML stub: a `libnvidia-ml.so.1` that answers from a scenario file.

Needs a C compiler and nothing else, this project included: ``python build.py [--missing 'nvmlGpm*'] [DIR]`` prints the
folder to put into LD_LIBRARY_PATH.
"""

import argparse
import fnmatch
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

LIBRARY = "libnvidia-ml.so.1"
_HERE = Path(__file__).resolve().parent
_FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden")


class StubBuildError(RuntimeError):
    """The stub could not be built: no compiler, or the compiler refused."""


def build(missing: Sequence[str] = (), into: Path | None = None) -> Path:
    """The folder that holds the library, built if its sources changed.

    `missing` names functions (patterns allowed) that the library shall lack, as an older driver does. Without `into`
    the result is kept in this user's own folder under the temporary directory.
    """
    sources = sorted(_HERE.glob("*.c"))
    texts = "".join(path.read_text() for path in sources)
    exported = {*re.findall(r"\b(nvml[A-Z]\w+)\(", texts), *re.findall(r"_GETTER\((nvml\w+),", texts)}
    kept = sorted(name for name in exported if not any(fnmatch.fnmatchcase(name, pattern) for pattern in missing))
    digest = hashlib.sha256("\0".join([*_FLAGS, *kept]).encode())
    for path in [*sources, *sorted(_HERE.glob("*.h"))]:
        digest.update(path.read_bytes())
    folder = (into or _cache()) / digest.hexdigest()[:16]
    if not (folder / LIBRARY).exists():
        _compile(sources, kept, folder)
    return folder


def _cache() -> Path:
    folder = Path(tempfile.gettempdir()) / f"nvmlstub-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise StubBuildError(f"{folder} belongs to someone else. Set TMPDIR to a folder of your own.")
    return folder


def _compile(sources: Sequence[Path], exported: Sequence[str], folder: Path) -> None:
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise StubBuildError("There is no C compiler here. Install one (Debian and Ubuntu: gcc and libc6-dev).")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        script, library = Path(scratch) / "exports.map", Path(scratch) / LIBRARY
        script.write_text("{ global: " + " ".join(f"{name};" for name in exported) + " local: *; };\n")
        command = [compiler, *_FLAGS, f"-Wl,--version-script={script}", f"-Wl,-soname,{LIBRARY}", "-o", str(library)]
        done = subprocess.run([*command, *map(str, sources), "-lm"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise StubBuildError(f"The stub does not compile:\n{done.stderr}")
        library.replace(folder / LIBRARY)  # atomic: several test processes may build at once


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the NVML stub and print the folder for LD_LIBRARY_PATH.")
    parser.add_argument("folder", nargs="?", type=Path, help="where to keep it (under the temporary directory)")
    parser.add_argument("--missing", nargs="*", default=(), metavar="NAME", help="functions the library shall lack")
    options = parser.parse_args()
    try:
        print(build(options.missing, options.folder))  # noqa: T201
    except StubBuildError as error:
        print(f"nvmlstub: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
