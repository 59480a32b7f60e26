"""No quantity that a recommendation rests on is filled in: every place in verdicts and moves that puts a number where
one is missing is listed here with the reason why it claims nothing."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import skuwise.advisor

ROOT = Path(skuwise.advisor.__file__).parent
FILLS = re.compile(r"nan_to_num|\.fillna\(|\bor 0(\.0)?\b")
# File -> what it fills -> why that is no claim. A line that is not listed, or no longer there, fails the test.
JUSTIFIED: dict[str, dict[str, str]] = {
    "verdicts/features/utilization.py": {
        'out["seconds"] = gpu["observed_seconds"].fillna(0.0)': "a row without observed time weighs nothing",
        'engine = gpu["gpu_util_mean"].fillna(gpu["sm_active_mean"])': "labels only; claims ask for the engine itself",
        'out["g_max"] = gpu["gpu_util_max"].fillna(gpu["sm_active_max"])': "likewise",
        'fastest = (sku["boost_hertz"] / sku["tensor_reference_hertz"]).clip(lower=1.0).fillna(1.0)':
            "of a GPU that the catalog lacks no use is known",
        'ratio = out["clock_ratio"].fillna(fastest)': "an upper bound of use",
        'mem_clock = (gpu["mem_clock_hertz_mean"] / top).fillna(1.0).clip(upper=1.0)': "an upper bound of use",
        'out[f"label_{name}"] = out[f"u_{name}"].fillna((out[name] / guess).where(out[f"assumed_{name}"]))':
            "labels only",
        'eta_link = sku["eta_link"].fillna(1.0)': "the catalog's figure, not telemetry: use relative to the peak",
        'out["n_share"] = _share_above(gpu["nvlink_bins"], link_busy * eta_link).fillna(':
            "one measurement for another of the same thing",
        'busy |= _p95_at_most(gpu, "gpu_util").fillna(out["sm_p95"]) >= engine_max':
            "can only make a row busy",
        'return gpu[f"{name}_p95"].fillna(pd.Series(bound, index=gpu.index))': "an upper bound of use",
        'return observed.fillna(prior.where(sku["power_limit"].notna()))': "idle power for words",
        '"i_share": _share_above(compute["util_bins"], level).fillna(':
            "one measurement for another of the same thing",
    },
    "verdicts/accounting/port_totals.py": {
        'read = np.where(np.isnan(mean), 0.0, np.nan_to_num(observed))': "a row without observed time weighs nothing",
        'seconds, whole = np.bincount(code, read, count), np.bincount(code, np.nan_to_num(observed), count)':
            "likewise",
    },
    "verdicts/accounting/workload_verdicts.py": {
        'lengths = np.nan_to_num(rows.segments.median(rows.gpu("interval_seconds"))).tolist()':
            "a workload without rows has none to speak of",
    },
    "verdicts/features/at_work.py": {
        'total = shape.segments.total(np.nan_to_num(shape.tables.gpu[column][shape.at], copy=False))':
            "a row without bins adds no seconds to them; without any, nothing is said",
    },
    "verdicts/features/hourly.py": {
        'more = moves & (own >= np.nan_to_num(swing))': "the first wave that is known is more than none",
    },
    "verdicts/workloads/mig.py": {
        '"seconds": np.nan_to_num(gpu["observed_seconds"].to_numpy(float)),  # a row without any was not observed':
            "a row without observed time weighs nothing",
    },
    "verdicts/kinds/engine_clue.py": {
        "(engine.running or 0.0) >= _RUNNING or (engine.generated_tokens_per_second or 0) >= _TOKENS":
            "what was not counted makes no engine busy",
    },
    "verdicts/features/port_traffic.py": {
        "rate = bytes_.max(axis=1, skipna=False).fillna(used * line)": "one measurement for another of the same thing",
        'reach = line.where(~plain, line.fillna(np.inf).clip(upper=level["network_tcp_bytes_per_second_max"]))':
            "without a line rate the most that TCP carries bounds it",
        "use = (rate / reach).fillna(used.where(~plain))": "one measurement for another of the same thing",
        '"ethernet": (rate / line).fillna(use).where(plain).clip(upper=1.0), "rdma": use.where(~plain),': "likewise",
        'expected = pd.Series(node.map(count.to_dict()), index=out.index).fillna(0.0)': "a count of ports",
    },
    "verdicts/doubts.py": {
        'seconds = rows["observed_seconds"].fillna(rows["interval_seconds"]).to_numpy(float)': "hours of a doubt",
    },
    "verdicts/features/soundness.py": {
        "samples = np.nan_to_num(np.fmax.reduce(counts))  # without a count nothing is called frozen": "no samples",
    },
    "verdicts/workloads/inventory.py": {
        'counts = {"node SKU": of_sku or 0, "declared": declared or 0, '
        '"requested": 0 if of_sku or declared else requested}':
            "the largest of several counts of GPUs; one that is not known adds none",
    },
    "verdicts/accounting/gpu_hour_accounting.py": {
        'observed["gpu_hours"] *= observed["node"].map(scale).fillna(1.0)': "a factor for some nodes alone",
    },
    "verdicts/bottlenecks/bottlenecks.py": {
        'rival = np.fmax(np.nan_to_num(r["i"]), np.nan_to_num(r["u_n"]))':
            "labels only: an unknown link outweighs nothing; claims ask for links themselves",
        'rest = np.nan_to_num(r["rated_power"] / r["power_over_idle"])':
            "the least that a GPU can draw at rest, so that no throttling is told for want of it",
    },
    "verdicts/bottlenecks/hysteresis.py": {
        'seconds = np.nan_to_num(gpu["observed_seconds"].to_numpy(float))[order]': "a row not observed has no length",
    },
    "verdicts/workloads/attribution.py": {
        "return begin, stop, np.minimum(np.nan_to_num(observed), stop - begin)": "a row not observed weighs nothing",
    },
    "moves/predict/mig_packing.py": {
        "order = sorted(held, key=lambda gpu: (sum(one.compute or 0 for one in held[gpu]), gpu))":
            "every profile is known here: of one that is not, nothing is packed",
        "for one in sorted(keep[gpu], key=lambda part: (-(part.memory or 0), part.gpu_uuid)):": "likewise",
        "return [(one.compute or 0, one.memory or 0) for one in instances]": "likewise",
    },
    "moves/waste/too_many_gpus.py": {
        'own = demand(replace(use, u_n=nothing, u_p=np.nan_to_num(use.u_p), u_i=use.of("u_i")))':
            "PCIe carries what NVLink does not: where nobody measured it, links are taken as busy as the engine",
    },
    "moves/kinds/schedule_off.py": {
        "usd = sum((p or 0.0) * min(n.hours_observed / span, 1.0) for p, n in zip(prices, known, strict=True))":
            "every price is known here: where one is not, nothing is measured",
    },
    "moves/base/price_book.py": {
        'until = int((price.committed_until or "0").replace("-", "")[:8] or 0)': "an order of prices",
    },
    "moves/waste_rules.py": {
        "total += f.cost_usd or 0.0": "waste of nodes without a price is in no dollar figure, and a note names them",
        "links.setdefault(node, {})[f.rule] = (f.cost_usd or 0.0) / f.gpu_hours": "likewise",
        "cost = f.cost_usd or 0.0": "likewise",
    },
}  # fmt: skip


def test_every_number_that_stands_for_a_missing_one_is_listed_with_its_reason() -> None:
    files = [*(ROOT / "verdicts").rglob("*.py"), *(ROOT / "moves").rglob("*.py"), ROOT / "pipeline.py"]
    found: Counter[tuple[str, str]] = Counter()
    for file in files:
        for line in file.read_text().splitlines():
            if FILLS.search(line):
                found[file.relative_to(ROOT).as_posix(), line.strip()] += 1
    listed = {(file, line) for file, lines in JUSTIFIED.items() for line in lines}
    assert set(found) - listed == set(), "new places that fill in what is missing"
    assert listed - set(found) == set(), "listed places that are gone"
    assert all(reason for lines in JUSTIFIED.values() for reason in lines.values())
