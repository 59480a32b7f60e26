"""How long the mails of a large fleet take to render, and in how much memory: every team's, and the administrators'.

Advice is built by hand, for what it takes to read telemetry and judge it is measured elsewhere (`scale.py`). Prints
wall and CPU seconds (a busy machine blurs the first), the most memory the process held, and the largest HTML.

    python -m skuwise.benchmarks.performance.advisor.report --teams 200 --workloads 2000
"""

from __future__ import annotations

import argparse
import resource
import time

from skuwise.advisor.mail.routes import Routes, TeamRoute
from skuwise.advisor.report.weekly import FLEET, WeeklyReports
from skuwise.tests.support import report_fixtures as weekly


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--teams", type=int, default=200)
    parser.add_argument("--workloads", type=int, default=2000)
    options = parser.parse_args()
    names = [f"team-{n:03}" for n in range(options.teams)]
    routes = Routes(
        ("gpu-platform@example.org",),
        tuple(TeamRoute(name, (f"{name}@example.org",)) for name in names),
        {("namespace", name): name for name in names},
    )
    each = options.workloads // options.teams
    now = weekly.fleet(options.teams, each)
    before = weekly.fleet(options.teams, each, end=weekly.END - weekly.WEEK, scale=0.9)
    making = WeeklyReports(now, before, (), routes, lambda _: frozenset())
    began, cpu = time.perf_counter(), time.process_time()
    reports = list(making.reports((FLEET, *routes.teams)))
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    largest = max(len(report.letter.html.encode()) for report in reports) / 1000
    size = sum(
        len(letter.html.encode()) + len(letter.text.encode()) + sum(len(i.png) for i in letter.images)
        + sum(len(a.data) for a in letter.attachments)
        for letter in (report.letter for report in reports)
    )  # fmt: skip
    print(
        f"{len(reports)} mails, {len(now.workloads)} workloads: {wall:.1f} s wall, {cpu:.1f} s CPU, {peak:.0f} MB peak"
    )
    print(f"largest HTML {largest:.1f} kB; all mails with pictures and lists {size / 1e6:.1f} MB, held at once")


if __name__ == "__main__":
    main()
