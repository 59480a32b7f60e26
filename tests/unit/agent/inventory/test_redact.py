"""Secrets leave command lines; what a reader needs stays."""

from __future__ import annotations

import json
import shlex

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from skuwise.agent.inventory.processes.frameworks import program_of
from skuwise.agent.inventory.redaction.redact import (
    COMMAND_LIMIT,
    is_secret_name,
    redact_command,
    redact_name,
    redact_words,
)
from skuwise.agent.slurm_jobs.fields import parse_name

SECRET = "tr0ub4dor-and-3"


@pytest.mark.parametrize(
    "argv",
    [
        ["vllm", "serve", "m", "--api-key", SECRET],
        ["vllm", "serve", "m", "--api-key", "first", SECRET, "--port", "80"],
        ["x", f"--api-key={SECRET}"],
        ["x", f"--token={SECRET}"],
        ["x", "-token", SECRET],
        ["x", "--hf_token", SECRET],
        ["x", "--hfToken", SECRET],
        ["x", f"HF_TOKEN={SECRET}", "python"],
        ["env", f"OPENAI_API_KEY={SECRET}", "python"],
        ["x", f"DBPASSWORD={SECRET}"],
        ["x", f"PASSWORD=two words {SECRET}"],
        ["x", f"--env=HF_TOKEN={SECRET}"],
        ["x", "-e", f"AWS_SECRET_ACCESS_KEY={SECRET}"],
        ["x", f"https://user:{SECRET}@host/path"],
        ["x", f"--db=postgres://user:{SECRET}@host/db"],
        ["x", f"postgres://user:pa/{SECRET}@host/db"],
        ["x", f"https://{SECRET}@github.com/org/repo.git"],
        ["x", f"https://host/blob?sv=2024&sig={SECRET}&x=1"],
        ["curl", "-H", f"Authorization: Bearer {SECRET}"],
        ["curl", "-H", f"X-Api-Key: {SECRET}"],
        ["curl", "-u", f"me:{SECRET}", "host"],
        ["bash", "-c", f"export HF_TOKEN={SECRET}; python x.py"],
        ["bash", "-c", f"python x.py --password {SECRET} --lr 1"],
        ["bash", "-c", f"export TOKEN='{SECRET} more'"],
        ["bash", "-c", f"python train.py -e 'api-key=first {SECRET}'; exit 1"],
        ["x", json.dumps({"model": "m", "api_key": SECRET})],
        ["x", json.dumps(json.dumps({"password": SECRET}))],
        ["x", "--config", f"wandb.api_key: {SECRET}"],
        ["x", "--key-pass", "-----BEGIN RSA PRIVATE KEY-----\n" + SECRET + "\n-----END RSA PRIVATE KEY-----"],
        ["x", "-----BEGIN PRIVATE KEY-----\n" + SECRET],
        ["x", "--registry-auth", SECRET],
        ["x", "--passphrase", SECRET],
        ["curl", f"-ume:{SECRET}", "host"],
        ["curl", f"--user=me:{SECRET}", "host"],
        ["curl", "-b", f"sid={SECRET}", "host"],
        ["mysql", f"-p{SECRET}"],
        ["/usr/bin/sshpass", "-p", SECRET, "ssh", "host"],
        ["docker", "login", "-p", SECRET],
        ["redis-cli", "-a", SECRET],
        ["mongodump", f"-p{SECRET}"],
        ["server", f"-k{SECRET}"],
        ["server", f"-k={SECRET}"],
        ["bash", "-c", f"wandb login --relogin {SECRET} && python x.py"],
        ["python", "-c", f"import os; os.environ['OPENAI_API_KEY'] = '{SECRET}'"],
        ["python", "-c", f"os.environ.setdefault('HF_TOKEN', '{SECRET}')"],
        ["x", "--api-key", f"-X{SECRET}"],
        ["x", f"ＴＯＫＥＮ={SECRET}"],
        ["x", f"--pa\u00adssword={SECRET}"],
        ["x", f"--pass\x00word={SECRET}"],
        ["x", "--api_key\u200b", SECRET],
    ],
)
def test_a_secret_by_its_name_or_place_is_gone(argv: list[str]) -> None:
    line = redact_command(argv)
    assert SECRET not in line
    assert "***" in line


@pytest.mark.parametrize(
    "token",
    [
        "hf_" + "aBcD" * 8,
        "sk-proj-" + "x9" * 20,
        "ghp_" + "Ab1" * 12,
        "glpat-" + "a1-B2" * 4,
        "xoxb-1234567890-abcdef",
        "AKIA" + "ABCDEFGH12345678",
        "AIza" + "Sy_" * 10,
        "nvapi-" + "q1W2" * 10,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
        "0123456789abcdef0123456789abcdef01234567",
        "dGhpcyBpcyBhIHNlY3JldCBrZXkgMTIzNDU2Nzg5MA==",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY12",
        "hvs." + "CAESIJ9" * 4,
        "dapi" + "0123456789abcdef" * 2,
        "SG.abcdefgh1.ijklmnop2",
        "sk_live_" + "a1b2" * 6,
    ],
)
def test_a_secret_by_its_form_is_gone_wherever_it_stands(token: str) -> None:
    for argv in (["x", token], ["x", "--note", token], ["x", f"--note={token}"], ["sh", "-c", f"run {token} now"]):
        assert token not in redact_command(argv)


@pytest.mark.parametrize(
    "argv",
    [
        ["vllm", "serve", "meta-llama/Meta-Llama-3.1-70B-Instruct", "--tensor-parallel-size", "8"],
        ["vllm", "serve", "hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4", "--max-model-len", "8192"],
        ["python", "train.py", "--num-key-value-heads", "8", "--key-size=128", "--max-tokens", "512"],
        ["python", "-m", "sglang.launch_server", "--tokenizer-path", "/models/Qwen2-72B", "--tp", "8"],
        ["torchrun", "--nproc_per_node=8", "train.py", "--lr", "3e-4", "--data", "/data/c4/en"],
        ["python", "pretrain_gpt.py", "--split", "949,50,1", "--use-distributed-optimizer"],
        ["curl", "http://10.0.0.1:8000/v1/models"],
        ["x", "GPU-8f3a2c11-0d6e-4b6a-9f0a-1c2d3e4f5a6b"],
        ["x", "/scratch/project/experiments/2024-05-01_run17/checkpoints/step_001000"],
    ],
)
def test_what_is_no_secret_stays(argv: list[str]) -> None:
    assert redact_command(argv) == " ".join(argv)


def test_flags_after_a_secret_stay() -> None:
    assert redact_command(["x", "--api-key", "abc", "--port", "80"]) == "x --api-key *** --port 80"


def test_a_numeric_password_is_a_password() -> None:
    assert redact_command(["x", "--password", "123456"]) == "x --password ***"


@pytest.mark.parametrize("secret", ["00000000", "12345678", "123456", "007", "1.9.0.1", "019.0000", "QQQQQQQQ"])
@pytest.mark.parametrize(
    "place",
    [
        "server -k {}", "server -k={}", "server -k{}", "server --key {}", "server --key={}", "server -key {}",
        "KEY={} server", "server KEY={}", "mysql -p {}", "mysql -p{}", "curl -H 'Authorization: {}' host",
        "curl '-HAuthorization: Basic {}' host", "curl '-HX-Api-Key: {}' host", "curl https://me:{}@host/",
        "curl https://{}@host/", "curl -u me:{} host", "curl -ume:{} host", "wandb login {}",
    ],
)  # fmt: skip
def test_no_secret_is_taken_for_a_count(place: str, secret: str) -> None:
    assert secret not in redact_command(shlex.split(place.replace("{}", secret)))
    assert secret not in redact_command(["bash", "-c", place.replace("{}", secret)])


def test_control_characters_and_length() -> None:
    line = redact_command(["a\x1b[31mb\n\u202ec\x00", *["y" * 500] * 9])
    assert line.startswith("a[31mb c")
    assert len(line) == COMMAND_LIMIT


@pytest.mark.parametrize(
    "name", ["api_key", "APIKEY", "apiKey", "X-Auth-Token", "hftoken", "SAS", "db.password", "oauth"]
)
def test_secret_names(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["tokenizer", "max_tokens", "keyboard", "path", "author", "model", "seed", "passes"])
def test_names_that_are_none(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "piece", ["a", "a-", "-a.", "a://", "x-", "@:", "a:'", "__", "0", "-----BEGIN ", "token ", "\\"]
)
def test_a_hostile_command_is_cut_before_it_costs_time(piece: str) -> None:
    most = (piece * 2048)[:2048]
    for line in (
        redact_command(["python", piece * 300_000, "--api-key", SECRET] + [piece * 100] * 1000),
        redact_command(["python", "--api-key", SECRET, most, most, most, most]),
    ):
        assert line.startswith("python")
        assert SECRET not in line
        assert len(line) <= COMMAND_LIMIT


@given(st.lists(st.text(max_size=60), max_size=8))
def test_any_command_gives_one_bounded_printable_line(argv: list[str]) -> None:
    line = redact_command(argv)
    assert len(line) <= COMMAND_LIMIT
    assert "\n" not in line and "\x1b" not in line


@given(st.text(alphabet=st.characters(categories=("L", "N", "P")), min_size=6).filter(lambda s: "***" not in s))
def test_no_value_of_a_secret_flag_survives(value: str) -> None:
    assert value not in redact_command(["x", f"--secret-thing={value}"]).partition("=")[2]


# Where a secret stands by the place alone, and by the name of a flag. "{}" is the secret.
PLACES = (
    "wandb login {}", "wandb login --relogin {}", "wandb login --host https://h {}", "python -m wandb login {}",
    "huggingface-cli login {}", "huggingface-cli login --token {}", "hf auth login --token={}",
    "docker login -p {} reg",
    "mysql -u root -p {} db", "mysql -p{} db", "sudo sshpass -p {} ssh host", "srun -n 2 sshpass -p{} ssh host",
    "curl -u me:{} host", "curl -su me:{} host", "curl -sS -H 'Authorization: Bearer {}' host", "curl -E cert.pem:{}",
    "smbclient -U me%{} //host/x", "openssl enc -k {} -in f", "redis-cli -a {} ping", "unzip -P {} a.zip",
    "aws configure set aws_secret_access_key {}", "server -k {}", "server --api-key {} --port 80", "x --hf-token={}",
    "sudo HF_TOKEN={} x", "env A=1 ANY={} python t.py", "sudo -u me ANY={} python t.py", "ANY={} python t.py",
    "mpirun -x ANY={} python t.py", "kubectl create secret generic s --from-literal=a={}", "x --db=redis://:{}@h/0",
)  # fmt: skip
FILLERS = st.lists(st.sampled_from(["nice", "--verbose", "run.py", "-v", "--lr", "3e-4", "/data/c4"]), max_size=3)
ONE_WORD = st.text(alphabet="abcXYZ019!#^*_-+.", min_size=8, max_size=40).filter(lambda s: s[0] not in "-.*#!")


@given(st.sampled_from(PLACES), ONE_WORD, FILLERS, FILLERS, st.integers(0, 2))
@example("server -k {}", "00000000", [], [], 0)
@example("server -k {}", "19.01901", ["nice"], ["-v"], 2)
@example("env A=1 ANY={} python t.py", "00000000", ["nice", "-v"], [], 0)
def test_no_secret_survives_behind_what_takes_one(
    place: str, secret: str, before: list[str], after: list[str], shells: int
) -> None:
    argv = [*before, *shlex.split(place.replace("{}", secret)), *after]
    if place.startswith("ANY="):
        argv = argv[len(before) :]  # an assignment stands first
    for _ in range(shells):
        argv = ["bash", "-c", shlex.join(argv)]
    assert secret not in redact_command(argv)


@pytest.mark.parametrize(
    "line",
    [
        "docker run -p 8080:80 --gpus all image",
        "torchrun --nproc_per_node 8 train.py -k 50",
        "python eval.py -k 0.95 --topk -k100 -k=5 -k .5 -k 0",
        "curl -k https://host/v1/models",
        "curl -kLsS https://host/v1/models",
        "server -kubeconfig=/etc/kube -kv_cache_dtype=fp8 -keep-alive 5 -kernel fused",
        "mysqltuner -p 3306",
        "python train.py --wandb-project login --lr 1",
        "python -m torch.distributed.run --rdzv-backend c10d train.py x=1",
        "cd /work && python train.py --model 'meta-llama/Llama 3'",
    ],
)
def test_the_same_letters_elsewhere_stay(line: str) -> None:
    assert redact_command(shlex.split(line)) == " ".join(shlex.split(line))
    assert redact_command(["bash", "-c", line]) == f"bash -c {line}"


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["accelerate", "launch", "--hub_token", SECRET, "train.py"], None),
        (["torchrun", "--token", SECRET, "train.py"], None),
        (["python", "train.py", "--model", "m"], "train.py m"),
    ],
)
def test_a_name_of_work_is_made_of_words_without_secrets(argv: list[str], name: str | None) -> None:
    words = redact_words(argv)
    assert len(words) == len(argv)
    found = program_of(words)
    assert SECRET not in (found or "")
    assert name is None or found == name


@pytest.mark.parametrize("name", [f"train --token {SECRET}", f"HF_TOKEN={SECRET}", f"run:{SECRET} --password={SECRET}"])
def test_a_jobs_name_that_is_a_command_loses_its_secrets(name: str) -> None:
    for shown in (redact_name(name), parse_name(name)):
        assert SECRET not in (shown or "").removeprefix(f"run:{SECRET}")


@pytest.mark.parametrize("name", ["llama-7b-tokens", "eval key 3", "sweep_lr=0.1_bs=32", "[interactive]", "wrap"])
def test_honest_names_of_jobs_stay(name: str) -> None:
    assert redact_name(name) == parse_name(name) == name
