"""What of a command line is kept, and that no secret in it reaches the database or the metrics page."""

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skuwise.agent.jobs.command_line import framework_of, parse_command, plain_name
from skuwise.agent.jobs.environ_helper import answer
from skuwise.agent.model import GpuProcess
from skuwise.tests.support.sysfs_trees import Procfs
from skuwise.tests.unit.agent.jobs.test_attribution import attribution


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("vllm serve meta-llama/Llama-3.1-70B -tp 8 --port=8000 --dtype bfloat16 --api-key x",
         "vllm serve meta-llama/Llama-3.1-70B -tp=8 --port=8000 --dtype=bfloat16"),
        ("python3 -m vllm.entrypoints.openai.api_server --model=/models/team/Qwen2-72B --max-model-len 8192",
         "python3 vllm.entrypoints.openai.api_server --model=Qwen2-72B --max-model-len=8192"),
        ("vllm serve /hub/models--meta-llama--Llama-3.1-8B/snapshots/0123456789abcdef",
         "vllm serve models--meta-llama--Llama-3.1-8B"),
        ("vllm serve s3://bucket/m --quantization mine", "vllm serve *** --quantization=***"),
        ("lmdeploy serve api_server internlm/internlm2-7b --tp 2", "lmdeploy api_server internlm/internlm2-7b --tp=2"),
        ("/opt/venv/bin/python -u -X dev /home/ada/x/train.py --lr 1e-4 --bf16 True --deepspeed conf/zero3.json out",
         "python train.py --bf16 --deepspeed=zero3.json"),
        ("torchrun --nnodes=2 --nproc_per_node gpu /w/train.py --fsdp full_shard --load-in-4bit --fp16=false",
         "torchrun train.py --nnodes=2 --nproc_per_node=gpu --fsdp=full_shard --load-in-4bit"),
        ("mpirun -np 16 --hostfile h python /m/pretrain_gpt.py --tensor-model-parallel-size 4 --tp 2 --tp 8",
         "mpirun pretrain_gpt.py -np=16 --tensor-model-parallel-size=4 --tp=2"),
        ("numactl --cpunodebind 0 --membind 0 env -u B A=1 timeout -k 5 10m nice -n 5 python a.py --model",
         "numactl env timeout nice python a.py"),
        ("A=1 B=2 python -W ignore a.py --config /etc/c.yaml", "python a.py --config=c.yaml"),
        ("bash -o pipefail -x -- run.sh --batch-size 8", "bash run.sh --batch-size=8"),
        ("bash -lc 'python a.py' --port 80", "bash"),
        ("python -mtrl.sft --model gpt2", "python trl.sft --model=gpt2"),
        ("env -S 'A=1 python a.py'", "env"),
        ("python -", "python"),
        ("'python a.py --api-key x' --port 80", "python"),
        ("'/opt/my dir/prog' --port 80", None),
        ("https://u:p@h/a.py --port 80", None),
        ("", None),
    ],
)  # fmt: skip
def test_program_and_allowed_flags_are_kept(line: str, kept: str | None) -> None:
    assert parse_command(shlex.split(line)).text == kept


def test_a_name_ends_where_a_command_line_or_a_key_begins() -> None:
    names = {
        **{name: name for name in ("pretrain-7b lr=1e-4 run 12", "mistral-8x7B_Instruct.v0.2", "na|me")},
        "python train.py --api-key hunter2": "python train.py", "mysql -p hunter2": "mysql", "password=hunter2": "",
        "sync https://u:p@h/x": "sync", "job AKIAIOSFODNN7EXAMPLE": "job",
        "x 123e4567-e89b-12d3-a456-426614174000": "x",
    }  # fmt: skip
    assert {name: plain_name(name) for name in names} == names
    long = ["python", "a.py", *["x" * 60_000] * 5, *["--port=1"] * 5000]
    assert parse_command(long).text == "python a.py --port=1"


# At least 24 characters of every kind: what a key looks like, and nothing that a path or a number is.
SECRETS = st.from_regex(r"[A-Z][a-z][0-9][a-zA-Z0-9]{20,30}[0-9][A-Z]", fullmatch=True).filter(
    lambda text: sum(map(str.isdigit, text)) >= 6
)
# What is no key by its form is safe where no allowed flag or name is.
WORDS = st.sampled_from(["hunter2", "correct-horse", "s3cr3t!", "pa ss", "47119911", "пароль"])
COMMANDS = st.sampled_from([
    "vllm serve acme/m-7B --port 80", "python -m sglang.launch_server --tp 8", "torchrun --nnodes 2 train.py --bf16",
    "/usr/bin/python3 -u /w/train.py --config c.yaml", "mpirun -np 8 ./solver", "/opt/app/bin/worker",
])  # fmt: skip
PLACES = st.sampled_from([
    "{} --api-key §", "{} --api-key=§", "{} -p §", "{} -p§", "{} §", "{} key=§", "{} --url https://u:§@host/x",
    "{} --header 'Authorization: Bearer §'", "{} '{\"password\": \"§\"}'", "{} --password=--model §",
    "API_KEY=§ {}", "env API_KEY=§ -u § {}", "env §=1 nohup {}", "timeout -s § 5 {}", "numactl --§ 0 {}",
    "bash -c 'KEY=§ {}'", "bash -lc '{} §'", "sh -x -c §", "python -c 'login(\"§\")' §", "python3 -Wignore:§ -c §",
    "python -W § /w/a.py", "python -X § /w/a.py", "bash -o § run.sh", "python /home/§/a.py", "/opt/§/bin/{}",
    "/opt/§/venv/bin/python /opt/§/a.py", "bash --rcfile § run.sh", "bash -s §", "python - §", "env -S 'KEY=§ {}'",
    "'{} --api-key §'", "'/opt/§ x/worker'", "sudo -u § {}", "ssh §@host {}", "srun --export=ALL,KEY=§ {}",
    "{} --config /etc/§/c.yaml", "{} --model /models/§/m-7B", "{} --model s3://§/m", "{} --port §!", "{} --dtype §",
    "{} --deepspeed §", "{} --kv-transfer-config §", "{} --tp §", "mysql -q §",
])  # fmt: skip
# Places where a name is expected: only what has the form of a key can be recognized.
NAMES = st.sampled_from([
    "vllm serve §", "vllm serve acme/§", "{} --model §", "{} --model=x/§", "python §", "python §.py", "bash /w/§.sh",
    "python -m §", "§", "§ serve x", "torchrun §.py", "/opt/§", "{} --config §.yaml", "env §", "§::worker",
])  # fmt: skip


CASES = st.one_of(st.tuples(COMMANDS, PLACES, SECRETS | WORDS), st.tuples(COMMANDS, NAMES, SECRETS))


@given(CASES)
def test_no_secret_in_any_place_is_kept(tmp_path_factory: pytest.TempPathFactory, case: tuple[str, str, str]) -> None:
    command, place, secret = case
    argv = [word.replace("§", secret) for word in shlex.split(place.replace("{}", command))]
    proc = Procfs(tmp_path_factory.mktemp("proc"))
    proc.process(700, comm="worker", argv=argv)
    # Nothing else of a process reaches the database or the metrics page.
    result = attribution(proc).attribute([GpuProcess("GPU-0", 700, 1)])
    assert len(result[0]) == len(result[1]) == 1
    assert secret not in repr(result)


@pytest.mark.parametrize(
    ("commands", "framework", "program"),
    [
        (["vllm serve meta-llama/Llama-3.1-70B"], "vllm", "vllm meta-llama/Llama-3.1-70B"),
        (["python -m vllm.entrypoints.api_server --model=a/b"], "vllm", "vllm.entrypoints.api_server a/b"),
        (["python -m sglang.launch_server --model-path q/w"], "sglang", "sglang.launch_server q/w"),
        (["sglang::scheduler_TP0"], "sglang", "sglang::scheduler_TP0"),
        (["trtllm-serve m"], "tensorrt-llm", "trtllm-serve m"),
        (["/opt/tritonserver/bin/tritonserver --model-repository=/m"], "triton", "tritonserver"),
        (["python -u train.py --deepspeed ds.json"], "deepspeed", "train.py"),
        (["ray::RayWorkerWrapper"], "ray", "ray::RayWorkerWrapper"),
        (["python -m MaxText.train base.yml"], "jax", "MaxText.train"),
        (["mpirun -np 16 --hostfile h python train.py"], None, "train.py"),
        (["srun --mpi=pmix python ft.py --deepspeed_config=ds.json"], "deepspeed", "ft.py"),
        (["accelerate launch --use_fsdp sft.py"], "pytorch-fsdp", "sft.py"),
        (["torchrun --nproc_per_node 8 train_fsdp.py"], "pytorch-fsdp", "train_fsdp.py"),
        (["python notfsdp.py"], None, "notfsdp.py"),
        (["text-generation-launcher --model-id a/b"], "text-generation-inference", "text-generation-launcher a/b"),
        (["python train.py --output-dir /data/vllm --backend ray"], None, "train.py"),
        (["python -c print(1)"], None, "python"),
        (["nginx: worker"], None, "nginx"),
        # A launcher gives way to what it launches.
        (["torchrun x", "python -u pretrain_gpt.py"], "megatron", "torchrun"),
        (["raylet", "ray::RayWorkerWrapper", "VLLM::Worker"], "vllm", "raylet"),
        (["torchrun", "python train.py"], "torchrun", "torchrun"),
        (["bash x.sh", "vllm serve", "torchrun"], "vllm", "x.sh"),
        (["", ""], None, None),
    ],
)
def test_the_framework_of_a_leader_and_its_process(commands: list[str], framework: str | None, program: str) -> None:
    argvs = [command.split() for command in commands]
    assert (framework_of(*argvs), parse_command(argvs[0]).program) == (framework, program)


SLURM = "0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0"
ENVIRON = {"SLURM_JOB_ID": "42", "SLURM_JOB_GPUS": "0,1", "SLURM_JOB_NAME": "a\x1b[31m\tb", "HF_TOKEN": "hf_secret"}


@pytest.fixture
def proc(tmp_path: Path) -> Procfs:
    tree = Procfs(tmp_path / "proc")
    tree.process(700, cgroup=SLURM, environ=ENVIRON)
    tree.process(701, environ=ENVIRON)
    return tree


def test_allow_listed_variables_of_a_slurm_process_and_nothing_to_any_other_question(proc: Procfs) -> None:
    assert answer(proc.root, b"700\n") == (b'{"SLURM_JOB_ID": "42", "SLURM_JOB_NAME": "a[31m b"}\n')
    others = (b"", b"\n", b"701\n", b"999\n", b"-1\n", b"0\n", b"../700\n", b"9" * 16, "٧٠٠".encode(), b"\xff\n")
    assert {answer(proc.root, question) for question in others} == {b"{}\n"}
