"""``skuwise skus plan``: what a model needs to be trained and what it needs to be served, specified apart."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import asdict, replace

from ....agent.base.durations import parse_duration
from ....rules.base.errors import EXIT_DONE, NothingToDo, UsageError
from ....rules.base.output import columns, write_json, write_stdout
from ....rules.catalog.loader import Catalog, load_catalog
from ....rules.catalog.types import NodeSku
from ....rules.models.weights import load_move_model
from ...core.coded_text import CodedText, coded
from ...core.formatting import usd
from ...recommend.predict.capacity_plan import CapacityPlan, Wanted, plan_serving, plan_training
from ...recommend.predict.precision_levers import levers_of_plan
from ...recommend.sustained_rates import PRECISIONS
from .options import (
    add_catalog,
    add_model,
    add_provider,
    asked_gpu,
    check_model,
    nodes_of_provider,
    parse_amount,
    parse_whole,
)

SCHEMA = "skuwise.plan/1"
CONTEXT = 8192
CONTEXT_MAX = 10**7
_OUTPUT_MAX = 512  # tokens of an answer where nothing is said
_OTHERS = 4  # other GPUs shown beside the proposal
_LOAD = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) ?(rps|tps)", re.IGNORECASE | re.ASCII)

EXAMPLES = ("skuwise skus plan --params 70B --load 20rps --latency 500ms",)


def configure(parser: argparse.ArgumentParser) -> None:
    add_model(parser, params_required=True)
    parser.add_argument(
        "--context",
        type=parse_whole,
        default=CONTEXT,
        metavar="N",
        help="input and output tokens per request (default: 8192)",
    )
    parser.add_argument(
        "--output-tokens",
        type=parse_whole,
        metavar="N",
        help="output tokens per request (default: a quarter of the context, 512 at most)",
    )
    parser.add_argument("--batch", type=parse_whole, metavar="B", help="concurrent sequences per replica")
    parser.add_argument("--load", metavar="RATE", help="load to serve: 20rps (requests/s) or 5000tps (output tokens/s)")
    parser.add_argument("--latency", metavar="SPAN", help="maximum time to first token: 500ms, 2s")
    parser.add_argument("--token-latency", metavar="SPAN", help="maximum time per output token: 50ms")
    parser.add_argument(
        "--train-precision",
        choices=PRECISIONS,
        default="bf16",
        help="precision of arithmetic in training (default: bf16)",
    )
    parser.add_argument("--train-tokens", type=parse_amount, metavar="N", help="tokens to train on: 1.4T")
    parser.add_argument("--train-time", metavar="SPAN", help="maximum time of training: 30d (with --train-tokens)")
    add_provider(parser)
    parser.add_argument("--gpu", metavar="GPU", help="only nodes with this GPU")
    add_catalog(parser)


def run(options: argparse.Namespace) -> int:
    catalog = load_catalog(options.rules)
    gpu = asked_gpu(catalog, options.gpu).name if options.gpu else None
    wanted = _wanted(options)
    nodes = [node for node in nodes_of_provider(catalog, options.provider) if gpu in (None, node.gpu)]
    model = load_move_model()
    training = plan_training(wanted, catalog, model, nodes)
    serving = plan_serving(wanted, catalog, model, nodes)
    notes = []
    if not training:
        held = f"the states and a sequence of {wanted.context} tokens"
        text = f"No node of the catalog trains it: none holds {held}, or none with enough memory has an RDMA fabric."
        notes.append(CodedText("no-node-trains-it", text, {"context": wanted.context}))
    if not serving:
        why = _why(wanted, catalog, nodes)
        if not training:
            raise NothingToDo("No node of the catalog can train or serve this model.", why)
        notes.append(coded("no-node-serves-it", "No node of the catalog serves it as asked. {why}", why=why))
    levers = levers_of_plan(wanted, serving, catalog, model, nodes)
    if options.format == "json":
        document = {
            "schema": SCHEMA,
            "asked": asdict(wanted),
            "training": [_json(plan) for plan in training[: _OTHERS + 1]],
            "serving": [_json(plan) for plan in serving[: _OTHERS + 1]],
            "notes": [asdict(note) for note in notes],
            **({"levers": [asdict(lever) for lever in levers]} if levers else {}),
        }
        write_json(document)
    else:
        write_stdout(f"{_text(wanted, training, serving, (*notes, *levers))}\n")
    return EXIT_DONE


def _wanted(options: argparse.Namespace) -> Wanted:
    check_model(options)
    if options.context > CONTEXT_MAX:
        raise UsageError(f"--context {options.context} is longer than any model's.", f"At most {CONTEXT_MAX} tokens.")
    output = options.output_tokens or min(_OUTPUT_MAX, max(options.context // 4, 1))
    if output >= options.context:
        raise UsageError("--output-tokens leaves no room for a prompt in --context.", "Give a longer context.")
    if options.train_time and not options.train_tokens:
        raise UsageError("--train-time needs --train-tokens.", "Set --train-tokens.")
    return Wanted(
        params=options.params,
        active_params=options.active_params,
        precision=options.precision,
        train_precision=options.train_precision,
        input_tokens=options.context - output,
        output_tokens=output,
        batch=options.batch,
        load_requests=_load(options.load, output),
        first_token_seconds=parse_duration(options.latency) if options.latency else None,
        token_seconds=parse_duration(options.token_latency) if options.token_latency else None,
        train_tokens=options.train_tokens,
        train_days=parse_duration(options.train_time) / 86400 if options.train_time else None,
    )


def _load(text: str | None, output_tokens: int) -> float | None:
    if text is None:
        return None
    match = _LOAD.fullmatch(text.strip())
    rate = float(match[1]) if match else 0.0
    if match is None or rate <= 0:
        raise UsageError(f"--load {text!r} is no rate.", "Write 20rps (requests) or 5000tps (output tokens).")
    return rate / output_tokens if match[2].lower() == "tps" else rate


def _why(wanted: Wanted, catalog: Catalog, nodes: Sequence[NodeSku]) -> str:
    """Why no node serves it: by the shortest time to a first token that any reaches that holds the model."""
    any_latency = replace(wanted, first_token_seconds=None, token_seconds=None)
    plans = plan_serving(any_latency, catalog, load_move_model(), nodes)
    if not plans:
        return "No node with a list price and measured GPUs holds weights and cache: ask for less context or batch."
    fastest = min(plan.figures["first_token_seconds"] for plan in plans)
    if wanted.first_token_seconds and fastest > wanted.first_token_seconds:
        return (
            f"The shortest time to a first token over {wanted.input_tokens} tokens is {_span(fastest)}: allow more, or "
            "send shorter prompts."
        )
    return "The time per further token is not reached: allow more."


def _json(plan: CapacityPlan) -> dict[str, object]:
    node, price = plan.node, plan.price
    return {
        "gpu_sku": plan.gpu.name,
        "node_sku": node.name,
        "nodes": plan.nodes,
        "gpus": plan.gpus,
        "gpus_a_copy": plan.group_gpus,
        "intra_node_link": node.intra_node_link,
        "fabric": {"kind": node.fabric.kind, "rdma": node.fabric.rdma, "needed": plan.needs_fabric},
        "memory_bytes_per_gpu": {**plan.memory, "needed": plan.needed, "room": plan.room},
        "reaches": plan.figures,
        "usd_per_hour": plan.usd_per_hour,
        "price": asdict(price),
    }


def _text(
    wanted: Wanted, training: Sequence[CapacityPlan], serving: Sequence[CapacityPlan], notes: Sequence[CodedText]
) -> str:
    size = f"{wanted.params / 1e9:g} B parameters"
    if wanted.active_params:
        size += f", {wanted.active_params / 1e9:g} B active"
    lines = [f"{size}, context {wanted.context} tokens ({wanted.input_tokens} in, {wanted.output_tokens} out)"]
    for name, precision, plans in (
        ("Training", wanted.train_precision, training),
        ("Serving", wanted.precision, serving),
    ):
        if plans:
            lines += ["", f"{name}, {precision}", *_proposal(plans[0]), *_others(plans)]
    lines += ["", *map(str, notes)] if notes else []
    lines += [
        "",
        "Estimated from typical work, for dense transformers with grouped-query attention. Benchmark before you buy. "
        "List prices;",
        "the cheapest of all providers unless --provider is set. This is no advice to change your provider.",
    ]
    return "\n".join(lines)


def _proposal(plan: CapacityPlan) -> list[str]:
    node, price = plan.node, plan.price
    rate = node.fabric.bytes_per_second
    fabric = f"{node.fabric.kind}{f' {rate * 8e-9:.0f} Gb/s' if rate else ''}"
    need = "needed: it spans nodes" if plan.needs_fabric else "none needed"
    parts = " + ".join(f"{name} {size / 1e9:.1f}" for name, size in plan.memory.items() if size)
    return [
        f"  {plan.gpus} x {plan.gpu.name}: {plan.nodes} x {node.name}, {plan.group_gpus} GPU"
        f"{'s' if plan.group_gpus > 1 else ''} a copy of the model",
        f"  link       {node.intra_node_link} inside the node; fabric {fabric} ({need})",
        f"  memory     {plan.needed / 1e9:.1f} GB a GPU of {plan.room / 1e9:.1f}: {parts}",
        f"  reaches    {_reached(plan)}",
        f"  price      {usd(plan.usd_per_hour)} an hour in {price.region}, at list price, {price.as_of}",
        f"  source     {price.source}",
    ]


def _others(plans: Sequence[CapacityPlan]) -> list[str]:
    seen, rows = {plans[0].gpu.name}, []
    for plan in plans[1:]:
        if plan.gpu.name not in seen and len(rows) < _OTHERS:
            seen.add(plan.gpu.name)
            rows.append((plan.gpu.name, str(plan.gpus), plan.node.name, f"{plan.usd_per_hour:,.2f}",
                         plan.price.as_of, _reached(plan)))  # fmt: skip
    if not rows:
        return []
    table = columns(("otherwise", "GPUs", "node", "USD/h", "as of", "reaches"), rows, right=(1, 3))
    return [f"  {line}" for line in table.splitlines()]


def _reached(plan: CapacityPlan) -> str:
    f = plan.figures
    if "tokens_per_second" in f:
        told = f"{f['tokens_per_second']:,.0f} tokens/s, {usd(f['usd_per_million_tokens'])} a million tokens"
        return f"{told}, {f['days']:,.1f} days, {usd(f['usd'])}" if "days" in f else told
    return (
        f"first token {_span(f['first_token_seconds'])}, then {_span(f['token_seconds'])} a token with "
        f"{f['batch']:.0f} in flight, {f['requests_per_second']:,.2f} requests/s on {f['replicas']:.0f} replica"
        f"{'s' if f['replicas'] > 1 else ''}"
    )


def _span(seconds: float) -> str:
    return f"{seconds * 1e3:,.0f} ms" if seconds < 1 else f"{seconds:,.1f} s"
