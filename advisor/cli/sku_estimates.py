"""``skuwise skus compare`` and ``plan``: estimates without telemetry, always an answer, and its basis.

``skus compare A A --power-limit 500W`` and ``--sm-clock 1110MHz`` ask about the same GPU, slower: what it saves and
costs.
"""

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, get_args

from ...rules.base.errors import NothingToDo, UsageError
from ...rules.base.output import columns
from ...rules.catalog.loader import Catalog
from ...rules.catalog.types import GpuSku, NodeSku
from ...rules.models import load_move_model, load_power_model
from ..core.coded_text import CodedText, coded
from ..core.formatting import counted, fabric_words, figure, time_words, usd
from ..recommend.predict import capacity_plan, sku_comparison
from ..recommend.predict.capacity_plan import CapacityPlan, Wanted
from ..recommend.predict.clock_model import SlowerGpu, cap_range, rest_watts, slower_gpu
from ..recommend.predict.sku_comparison import Comparison, PhaseAsked, Question, profile_of
from ..show.pages.skus import lines_of

Answer = tuple[dict[str, object], str]  # as JSON, and for a person
Rows = list[tuple[str, str]]
_CONTEXT_MAX = 10**7
_OUTPUT_MAX = 512  # tokens of an answer where nothing is stated
_OTHERS = 4  # other GPUs shown beside the proposal
_LOAD = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) ?(rps|tps)", re.IGNORECASE | re.ASCII)
_LESS = "Allow a longer --latency or --token-latency, a shorter --context or a smaller --batch."
_ESTIMATED = (
    "Estimated from typical work, for dense transformers with grouped-query attention. Benchmark before you buy.\n"
    "List prices; the cheapest of all providers unless --provider is set."
)


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
    _check_active(**asked)
    asked["gpus"] = asked["gpus"] or _gpus(asked["phase"], asked["params"], asked["precision"], source, target)
    if asked["gpus"] % asked["attention_copies"]:
        what = f"--attention-copies {asked['attention_copies']} does not divide {asked['gpus']} GPUs."
        raise UsageError(what, "Every copy of the attention layers takes as many GPUs (--gpus).")
    question, model = Question(**asked), load_move_model()
    reference, each, outside = catalog.gpus[model.profiles.reference], "", ()
    if power_limit is not None or sm_clock is not None:
        answer, more, rows = _slower(question, source, target, reference, power_limit, sm_clock, power_at_work)
        blocked = (*sku_comparison.blocks(question, source, target), *answer.blocked_by)
        how = f"at an SM clock of {sm_clock / 1e6:.0f} MHz" if sm_clock else f"under a power cap of {power_limit:g} W"
    elif power_at_work is not None:
        raise UsageError("--power-at-work needs --power-limit or --sm-clock.", "Add one of them.")
    else:
        answer, how = sku_comparison.compare(question, source, target, reference, model), f"to {target.name}"
        blocked, outside = answer.blocked_by, answer.outside
        more: dict[str, object] = {"speedup": answer.speedup, "outside": [asdict(reason) for reason in outside]}
        each, pace = (", for each token", "many tokens a second") if answer.in_flight else ("", "fast")
        rows = [("speed", f"{answer.speedup:.2f} times as {pace}")]
        if profile_of(question) is None:
            here, there = answer.in_flight or (
                sku_comparison.batch_on(question, g.mem_bytes, model.profiles) for g in (source, target)
            )
            rows.append(("in flight", f"{here:.0f} sequences on {source.name}, {there:.0f} on {target.name}"))
        if answer.assumed or answer.sigma > 0.25:
            rows.append(("note", "This is a rough estimate, not a recommendation. Benchmark first."))
    document = {"from": source.name, "to": target.name, "phase": question.phase, "precision": question.precision}
    document |= {"time_ratio": asdict(answer.time_ratio), "blocked_by": [asdict(reason) for reason in blocked]}
    time = ("time", f"{time_words(answer.time_ratio)}{each}; 80 % prediction interval")
    rows = [time, *rows, ("basis", answer.basis)]
    for name, texts in (("outside", outside), ("blocked", blocked)):
        rows += [(name, str(text)) for text in texts]
    work = [question.phase, question.precision]
    work += [f"{question.params / 1e9:g} B parameters"] if question.params else []
    work.append(f"{counted(question.gpus, 'GPU')} a copy")
    if profile_of(question) is None:
        work.append(f"{question.tokens[0]} tokens in and {question.tokens[1]} out")
    text = lines_of(f"{source.name} {how}, {', '.join(work)}", rows)
    return {**document, "basis": answer.basis, **more}, text


def compare_typical(source: GpuSku, target: GpuSku, catalog: Catalog) -> tuple[tuple[str, Comparison], ...]:
    """Typical work of each phase in 16 bits, as ``skus compare A B --phase P`` has it."""
    model = load_move_model()
    reference, precision = catalog.gpus[model.profiles.reference], "bf16"
    questions = [
        Question(phase, precision, gpus=_gpus(phase, None, precision, source, target)) for phase in get_args(PhaseAsked)
    ]
    return tuple((q.phase, sku_comparison.compare(q, source, target, reference, model)) for q in questions)


def _gpus(phase: str, params: float | None, precision: str, *skus: GpuSku) -> int:
    return sku_comparison.gpus_of_a_copy(params, precision, *skus, training=phase == "training")


def _check_active(params: float | None, active_params: float | None, **_: object) -> None:
    if active_params and not params:
        raise UsageError("--active-params needs --params.", "Give the size of the whole model as well.")
    if active_params and params and active_params > params:
        raise UsageError("--active-params is larger than --params.", "Give at most the value of --params.")


def _slower(
    question: Question,
    source: GpuSku,
    target: GpuSku,
    reference: GpuSku,
    cap: float | None,
    clock: float | None,
    watts: float | None,
) -> tuple[SlowerGpu, dict[str, object], Rows]:
    """One GPU under a cap or at a clock, with its part of the JSON and of the lines. Raises UsageError for two GPUs,
    and for what lies outside the GPU's range."""
    if source.name != target.name:
        what = f"--power-limit and --sm-clock ask about one GPU, and {source.name} and {target.name} are two."
        raise UsageError(what, f"Write it twice: skuwise skus compare {target.name} {target.name} ...")
    rest, high = rest_watts(source), source.tdp_watts
    if watts is not None and not rest < watts <= high:
        raise UsageError(
            f"{source.name} draws more than {rest:.0f} W (at rest) and at most {high:g} W, not {watts:g} W.",
            "Give the mean of one GPU while it works.",
        )
    slower = slower_gpu(question, source, reference, cap_watts=cap, clock_hertz=clock, watts=watts)
    if isinstance(slower, CodedText):
        model = load_power_model()
        low, high = cap_range(source, model)
        use = f"Ask for {max(low, model.lowest_cap_share * high):.0f} to {high:.0f} W."
        if slower.code == "no-rate-at-precision":
            use = "Ask at another --precision."
        elif clock is not None:
            use = f"Ask for {source.boost_hertz / 2e6:.0f}MHz to {source.boost_hertz / 1e6:.0f}MHz."
        raise UsageError(f"{slower.text[:1].upper()}{slower.text[1:]}.", use)
    move, energy = slower.move, slower.joules_ratio
    document: dict[str, object] = {"power_limit_watts": cap, "sm_clock_hertz": clock, "joules_ratio": asdict(energy)}
    document["watts"] = {"before": move.watts_before, "after": move.watts_after, "measured": slower.measured}
    document["joules_a_unit"] = slower.unit and dict(zip(("unit", "before", "after"), slower.unit, strict=True))
    document["knee_watts"] = slower.knee_watts
    rows = [
        ("power", f"{move.watts_before:.0f} to {move.watts_after:.0f} W per GPU at work"),
        ("energy", f"x{energy.p50:.2f} ({energy.p10:.2f} to {energy.p90:.2f}) for the same work"),
    ]
    if slower.unit is not None:
        unit, before, after = slower.unit
        rows.append(("joules", f"{figure(before)} to {figure(after)} J per {unit}, all GPUs of a copy together"))
    if slower.knee_watts is not None:
        rows.append(("knee", f"below {slower.knee_watts:.0f} W the same work takes more energy again"))
    if not slower.measured:
        rows.append(("note", "This is a rough estimate. Set --power-at-work W to the measured draw of the GPU."))
    return slower, document, rows


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
    match, requests = _LOAD.fullmatch((load or "").strip()), None
    if load is not None:
        if match is None or not float(match[1]):
            raise UsageError(f"--load {load!r} is no rate.", "Write 20rps (requests) or 5000tps (output tokens).")
        requests = float(match[1]) / (output if match[2].lower() == "tps" else 1)
    asked |= {"train_days": train_time / 86400 if train_time else None, "load_requests": requests}
    wanted = Wanted(**asked, input_tokens=context - output, output_tokens=output)
    model = load_move_model()
    training = capacity_plan.plan_training(wanted, catalog, model, nodes)
    serving = capacity_plan.plan_serving(wanted, catalog, model, nodes)
    if not training and not serving:
        raise NothingToDo("No node of the catalog can train or serve this model.", _LESS)
    notes = []
    if not training:
        text = (
            "No node of the catalog trains it: none holds the states and a sequence of {context} tokens, or none with "
            "enough memory has an RDMA fabric."
        )
        notes.append(coded("no-node-trains-it", text, context=context))
    if not serving:
        notes.append(coded("no-node-serves-it", "No node of the catalog serves it as asked. {why}", why=_LESS))
    document: dict[str, object] = {"schema": "skuwise.plan/1", "asked": asdict(wanted)}
    active = f", {wanted.active_params / 1e9:g} B active" if wanted.active_params else ""
    about = f"{wanted.params / 1e9:g} B parameters{active}, context {context} tokens"
    lines = [f"{about} ({context - output} in, {output} out)"]
    for name, precision, plans in (
        ("training", wanted.train_precision, training),
        ("serving", wanted.precision, serving),
    ):
        document[name] = [_plan_json(plan) for plan in plans[: _OTHERS + 1]]
        lines += ["", f"{name.capitalize()}, {precision}", *_proposal(plans)] if plans else []
    document["notes"] = [asdict(note) for note in notes]
    lines += ["", *map(str, notes)] if notes else []
    return document, "\n".join([*lines, "", _ESTIMATED])


def _plan_json(plan: CapacityPlan) -> dict[str, object]:
    node, fabric = plan.node, plan.node.fabric
    values = {"gpu_sku": plan.gpu.name, "node_sku": node.name, "nodes": plan.nodes, "gpus": plan.gpus}
    values |= {"gpus_a_copy": plan.group_gpus, "intra_node_link": node.intra_node_link}
    values["fabric"] = {"kind": fabric.kind, "rdma": fabric.rdma, "needed": plan.needs_fabric}
    values["memory_bytes_per_gpu"] = {**plan.memory, "needed": plan.needed, "room": plan.room}
    return values | {"reaches": plan.figures, "usd_per_hour": plan.usd_per_hour, "price": asdict(plan.price)}


def _proposal(plans: Sequence[CapacityPlan]) -> list[str]:
    plan, node, price = plans[0], plans[0].node, plans[0].price
    need = "needed: it spans nodes" if plan.needs_fabric else "none needed"
    parts = " + ".join(f"{name} {size / 1e9:.1f}" for name, size in plan.memory.items() if size)
    rows = [
        ("link", f"{node.intra_node_link} inside the node; fabric {fabric_words(node)} ({need})"),
        ("memory", f"{plan.needed / 1e9:.1f} GB a GPU of {plan.room / 1e9:.1f}: {parts}"),
        ("reaches", _reached(plan)),
        ("price", f"{usd(plan.usd_per_hour)} an hour in {price.region}, at list price, {price.as_of}"),
        ("source", price.source),
    ]
    copy = f"{counted(plan.group_gpus, 'GPU')} a copy of the model"
    text = lines_of(f"{plan.gpus} x {plan.gpu.name}: {plan.nodes} x {node.name}, {copy}", rows)
    by_gpu = {plan.gpu.name: plan for plan in reversed(plans)}
    others = [plan for plan in plans[1:] if by_gpu[plan.gpu.name] is plan][:_OTHERS]
    cells = [
        (p.gpu.name, str(p.gpus), p.node.name, f"{p.usd_per_hour:,.2f}", p.price.as_of, _reached(p)) for p in others
    ]
    if cells:
        text += "\n" + columns(("otherwise", "GPUs", "node", "USD/h", "as of", "reaches"), cells, right=(1, 3))
    return [f"  {line}" for line in text.splitlines()]


def _reached(plan: CapacityPlan) -> str:
    f = plan.figures
    if "tokens_per_second" in f:
        rate = f"{f['tokens_per_second']:,.0f} tokens/s, {usd(f['usd_per_million_tokens'])} a million tokens"
        return f"{rate}, {f['days']:,.1f} days, {usd(f['usd'])}" if "days" in f else rate
    first, token = (f"{f[name] * 1e3:,.0f} ms" for name in ("first_token_seconds", "token_seconds"))
    load = f"{f['requests_per_second']:,.2f} requests/s on {counted(round(f['replicas']), 'replica')}"
    return f"first token {first}, then {token} a token with {f['batch']:.0f} in flight, {load}"
