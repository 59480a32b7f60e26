"""``skuwise skus compare`` and ``plan``: estimates without telemetry, always an answer, and its basis.

``skus compare A A --power-limit 500W`` and ``--sm-clock 1110MHz`` ask about the same GPU, slower: what it saves and
costs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any, get_args

from ...rules.base.errors import NothingToDo, UsageError
from ...rules.base.output import columns
from ...rules.catalog.loader import Catalog
from ...rules.catalog.types import GpuSku, NodeSku
from ...rules.models.weights import load_move_model, load_power_model
from ..core.advice_types import Interval
from ..core.coded_text import CodedText, coded
from ..core.formatting import counted, figure, time_words, usd
from ..recommend.predict.capacity_plan import (
    CapacityPlan,
    Wanted,
    levers_of,
    levers_of_plan,
    plan_serving,
    plan_training,
)
from ..recommend.predict.clock_model import SlowerGpu, cap_range, rest_watts, slower_gpu
from ..recommend.predict.sku_comparison import (
    Comparison,
    PhaseAsked,
    Question,
    batch_on,
    blocks,
    compare,
    gpus_of_a_copy,
    profile_of,
)

Answer = tuple[dict[str, object], list[str]]  # as JSON, and as lines for a person
SCHEMA = "skuwise.plan/1"
_CONTEXT_MAX = 10**7
_OUTPUT_MAX = 512  # tokens of an answer where nothing is stated
_OTHERS = 4  # other GPUs shown beside the proposal
_LOAD = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) ?(rps|tps)", re.IGNORECASE | re.ASCII)
_ROUGH = "This is a rough estimate"


def compared(
    catalog: Catalog,
    source: GpuSku,
    target: GpuSku,
    *,
    power_limit: float | None,
    sm_clock: float | None,
    power_at_work: float | None,
    **asked: Any,  # noqa: ANN401 - the fields of `Question`
) -> Answer:
    """The time of work on another GPU, or on the same under a cap or at a clock. Raises UsageError where options
    contradict one another."""
    if asked["active_params"] and not asked["params"]:
        raise UsageError("--active-params needs --params.", "Give the size of the whole model as well.")
    _check_active(**asked)
    asked["gpus"] = asked["gpus"] or _gpus(asked["phase"], asked["params"], asked["precision"], source, target)
    if asked["gpus"] % asked["attention_copies"]:
        raise UsageError(
            f"--attention-copies {asked['attention_copies']} does not divide {asked['gpus']} GPUs.",
            "Every copy of the attention layers takes as many GPUs (--gpus).",
        )
    question = Question(**asked)
    model = load_move_model()
    reference = catalog.gpus[model.profiles.reference]
    if power_limit is not None or sm_clock is not None:
        return _slower(question, source, target, reference, power_limit, sm_clock, power_at_work)
    if power_at_work is not None:
        raise UsageError("--power-at-work needs --power-limit or --sm-clock.", "Add one of them.")
    comparison = compare(question, source, target, reference, model)
    levers = levers_of(question, target)
    document = {
        **_answer(question, source, target, comparison, comparison.blocked_by),
        "speedup": comparison.speedup,
        "outside": [asdict(reason) for reason in comparison.outside],
        **({"levers": [asdict(lever) for lever in levers]} if levers else {}),
    }
    in_flight = comparison.in_flight
    each = ", for each token" if in_flight else ""
    lines = [
        f"{source.name} to {target.name}, {_work_words(question)}",
        f"  time       {time_words(comparison.time_ratio)}{each}; 80 % prediction interval",
        f"  speed      {comparison.speedup:.2f} times {'as many tokens a second' if in_flight else 'as fast'}",
    ]
    if profile_of(question) is None:
        here, there = in_flight or (batch_on(question, sku.mem_bytes, model.profiles) for sku in (source, target))
        lines.append(f"  in flight  {here:.0f} sequences on {source.name}, {there:.0f} on {target.name}")
    lines.append(f"  basis      {comparison.basis}")
    lines += [f"  outside    {reason}" for reason in comparison.outside]
    lines += [f"  blocked    {reason}" for reason in comparison.blocked_by]
    lines += [f"  lever      {lever}" for lever in levers]
    if comparison.assumed or comparison.sigma > 0.25:
        lines.append(f"  {_ROUGH}, not a recommendation. Benchmark first.")
    return document, lines


def compare_typical(source: GpuSku, target: GpuSku, catalog: Catalog) -> tuple[tuple[str, Comparison], ...]:
    """Typical work of each phase in 16 bits, as ``skus compare A B --phase P`` has it."""
    model = load_move_model()
    reference, precision = catalog.gpus[model.profiles.reference], "bf16"
    questions = [
        Question(phase, precision, gpus=_gpus(phase, None, precision, source, target)) for phase in get_args(PhaseAsked)
    ]
    return tuple((q.phase, compare(q, source, target, reference, model)) for q in questions)


def _gpus(phase: str, params: float | None, precision: str, *skus: GpuSku) -> int:
    return gpus_of_a_copy(params, precision, *skus, training=phase == "training")


def _check_active(params: float | None, active_params: float | None, **_: object) -> None:
    """Raises UsageError for a part that is larger than the whole model."""
    if active_params and params and active_params > params:
        raise UsageError("--active-params is larger than --params.", "Give at most the value of --params.")


def _answer(
    question: Question, source: GpuSku, target: GpuSku, answer: Comparison | SlowerGpu, blocked: Iterable[CodedText]
) -> dict[str, object]:
    """The part of the JSON that every comparison has."""
    return {
        "from": source.name,
        "to": target.name,
        "phase": question.phase,
        "precision": question.precision,
        "time_ratio": asdict(answer.time_ratio),
        "blocked_by": [asdict(reason) for reason in blocked],
        "basis": answer.basis,
    }


def _slower(
    question: Question,
    source: GpuSku,
    target: GpuSku,
    reference: GpuSku,
    cap: float | None,
    clock: float | None,
    watts: float | None,
) -> Answer:
    """One GPU under a cap or at a clock. Raises UsageError for two GPUs, and for what lies outside the GPU's range."""
    flag = "--power-limit" if cap is not None else "--sm-clock"
    if source.name != target.name:
        raise UsageError(
            f"{flag} asks about one GPU, and {source.name} and {target.name} are two.",
            f"Write it twice: skuwise skus compare {target.name} {target.name} {flag} ...",
        )
    rest = rest_watts(source)
    if watts is not None and not rest < watts <= source.tdp_watts:
        raise UsageError(
            f"{watts:g} W is not what {source.name} draws at work: more than the {rest:.0f} W at rest, and at most "
            f"{source.tdp_watts:g} W.",
            "Give the mean of one GPU while it works.",
        )
    slower = slower_gpu(question, source, reference, cap_watts=cap, clock_hertz=clock, watts=watts)
    if isinstance(slower, CodedText):
        raise UsageError(f"{slower.text[:1].upper()}{slower.text[1:]}.", _remedy(flag, slower.code, source))
    move = slower.move
    blocked = (*blocks(question, source, target), *slower.blocked_by)
    document = _answer(question, source, source, slower, blocked) | {
        "power_limit_watts": cap,
        "sm_clock_hertz": clock,
        "watts": {"before": move.watts_before, "after": move.watts_after, "measured": slower.measured},
        "joules_ratio": asdict(slower.joules_ratio),
        "joules_a_unit": slower.unit and dict(zip(("unit", "before", "after"), slower.unit, strict=True)),
        "knee_watts": slower.knee_watts,
    }
    how = (
        f"at an SM clock of {clock / 1e6:.0f} MHz, {move.clock_share:.0%} of its boost clock"
        if clock is not None
        else f"under a power cap of {cap:g} W"
    )
    lines = [
        f"{source.name} {how}, {_work_words(question)}",
        f"  time       {_ratio_words(slower.time_ratio, 'faster', 'slower')}; 80 % prediction interval",
        f"  power      {move.watts_before:.0f} to {move.watts_after:.0f} W per GPU at work",
        f"  energy     {_ratio_words(slower.joules_ratio, 'less', 'more')} for the same work",
    ]
    if slower.unit is not None:
        unit, before, after = slower.unit
        lines.append(f"  joules     {figure(before)} to {figure(after)} J per {unit}, all GPUs of a copy together")
    if slower.knee_watts is not None:
        lines.append(f"  knee       below {slower.knee_watts:.0f} W the same work takes more energy again")
    lines.append(f"  basis      {slower.basis}")
    if not slower.measured:
        lines.append(f"  {_ROUGH}. Set --power-at-work W to the measured draw of the GPU.")
    return document, [*lines, *(f"  blocked    {reason}" for reason in blocked)]


def _work_words(question: Question) -> str:
    """The work as words of one line."""
    parts = [question.phase, question.precision]
    parts += [f"{question.params / 1e9:g} B parameters"] if question.params else []
    parts.append(f"{counted(question.gpus, 'GPU')} a copy")
    if profile_of(question) is None:
        parts.append(f"{question.tokens[0]} tokens in and {question.tokens[1]} out")
    return ", ".join(parts)


def _remedy(flag: str, code: str, sku: GpuSku) -> str:
    if code == "no-rate-at-precision":
        return "Ask at another --precision."
    if flag == "--sm-clock":
        return f"Ask for {sku.boost_hertz / 2e6:.0f}MHz to {sku.boost_hertz / 1e6:.0f}MHz."
    model = load_power_model()
    low, high = cap_range(sku, model)
    return f"Ask for {max(low, model.lowest_cap_share * high):.0f} to {high:.0f} W."


def _ratio_words(ratio: Interval, below: str, above: str) -> str:
    """A ratio with its interval and its direction."""
    direction = "no change" if abs(ratio.p50 - 1) < 0.005 else below if ratio.p50 < 1 else above
    return f"x{ratio.p50:.2f} ({ratio.p10:.2f} to {ratio.p90:.2f}), {direction}"


def planned(
    catalog: Catalog,
    nodes: Sequence[NodeSku],
    *,
    context: int,
    output_tokens: int | None,
    load: str | None,
    train_time: float | None,
    **asked: Any,  # noqa: ANN401 - the fields of `Wanted`
) -> Answer:
    """Those of `nodes` to train and to serve a model. Raises NothingToDo where no node can, UsageError for options that
    contradict one another."""
    _check_active(**asked)
    if context > _CONTEXT_MAX:
        raise UsageError(f"--context {context} is longer than any model's.", f"At most {_CONTEXT_MAX} tokens.")
    output = output_tokens or min(_OUTPUT_MAX, max(context // 4, 1))
    if output >= context:
        raise UsageError("--output-tokens leaves no room for a prompt in --context.", "Give a longer context.")
    if train_time and not asked["train_tokens"]:
        raise UsageError("--train-time needs --train-tokens.", "Set --train-tokens.")
    wanted = Wanted(
        **asked,
        input_tokens=context - output,
        output_tokens=output,
        load_requests=None if load is None else _requests(load, output),
        train_days=train_time / 86400 if train_time else None,
    )
    model = load_move_model()
    training = plan_training(wanted, catalog, model, nodes)
    serving = plan_serving(wanted, catalog, model, nodes)
    notes = []
    if not training:
        held = f"the states and a sequence of {wanted.context} tokens"
        text = f"No node of the catalog trains it: none holds {held}, or none with enough memory has an RDMA fabric."
        notes.append(CodedText("no-node-trains-it", text, {"context": wanted.context}))
    if not serving:
        why = _why_not_served(wanted, catalog, nodes)
        if not training:
            raise NothingToDo("No node of the catalog can train or serve this model.", why)
        notes.append(coded("no-node-serves-it", "No node of the catalog serves it as asked. {why}", why=why))
    levers = levers_of_plan(wanted, serving, catalog, model, nodes)
    document = {
        "schema": SCHEMA,
        "asked": asdict(wanted),
        "training": [_plan_json(plan) for plan in training[: _OTHERS + 1]],
        "serving": [_plan_json(plan) for plan in serving[: _OTHERS + 1]],
        "notes": [asdict(note) for note in notes],
        **({"levers": [asdict(lever) for lever in levers]} if levers else {}),
    }
    return document, _plan_lines(wanted, training, serving, (*notes, *levers))


def _requests(load: str, output_tokens: int) -> float:
    """Requests per second of a load. Raises UsageError."""
    match = _LOAD.fullmatch(load.strip())
    rate = float(match[1]) if match else 0.0
    if match is None or rate <= 0:
        raise UsageError(f"--load {load!r} is no rate.", "Write 20rps (requests) or 5000tps (output tokens).")
    return rate / output_tokens if match[2].lower() == "tps" else rate


def _why_not_served(wanted: Wanted, catalog: Catalog, nodes: Sequence[NodeSku]) -> str:
    """Why no node serves it: by the shortest time to a first token of those that hold the model."""
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


def _plan_json(plan: CapacityPlan) -> dict[str, object]:
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


def _plan_lines(
    wanted: Wanted, training: Sequence[CapacityPlan], serving: Sequence[CapacityPlan], notes: Sequence[CodedText]
) -> list[str]:
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
    return [
        *lines,
        "",
        "Estimated from typical work, for dense transformers with grouped-query attention. Benchmark before you buy. "
        "List prices;",
        "the cheapest of all providers unless --provider is set. This is no advice to change your provider.",
    ]


def _proposal(plan: CapacityPlan) -> list[str]:
    node, price = plan.node, plan.price
    rate = node.fabric.bytes_per_second
    fabric = f"{node.fabric.kind}{f' {rate * 8e-9:.0f} Gb/s' if rate else ''}"
    need = "needed: it spans nodes" if plan.needs_fabric else "none needed"
    parts = " + ".join(f"{name} {size / 1e9:.1f}" for name, size in plan.memory.items() if size)
    copy = f"{counted(plan.group_gpus, 'GPU')} a copy of the model"
    return [
        f"  {plan.gpus} x {plan.gpu.name}: {plan.nodes} x {node.name}, {copy}",
        f"  link       {node.intra_node_link} inside the node; fabric {fabric} ({need})",
        f"  memory     {plan.needed / 1e9:.1f} GB a GPU of {plan.room / 1e9:.1f}: {parts}",
        f"  reaches    {_reached(plan)}",
        f"  price      {usd(plan.usd_per_hour)} an hour in {price.region}, at list price, {price.as_of}",
        f"  source     {price.source}",
    ]


def _others(plans: Sequence[CapacityPlan]) -> list[str]:
    """The cheapest plan of each other GPU."""
    by_gpu: dict[str, CapacityPlan] = {}
    for plan in plans:
        by_gpu.setdefault(plan.gpu.name, plan)
    others = list(by_gpu.values())[1 : _OTHERS + 1]
    rows = [
        (p.gpu.name, str(p.gpus), p.node.name, f"{p.usd_per_hour:,.2f}", p.price.as_of, _reached(p)) for p in others
    ]
    table = columns(("otherwise", "GPUs", "node", "USD/h", "as of", "reaches"), rows, right=(1, 3))
    return [f"  {line}" for line in table.splitlines()] if rows else []


def _reached(plan: CapacityPlan) -> str:
    f = plan.figures
    if "tokens_per_second" in f:
        rate = f"{f['tokens_per_second']:,.0f} tokens/s, {usd(f['usd_per_million_tokens'])} a million tokens"
        return f"{rate}, {f['days']:,.1f} days, {usd(f['usd'])}" if "days" in f else rate
    return (
        f"first token {_span(f['first_token_seconds'])}, then {_span(f['token_seconds'])} a token with "
        f"{f['batch']:.0f} in flight, {f['requests_per_second']:,.2f} requests/s on "
        f"{counted(round(f['replicas']), 'replica')}"
    )


def _span(seconds: float) -> str:
    return f"{seconds * 1e3:,.0f} ms" if seconds < 1 else f"{seconds:,.1f} s"
