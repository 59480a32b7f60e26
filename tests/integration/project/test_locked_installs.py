"""pip, with the project's own lock and flags, refuses a file that is not the locked one. Nothing is fetched."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[3]
NAME, VERSION = "mdurl", "0.1.2"  # of the lock, without dependencies


def entry() -> str:
    """The lock's own lines for the package."""
    text = (ROOT / "requirements/dev.lock").read_text()
    (found,) = re.findall(rf"^{NAME}=={re.escape(VERSION)} (?:.*\n(?: .*\n)*)", text, re.MULTILINE)
    return str(found)


def offered(folder: Path) -> Path:
    """A wheel as an index, or who sits before it, would offer under that name and version."""
    about = f"{NAME}-{VERSION}.dist-info"
    files = {
        f"{NAME}/__init__.py": "raise SystemExit('someone else's code')\n",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    path = folder / f"{NAME}-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
        wheel.writestr(f"{about}/RECORD", "".join(f"{name},,\n" for name in [*files, f"{about}/RECORD"]))
    return path


def install(folder: Path, lock: str) -> subprocess.CompletedProcess[str]:
    """As the make targets do, with a folder for the index."""
    script = (ROOT / "deploy/setup/install.sh").read_text()
    (flags,) = re.findall(r'^HASHED="(.*)"$', script, re.MULTILINE)
    (folder / "lock").write_text(lock)
    pip = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", "install", "--no-index"]
    where = ["--find-links", str(folder), "--target", str(folder / "there")]
    command = [*pip, *where, *flags.split(), "-r", str(folder / "lock")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_file_whose_hash_changed_is_not_installed(tmp_path: Path) -> None:
    offered(tmp_path)
    done = install(tmp_path, entry())
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr and NAME in done.stderr
    assert not (tmp_path / "there").exists()


def test_the_same_file_is_installed_with_its_own_hash_and_not_without_one(tmp_path: Path) -> None:
    wheel = offered(tmp_path)
    own = hashlib.sha256(wheel.read_bytes()).hexdigest()
    refused = install(tmp_path, f"{NAME}=={VERSION}\n")
    assert refused.returncode != 0 and "--require-hashes" in refused.stderr
    done = install(tmp_path, f"{NAME}=={VERSION} --hash=sha256:{own}\n")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / f"there/{NAME}/__init__.py").exists()
