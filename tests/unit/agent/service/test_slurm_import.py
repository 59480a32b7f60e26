"""`skuwise slurm import` of files that a real sacct wrote, into a node's database while its agent writes, and into a
file that `--jobs` takes."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from skuwise.__main__ import main
from skuwise.agent.base.retention_limits import Limits
from skuwise.agent.base.slurm_job import SlurmJob
from skuwise.agent.jobs.ids import workload_id
from skuwise.agent.model import Gpu, Node, Tick, Workload
from skuwise.agent.slurm_jobs.import_jobs import ask_slurmrestd
from skuwise.agent.slurm_jobs.settings import SlurmImportSettings, load_slurm_settings
from skuwise.agent.slurm_jobs.table_file import read_job_table
from skuwise.agent.store.reader import open_reader
from skuwise.agent.store.retention import RetentionJob
from skuwise.agent.store.slurm_rows import write_jobs
from skuwise.agent.store.writer import Writer
from skuwise.rules.base.errors import UsageError

DATA = Path(__file__).parents[3] / "data" / "sacct"
T0 = 1795373580.0  # half a minute before the first of the real jobs
GPUS = [Gpu(f"GPU-{n}", n, "NVIDIA H100 80GB HBM3", mem_total_bytes=80 * 2**30) for n in range(2)]


def database(path: Path, *, node: str = "gpunode.site", cluster: str = "", seconds: int = 120) -> Path:
    """A node on which jobs 5, 7 and 9 of the real table held GPU 0, known by their numbers."""
    with Writer.open(path) as writer:
        one = writer.for_node(Node(node, cluster, machine_id="m", gpu_count=2), T0)
        one.set_gpus(GPUS, T0)
        for second in range(seconds):
            values = {gpu.uuid: {"sm_active": 0.5, "power_watts": 300.0} for gpu in GPUS}
            one.add_tick(Tick(T0 + second + 1, 1.0, values, {}, {}, {}))
        for job, start, end in (("5", 21, 25), ("7", 33, 35), ("9", 33, 45)):
            name = f"job {job}"
            work = Workload(workload_id(cluster, "slurm", job), f"s-{job}", name, "slurm", job_id=job)
            one.put_workload_use(work, "GPU-0", T0 + start, T0 + end, "allocation")
    return path


Skuwise = Callable[..., tuple[int, str]]  # the status and what was said


@pytest.fixture
def skuwise(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Skuwise:
    """The command line, in this process."""
    monkeypatch.setenv("TZ", "UTC")

    def run(*arguments: str) -> tuple[int, str]:
        return main(arguments), capsys.readouterr().err

    return run


def rows(path: Path) -> list[tuple[object, ...]]:
    with open_reader(path) as reader:
        return reader.fetch(
            "SELECT job_id, started_at, ended_at, name, user, account, partition, qos, state, array_job_id, gpus"
            " FROM slurm_jobs ORDER BY started_at, job_id"
        )


def test_a_table_names_the_jobs_of_a_node_and_a_second_import_changes_nothing(skuwise: Skuwise, tmp_path: Path) -> None:
    path = database(tmp_path / "n.db")
    _, done = skuwise("slurm", "import", str(DATA / "requeued.txt"), "--db", str(path))
    assert "10 new jobs, 0 changed" in done and "Records that cannot be read: 1" in done
    kept = rows(path)
    assert len(kept) == 10
    timeout = ("timeout", "alice", "vision", "main", "normal", "TIMEOUT", None, 1)
    assert ("10", 1795373613.0, 1795373695.0, *timeout) in kept
    _, again = skuwise("slurm", "import", str(DATA / "requeued.txt"), "--db", str(path))
    assert "0 new jobs, 0 changed" in again
    assert rows(path) == kept
    _, more = skuwise("slurm", "import", str(DATA / "jobs.json"), "--db", str(path))
    assert "1 new jobs, 0 changed" in more  # the job that text cannot tell
    assert len(rows(path)) == 11


def test_jobs_of_other_nodes_and_clusters_are_not_taken_and_it_is_said(skuwise: Skuwise, tmp_path: Path) -> None:
    table, other = str(DATA / "requeued.txt"), database(tmp_path / "b.db", cluster="eu")
    status, elsewhere = skuwise("slurm", "import", table, "--db", str(database(tmp_path / "a.db", node="other")))
    assert status == 3 and "10 jobs ran on other nodes" in elsewhere
    status, refused = skuwise("slurm", "import", table, "--db", str(other))
    assert status == 3 and "another cluster ('lab')" in refused and rows(other) == []
    assert skuwise("slurm", "import", table, "--db", str(other), "--cluster", "lab")[0] == 0
    assert len(rows(other)) == 10
    (tmp_path / "bad").write_bytes(b"<html>")
    assert skuwise("slurm", "import", str(tmp_path / "bad"), "--db", str(other))[0] == 2


def test_without_node_names_only_jobs_that_were_observed_are_taken_and_retention_lets_go_of_them(
    skuwise: Skuwise, tmp_path: Path
) -> None:
    path = database(tmp_path / "n.db")
    assert skuwise("slurm", "import", str(DATA / "epoch.txt"), "--db", str(path))[0] == 0
    taken = [("5", "interactive-run"), ("7", "failing"), ("9", "requeued"), ("9", "requeued")]
    assert [(row[0], row[3]) for row in rows(path)] == taken
    path = database(tmp_path / "old.db", seconds=1)
    write_jobs(path, [SlurmJob("1", T0 - 90 * 86400, T0 - 89 * 86400), SlurmJob("2", T0 - 86400, T0)], T0)
    RetentionJob(path, Limits(hours_seconds=30 * 86400.0), sleep=lambda _: None).run(T0 + 120)
    assert [row[0] for row in rows(path)] == ["2"]


def test_a_file_for_jobs_grows_with_each_import_and_forgets_what_is_old(
    skuwise: Skuwise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "jobs.txt"
    skuwise("slurm", "import", str(DATA / "requeued.txt"), "--output", str(table))
    assert len(read_job_table(table).jobs) == 10
    _, again = skuwise("slurm", "import", str(DATA / "jobs.json"), "--output", str(table))
    assert "1 new jobs, 11 in" in again
    assert (table.stat().st_mode & 0o777) == 0o640
    now = int(time.time())
    ages = b"".join(b"%d|%d|%d\n" % (n, now - n * 86400, now - n * 86400 + 60) for n in (1, 3, 30))
    (tmp_path / "ages").write_bytes(b"JobID|Start|End\n" + ages)
    table.unlink()
    monkeypatch.setenv("SKUWISE_SLURM_KEEP", "7d")
    skuwise("slurm", "import", str(tmp_path / "ages"), "--output", str(table))
    assert sorted(job.job_id for job in read_job_table(table).jobs.values()) == ["1", "3"]


def test_settings_are_checked(tmp_path: Path) -> None:
    home = tmp_path / "config"
    (home / "skuwise").mkdir(parents=True)
    file = home / "skuwise" / "skuwise.toml"
    file.write_text('[slurm]\njobs = "/j"\ntime_zone = "Europe/Berlin"\nscheduled = true\nevery = "5m"\n')
    found = load_slurm_settings({}, system_file=tmp_path / "none", config_home=home)
    assert (found.jobs, str(found.time_zone)) == (Path("/j"), "Europe/Berlin")
    assert (found.scheduled, found.every_seconds) == (True, 300)
    for bad in ('time_zone = "Mars/Crater"', "every = 1", "jobs = 3", 'job = "x"', 'slurmrestd_version = "v9/../x"'):
        file.write_text(f"[slurm]\n{bad}\n")
        with pytest.raises(UsageError):
            load_slurm_settings({}, system_file=tmp_path / "none", config_home=home)


def test_no_error_tells_a_secret_and_no_token_is_everybodys(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as told:
        ask_slurmrestd(SlurmImportSettings(slurmrestd="https://ann:s3cret@slurm.example"), 0.0)
    assert "s3cret" not in str(told.value)
    for address in ("http://slurm.example:6820", "ftp://127.0.0.1", "https://u:p@h", "x", "http://[::1", "unix"):
        with pytest.raises(UsageError):  # a token crosses no network in the clear
            ask_slurmrestd(SlurmImportSettings(slurmrestd=address), 0.0)
    token = tmp_path / "token"
    token.write_text("s3cret")
    token.chmod(0o644)
    with pytest.raises(UsageError, match="everybody") as told:
        ask_slurmrestd(SlurmImportSettings(slurmrestd="http://127.0.0.1:1", slurmrestd_token_file=token), 0.0)
    assert "s3cret" not in str(told.value)
