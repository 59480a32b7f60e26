"""Where the self-contained build begins: the agent's commands alone, and its own modules by ``-m``.

The agent starts child processes as ``sys.executable -P -m MODULE`` (`self_command`); here that executable is this
program.
"""

from __future__ import annotations

import os
import runpy
import sys

from skuwise.__main__ import COMMANDS, main

HELD = ("agent", "rules", "slurm")


def restore_library_path() -> None:
    """Give programs that we start (systemctl, ldconfig) the library path we were started with, not the bundle's.

    PyInstaller's loader puts the bundle's folder first and keeps the value from before; our own process has read it.
    """
    before = os.environ.pop("LD_LIBRARY_PATH_ORIG", None)
    if before is not None:
        os.environ["LD_LIBRARY_PATH"] = before
    elif os.environ.get("LD_LIBRARY_PATH") == getattr(sys, "_MEIPASS", None):
        os.environ.pop("LD_LIBRARY_PATH", None)


if __name__ == "__main__":
    restore_library_path()
    if sys.argv[1:3] == ["-P", "-m"]:  # the bundle never looks into the current folder
        del sys.argv[1]
    if sys.argv[1:3] == ["-m", "skuwise"]:
        del sys.argv[1:3]
    if sys.argv[1:2] == ["-m"] and len(sys.argv) > 2 and sys.argv[2].startswith("skuwise."):
        module = sys.argv[2]
        sys.argv = [module, *sys.argv[3:]]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.exit(main(commands={name: COMMANDS[name] for name in HELD}))
