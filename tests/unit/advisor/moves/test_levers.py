# pyright: reportOptionalMemberAccess=false, reportOperatorIssue=false
"""Lower precisions as levers: what fits fewer or smaller GPUs, from what is known of a service, and in no sum."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from skuwise.__main__ import main
from skuwise.advisor.moves.base.constraints import has_precision
from skuwise.advisor.moves.levers.served_model import ServedModel, served_model
from skuwise.rules.models.served_models import load_served_models
from skuwise.tests.support.moves_builders import advice_of, catalog, gpus_of, node, usage, verdicts, workload

KNOWN = load_served_models()
LLAMA = "vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 4"
TOLD = {"mem_flat": 1.0, "cpu": 0.1}


def advice(command=LLAMA, *, count=4, memory=0.9, kv=None, framework="vllm", **changes):
    features = TOLD | ({} if kv is None else {"kv_cache_used_p95": kv})
    w = workload(gpus=gpus_of("n1", count), framework=framework, command=command, features=features, **changes)
    return advice_of(verdicts([node()], [w], uses=[usage(w, u_n=0.2, memory=memory)]))


def of_workload(told):
    return told.workloads[0].levers, told.workloads[0].levers_unknown


def test_an_empty_cache_lets_fp8_fit_half_of_the_gpus():
    told = advice(kv=0.3)
    levers, unknown = of_workload(told)
    assert unknown is None
    fewer = next(one for one in levers if one.fields["sku"] == "H100-SXM5" and one.fields["precision"] == "fp8")
    f = fewer.fields
    assert fewer.code == "lever-precision"
    assert (f["gpus"], f["gpus_now"], f["sku"], f["precision_now"]) == (2, 4, "H100-SXM5", "bf16")
    used = 0.9 * catalog().gpus["H100-SXM5"].mem_bytes * 4
    assert f["weights_bytes_now"] == pytest.approx(140e9)
    assert f["cache_bytes"] == pytest.approx(0.3 * (used - 140e9))
    assert f["read_time_ratio"] == pytest.approx((70e9 + f["cache_bytes"]) * 2 / (140e9 + f["cache_bytes"]))
    assert f["matrix_rate_ratio"] == pytest.approx(1.0, abs=0.25)
    assert fewer.text.startswith("if served in FP8: ")
    assert "First check the quality of its answers" in fewer.text
    assert "$" not in fewer.text


def test_levers_stand_beside_recommendations_and_in_no_sum():
    with_it, without = advice(kv=0.3), advice("vllm serve acme/secret-model", kv=0.3)
    beside = [r for r in with_it.recommendations if r.levers]
    assert beside
    assert {r.action for r in beside} <= {"move-sku", "reduce-gpus", "mig-slice", "consolidate"}
    assert with_it.summary == without.summary
    plain = tuple(replace(r, levers=()) for r in with_it.recommendations)
    assert plain == without.recommendations


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (None, "command-not-known"),
        ("vllm serve", "model-not-named"),
        ("vllm serve --model acme/***", "model-not-named"),
        ("vllm serve acme/secret-model --dtype bfloat16 -tp 4", "model-size-unknown"),
        ("vllm serve acme/our-70B -tp 4", "model-precision-unknown"),
        ("vllm serve acme/our-70B -q compressed-tensors -tp 4", "model-precision-unknown"),
        ("vllm serve meta-llama/Llama-3.1-70B-Instruct", "gpus-of-a-copy-unknown"),
        ("vllm serve meta-llama/Llama-3.1-70B-Instruct -tp 64", "gpus-of-a-copy-unknown"),
        ("vllm serve meta-llama/Llama-3.1-405B-Instruct -tp 4", "memory-contradicts-size"),
    ],
)
def test_what_is_not_known_is_said_and_gives_no_lever(command, code):
    levers, unknown = of_workload(advice(command, kv=0.1))
    assert levers == ()
    assert unknown.code == code


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "training"},
        {"command": "python train.py --model meta-llama/Llama-3.1-70B", "framework": None},
        {"command": "tritonserver --model-repository /m", "framework": "triton"},
        {"shared": True},
    ],
)
def test_what_serves_no_language_model_has_neither_lever_nor_gap(changes):
    assert of_workload(advice(**{"kv": 0.1} | changes)) == ((), None)


@pytest.mark.parametrize(
    ("command", "model"),
    [
        (LLAMA, ServedModel("llama-3.1-70b-instruct", 70e9, "bf16", 4)),
        ("python -m vllm.entrypoints.openai.api_server --model=Qwen/Qwen2.5-72B-Instruct-AWQ -tp=2",
         ServedModel("qwen2.5-72b-instruct-awq", 72e9, "int4", 2)),
        ("vllm serve Qwen/Qwen3-30B-A3B --kv-cache-dtype fp8_e4m3 --tensor_parallel_size 2",
         ServedModel("qwen3-30b-a3b", 30e9, "bf16", 2)),
        ("python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8",
         ServedModel("deepseek-v3", 671e9, "fp8", 8)),
        ("python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-R1-Distill-Llama-70B --tp 2",
         ServedModel("deepseek-r1-distill-llama-70b", 70e9, "bf16", 2)),
        ("text-generation-launcher --model-id mistralai/Mixtral-8x7B-Instruct-v0.1 --num-shard 2 --quantize fp8",
         ServedModel("mixtral-8x7b-instruct-v0.1", 46.7e9, "fp8", 2)),
        ("vllm serve openai/gpt-oss-120b", ServedModel("gpt-oss-120b", 117e9, "fp4", None)),
        ("vllm serve acme/our-13B --dtype half -tp 2 -pp 2", ServedModel("our-13b", 13e9, "fp16", 4)),
        ("vllm serve /root/.cache/hub/models--meta-llama--Llama-3.1-8B/snapshots/0e9e39f --dtype float32",
         ServedModel("llama-3.1-8b", 8e9, "fp32", None)),
        ("vllm serve meta-llama/Llama-4-Scout-17B-16E-Instruct",
         ServedModel("llama-4-scout-17b-16e-instruct", 109e9, "bf16", None)),
        ("vllm serve Qwen/Qwen3-8B --notes 'never closed", ServedModel("qwen3-8b", 8e9, "bf16", None)),
    ],
)  # fmt: skip
def test_commands_tell_the_model_its_size_and_its_precision(command, model):
    assert served_model(command, KNOWN) == model


@pytest.mark.parametrize(
    ("gpu", "precision", "has"),
    [("A100-SXM4-80GB", "fp8", False), ("L40S", "fp8", True), ("H100-SXM5", "fp4", False), ("B200-SXM", "fp4", True),
     ("V100-SXM2-16GB", "int8", False), ("T4", "int8", True), ("V100-SXM2-32GB", "bf16", False),
     ("MI300X", "fp8", True), ("MI300X", "fp4", False), ("H100-SXM5", "fp32", True)],
)  # fmt: skip
def test_which_gpus_have_a_precision(gpu, precision, has):
    assert has_precision(catalog().gpus[gpu], precision) is has


def compared(capsys, *words):
    assert main(["skus", "compare", *words, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_compare_names_the_precision_in_which_weights_fit(capsys):
    told = compared(capsys, "H100-SXM5", "L40S", "--phase", "decode", "--params", "70B", "--gpus", "2")
    assert "weights-too-large" in {one["code"] for one in told["blocked_by"]}
    assert {one["code"] for one in told["levers"]} == {"lever-weights-fit"}
    assert [one["fields"]["precision"] for one in told["levers"]] == ["fp8", "int4"]
    assert told["levers"][0]["fields"]["gpus_at_least"] == 2
    assert "levers" not in compared(capsys, "H100-SXM5", "L40S", "--phase", "decode", "--params", "8B", "--gpus", "2")
    none = compared(capsys, "H100-SXM5", "V100", "--phase", "decode", "--params", "70B", "--gpus", "4")
    assert "levers" not in none


def test_plans_name_the_precision_in_which_fewer_gpus_do(capsys):
    words = ["skus", "plan", "--params", "70B", "--load", "20rps", "--latency", "1s", "--format", "json"]
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out)
    first = told["serving"][0]
    (fp8, *_) = told["levers"]
    assert fp8["fields"]["precision"] == "fp8"
    assert fp8["fields"]["sku"] == first["gpu_sku"]
    assert fp8["fields"]["gpus"] < fp8["fields"]["gpus_now"] == first["gpus"]
    assert "$" not in fp8["text"]
    assert main([*words, "--precision", "int4"]) == 0
    assert "levers" not in json.loads(capsys.readouterr().out)


def test_a_batch_whose_cache_does_not_fit_is_blocked_with_the_batch_that_does(capsys):
    words = ("H100-SXM5", "L40S", "--phase", "decode", "--params", "8B", "--gpus", "1")
    told = compared(capsys, *words, "--batch", "256")
    why = next(one for one in told["blocked_by"] if one["code"] == "batch-too-large")
    f = why["fields"]
    assert f["needed_bytes"] > f["room_bytes"]
    assert 0 < f["batch_at_most"] < 256
    fits = compared(capsys, *words, "--batch", str(f["batch_at_most"]))
    assert "batch-too-large" not in {one["code"] for one in fits["blocked_by"]}
    more = compared(capsys, *words, "--batch", str(f["batch_at_most"] + 1))
    assert "batch-too-large" in {one["code"] for one in more["blocked_by"]}
