"""A third generator of labelled fleets, for evaluation alone: nothing is ever fitted or tuned on it.

It was written from the project's collected facts on fleets, telemetry and advice and from the GPU and node tables that
go with them, without reading the verdicts, the moves, the first simulator, the fit or the rules'
thresholds. Shared with the product are only the store's writer, the rollup device that turns seconds into the store's
columns, and the labels' names. What the behaviours rest on:

- contexts at rest at full clocks: measured wattages of H100, A100, L40S, A40 and V100 with a context and no work;
- collectives that spin: engine near 1, few SMs, tensor and DRAM low, bytes on the wire (2 of 3 network-bound jobs);
- light production serving: 60 production image-generation pods (28 % of minutes busy, 5 to 27 % of the time, an hour
  between 0 and 0.4, memory varying by 11 to 26 %) and the rule that preallocating engines hold memory flat;
- decode bound by HBM, prefill and dense training by tensor cores: achieved shares of the peaks in the GPU table;
- checkpoints every 1 to 2 hours as write bursts with a dip, communication at 15 to 30 % of a step, stalls, restarts;
- expert-parallel serving with NVLink busy beside the tensor cores; disaggregated serving that moves KV over a fabric;
- held allocations: context resident, nothing runs, 19.7 % of one fleet's in-execution time;
- interactive: active below 20 % of the time, in bursts, in working hours; fine-tuning: one node, at most 8 GPUs, below
  24 h, in many short runs;
- exporters: dcgm-exporter's 30 s means scraped each minute, GPU_UTIL as the reading of a moment, MIG without GPU_UTIL,
  SM_ACTIVE and NVLink off by default, PROF at 0 after an XID, one device's values for each pod that shares it, missed
  scrapes, nodes without any workload label, Slurm's `hpc_job`.

Labels are those an expert could give from days of data; where two would differ, the label is None and is not scored.
Seeds below 1000 are for reporting. Levels are drawn, broadly, where the facts give no figure.
"""
