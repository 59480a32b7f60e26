"""The two solvers of a plan, HiGHS and CP-SAT, for one model.

HiGHS takes it as a mixed-integer program: of the model without places it finds the bound and a good answer several
times sooner than CP-SAT, which in turn is the one that finds places.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from ortools.math_opt.python import mathopt
from ortools.sat.python import cp_model

# CP-SAT's rows are open at the ends of 64-bit integers.
_OPEN = 2.0**62
SEED = 20
# CP-SAT counts its work in a unit of its own, the same on every machine: so much in a second of two quiet cores, and
# how many times the seconds it may take for it elsewhere.
WORK_PER_SECOND, PATIENCE = 0.4, 1.5


@dataclass(frozen=True)
class Solution:
    """What a solver found. `values`: by variable; empty: nothing. `bound`: infinite where it has none."""

    values: Sequence[int]
    objective: float
    bound: float
    seconds: float

    def value(self, var: cp_model.IntVar) -> int:
        return self.values[var.index]


def by_highs(
    model: cp_model.CpModel, seconds: float, gap: float, clock: Callable[[], float] = time.perf_counter
) -> Solution:
    """The model's best answer within its time, `gap` from its bound at best. Of linear rows, at most one, or, and
    implications."""
    begun = clock()
    linear, own = _converted(model)
    left = timedelta(seconds=max(seconds - (clock() - begun), 0.1))
    limits = mathopt.SolveParameters(time_limit=left, absolute_gap_tolerance=gap, relative_gap_tolerance=0.0)
    result = mathopt.solve(linear, mathopt.SolverType.HIGHS, params=limits)
    values: list[int] = []
    objective = -math.inf
    if result.has_primal_feasible_solution():
        values = [round(value) for value in result.variable_values(own)]
        objective = result.objective_value()
    bound = result.termination.objective_bounds.dual_bound
    return Solution(values, objective, bound if math.isfinite(bound) else math.inf, clock() - begun)


def by_cp_sat(model: cp_model.CpModel, seconds: float, gap: float, workers: int) -> Solution:
    """The model's best answer for the work of its time, `gap` from its bound at best: the same whenever it is asked,
    unless the machine is so slow that `PATIENCE` ends."""
    solver = cp_model.CpSolver()
    solver.parameters.max_deterministic_time = seconds * WORK_PER_SECOND
    solver.parameters.max_time_in_seconds = seconds * PATIENCE
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = SEED
    # Threads that race give one plan now and another later: in turns they give the same again.
    solver.parameters.interleave_search = True
    solver.parameters.absolute_gap_limit = gap
    solver.parameters.relative_gap_limit = 0.0
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Solution([], -math.inf, math.inf, solver.wall_time)
    values = [solver.value(model.get_int_var_from_proto_index(i)) for i in range(len(model.proto.variables))]
    return Solution(values, solver.objective_value, solver.best_objective_bound, solver.wall_time)


def _converted(model: cp_model.CpModel) -> tuple[mathopt.Model, list[mathopt.Variable]]:
    made = mathopt.Model()
    proto: Any = model.proto
    own: list[mathopt.Variable] = []
    for one in proto.variables:
        ends = list(one.domain)
        own.append(made.add_integer_variable(lb=float(ends[0]), ub=float(ends[-1])))
    sign = proto.objective.scaling_factor or 1.0
    made.objective.is_maximize = sign < 0
    made.objective.offset = sign * proto.objective.offset
    for var, factor in zip(proto.objective.vars, proto.objective.coeffs, strict=True):
        made.objective.set_linear_coefficient(own[var], sign * factor)
    for row in proto.constraints:
        if row.has_linear():
            if list(row.enforcement_literal):
                raise ValueError("a linear row that holds only sometimes")
            ends = [float(end) for end in row.linear.domain]
            _row(made, own, zip(row.linear.vars, row.linear.coeffs, strict=True), (ends[0], ends[-1]))
        elif row.has_at_most_one():
            terms, constant = _literals(row.at_most_one.literals)
            _row(made, own, terms, (-math.inf, 1 - constant))
        elif row.has_bool_or() or row.has_bool_and():
            # Whatever enforces it and does not hold is one more way to keep it.
            enforced = [-ref - 1 for ref in row.enforcement_literal]
            ways = [list(row.bool_or.literals)] if row.has_bool_or() else [[ref] for ref in row.bool_and.literals]
            for one in ways:
                terms, constant = _literals([*one, *enforced])
                _row(made, own, terms, (1 - constant, math.inf))
        else:
            raise ValueError("a row that is not linear")
    return made, own


def _literals(refs: Iterable[int]) -> tuple[list[tuple[int, int]], int]:
    """Terms and the constant of a sum of literals."""
    refs = list(refs)
    return [(ref, 1) if ref >= 0 else (-ref - 1, -1) for ref in refs], sum(ref < 0 for ref in refs)


def _row(
    made: mathopt.Model, own: Sequence[mathopt.Variable], terms: Iterable[tuple[int, int]], ends: tuple[float, float]
) -> None:
    lower, upper = ends
    row = made.add_linear_constraint(
        lb=lower if lower > -_OPEN else -math.inf, ub=upper if upper < _OPEN else math.inf
    )  # fmt: skip
    total: dict[int, float] = {}
    for var, factor in terms:
        total[var] = total.get(var, 0.0) + factor
    for var, factor in total.items():
        row.set_coefficient(own[var], factor)
