"""Rest that utilization and power show together where the profiler is not read (workstation cards, dcgm-exporter's
defaults): one rule for advice over days and for the watch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64] | npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

# Power at rest varies less than this, as a share and by sensors' steps in watts.
STEADY_SHARE, STEADY_WATTS = 1.1, 3.0
# Rest is at most this share of what the same GPUs draw at work, by whether it is known that memory is held.
REST_OF_WORK_HELD, REST_OF_WORK = 0.5, 0.25
# Of a GPU without any known limit: the most that is published for one at rest (H100).
REST_WATTS_MAX = 122.0


def is_steady_rest(
    unused: Mask, power: Floats, *, level: Floats, at_work: Floats, has_memory: Mask, most: Floats
) -> Mask:
    """Rows in which power stood at a level of rest while utilization was 0 throughout (`unused`).

    Watts: `power`; `level`: each GPU's low quantile while quiet; `at_work`: the most that GPUs of its kind draw at work
    (NaN: none worked); `most`: the most that rest draws by the catalog (NaN: not in it). `has_memory`: whether memory
    in use is known.
    """
    with np.errstate(invalid="ignore"):
        flat = power <= STEADY_SHARE * level + STEADY_WATTS
        below_work = np.where(has_memory, ~(level > REST_OF_WORK_HELD * at_work), level <= REST_OF_WORK * at_work)
        return unused & flat & below_work & (level <= np.where(np.isnan(most), REST_WATTS_MAX, most))
