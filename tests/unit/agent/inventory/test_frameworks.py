"""Which framework a command runs, and what a person would call it."""

from __future__ import annotations

import pytest
from skuwise.agent.inventory.processes.command_line import parse_command
from skuwise.agent.inventory.processes.frameworks import framework_of


@pytest.mark.parametrize(
    ("command", "framework", "program"),
    [
        ("vllm serve meta-llama/Llama-3.1-70B", "vllm", "vllm meta-llama/Llama-3.1-70B"),
        ("/opt/venv/bin/python3.11 /opt/venv/bin/vllm serve /models/a/b", "vllm", "vllm b"),
        ("python3 -m vllm.entrypoints.openai.api_server --model=a/b", "vllm", "vllm.entrypoints.openai.api_server a/b"),
        ("VLLM::EngineCore", "vllm", "VLLM::EngineCore"),
        ("python -m sglang.launch_server --model-path q/w", "sglang", "sglang.launch_server q/w"),
        ("sglang::scheduler_TP0", "sglang", "sglang::scheduler_TP0"),
        ("trtllm-serve m", "tensorrt-llm", "trtllm-serve m"),
        ("python -m tensorrt_llm.commands.serve", "tensorrt-llm", "tensorrt_llm.commands.serve"),
        ("/opt/tritonserver/bin/tritonserver --model-repository=/m", "triton", "tritonserver"),
        ("text-generation-server serve m", "text-generation-inference", "text-generation-server m"),
        ("torchrun --nproc_per_node=8 train.py --lr 1", "torchrun", "train.py"),
        ("python -m torch.distributed.run --nnodes 2 /w/train.py", "torchrun", "train.py"),
        ("deepspeed --num_gpus 8 ft.py --deepspeed ds.json", "deepspeed", "ft.py"),
        ("python -u train.py --deepspeed ds.json", "deepspeed", "train.py"),
        ("accelerate launch sft.py", "accelerate", "sft.py"),
        ("python /m/Megatron-LM/pretrain_gpt.py --bf16", "megatron", "pretrain_gpt.py"),
        ("ray::RayWorkerWrapper", "ray", "ray::RayWorkerWrapper"),
        ("/ray/core/raylet --x", "ray", "raylet"),
        ("python -m MaxText.train base.yml", "jax", "MaxText.train"),
        ("mpirun -np 16 --hostfile h python train.py", None, "train.py"),
        ("mpirun -np 8 python /m/pretrain_gpt.py --bf16", "megatron", "pretrain_gpt.py"),
        ("srun --mpi=pmix python ft.py --deepspeed_config=ds.json", "deepspeed", "ft.py"),
        ("orted --hnp-topo-sig x", None, "orted"),
        ("accelerate launch --use_fsdp sft.py", "pytorch-fsdp", "sft.py"),
        ("torchrun --nproc_per_node 8 train_fsdp.py", "pytorch-fsdp", "train_fsdp.py"),
        ("torchrun train.py --fsdp full_shard", "pytorch-fsdp", "train.py"),
        ("torchrun /m/pretrain_llama.py", "megatron", "pretrain_llama.py"),
        ("python notfsdp.py", None, "notfsdp.py"),
        ("text-generation-launcher --model-id a/b", "text-generation-inference", "text-generation-launcher a/b"),
        ("numactl --cpunodebind 0 env A=1 python -X dev -u train.py", None, "train.py"),
        ("bash run.sh", None, "run.sh"),
        ("python train.py --output-dir /data/vllm --backend ray", None, "train.py"),
        ("python -c print(1)", None, "python"),
        ("nginx: worker", None, "nginx"),
    ],
)  # fmt: skip
def test_commands(command: str, framework: str | None, program: str) -> None:
    argv = command.split(" ")
    assert framework_of(argv) == framework
    assert parse_command(argv).program == program


def test_a_launcher_gives_way_to_what_it_launches() -> None:
    assert framework_of(["torchrun", "x"], ["python", "-u", "pretrain_gpt.py"]) == "megatron"
    assert framework_of(["raylet"], ["ray::RayWorkerWrapper"], ["VLLM::Worker"]) == "vllm"
    assert framework_of(["torchrun"], ["python", "train.py"]) == "torchrun"


def test_the_first_command_that_shows_one_counts() -> None:
    assert framework_of(["bash", "x.sh"], ["vllm", "serve"], ["torchrun"]) == "vllm"
    assert framework_of([], [""]) is None
    assert parse_command([]).program is None
