"""`skuwise slurm import` of what a real sacct wrote (`tests/data/sacct`, Slurm 22.05.8), and how its output is read."""

import io
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from skuwise.__main__ import main
from skuwise.agent.base.safe_text import NAME_LIMIT
from skuwise.agent.config import SlurmImportSettings, load_section
from skuwise.agent.jobs.ids import workload_id
from skuwise.agent.model import Gpu, Limits, Node, SlurmJob, Tick, Workload
from skuwise.agent.slurm_jobs.import_jobs import ask_slurmrestd
from skuwise.agent.slurm_jobs.read_jobs import (
    MAX_NODES,
    ReadJobs,
    expand_node_list,
    parse_job_state,
    parse_moment,
    parse_tres,
    read_job_table,
    read_jobs,
    write_job_table,
)
from skuwise.agent.store.reader import open_reader
from skuwise.agent.store.retention import RetentionJob
from skuwise.agent.store.slurm_rows import write_jobs
from skuwise.agent.store.writer import Writer
from skuwise.rules.base.errors import NothingToDo, UsageError

DATA = Path(__file__).parents[3] / "data" / "sacct"
T0 = 1795373580.0  # half a minute before the first of the real jobs
GPUS = [Gpu(f"GPU-{n}", n, "NVIDIA H100 80GB HBM3", mem_total_bytes=80 * 2**30) for n in range(2)]


def database(path: Path, *, node: str = "gpunode.site", cluster: str = "", seconds: int = 120) -> Path:
    """A node on which jobs 5, 7 and 9 of the real table held GPU 0, known by their numbers."""
    with Writer.open(path) as writer:
        node_writer = writer.for_node(Node(node, cluster, machine_id="m", gpu_count=2), T0)
        node_writer.set_gpus(GPUS, T0)
        for second in range(seconds):
            values = {gpu.uuid: {"sm_active": 0.5, "power_watts": 300.0} for gpu in GPUS}
            node_writer.add_tick(Tick(T0 + second + 1, 1.0, values, {}, {}, {}))
        for job, start, end in (("5", 21, 25), ("7", 33, 35), ("9", 33, 45)):
            name = f"job {job}"
            work = Workload(workload_id(cluster, "slurm", job), f"s-{job}", name, "slurm", job_id=job)
            node_writer.put_workload_use(work, "GPU-0", T0 + start, T0 + end, "allocation")
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
    assert "1 new jobs, 0 changed" in more  # the job that text cannot hold
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

    def load() -> SlurmImportSettings:
        return load_section(SlurmImportSettings, "slurm", {}, system_file=tmp_path / "none", config_home=home)

    slurm_settings = load()
    assert (slurm_settings.jobs, str(slurm_settings.time_zone)) == (Path("/j"), "Europe/Berlin")
    assert (slurm_settings.scheduled, slurm_settings.every_seconds) == (True, 300)
    for bad in ('time_zone = "Mars/Crater"', "every = 1", "jobs = 3", 'job = "x"', 'slurmrestd_version = "v9/../x"'):
        file.write_text(f"[slurm]\n{bad}\n")
        with pytest.raises(UsageError):
            load()


def test_no_error_tells_a_secret_and_no_token_is_everybodys(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        ask_slurmrestd(SlurmImportSettings(slurmrestd="https://ann:s3cret@slurm.example"), 0.0)
    assert "s3cret" not in str(error.value)
    for address in ("http://slurm.example:6820", "ftp://127.0.0.1", "https://u:p@h", "x", "http://[::1", "unix"):
        with pytest.raises(UsageError):  # a token crosses no network in the clear
            ask_slurmrestd(SlurmImportSettings(slurmrestd=address), 0.0)
    token = tmp_path / "token"
    token.write_text("s3cret")
    token.chmod(0o644)
    with pytest.raises(UsageError, match="Everybody") as error:
        ask_slurmrestd(SlurmImportSettings(slurmrestd="http://127.0.0.1:1", slurmrestd_token_file=token), 0.0)
    assert "s3cret" not in str(error.value)


HEAD = "JobID|JobIDRaw|JobName|User|State|Start|End"
T = 1_790_000_000


def line(job: int, name: str = "train", user: str = "ann") -> str:
    return f"{job}|{job}|{name}|{user}|COMPLETED|{T}|{T + 600}"


def read(*lines: str, head: str = HEAD) -> ReadJobs:
    return read_jobs(io.BytesIO("".join(f"{row}\n" for row in (head, *lines)).encode()), zone=UTC)


def by_id(reading: ReadJobs) -> dict[str, SlurmJob]:
    return {job.job_id: job for job in reading.jobs.values()}


@pytest.mark.parametrize("name", ["requeued.txt", "steps.txt", "epoch.txt"])
def test_real_jobs_are_read_with_steps_arrays_and_both_runs_of_a_requeued_one(name: str) -> None:
    job_table = read_job_table(DATA / name, zone=UTC)
    assert job_table.refused == 1  # the job with a delimiter and a line break in its name, and only that
    assert {job.job_id for job in job_table.jobs.values()} == {*"12345789", "10"}
    runs = sorted((job for job in job_table.jobs.values() if job.job_id == "9"), key=lambda job: job.started_at)
    assert [(run.state, run.started_at, run.ended_at) for run in runs] == [
        ("REQUEUED", 1795373613.0, 1795373616.0), ("COMPLETED", 1795373618.0, 1795373625.0),
    ]  # fmt: skip
    tasks = {job.job_id: (job.array_job_id, job.array_task_id) for job in job_table.jobs.values() if job.array_job_id}
    assert tasks == {"3": ("1", "3"), "4": ("1", "4"), "1": ("1", "5")}
    timeout = by_id(job_table)["10"]
    assert (timeout.name, timeout.user, timeout.state, timeout.gpus) == ("timeout", "alice", "TIMEOUT", 1)


def test_json_tells_the_same_as_text() -> None:
    json, text = by_id(read_job_table(DATA / "jobs.json")), by_id(read_job_table(DATA / "requeued.txt", zone=UTC))
    delimited = by_id(read_job_table(DATA / "delimiter.txt", zone=UTC))  # by one that no name holds
    assert json["6"].name == delimited["6"].name == "na|me with newline"
    assert {job_id: replace(json[job_id], restarts=None) for job_id in text} == text


def test_json_of_later_versions_wraps_numbers_and_lists_states() -> None:
    """Composed after the OpenAPI of v0.0.40: no server of that version was asked."""
    document = """{"jobs": [{"job_id": 7, "name": "x", "state": {"current": ["RUNNING"]},
      "array": {"job_id": 5, "task_id": {"set": true, "infinite": false, "number": 0}}, "restart_cnt": 2,
      "time": {"start": 1790000000, "end": 0, "submission": {"set": true, "number": 1789999990}},
      "tres": {"allocated": [{"type": "gres", "name": "gpu:h100", "count": 4}, {"type": "mem", "count": 1024}]}},
      {"job_id": -1}, "no job", {"job_id": 8, "state": {"current": "PENDING"}, "time": {"start": 0}}]}"""
    jobs = read_jobs(io.BytesIO(document.encode()))
    assert list(jobs.jobs.values()) == [
        SlurmJob("7", 1790000000.0, None, 1789999990.0, name="x", array_job_id="5", array_task_id="0", state="RUNNING",
                 restarts=2, gpus=4, mem_bytes=1024.0**3)
    ]  # fmt: skip
    assert jobs.refused == 2


def test_what_has_not_begun_is_no_run_and_an_end_that_is_not_told_is_none() -> None:
    read_jobs = read(
        "22_[1-10%2]|22|wait|ann|PENDING|Unknown|Unknown", "23|23|wait|ann|PENDING|Unknown|Unknown",
        "24|24|gone|ann|CANCELLED by 1000|None|2026-09-21T12:00:00", f"25|25|on|ann|RUNNING|{T}|Unknown",
        f"26+0|26|het|ann|COMPLETED|{T}|{T + 5}", f"26+1|27|het|ann|COMPLETED|{T}|{T + 5}",
        f"28|28|odd|ann|FAILED|{T}|{T - 5}",
    )  # fmt: skip
    jobs = by_id(read_jobs)
    assert (sorted(jobs), read_jobs.refused) == (["25", "26", "27"], 1)
    assert (jobs["25"].ended_at, jobs["25"].state) == (None, "RUNNING")
    # Columns have any order and number; 600 is no moment.
    read_jobs = read("x|600|21|Berlin", f"x|{T}|22|Berlin", head="JobName|Start|JobID|Nonsense")
    assert (by_id(read_jobs), read_jobs.untimed) == ({"22": SlurmJob("22", float(T), name="x")}, 1)
    read_jobs = read("x22|1|x|a|FAILED|1|1", "22; DROP|1|x|a|FAILED|1|1", f"22|x|x|a|FAILED|{T}|{T}")
    assert read_jobs.jobs == {} and read_jobs.refused == 1
    states = map(parse_job_state, ("CANCELLED by 1000", "CANCELLED+", "OUT_OF_MEMORY", "done"))
    assert list(states) == ["CANCELLED", "CANCELLED", "OUT_OF_MEMORY", None]


def test_a_cut_file_and_names_with_delimiters_or_line_breaks_lose_that_job_alone() -> None:
    whole = "".join(f"{row}\n" for row in (HEAD, line(1), line(2), line(3))).encode()
    for cut in range(len(whole) - len(line(3)), len(whole)):
        assert sorted(by_id(read_jobs(io.BytesIO(whole[:cut]), zone=UTC))) == ["1", "2"]
    for name in ("a|b", "a|b|c|d|e|f|g|h", "|", "a\n|b", "a|b\nc", "a|\n\n|"):
        jobs = read(line(21), line(22, name), line(23), line(24))
        assert set(by_id(jobs)) == {"21", "23", "24"} and jobs.refused >= 1 and jobs.warnings()


def test_names_are_one_printable_line_and_bounded() -> None:
    hostile = "\x1b[31m<script>; DROP TABLE--\u202e" + "x" * 2000
    name = by_id(read(line(22, hostile)))["22"].name or ""
    assert name.isprintable() and 0 < len(name) <= NAME_LIMIT
    latin = (HEAD + "\n" + line(22, "tr\xe4ning") + "\n").encode("latin-1")
    assert by_id(read_jobs(io.BytesIO(latin), zone=UTC))["22"].name == "tr�ning"


def test_what_is_no_job_table_is_refused_with_a_remedy() -> None:
    json = (b"[1]", b'{"jobs": 1}', b'{"jobs": [', b"[" * 100_000)
    for text in (
        b"PK\x03\x04\x00\x00", b"<html><body>\n", b"a,b,c\n1,2,3\n", b"JobName|User\nx|y\n", b"JobID|JobName\n22|x\n",
        'JobID|Start\n'.encode("utf-16"), b"sacct: error: Invalid field requested\n", b"\x00" * 1000, *json,
    ):  # fmt: skip
        with pytest.raises(UsageError) as raised:
            read_jobs(io.BytesIO(text))
        assert raised.value.remedy
    for empty in (b"", b"\n\n", b"\xef\xbb\xbf"):
        with pytest.raises(NothingToDo):
            read_jobs(io.BytesIO(empty))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-07-01T12:00:00", 1782900000), ("2026-07-01T10:00:00Z", 1782900000), ("1782900000", 1782900000),
        ("2026-07-01T12:00:00+0200", 1782900000), ("2026-10-25T02:30:00", 1792888200),  # shown twice: the first
        *((text, None) for text in ("", "Unknown", "None", "N/A", "0", "-1", "2026-13-01T00:00:00", "99999999999")),
    ],
)  # fmt: skip
def test_times_are_local_where_sacct_ran(text: str, seconds: int | None) -> None:
    assert parse_moment(text, ZoneInfo("Europe/Berlin")) == seconds


GIB = 1024.0**3


@pytest.mark.parametrize(
    ("texts", "resources"),
    [
        (("billing=8,cpu=8,gres/gpu=4,gres/gpu:h100=4,mem=32G,node=1",), (4, 8, 32 * GIB)),
        (("cpu=8,gres/gpu:h100=2,gres/gpu:a100=1",), (3, 8, None)),
        (("cpu=8,gres/gpu:1g.10gb=2,gres/gpu:3g.40gb=1",), (3, 8, None)),
        (("cpu=8", "cpu=9,gres/gpu=2,mem=1024"), (2, 8, GIB)),
        (("cpu=8,gres/gpu=0",), (0, 8, None)),
        (("", ""), (None, None, None)),
        (("cpu=-1,mem=lots,gres/gpu=1e9",), (None, None, None)),
        (("gres/gpu=1," + "x" * 10_000,), (None, None, None)),
    ],
)
def test_resources(texts: Sequence[str], resources: tuple[object, ...]) -> None:
    assert parse_tres(*texts) == resources


def test_gpus_of_a_cluster_that_does_not_track_them_are_unknown(tmp_path: Path) -> None:
    # As skypilot#10285 has it: 192 CPUs of a node with 8 GPUs, and AccountingStorageTRES without gres/gpu.
    tres = "billing=192,cpu=192,mem=800G,node=1"
    untracked = f"501|train|COMPLETED|{T}|{T + 600}|gpu1|{tres}|{tres}"
    read_jobs = read(untracked, head="JobID|JobName|State|Start|End|NodeList|AllocTRES|ReqTRES")
    job = by_id(read_jobs)["501"]
    assert (job.gpus, job.cpus, job.mem_bytes) == (None, 192, 800 * GIB)
    both = read_jobs.jobs | read_job_table(DATA / "jobs.json").jobs
    write_job_table(tmp_path / "jobs", both.values())
    assert read_job_table(tmp_path / "jobs").jobs == both  # what is written is read back
    assert (tmp_path / "jobs").stat().st_mode & 0o007 == 0


def test_node_lists_are_written_out_within_a_bound() -> None:
    assert expand_node_list("gpu-[001-003,007],login1") == {"gpu-001", "gpu-002", "gpu-003", "gpu-007", "login1"}
    assert expand_node_list("r[1-2]n[08-10]") == {f"r{r}n{n}" for r in (1, 2) for n in ("08", "09", "10")}
    assert len(expand_node_list(f"n[1-{MAX_NODES}]") or ()) == MAX_NODES
    for bad in (f"n[0-{MAX_NODES}]", "n[1-300]m[1-300]", "n[1-999999999]", "n[2-1]", "n[", "n]", "", "a b", "n[a-c]"):
        assert expand_node_list(bad) is None, bad


def test_a_run_of_two_users_is_nobodys() -> None:
    for users in (("ann", "eve"), ("eve", "ann"), ("ann", "eve", "ann")):
        read_jobs = read(*(line(22, user=user) for user in users), line(23))
        assert set(by_id(read_jobs)) == {"23"} and any("several users" in warning for warning in read_jobs.warnings())
