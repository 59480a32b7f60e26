"""deploy/slurm/epilog-slurmctld.sh and deploy/recipes, with stand-ins for the programs they call: hostile values."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[3] / "deploy"
CARD = "SKW1:w=1"
HOSTILE = "$(touch pwned);`touch pwned`;\"'\n\x1b[2J --existing=x"
SETTINGS = "SOURCE=/db\nDELAY_SECONDS=0\nTIMEOUT_SECONDS=2\n"
SOURCE = ("--prometheus", "http://127.0.0.1:9090")
IDLE = "idle: job 4711. 8 GPUs not used for 3.0 h."
BUSY = "busy: job 4711. GPU activity at 2026-11-24 09:00 UTC."
UNKNOWN = "not known: job 4711. No fresh data from one of its nodes."
# What skuwise answers, with its status, and how a script of ours ends then; the last two are no answers.
ANSWERS = [(0, IDLE, 0), (4, BUSY, 4), (5, UNKNOWN, 5), (3, "", 5), (1, "", 1), (0, "", 1), (0, BUSY, 1)]

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")


class Bench:
    """Stand-ins for programs that note how they were called."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin, self.calls, self.conf = folder, folder / "bin", folder / "calls", folder / "card.conf"
        self.bin.mkdir()
        self.calls.touch()

    def program(self, name: str, body: str = "exit 0") -> None:
        file = self.bin / name
        file.write_text(f'#!/bin/sh\necho "{name} $*" >>"{self.calls}"\n{body}\n')
        file.chmod(0o755)

    def answers(self, answers: dict[str, tuple[int, str]], name: str = "skuwise", word: int = 2) -> None:
        """A stand-in that answers by the target, which is its so-manieth word."""
        cases = "\n".join(f"{target}) echo '{text}'; exit {status} ;;" for target, (status, text) in answers.items())
        self.program(name, f"cat >/dev/null\ncase ${word} in\n{cases}\nesac\nexit 3")

    def run(self, script: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        path = f"{self.bin}:/usr/bin:/bin"
        variables = {"PATH": path, "HOME": str(self.folder), "SKUWISE_EPILOG_PATH": path, **environ}
        return subprocess.run(
            ["bash" if environ else "sh", str(DEPLOY / script), *arguments], env=variables, cwd=self.folder,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip

    def called(self, name: str) -> list[str]:
        return [line for line in self.calls.read_text().splitlines() if line.split()[0] == name]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.parametrize(
    ("job", "conf", "then", "acts"),
    [
        ("4711", SETTINGS, f"echo '{CARD}'", True),
        *((job, SETTINGS, f"echo '{CARD}'", False) for job in (HOSTILE, "", "4711 --all")),
        *(("4711", SETTINGS, then, False) for then in ("exit 3", "echo 'no card'", "printf 'SKW1:a\\nSKW1:b\\n'")),
        ("4711", SETTINGS, "sleep 9", False),
        *(("4711", conf, f"echo '{CARD}'", False) for conf in ("", "SOURCE=/db\nSOURCE_FLAG=--rules\n")),
    ],
)
def test_the_epilog_writes_the_card_of_a_job_or_nothing(
    bench: Bench, job: str, conf: str, then: str, acts: bool
) -> None:
    bench.conf.write_text(conf)
    for name, body in {"squeue": "echo", "skuwise": then, "scontrol": ":"}.items():
        bench.program(name, body)
    variables = {"SKUWISE_EPILOG_CONFIG": str(bench.conf), "SLURM_JOB_ID": job}
    assert bench.run("slurm/epilog-slurmctld.sh", "--now", **variables).returncode == 0
    asks = job == "4711" and conf == SETTINGS
    assert bool(bench.calls.read_text()) == asks
    assert bench.called("skuwise") == ["skuwise job 4711 --db /db --format admin-comment --existing="] * asks
    assert bench.called("scontrol") == ([f"scontrol update JobId=4711 AdminComment={CARD}"] if acts else [])


@pytest.mark.parametrize(("status", "text", "ends"), [*ANSWERS, (255, "", 1)])
def test_a_command_is_run_or_a_cluster_stopped_on_idle_answers_alone(
    bench: Bench, status: int, text: str, ends: int
) -> None:
    bench.answers({"4711": (status, text)})
    bench.answers({"train": (0, IDLE), "train-worker1": (status, text)}, "ssh", 3)
    for name in ("scancel", "sky"):
        bench.program(name)
    done = bench.run("recipes/when-idle.sh", "4711", "2h", *SOURCE, "--", "scancel", "-v", "a b")
    assert bench.called("skuwise") == [f"skuwise idle 4711 --longer-than 2h {' '.join(SOURCE)}"]
    assert bench.called("scancel") == ([] if ends else ["scancel -v a b"]) and done.returncode == ends
    done = bench.run("recipes/sky-autostop.sh", "--stop", "train", "1h", "train", "train-worker1")
    assert bench.called("sky") == ([] if ends else ["sky stop --yes train"]) and done.returncode == ends


# What the API answers: its status, its body, and how the script ends and what it prints then.
OVER_HTTP = [
    (200, '{"state":"idle","what":"a","reason":{"code":"idle"},"idle_since":"2026-11-24T09:00:00Z"}', 0, "idle: since"),
    (200, '{"state":"busy","reason":{"code":"gpu-activity"},"last_work":"2026-11-24T09:00:00Z"}', 4, "busy: gpu-act"),
    (200, '{"state":"unknown","reason":{"code":"data-stale"}}', 5, "not known: data-stale"),
    (200, r'{"what":"\"state\":\"idle\"","state":"busy","reason":{"code":"x"}}', 4, "busy: x"),
    (200, r'{"what":",\"state\":\"idle\""}', 1, ""), (404, '{"error":{}}', 3, ""), (503, '{"error":{}}', 1, ""),
    (200, "", 1, ""),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body", "ends", "words"), OVER_HTTP)
def test_recipes_ask_a_server_where_its_address_is_set(
    bench: Bench, tmp_path: Path, status: int, body: str, ends: int, words: str
) -> None:
    (tmp_path / "body").write_text(f"{body}\n{status}")
    bench.program("curl", f"cat >>{tmp_path}/sent; cat {tmp_path}/body")
    bench.program("dstack")
    (tmp_path / "token").write_text("secret-token-0001")
    over = {"SKUWISE_URL": "http://skuwise:9478/", "SKUWISE_TOKEN_FILE": str(tmp_path / "token")}
    done = bench.run("recipes/idle-over-http.sh", "idle", "a/b $(x)", "--longer-than", "2h", **over)
    assert (done.returncode, done.stdout[: len(words)]) == (ends, words), done.stderr
    assert "http://skuwise:9478/v1/idle/%61%2f%62%20%24%28%78%29?longer_than=2h" in bench.calls.read_text()
    assert "secret" not in bench.calls.read_text() and "Bearer secret-token-0001" in (tmp_path / "sent").read_text()
    ends = 5 if ends == 3 else ends
    done = bench.run("recipes/when-idle.sh", "4711", "2h", "--", "dstack", "stop", "-y", "run", **over)
    assert done.returncode == ends and bench.called("dstack") == ([] if ends else ["dstack stop -y run"])
    for script, program in (("dstack-stop.sh", "dstack stop -y run"), ("sky-autostop.sh", "sky stop --yes run")):
        bench.program("sky")
        bench.calls.write_text("")
        assert bench.run(f"recipes/{script}", "--stop", "run", "2h", "n1", **over).returncode == ends
        assert bench.called(program.split()[0]) == ([] if ends else [program])


def test_the_report_of_slurm_lists_idle_jobs_and_cancels_nothing(bench: Bench) -> None:
    bench.program("squeue", "printf '%s\\n' '1 ann\n2 bob\n3 cy\n4 dee\n; reboot\n5 eve'")
    bench.program("scancel")
    bench.answers({"1": (0, IDLE), "2": (4, BUSY), "3": (5, UNKNOWN), "5": (0, IDLE)})
    done = bench.run("recipes/slurm-idle-report.sh", "2h", *SOURCE)
    assert (done.returncode, done.stdout) == (0, f"1\tann\t{IDLE}\n5\teve\t{IDLE}\n")
    assert "not known: 2 jobs" in done.stderr
    assert len(bench.called("skuwise")) == 5 and not bench.called("scancel")


@pytest.mark.parametrize("stop", [False, True])
def test_idle_notebooks_are_stopped_where_that_is_asked_for(bench: Bench, stop: bool) -> None:
    notebooks = "team-a nb\nteam-b idle-one\nteam-c gone\n-n all\nteam-d $(reboot)"
    bench.program("kubectl", f"[ \"$1\" != get ] || cat <<'END'\n{notebooks}\nEND")
    bench.answers({"nb-0": (4, BUSY), "idle-one-0": (0, IDLE)})
    done = bench.run("recipes/notebook-culler.sh", *(("--stop",) if stop else ()), "4h", *SOURCE)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{'stopped' if stop else 'would stop'} team-b/idle-one: {IDLE}\n"
    annotated = [line for line in bench.called("kubectl") if " annotate " in line]
    assert len(annotated) == stop and all("idle-one --namespace=team-b" in line for line in annotated)
    assert [line.split()[2] for line in bench.called("skuwise")] == ["nb-0", "idle-one-0", "gone-0"]
