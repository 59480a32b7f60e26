"""Holds the texts that users see to ``rules/wording.yaml``.

    python docs/tools/wording/check.py [PATH ...]

Prints one line for each phrase or sentence to rewrite, and ends with status 1 where there is one. Without a path it
reads every file that holds texts for users.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from skuwise.tests.support.wording.terms import found_in, load_wording, sources


def main(arguments: list[str]) -> int:
    chosen = [Path(one).resolve() for one in arguments]
    paths = [p for p in sources() if not chosen or any(p == c or c in p.parents for c in chosen)]
    found = found_in(paths, load_wording())
    for one in found:
        print(one)
    files = Counter(one.path for one in found)
    print(f"{len(found)} texts to rewrite in {len(files)} of {len(paths)} files", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
