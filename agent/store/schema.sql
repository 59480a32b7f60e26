-- skuwise schema 1.7 (PRAGMA user_version = 1007).
-- Tables are private and compact; the views below are the contract (docs/metrics.md).
-- Values are integers: value in base units = stored integer x the metric's quantum (agent/model.py).
-- A sample's id is tick id * 4096 + device id, so that a tick's rows lie together and no second index is needed.

CREATE TABLE node (
    id INTEGER PRIMARY KEY, node TEXT NOT NULL UNIQUE, cluster TEXT NOT NULL DEFAULT '', machine_id TEXT, boot_id TEXT,
    provider TEXT, region TEXT, instance_type TEXT, node_sku TEXT, node_sku_source TEXT, gpu_count INTEGER,
    agent_version TEXT, first_seen REAL NOT NULL, last_seen REAL NOT NULL
);
CREATE TABLE gpu (
    id INTEGER PRIMARY KEY CHECK (id BETWEEN 0 AND 4095), node_id INTEGER NOT NULL REFERENCES node (id),
    gpu_uuid TEXT NOT NULL, gpu_index INTEGER NOT NULL, name TEXT NOT NULL, sku TEXT, kind TEXT NOT NULL DEFAULT 'gpu',
    parent_uuid TEXT, slices INTEGER, mig_profile TEXT, pci_bus_id TEXT, mem_total_bytes INTEGER, power_limit_watts REAL,
    nvlink_links INTEGER, nvlink_bytes_per_second REAL, driver_version TEXT, valid_from REAL NOT NULL, valid_to REAL
);
CREATE INDEX gpu_by_uuid ON gpu (gpu_uuid);
CREATE TABLE port (
    id INTEGER PRIMARY KEY CHECK (id BETWEEN 0 AND 4095), node_id INTEGER NOT NULL REFERENCES node (id),
    device TEXT NOT NULL, port INTEGER NOT NULL, role TEXT NOT NULL, link_layer TEXT NOT NULL,
    line_rate_bytes_per_second REAL, valid_from REAL NOT NULL, valid_to REAL
);
-- The host's samples ride on the tick: one row a tick, whatever the number of devices.
CREATE TABLE tick (
    id INTEGER PRIMARY KEY, node_id INTEGER NOT NULL, ts REAL NOT NULL, interval_ms INTEGER NOT NULL,
    cpu_util INTEGER, io_wait INTEGER, mem_used_bytes INTEGER, disk_read_bytes_per_second INTEGER,
    disk_write_bytes_per_second INTEGER, mem_total_bytes INTEGER
);
CREATE INDEX tick_by_ts ON tick (ts);
CREATE TABLE gpu_sample (
    id INTEGER PRIMARY KEY, gpu_util INTEGER, sm_active INTEGER, sm_occupancy INTEGER, tensor_active INTEGER,
    dram_active INTEGER, fp64_active INTEGER, fp32_active INTEGER, fp16_active INTEGER, mem_used_bytes INTEGER,
    power_watts INTEGER, energy_joules INTEGER, sm_clock_hertz INTEGER, mem_clock_hertz INTEGER,
    temperature_celsius INTEGER, throttle_reasons INTEGER, pcie_tx_bytes_per_second INTEGER,
    pcie_rx_bytes_per_second INTEGER, nvlink_tx_bytes_per_second INTEGER, nvlink_rx_bytes_per_second INTEGER
);
-- active: 1 ACTIVE, 0 not; state: the port's own word, kept only where it is not ACTIVE.
CREATE TABLE fabric_sample (
    id INTEGER PRIMARY KEY, active INTEGER, state TEXT, tx_bytes_per_second INTEGER, rx_bytes_per_second INTEGER,
    xmit_wait_per_second INTEGER
);

-- Rollups in little room, so that 90 days of minutes fit (docs/operations.md).
-- A rollup's id is its period's number * 4096 + device id (gpu.id, port.id or node.id), as a sample's is its tick's, and
-- the periods are listed in minute and hour, where a span of time is found by key.
-- A measure is kept as its mean and two distances, which are mostly small or zero: _to_p95 from mean to p95, _to_max from
-- p95 to max, in the steps of agent/store/codec.py. unobserved_seconds (in 0.1 s) is what a period lacks.
-- samples is how many the device has; a measure without a mean has none of them. Where counts differ otherwise,
-- sample_counts names a set of them: six digits a measure, in the order of the columns.
-- *_bins: two digits each for the zero bins in front and behind, then the seconds of those between.
CREATE TABLE minute (ts INTEGER PRIMARY KEY);
CREATE TABLE hour (ts INTEGER PRIMARY KEY);
CREATE TABLE sample_counts (id INTEGER PRIMARY KEY, counts TEXT NOT NULL UNIQUE);
CREATE TABLE gpu_minute (
    id INTEGER PRIMARY KEY, samples INTEGER, sample_counts INTEGER, unobserved_seconds INTEGER NOT NULL,
    gpu_util_mean INTEGER, gpu_util_to_p95 INTEGER, gpu_util_to_max INTEGER, sm_active_mean INTEGER,
    sm_active_to_p95 INTEGER, sm_active_to_max INTEGER, sm_occupancy_mean INTEGER, sm_occupancy_to_p95 INTEGER,
    sm_occupancy_to_max INTEGER, tensor_active_mean INTEGER, tensor_active_to_p95 INTEGER,
    tensor_active_to_max INTEGER, dram_active_mean INTEGER, dram_active_to_p95 INTEGER, dram_active_to_max INTEGER,
    fp64_active_mean INTEGER, fp64_active_to_p95 INTEGER, fp64_active_to_max INTEGER, fp32_active_mean INTEGER,
    fp32_active_to_p95 INTEGER, fp32_active_to_max INTEGER, fp16_active_mean INTEGER, fp16_active_to_p95 INTEGER,
    fp16_active_to_max INTEGER, mem_used_bytes_mean INTEGER, mem_used_bytes_to_p95 INTEGER,
    mem_used_bytes_to_max INTEGER, power_watts_mean INTEGER, power_watts_to_p95 INTEGER, power_watts_to_max INTEGER,
    energy_joules_mean INTEGER, energy_joules_to_p95 INTEGER, energy_joules_to_max INTEGER,
    sm_clock_hertz_mean INTEGER, sm_clock_hertz_to_p95 INTEGER, sm_clock_hertz_to_max INTEGER,
    mem_clock_hertz_mean INTEGER, mem_clock_hertz_to_p95 INTEGER, mem_clock_hertz_to_max INTEGER,
    temperature_celsius_mean INTEGER, temperature_celsius_to_p95 INTEGER, temperature_celsius_to_max INTEGER,
    pcie_tx_bytes_per_second_mean INTEGER, pcie_tx_bytes_per_second_to_p95 INTEGER,
    pcie_tx_bytes_per_second_to_max INTEGER, pcie_rx_bytes_per_second_mean INTEGER,
    pcie_rx_bytes_per_second_to_p95 INTEGER, pcie_rx_bytes_per_second_to_max INTEGER,
    nvlink_tx_bytes_per_second_mean INTEGER, nvlink_tx_bytes_per_second_to_p95 INTEGER,
    nvlink_tx_bytes_per_second_to_max INTEGER, nvlink_rx_bytes_per_second_mean INTEGER,
    nvlink_rx_bytes_per_second_to_p95 INTEGER, nvlink_rx_bytes_per_second_to_max INTEGER, duty INTEGER,
    idle_run_seconds INTEGER, sm_active_cv INTEGER, period_seconds INTEGER, period_strength INTEGER,
    tensor_nvlink_correlation INTEGER, tensor_fabric_correlation INTEGER, throttled_fraction INTEGER
);
CREATE TABLE gpu_hour (
    id INTEGER PRIMARY KEY, samples INTEGER, sample_counts INTEGER, unobserved_seconds INTEGER NOT NULL,
    gpu_util_mean INTEGER, gpu_util_to_p95 INTEGER, gpu_util_to_max INTEGER, sm_active_mean INTEGER,
    sm_active_to_p95 INTEGER, sm_active_to_max INTEGER, sm_occupancy_mean INTEGER, sm_occupancy_to_p95 INTEGER,
    sm_occupancy_to_max INTEGER, tensor_active_mean INTEGER, tensor_active_to_p95 INTEGER,
    tensor_active_to_max INTEGER, dram_active_mean INTEGER, dram_active_to_p95 INTEGER, dram_active_to_max INTEGER,
    fp64_active_mean INTEGER, fp64_active_to_p95 INTEGER, fp64_active_to_max INTEGER, fp32_active_mean INTEGER,
    fp32_active_to_p95 INTEGER, fp32_active_to_max INTEGER, fp16_active_mean INTEGER, fp16_active_to_p95 INTEGER,
    fp16_active_to_max INTEGER, mem_used_bytes_mean INTEGER, mem_used_bytes_to_p95 INTEGER,
    mem_used_bytes_to_max INTEGER, power_watts_mean INTEGER, power_watts_to_p95 INTEGER, power_watts_to_max INTEGER,
    energy_joules_mean INTEGER, energy_joules_to_p95 INTEGER, energy_joules_to_max INTEGER,
    sm_clock_hertz_mean INTEGER, sm_clock_hertz_to_p95 INTEGER, sm_clock_hertz_to_max INTEGER,
    mem_clock_hertz_mean INTEGER, mem_clock_hertz_to_p95 INTEGER, mem_clock_hertz_to_max INTEGER,
    temperature_celsius_mean INTEGER, temperature_celsius_to_p95 INTEGER, temperature_celsius_to_max INTEGER,
    pcie_tx_bytes_per_second_mean INTEGER, pcie_tx_bytes_per_second_to_p95 INTEGER,
    pcie_tx_bytes_per_second_to_max INTEGER, pcie_rx_bytes_per_second_mean INTEGER,
    pcie_rx_bytes_per_second_to_p95 INTEGER, pcie_rx_bytes_per_second_to_max INTEGER,
    nvlink_tx_bytes_per_second_mean INTEGER, nvlink_tx_bytes_per_second_to_p95 INTEGER,
    nvlink_tx_bytes_per_second_to_max INTEGER, nvlink_rx_bytes_per_second_mean INTEGER,
    nvlink_rx_bytes_per_second_to_p95 INTEGER, nvlink_rx_bytes_per_second_to_max INTEGER, duty INTEGER,
    idle_run_seconds INTEGER, sm_active_cv INTEGER, period_seconds INTEGER, period_strength INTEGER,
    tensor_nvlink_correlation INTEGER, tensor_fabric_correlation INTEGER, throttled_fraction INTEGER,
    gpu_util_bins TEXT, sm_active_bins TEXT, sm_occupancy_bins TEXT, tensor_active_bins TEXT, dram_active_bins TEXT,
    mem_used_bins TEXT, power_bins TEXT, nvlink_bins TEXT
);
CREATE TABLE fabric_minute (
    id INTEGER PRIMARY KEY, samples INTEGER, sample_counts INTEGER, unobserved_seconds INTEGER NOT NULL,
    util_mean INTEGER, util_to_p95 INTEGER, util_to_max INTEGER, tx_bytes_per_second_mean INTEGER,
    tx_bytes_per_second_to_p95 INTEGER, tx_bytes_per_second_to_max INTEGER, rx_bytes_per_second_mean INTEGER,
    rx_bytes_per_second_to_p95 INTEGER, rx_bytes_per_second_to_max INTEGER, xmit_wait_per_second_mean INTEGER,
    xmit_wait_per_second_to_p95 INTEGER, xmit_wait_per_second_to_max INTEGER, active_fraction INTEGER,
    idle_run_seconds INTEGER
);
CREATE TABLE fabric_hour (
    id INTEGER PRIMARY KEY, samples INTEGER, sample_counts INTEGER, unobserved_seconds INTEGER NOT NULL,
    util_mean INTEGER, util_to_p95 INTEGER, util_to_max INTEGER, tx_bytes_per_second_mean INTEGER,
    tx_bytes_per_second_to_p95 INTEGER, tx_bytes_per_second_to_max INTEGER, rx_bytes_per_second_mean INTEGER,
    rx_bytes_per_second_to_p95 INTEGER, rx_bytes_per_second_to_max INTEGER, xmit_wait_per_second_mean INTEGER,
    xmit_wait_per_second_to_p95 INTEGER, xmit_wait_per_second_to_max INTEGER, active_fraction INTEGER,
    idle_run_seconds INTEGER, util_bins TEXT
);
CREATE TABLE host_minute (
    id INTEGER PRIMARY KEY, samples INTEGER, sample_counts INTEGER, unobserved_seconds INTEGER NOT NULL,
    cpu_util_mean INTEGER, cpu_util_to_p95 INTEGER, cpu_util_to_max INTEGER, io_wait_mean INTEGER,
    io_wait_to_p95 INTEGER, io_wait_to_max INTEGER, mem_used_bytes_mean INTEGER, mem_used_bytes_to_p95 INTEGER,
    mem_used_bytes_to_max INTEGER, disk_read_bytes_per_second_mean INTEGER, disk_read_bytes_per_second_to_p95 INTEGER,
    disk_read_bytes_per_second_to_max INTEGER, disk_write_bytes_per_second_mean INTEGER,
    disk_write_bytes_per_second_to_p95 INTEGER, disk_write_bytes_per_second_to_max INTEGER, mem_total_bytes INTEGER
);
CREATE TABLE host_hour (
    id INTEGER PRIMARY KEY, samples INTEGER, sample_counts INTEGER, unobserved_seconds INTEGER NOT NULL,
    cpu_util_mean INTEGER, cpu_util_to_p95 INTEGER, cpu_util_to_max INTEGER, io_wait_mean INTEGER,
    io_wait_to_p95 INTEGER, io_wait_to_max INTEGER, mem_used_bytes_mean INTEGER, mem_used_bytes_to_p95 INTEGER,
    mem_used_bytes_to_max INTEGER, disk_read_bytes_per_second_mean INTEGER, disk_read_bytes_per_second_to_p95 INTEGER,
    disk_read_bytes_per_second_to_max INTEGER, disk_write_bytes_per_second_mean INTEGER,
    disk_write_bytes_per_second_to_p95 INTEGER, disk_write_bytes_per_second_to_max INTEGER, mem_total_bytes INTEGER,
    cpu_util_bins TEXT
);
-- What bursts of faster readings tell, beside the minutes and hours: the id is that of the minute's or hour's row in which
-- the burst ended, the steps are those of agent/store/codec.py. Most minutes have no burst.
CREATE TABLE gpu_burst (
    id INTEGER PRIMARY KEY, n INTEGER NOT NULL, period_seconds INTEGER, period_strength INTEGER, duty INTEGER,
    idle_run_seconds INTEGER, sm_active_cv INTEGER, tensor_nvlink_correlation INTEGER,
    tensor_fabric_correlation INTEGER
);
CREATE TABLE gpu_burst_hour (
    id INTEGER PRIMARY KEY, n INTEGER NOT NULL, period_seconds INTEGER, period_strength INTEGER, duty INTEGER,
    idle_run_seconds INTEGER, sm_active_cv INTEGER, tensor_nvlink_correlation INTEGER,
    tensor_fabric_correlation INTEGER
);

CREATE TABLE workload (
    id INTEGER PRIMARY KEY, workload_id TEXT NOT NULL UNIQUE, series_id TEXT NOT NULL, name TEXT NOT NULL,
    scheduler TEXT NOT NULL, job_id TEXT, namespace TEXT, pod TEXT, user TEXT, account TEXT, framework TEXT, command TEXT,
    first_seen REAL NOT NULL, last_seen REAL NOT NULL, partition TEXT, qos TEXT, array_job_id TEXT,
    array_task_id TEXT, restarts INTEGER, controller_kind TEXT, image TEXT, team TEXT
);
CREATE TABLE workload_use (
    id INTEGER PRIMARY KEY, workload_ref INTEGER NOT NULL REFERENCES workload (id), node_id INTEGER NOT NULL,
    gpu_uuid TEXT NOT NULL, ts_start REAL NOT NULL, ts_end REAL NOT NULL, basis TEXT NOT NULL, shared INTEGER NOT NULL,
    mem_used_bytes INTEGER
);
CREATE INDEX workload_use_by_end ON workload_use (ts_end);
CREATE TABLE absence (
    id INTEGER PRIMARY KEY, node_id INTEGER NOT NULL, scope TEXT NOT NULL, subject TEXT NOT NULL, metric TEXT NOT NULL,
    reason TEXT NOT NULL, detail TEXT NOT NULL DEFAULT '', remedy TEXT NOT NULL DEFAULT '', since REAL NOT NULL, until REAL
);
CREATE TABLE agent_stat (
    ts REAL NOT NULL, node_id INTEGER NOT NULL, cpu_seconds REAL NOT NULL, rss_bytes INTEGER NOT NULL,
    tick_seconds REAL NOT NULL, late_seconds REAL NOT NULL, missed_ticks INTEGER NOT NULL, clock_offset_seconds REAL,
    PRIMARY KEY (ts, node_id)
) WITHOUT ROWID;
-- How far the rollups of a node have come: every period that ends at or before done_to is written.
CREATE TABLE rollup_progress (
    node_id INTEGER NOT NULL, period TEXT NOT NULL, done_to INTEGER NOT NULL, PRIMARY KEY (node_id, period)
) WITHOUT ROWID;
-- Facts about the file itself. writer: who holds the right to write (the last one who opened it for writing).
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
-- What local inference servers tell of themselves; ts ends the interval.
CREATE TABLE server (
    id INTEGER PRIMARY KEY, node_id INTEGER NOT NULL REFERENCES node (id), engine TEXT NOT NULL, endpoint TEXT NOT NULL
);
CREATE TABLE serving_sample (
    id INTEGER PRIMARY KEY, server_id INTEGER NOT NULL REFERENCES server (id), workload_ref INTEGER, ts REAL NOT NULL,
    interval_ms INTEGER NOT NULL, kv_cache_usage INTEGER, requests_running INTEGER, requests_waiting INTEGER,
    prompt_tokens_per_second INTEGER, generation_tokens_per_second INTEGER, time_to_first_token_seconds INTEGER,
    preemptions_per_second INTEGER, time_per_output_token_seconds INTEGER
);
CREATE INDEX serving_sample_by_ts ON serving_sample (ts);
-- How long a server's requests waited, by the hour, as counts in fixed bins. Percentiles do not add up, counts do: each
-- text holds the counts of the bins of agent/statistics/latency_bins.py, with commas between, the empty ones at the end
-- left out. NULL: the engine told no such histogram, or nothing was counted. An hour may have several rows (of one after
-- a restart of the agent): their counts add up. ts ends what a row counts.
CREATE TABLE serving_hour (
    id INTEGER PRIMARY KEY, server_id INTEGER NOT NULL REFERENCES server (id), workload_ref INTEGER, ts REAL NOT NULL,
    interval_ms INTEGER NOT NULL, first_token_bins TEXT, output_token_bins TEXT
);
CREATE INDEX serving_hour_by_ts ON serving_hour (ts);
-- What the driver told of its own accord (XID, ECC and the like). ts and last_ts: the first and the last of `count` like
-- events; code: the XID's number.
CREATE TABLE event (
    id INTEGER PRIMARY KEY, node_id INTEGER NOT NULL REFERENCES node (id), gpu_uuid TEXT, kind TEXT NOT NULL,
    code INTEGER, detail TEXT NOT NULL DEFAULT '', ts REAL NOT NULL, last_ts REAL NOT NULL, count INTEGER NOT NULL
);
-- Slurm's job table, as `skuwise slurm import` reads it. A job that was requeued, or was given a recycled id, has a row
-- for each run. cluster '' is: not told.
CREATE TABLE slurm_job (
    id INTEGER PRIMARY KEY,
    cluster TEXT NOT NULL,
    job_id TEXT NOT NULL,
    started_at REAL NOT NULL,
    ended_at REAL,
    submitted_at REAL,
    restarts INTEGER,
    name TEXT,
    user TEXT,
    account TEXT,
    partition TEXT,
    qos TEXT,
    array_job_id TEXT,
    array_task_id TEXT,
    state TEXT,
    nodes TEXT,
    gpus INTEGER,
    cpus INTEGER,
    mem_bytes REAL,
    imported_at REAL NOT NULL,
    UNIQUE (cluster, job_id, started_at)
);

-- The views: what anyone may query.
-- CROSS JOIN keeps SQLite from reordering: without statistics it may scan all samples to find a few ticks. The joined
-- counts of rollups cost nothing where no _n is asked for.
CREATE VIEW nodes AS SELECT node, cluster, machine_id, boot_id, provider, region, instance_type, node_sku,
    node_sku_source, gpu_count, agent_version, first_seen, last_seen FROM node;
CREATE VIEW gpus AS SELECT n.node, g.gpu_uuid, g.gpu_index, g.name, g.sku, g.kind, g.parent_uuid, g.slices,
    g.mig_profile, g.pci_bus_id, g.mem_total_bytes, g.power_limit_watts, g.nvlink_links, g.nvlink_bytes_per_second,
    g.driver_version, g.valid_from, g.valid_to FROM gpu g JOIN node n ON n.id = g.node_id;
CREATE VIEW gpu_samples AS SELECT
    t.ts, t.interval_ms * 1e-3 AS interval_seconds, n.node, g.gpu_uuid, g.gpu_index,
    s.gpu_util * 1e-04 AS gpu_util, s.sm_active * 1e-04 AS sm_active, s.sm_occupancy * 1e-04 AS sm_occupancy,
    s.tensor_active * 1e-04 AS tensor_active, s.dram_active * 1e-04 AS dram_active,
    s.fp64_active * 1e-04 AS fp64_active, s.fp32_active * 1e-04 AS fp32_active,
    s.fp16_active * 1e-04 AS fp16_active, s.mem_used_bytes * 1024 AS mem_used_bytes, g.mem_total_bytes,
    s.power_watts * 0.1 AS power_watts, s.energy_joules * 0.1 AS energy_joules,
    s.sm_clock_hertz * 1e6 AS sm_clock_hertz, s.mem_clock_hertz * 1e6 AS mem_clock_hertz,
    s.temperature_celsius AS temperature_celsius, s.throttle_reasons AS throttle_reasons,
    s.pcie_tx_bytes_per_second * 1024 AS pcie_tx_bytes_per_second,
    s.pcie_rx_bytes_per_second * 1024 AS pcie_rx_bytes_per_second,
    s.nvlink_tx_bytes_per_second * 1024 AS nvlink_tx_bytes_per_second,
    s.nvlink_rx_bytes_per_second * 1024 AS nvlink_rx_bytes_per_second
    FROM tick t CROSS JOIN node n ON n.id = t.node_id
    CROSS JOIN gpu_sample s ON s.id BETWEEN t.id * 4096 AND t.id * 4096 + 4095
    CROSS JOIN gpu g ON g.id = s.id - t.id * 4096;
CREATE VIEW fabric_samples AS SELECT
    t.ts, t.interval_ms * 1e-3 AS interval_seconds, n.node, p.device, p.port, p.role, p.link_layer,
    CASE WHEN s.active THEN 'ACTIVE' ELSE s.state END AS state, p.line_rate_bytes_per_second,
    s.tx_bytes_per_second * 64 AS tx_bytes_per_second, s.rx_bytes_per_second * 64 AS rx_bytes_per_second,
    s.xmit_wait_per_second AS xmit_wait_per_second
    FROM tick t CROSS JOIN node n ON n.id = t.node_id
    CROSS JOIN fabric_sample s ON s.id BETWEEN t.id * 4096 AND t.id * 4096 + 4095
    CROSS JOIN port p ON p.id = s.id - t.id * 4096;
CREATE VIEW host_samples AS SELECT
    t.ts, t.interval_ms * 1e-3 AS interval_seconds, n.node, t.cpu_util * 1e-04 AS cpu_util,
    t.io_wait * 1e-04 AS io_wait, t.mem_used_bytes * 1024 AS mem_used_bytes,
    t.mem_total_bytes * 1024 AS mem_total_bytes, t.disk_read_bytes_per_second * 1024 AS disk_read_bytes_per_second,
    t.disk_write_bytes_per_second * 1024 AS disk_write_bytes_per_second
    FROM tick t JOIN node n ON n.id = t.node_id
    WHERE t.cpu_util IS NOT NULL OR t.mem_used_bytes IS NOT NULL OR t.disk_read_bytes_per_second IS NOT NULL;
CREATE VIEW gpu_minutes AS SELECT
    p.ts, 60.0 AS interval_seconds, n.node, d.gpu_uuid, d.gpu_index,
    (600 - r.unobserved_seconds) * 0.1 AS observed_seconds, r.gpu_util_mean * 1e-04 AS gpu_util_mean,
    (r.gpu_util_mean + (coalesce(r.gpu_util_to_p95, 0) + r.gpu_util_to_max) * 10) * 1e-04 AS gpu_util_max,
    (r.gpu_util_mean + r.gpu_util_to_p95 * 10) * 1e-04 AS gpu_util_p95,
    coalesce(CAST(substr(c.counts, 1, 6) AS INTEGER), CASE WHEN r.gpu_util_mean IS NULL THEN 0 ELSE r.samples END) AS
        gpu_util_n,
    r.sm_active_mean * 1e-04 AS sm_active_mean,
    (r.sm_active_mean + (coalesce(r.sm_active_to_p95, 0) + r.sm_active_to_max) * 10) * 1e-04 AS sm_active_max,
    (r.sm_active_mean + r.sm_active_to_p95 * 10) * 1e-04 AS sm_active_p95,
    coalesce(CAST(substr(c.counts, 7, 6) AS INTEGER), CASE WHEN r.sm_active_mean IS NULL THEN 0 ELSE r.samples END) AS
        sm_active_n,
    r.sm_occupancy_mean * 1e-04 AS sm_occupancy_mean,
    (r.sm_occupancy_mean + (coalesce(r.sm_occupancy_to_p95, 0) + r.sm_occupancy_to_max) * 10) * 1e-04 AS
        sm_occupancy_max,
    (r.sm_occupancy_mean + r.sm_occupancy_to_p95 * 10) * 1e-04 AS sm_occupancy_p95,
    coalesce(CAST(substr(c.counts, 13, 6) AS INTEGER), CASE WHEN r.sm_occupancy_mean IS NULL THEN 0 ELSE r.samples END)
        AS sm_occupancy_n,
    r.tensor_active_mean * 1e-04 AS tensor_active_mean,
    (r.tensor_active_mean + (coalesce(r.tensor_active_to_p95, 0) + r.tensor_active_to_max) * 10) * 1e-04 AS
        tensor_active_max,
    (r.tensor_active_mean + r.tensor_active_to_p95 * 10) * 1e-04 AS tensor_active_p95,
    coalesce(CAST(substr(c.counts, 19, 6) AS INTEGER), CASE WHEN r.tensor_active_mean IS NULL THEN 0 ELSE r.samples
        END) AS tensor_active_n,
    r.dram_active_mean * 1e-04 AS dram_active_mean,
    (r.dram_active_mean + (coalesce(r.dram_active_to_p95, 0) + r.dram_active_to_max) * 10) * 1e-04 AS dram_active_max,
    (r.dram_active_mean + r.dram_active_to_p95 * 10) * 1e-04 AS dram_active_p95,
    coalesce(CAST(substr(c.counts, 25, 6) AS INTEGER), CASE WHEN r.dram_active_mean IS NULL THEN 0 ELSE r.samples END)
        AS dram_active_n,
    r.fp64_active_mean * 1e-04 AS fp64_active_mean,
    (r.fp64_active_mean + (coalesce(r.fp64_active_to_p95, 0) + r.fp64_active_to_max) * 10) * 1e-04 AS fp64_active_max,
    (r.fp64_active_mean + r.fp64_active_to_p95 * 10) * 1e-04 AS fp64_active_p95,
    coalesce(CAST(substr(c.counts, 31, 6) AS INTEGER), CASE WHEN r.fp64_active_mean IS NULL THEN 0 ELSE r.samples END)
        AS fp64_active_n,
    r.fp32_active_mean * 1e-04 AS fp32_active_mean,
    (r.fp32_active_mean + (coalesce(r.fp32_active_to_p95, 0) + r.fp32_active_to_max) * 10) * 1e-04 AS fp32_active_max,
    (r.fp32_active_mean + r.fp32_active_to_p95 * 10) * 1e-04 AS fp32_active_p95,
    coalesce(CAST(substr(c.counts, 37, 6) AS INTEGER), CASE WHEN r.fp32_active_mean IS NULL THEN 0 ELSE r.samples END)
        AS fp32_active_n,
    r.fp16_active_mean * 1e-04 AS fp16_active_mean,
    (r.fp16_active_mean + (coalesce(r.fp16_active_to_p95, 0) + r.fp16_active_to_max) * 10) * 1e-04 AS fp16_active_max,
    (r.fp16_active_mean + r.fp16_active_to_p95 * 10) * 1e-04 AS fp16_active_p95,
    coalesce(CAST(substr(c.counts, 43, 6) AS INTEGER), CASE WHEN r.fp16_active_mean IS NULL THEN 0 ELSE r.samples END)
        AS fp16_active_n,
    r.mem_used_bytes_mean * 65536 AS mem_used_bytes_mean,
    (r.mem_used_bytes_mean + (coalesce(r.mem_used_bytes_to_p95, 0) + r.mem_used_bytes_to_max) * 16) * 65536 AS
        mem_used_bytes_max,
    (r.mem_used_bytes_mean + r.mem_used_bytes_to_p95 * 16) * 65536 AS mem_used_bytes_p95,
    coalesce(CAST(substr(c.counts, 49, 6) AS INTEGER), CASE WHEN r.mem_used_bytes_mean IS NULL THEN 0 ELSE r.samples
        END) AS mem_used_bytes_n,
    r.power_watts_mean * 0.1 AS power_watts_mean,
    (r.power_watts_mean + (coalesce(r.power_watts_to_p95, 0) + r.power_watts_to_max) * 10) * 0.1 AS power_watts_max,
    (r.power_watts_mean + r.power_watts_to_p95 * 10) * 0.1 AS power_watts_p95,
    coalesce(CAST(substr(c.counts, 55, 6) AS INTEGER), CASE WHEN r.power_watts_mean IS NULL THEN 0 ELSE r.samples END)
        AS power_watts_n,
    r.energy_joules_mean * 0.1 AS energy_joules_mean,
    (r.energy_joules_mean + (coalesce(r.energy_joules_to_p95, 0) + r.energy_joules_to_max) * 10) * 0.1 AS
        energy_joules_max,
    (r.energy_joules_mean + r.energy_joules_to_p95 * 10) * 0.1 AS energy_joules_p95,
    coalesce(CAST(substr(c.counts, 61, 6) AS INTEGER), CASE WHEN r.energy_joules_mean IS NULL THEN 0 ELSE r.samples
        END) AS energy_joules_n,
    r.sm_clock_hertz_mean * 1e6 AS sm_clock_hertz_mean,
    (r.sm_clock_hertz_mean + (coalesce(r.sm_clock_hertz_to_p95, 0) + r.sm_clock_hertz_to_max)) * 1e6 AS
        sm_clock_hertz_max,
    (r.sm_clock_hertz_mean + r.sm_clock_hertz_to_p95) * 1e6 AS sm_clock_hertz_p95,
    coalesce(CAST(substr(c.counts, 67, 6) AS INTEGER), CASE WHEN r.sm_clock_hertz_mean IS NULL THEN 0 ELSE r.samples
        END) AS sm_clock_hertz_n,
    r.mem_clock_hertz_mean * 1e6 AS mem_clock_hertz_mean,
    (r.mem_clock_hertz_mean + (coalesce(r.mem_clock_hertz_to_p95, 0) + r.mem_clock_hertz_to_max)) * 1e6 AS
        mem_clock_hertz_max,
    (r.mem_clock_hertz_mean + r.mem_clock_hertz_to_p95) * 1e6 AS mem_clock_hertz_p95,
    coalesce(CAST(substr(c.counts, 73, 6) AS INTEGER), CASE WHEN r.mem_clock_hertz_mean IS NULL THEN 0 ELSE r.samples
        END) AS mem_clock_hertz_n,
    r.temperature_celsius_mean AS temperature_celsius_mean,
    (r.temperature_celsius_mean + (coalesce(r.temperature_celsius_to_p95, 0) + r.temperature_celsius_to_max)) AS
        temperature_celsius_max,
    (r.temperature_celsius_mean + r.temperature_celsius_to_p95) AS temperature_celsius_p95,
    coalesce(CAST(substr(c.counts, 79, 6) AS INTEGER), CASE WHEN r.temperature_celsius_mean IS NULL THEN 0 ELSE
        r.samples END) AS temperature_celsius_n,
    r.pcie_tx_bytes_per_second_mean * 65536 AS pcie_tx_bytes_per_second_mean,
    (r.pcie_tx_bytes_per_second_mean + (coalesce(r.pcie_tx_bytes_per_second_to_p95, 0) +
        r.pcie_tx_bytes_per_second_to_max) * 16) * 65536 AS pcie_tx_bytes_per_second_max,
    (r.pcie_tx_bytes_per_second_mean + r.pcie_tx_bytes_per_second_to_p95 * 16) * 65536 AS pcie_tx_bytes_per_second_p95,
    coalesce(CAST(substr(c.counts, 85, 6) AS INTEGER), CASE WHEN r.pcie_tx_bytes_per_second_mean IS NULL THEN 0 ELSE
        r.samples END) AS pcie_tx_bytes_per_second_n,
    r.pcie_rx_bytes_per_second_mean * 65536 AS pcie_rx_bytes_per_second_mean,
    (r.pcie_rx_bytes_per_second_mean + (coalesce(r.pcie_rx_bytes_per_second_to_p95, 0) +
        r.pcie_rx_bytes_per_second_to_max) * 16) * 65536 AS pcie_rx_bytes_per_second_max,
    (r.pcie_rx_bytes_per_second_mean + r.pcie_rx_bytes_per_second_to_p95 * 16) * 65536 AS pcie_rx_bytes_per_second_p95,
    coalesce(CAST(substr(c.counts, 91, 6) AS INTEGER), CASE WHEN r.pcie_rx_bytes_per_second_mean IS NULL THEN 0 ELSE
        r.samples END) AS pcie_rx_bytes_per_second_n,
    r.nvlink_tx_bytes_per_second_mean * 65536 AS nvlink_tx_bytes_per_second_mean,
    (r.nvlink_tx_bytes_per_second_mean + (coalesce(r.nvlink_tx_bytes_per_second_to_p95, 0) +
        r.nvlink_tx_bytes_per_second_to_max) * 16) * 65536 AS nvlink_tx_bytes_per_second_max,
    (r.nvlink_tx_bytes_per_second_mean + r.nvlink_tx_bytes_per_second_to_p95 * 16) * 65536 AS
        nvlink_tx_bytes_per_second_p95,
    coalesce(CAST(substr(c.counts, 97, 6) AS INTEGER), CASE WHEN r.nvlink_tx_bytes_per_second_mean IS NULL THEN 0 ELSE
        r.samples END) AS nvlink_tx_bytes_per_second_n,
    r.nvlink_rx_bytes_per_second_mean * 65536 AS nvlink_rx_bytes_per_second_mean,
    (r.nvlink_rx_bytes_per_second_mean + (coalesce(r.nvlink_rx_bytes_per_second_to_p95, 0) +
        r.nvlink_rx_bytes_per_second_to_max) * 16) * 65536 AS nvlink_rx_bytes_per_second_max,
    (r.nvlink_rx_bytes_per_second_mean + r.nvlink_rx_bytes_per_second_to_p95 * 16) * 65536 AS
        nvlink_rx_bytes_per_second_p95,
    coalesce(CAST(substr(c.counts, 103, 6) AS INTEGER), CASE WHEN r.nvlink_rx_bytes_per_second_mean IS NULL THEN 0 ELSE
        r.samples END) AS nvlink_rx_bytes_per_second_n,
    r.duty * 1e-04 AS duty, r.idle_run_seconds * 0.1 AS idle_run_seconds, r.sm_active_cv * 0.001 AS sm_active_cv,
    r.period_seconds * 0.1 AS period_seconds, r.period_strength * 0.01 AS period_strength,
    r.tensor_nvlink_correlation * 0.01 AS tensor_nvlink_correlation,
    r.tensor_fabric_correlation * 0.01 AS tensor_fabric_correlation,
    r.throttled_fraction * 1e-04 AS throttled_fraction, d.mem_total_bytes,
    b.n AS burst_n, b.period_seconds * 1e-3 AS burst_period_seconds,
    b.period_strength * 0.01 AS burst_period_strength, b.duty * 1e-04 AS burst_duty,
    b.idle_run_seconds * 0.01 AS burst_idle_run_seconds, b.sm_active_cv * 0.001 AS burst_sm_active_cv,
    b.tensor_nvlink_correlation * 0.01 AS burst_tensor_nvlink_correlation,
    b.tensor_fabric_correlation * 0.01 AS burst_tensor_fabric_correlation
    FROM minute p CROSS JOIN gpu_minute r ON r.id BETWEEN p.ts / 60 * 4096 AND p.ts / 60 * 4096 + 4095 CROSS JOIN gpu
    d ON d.id = r.id - p.ts / 60 * 4096 CROSS JOIN node n ON n.id = d.node_id LEFT JOIN sample_counts c ON c.id =
    r.sample_counts
    LEFT JOIN gpu_burst b ON b.id = r.id;
CREATE VIEW gpu_hours AS SELECT
    p.ts, 3600.0 AS interval_seconds, n.node, d.gpu_uuid, d.gpu_index,
    (36000 - r.unobserved_seconds) * 0.1 AS observed_seconds, r.gpu_util_mean * 1e-04 AS gpu_util_mean,
    (r.gpu_util_mean + (coalesce(r.gpu_util_to_p95, 0) + r.gpu_util_to_max) * 10) * 1e-04 AS gpu_util_max,
    (r.gpu_util_mean + r.gpu_util_to_p95 * 10) * 1e-04 AS gpu_util_p95,
    coalesce(CAST(substr(c.counts, 1, 6) AS INTEGER), CASE WHEN r.gpu_util_mean IS NULL THEN 0 ELSE r.samples END) AS
        gpu_util_n,
    r.sm_active_mean * 1e-04 AS sm_active_mean,
    (r.sm_active_mean + (coalesce(r.sm_active_to_p95, 0) + r.sm_active_to_max) * 10) * 1e-04 AS sm_active_max,
    (r.sm_active_mean + r.sm_active_to_p95 * 10) * 1e-04 AS sm_active_p95,
    coalesce(CAST(substr(c.counts, 7, 6) AS INTEGER), CASE WHEN r.sm_active_mean IS NULL THEN 0 ELSE r.samples END) AS
        sm_active_n,
    r.sm_occupancy_mean * 1e-04 AS sm_occupancy_mean,
    (r.sm_occupancy_mean + (coalesce(r.sm_occupancy_to_p95, 0) + r.sm_occupancy_to_max) * 10) * 1e-04 AS
        sm_occupancy_max,
    (r.sm_occupancy_mean + r.sm_occupancy_to_p95 * 10) * 1e-04 AS sm_occupancy_p95,
    coalesce(CAST(substr(c.counts, 13, 6) AS INTEGER), CASE WHEN r.sm_occupancy_mean IS NULL THEN 0 ELSE r.samples END)
        AS sm_occupancy_n,
    r.tensor_active_mean * 1e-04 AS tensor_active_mean,
    (r.tensor_active_mean + (coalesce(r.tensor_active_to_p95, 0) + r.tensor_active_to_max) * 10) * 1e-04 AS
        tensor_active_max,
    (r.tensor_active_mean + r.tensor_active_to_p95 * 10) * 1e-04 AS tensor_active_p95,
    coalesce(CAST(substr(c.counts, 19, 6) AS INTEGER), CASE WHEN r.tensor_active_mean IS NULL THEN 0 ELSE r.samples
        END) AS tensor_active_n,
    r.dram_active_mean * 1e-04 AS dram_active_mean,
    (r.dram_active_mean + (coalesce(r.dram_active_to_p95, 0) + r.dram_active_to_max) * 10) * 1e-04 AS dram_active_max,
    (r.dram_active_mean + r.dram_active_to_p95 * 10) * 1e-04 AS dram_active_p95,
    coalesce(CAST(substr(c.counts, 25, 6) AS INTEGER), CASE WHEN r.dram_active_mean IS NULL THEN 0 ELSE r.samples END)
        AS dram_active_n,
    r.fp64_active_mean * 1e-04 AS fp64_active_mean,
    (r.fp64_active_mean + (coalesce(r.fp64_active_to_p95, 0) + r.fp64_active_to_max) * 10) * 1e-04 AS fp64_active_max,
    (r.fp64_active_mean + r.fp64_active_to_p95 * 10) * 1e-04 AS fp64_active_p95,
    coalesce(CAST(substr(c.counts, 31, 6) AS INTEGER), CASE WHEN r.fp64_active_mean IS NULL THEN 0 ELSE r.samples END)
        AS fp64_active_n,
    r.fp32_active_mean * 1e-04 AS fp32_active_mean,
    (r.fp32_active_mean + (coalesce(r.fp32_active_to_p95, 0) + r.fp32_active_to_max) * 10) * 1e-04 AS fp32_active_max,
    (r.fp32_active_mean + r.fp32_active_to_p95 * 10) * 1e-04 AS fp32_active_p95,
    coalesce(CAST(substr(c.counts, 37, 6) AS INTEGER), CASE WHEN r.fp32_active_mean IS NULL THEN 0 ELSE r.samples END)
        AS fp32_active_n,
    r.fp16_active_mean * 1e-04 AS fp16_active_mean,
    (r.fp16_active_mean + (coalesce(r.fp16_active_to_p95, 0) + r.fp16_active_to_max) * 10) * 1e-04 AS fp16_active_max,
    (r.fp16_active_mean + r.fp16_active_to_p95 * 10) * 1e-04 AS fp16_active_p95,
    coalesce(CAST(substr(c.counts, 43, 6) AS INTEGER), CASE WHEN r.fp16_active_mean IS NULL THEN 0 ELSE r.samples END)
        AS fp16_active_n,
    r.mem_used_bytes_mean * 65536 AS mem_used_bytes_mean,
    (r.mem_used_bytes_mean + (coalesce(r.mem_used_bytes_to_p95, 0) + r.mem_used_bytes_to_max) * 16) * 65536 AS
        mem_used_bytes_max,
    (r.mem_used_bytes_mean + r.mem_used_bytes_to_p95 * 16) * 65536 AS mem_used_bytes_p95,
    coalesce(CAST(substr(c.counts, 49, 6) AS INTEGER), CASE WHEN r.mem_used_bytes_mean IS NULL THEN 0 ELSE r.samples
        END) AS mem_used_bytes_n,
    r.power_watts_mean * 0.1 AS power_watts_mean,
    (r.power_watts_mean + (coalesce(r.power_watts_to_p95, 0) + r.power_watts_to_max) * 10) * 0.1 AS power_watts_max,
    (r.power_watts_mean + r.power_watts_to_p95 * 10) * 0.1 AS power_watts_p95,
    coalesce(CAST(substr(c.counts, 55, 6) AS INTEGER), CASE WHEN r.power_watts_mean IS NULL THEN 0 ELSE r.samples END)
        AS power_watts_n,
    r.energy_joules_mean * 0.1 AS energy_joules_mean,
    (r.energy_joules_mean + (coalesce(r.energy_joules_to_p95, 0) + r.energy_joules_to_max) * 10) * 0.1 AS
        energy_joules_max,
    (r.energy_joules_mean + r.energy_joules_to_p95 * 10) * 0.1 AS energy_joules_p95,
    coalesce(CAST(substr(c.counts, 61, 6) AS INTEGER), CASE WHEN r.energy_joules_mean IS NULL THEN 0 ELSE r.samples
        END) AS energy_joules_n,
    r.sm_clock_hertz_mean * 1e6 AS sm_clock_hertz_mean,
    (r.sm_clock_hertz_mean + (coalesce(r.sm_clock_hertz_to_p95, 0) + r.sm_clock_hertz_to_max)) * 1e6 AS
        sm_clock_hertz_max,
    (r.sm_clock_hertz_mean + r.sm_clock_hertz_to_p95) * 1e6 AS sm_clock_hertz_p95,
    coalesce(CAST(substr(c.counts, 67, 6) AS INTEGER), CASE WHEN r.sm_clock_hertz_mean IS NULL THEN 0 ELSE r.samples
        END) AS sm_clock_hertz_n,
    r.mem_clock_hertz_mean * 1e6 AS mem_clock_hertz_mean,
    (r.mem_clock_hertz_mean + (coalesce(r.mem_clock_hertz_to_p95, 0) + r.mem_clock_hertz_to_max)) * 1e6 AS
        mem_clock_hertz_max,
    (r.mem_clock_hertz_mean + r.mem_clock_hertz_to_p95) * 1e6 AS mem_clock_hertz_p95,
    coalesce(CAST(substr(c.counts, 73, 6) AS INTEGER), CASE WHEN r.mem_clock_hertz_mean IS NULL THEN 0 ELSE r.samples
        END) AS mem_clock_hertz_n,
    r.temperature_celsius_mean AS temperature_celsius_mean,
    (r.temperature_celsius_mean + (coalesce(r.temperature_celsius_to_p95, 0) + r.temperature_celsius_to_max)) AS
        temperature_celsius_max,
    (r.temperature_celsius_mean + r.temperature_celsius_to_p95) AS temperature_celsius_p95,
    coalesce(CAST(substr(c.counts, 79, 6) AS INTEGER), CASE WHEN r.temperature_celsius_mean IS NULL THEN 0 ELSE
        r.samples END) AS temperature_celsius_n,
    r.pcie_tx_bytes_per_second_mean * 65536 AS pcie_tx_bytes_per_second_mean,
    (r.pcie_tx_bytes_per_second_mean + (coalesce(r.pcie_tx_bytes_per_second_to_p95, 0) +
        r.pcie_tx_bytes_per_second_to_max) * 16) * 65536 AS pcie_tx_bytes_per_second_max,
    (r.pcie_tx_bytes_per_second_mean + r.pcie_tx_bytes_per_second_to_p95 * 16) * 65536 AS pcie_tx_bytes_per_second_p95,
    coalesce(CAST(substr(c.counts, 85, 6) AS INTEGER), CASE WHEN r.pcie_tx_bytes_per_second_mean IS NULL THEN 0 ELSE
        r.samples END) AS pcie_tx_bytes_per_second_n,
    r.pcie_rx_bytes_per_second_mean * 65536 AS pcie_rx_bytes_per_second_mean,
    (r.pcie_rx_bytes_per_second_mean + (coalesce(r.pcie_rx_bytes_per_second_to_p95, 0) +
        r.pcie_rx_bytes_per_second_to_max) * 16) * 65536 AS pcie_rx_bytes_per_second_max,
    (r.pcie_rx_bytes_per_second_mean + r.pcie_rx_bytes_per_second_to_p95 * 16) * 65536 AS pcie_rx_bytes_per_second_p95,
    coalesce(CAST(substr(c.counts, 91, 6) AS INTEGER), CASE WHEN r.pcie_rx_bytes_per_second_mean IS NULL THEN 0 ELSE
        r.samples END) AS pcie_rx_bytes_per_second_n,
    r.nvlink_tx_bytes_per_second_mean * 65536 AS nvlink_tx_bytes_per_second_mean,
    (r.nvlink_tx_bytes_per_second_mean + (coalesce(r.nvlink_tx_bytes_per_second_to_p95, 0) +
        r.nvlink_tx_bytes_per_second_to_max) * 16) * 65536 AS nvlink_tx_bytes_per_second_max,
    (r.nvlink_tx_bytes_per_second_mean + r.nvlink_tx_bytes_per_second_to_p95 * 16) * 65536 AS
        nvlink_tx_bytes_per_second_p95,
    coalesce(CAST(substr(c.counts, 97, 6) AS INTEGER), CASE WHEN r.nvlink_tx_bytes_per_second_mean IS NULL THEN 0 ELSE
        r.samples END) AS nvlink_tx_bytes_per_second_n,
    r.nvlink_rx_bytes_per_second_mean * 65536 AS nvlink_rx_bytes_per_second_mean,
    (r.nvlink_rx_bytes_per_second_mean + (coalesce(r.nvlink_rx_bytes_per_second_to_p95, 0) +
        r.nvlink_rx_bytes_per_second_to_max) * 16) * 65536 AS nvlink_rx_bytes_per_second_max,
    (r.nvlink_rx_bytes_per_second_mean + r.nvlink_rx_bytes_per_second_to_p95 * 16) * 65536 AS
        nvlink_rx_bytes_per_second_p95,
    coalesce(CAST(substr(c.counts, 103, 6) AS INTEGER), CASE WHEN r.nvlink_rx_bytes_per_second_mean IS NULL THEN 0 ELSE
        r.samples END) AS nvlink_rx_bytes_per_second_n,
    r.duty * 1e-04 AS duty, r.idle_run_seconds * 0.1 AS idle_run_seconds, r.sm_active_cv * 0.001 AS sm_active_cv,
    r.period_seconds * 0.1 AS period_seconds, r.period_strength * 0.01 AS period_strength,
    r.tensor_nvlink_correlation * 0.01 AS tensor_nvlink_correlation,
    r.tensor_fabric_correlation * 0.01 AS tensor_fabric_correlation,
    r.throttled_fraction * 1e-04 AS throttled_fraction, d.mem_total_bytes,
    '[' || substr('0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,', 1, 2 * substr(r.gpu_util_bins, 1, 2)) ||
        substr(r.gpu_util_bins, 5) || substr(',0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0', 1, 2 *
        substr(r.gpu_util_bins, 3, 2)) || ']' AS gpu_util_bins,
    '[' || substr('0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,', 1, 2 * substr(r.sm_active_bins, 1, 2)) ||
        substr(r.sm_active_bins, 5) || substr(',0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0', 1, 2 *
        substr(r.sm_active_bins, 3, 2)) || ']' AS sm_active_bins,
    '[' || substr('0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,', 1, 2 * substr(r.sm_occupancy_bins, 1, 2))
        || substr(r.sm_occupancy_bins, 5) || substr(',0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0', 1, 2 *
        substr(r.sm_occupancy_bins, 3, 2)) || ']' AS sm_occupancy_bins,
    '[' || substr('0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,', 1, 2 * substr(r.tensor_active_bins, 1,
        2)) || substr(r.tensor_active_bins, 5) || substr(',0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0', 1,
        2 * substr(r.tensor_active_bins, 3, 2)) || ']' AS tensor_active_bins,
    '[' || substr('0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,', 1, 2 * substr(r.dram_active_bins, 1, 2))
        || substr(r.dram_active_bins, 5) || substr(',0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0', 1, 2 *
        substr(r.dram_active_bins, 3, 2)) || ']' AS dram_active_bins,
    '[' || substr('0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,', 1, 2 * substr(r.mem_used_bins, 1, 2)) ||
        substr(r.mem_used_bins, 5) || substr(',0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0', 1, 2 *
        substr(r.mem_used_bins, 3, 2)) || ']' AS mem_used_bins,
    '[' || substr('0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,', 1, 2 * substr(r.power_bins, 1, 2)) ||
        substr(r.power_bins, 5) || substr(',0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0', 1, 2 *
        substr(r.power_bins, 3, 2)) || ']' AS power_bins,
    '[' || substr('0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,', 1, 2 * substr(r.nvlink_bins, 1, 2)) ||
        substr(r.nvlink_bins, 5) || substr(',0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0', 1, 2 *
        substr(r.nvlink_bins, 3, 2)) || ']' AS nvlink_bins,
    b.n AS burst_n, b.period_seconds * 1e-3 AS burst_period_seconds,
    b.period_strength * 0.01 AS burst_period_strength, b.duty * 1e-04 AS burst_duty,
    b.idle_run_seconds * 0.01 AS burst_idle_run_seconds, b.sm_active_cv * 0.001 AS burst_sm_active_cv,
    b.tensor_nvlink_correlation * 0.01 AS burst_tensor_nvlink_correlation,
    b.tensor_fabric_correlation * 0.01 AS burst_tensor_fabric_correlation
    FROM hour p CROSS JOIN gpu_hour r ON r.id BETWEEN p.ts / 3600 * 4096 AND p.ts / 3600 * 4096 + 4095 CROSS JOIN gpu
    d ON d.id = r.id - p.ts / 3600 * 4096 CROSS JOIN node n ON n.id = d.node_id LEFT JOIN sample_counts c ON c.id =
    r.sample_counts
    LEFT JOIN gpu_burst_hour b ON b.id = r.id;
CREATE VIEW fabric_minutes AS SELECT
    p.ts, 60.0 AS interval_seconds, n.node, d.device, d.port, d.role, d.link_layer, d.line_rate_bytes_per_second,
    (600 - r.unobserved_seconds) * 0.1 AS observed_seconds, r.util_mean * 1e-04 AS util_mean,
    (r.util_mean + (coalesce(r.util_to_p95, 0) + r.util_to_max)) * 1e-04 AS util_max,
    (r.util_mean + r.util_to_p95) * 1e-04 AS util_p95,
    coalesce(CAST(substr(c.counts, 1, 6) AS INTEGER), CASE WHEN r.util_mean IS NULL THEN 0 ELSE r.samples END) AS
        util_n,
    r.tx_bytes_per_second_mean * 16384 AS tx_bytes_per_second_mean,
    (r.tx_bytes_per_second_mean + (coalesce(r.tx_bytes_per_second_to_p95, 0) + r.tx_bytes_per_second_to_max) * 64) *
        16384 AS tx_bytes_per_second_max,
    (r.tx_bytes_per_second_mean + r.tx_bytes_per_second_to_p95 * 64) * 16384 AS tx_bytes_per_second_p95,
    coalesce(CAST(substr(c.counts, 7, 6) AS INTEGER), CASE WHEN r.tx_bytes_per_second_mean IS NULL THEN 0 ELSE
        r.samples END) AS tx_bytes_per_second_n,
    r.rx_bytes_per_second_mean * 16384 AS rx_bytes_per_second_mean,
    (r.rx_bytes_per_second_mean + (coalesce(r.rx_bytes_per_second_to_p95, 0) + r.rx_bytes_per_second_to_max) * 64) *
        16384 AS rx_bytes_per_second_max,
    (r.rx_bytes_per_second_mean + r.rx_bytes_per_second_to_p95 * 64) * 16384 AS rx_bytes_per_second_p95,
    coalesce(CAST(substr(c.counts, 13, 6) AS INTEGER), CASE WHEN r.rx_bytes_per_second_mean IS NULL THEN 0 ELSE
        r.samples END) AS rx_bytes_per_second_n,
    r.xmit_wait_per_second_mean AS xmit_wait_per_second_mean,
    (r.xmit_wait_per_second_mean + (coalesce(r.xmit_wait_per_second_to_p95, 0) + r.xmit_wait_per_second_to_max)) AS
        xmit_wait_per_second_max,
    (r.xmit_wait_per_second_mean + r.xmit_wait_per_second_to_p95) AS xmit_wait_per_second_p95,
    coalesce(CAST(substr(c.counts, 19, 6) AS INTEGER), CASE WHEN r.xmit_wait_per_second_mean IS NULL THEN 0 ELSE
        r.samples END) AS xmit_wait_per_second_n,
    r.active_fraction * 1e-04 AS active_fraction, r.idle_run_seconds * 0.1 AS idle_run_seconds
    FROM minute p CROSS JOIN fabric_minute r ON r.id BETWEEN p.ts / 60 * 4096 AND p.ts / 60 * 4096 + 4095 CROSS JOIN
    port d ON d.id = r.id - p.ts / 60 * 4096 CROSS JOIN node n ON n.id = d.node_id LEFT JOIN sample_counts c ON c.id =
    r.sample_counts;
CREATE VIEW fabric_hours AS SELECT
    p.ts, 3600.0 AS interval_seconds, n.node, d.device, d.port, d.role, d.link_layer, d.line_rate_bytes_per_second,
    (36000 - r.unobserved_seconds) * 0.1 AS observed_seconds, r.util_mean * 1e-04 AS util_mean,
    (r.util_mean + (coalesce(r.util_to_p95, 0) + r.util_to_max)) * 1e-04 AS util_max,
    (r.util_mean + r.util_to_p95) * 1e-04 AS util_p95,
    coalesce(CAST(substr(c.counts, 1, 6) AS INTEGER), CASE WHEN r.util_mean IS NULL THEN 0 ELSE r.samples END) AS
        util_n,
    r.tx_bytes_per_second_mean * 16384 AS tx_bytes_per_second_mean,
    (r.tx_bytes_per_second_mean + (coalesce(r.tx_bytes_per_second_to_p95, 0) + r.tx_bytes_per_second_to_max) * 64) *
        16384 AS tx_bytes_per_second_max,
    (r.tx_bytes_per_second_mean + r.tx_bytes_per_second_to_p95 * 64) * 16384 AS tx_bytes_per_second_p95,
    coalesce(CAST(substr(c.counts, 7, 6) AS INTEGER), CASE WHEN r.tx_bytes_per_second_mean IS NULL THEN 0 ELSE
        r.samples END) AS tx_bytes_per_second_n,
    r.rx_bytes_per_second_mean * 16384 AS rx_bytes_per_second_mean,
    (r.rx_bytes_per_second_mean + (coalesce(r.rx_bytes_per_second_to_p95, 0) + r.rx_bytes_per_second_to_max) * 64) *
        16384 AS rx_bytes_per_second_max,
    (r.rx_bytes_per_second_mean + r.rx_bytes_per_second_to_p95 * 64) * 16384 AS rx_bytes_per_second_p95,
    coalesce(CAST(substr(c.counts, 13, 6) AS INTEGER), CASE WHEN r.rx_bytes_per_second_mean IS NULL THEN 0 ELSE
        r.samples END) AS rx_bytes_per_second_n,
    r.xmit_wait_per_second_mean AS xmit_wait_per_second_mean,
    (r.xmit_wait_per_second_mean + (coalesce(r.xmit_wait_per_second_to_p95, 0) + r.xmit_wait_per_second_to_max)) AS
        xmit_wait_per_second_max,
    (r.xmit_wait_per_second_mean + r.xmit_wait_per_second_to_p95) AS xmit_wait_per_second_p95,
    coalesce(CAST(substr(c.counts, 19, 6) AS INTEGER), CASE WHEN r.xmit_wait_per_second_mean IS NULL THEN 0 ELSE
        r.samples END) AS xmit_wait_per_second_n,
    r.active_fraction * 1e-04 AS active_fraction, r.idle_run_seconds * 0.1 AS idle_run_seconds,
    '[' || substr('0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,', 1, 2 * substr(r.util_bins, 1, 2)) ||
        substr(r.util_bins, 5) || substr(',0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0', 1, 2 *
        substr(r.util_bins, 3, 2)) || ']' AS util_bins
    FROM hour p CROSS JOIN fabric_hour r ON r.id BETWEEN p.ts / 3600 * 4096 AND p.ts / 3600 * 4096 + 4095 CROSS JOIN
    port d ON d.id = r.id - p.ts / 3600 * 4096 CROSS JOIN node n ON n.id = d.node_id LEFT JOIN sample_counts c ON c.id
    = r.sample_counts;
CREATE VIEW host_minutes AS SELECT
    p.ts, 60.0 AS interval_seconds, n.node, (600 - r.unobserved_seconds) * 0.1 AS observed_seconds,
    r.cpu_util_mean * 1e-04 AS cpu_util_mean,
    (r.cpu_util_mean + (coalesce(r.cpu_util_to_p95, 0) + r.cpu_util_to_max)) * 1e-04 AS cpu_util_max,
    (r.cpu_util_mean + r.cpu_util_to_p95) * 1e-04 AS cpu_util_p95,
    coalesce(CAST(substr(c.counts, 1, 6) AS INTEGER), CASE WHEN r.cpu_util_mean IS NULL THEN 0 ELSE r.samples END) AS
        cpu_util_n,
    r.io_wait_mean * 1e-04 AS io_wait_mean,
    (r.io_wait_mean + (coalesce(r.io_wait_to_p95, 0) + r.io_wait_to_max)) * 1e-04 AS io_wait_max,
    (r.io_wait_mean + r.io_wait_to_p95) * 1e-04 AS io_wait_p95,
    coalesce(CAST(substr(c.counts, 7, 6) AS INTEGER), CASE WHEN r.io_wait_mean IS NULL THEN 0 ELSE r.samples END) AS
        io_wait_n,
    r.mem_used_bytes_mean * 1024 AS mem_used_bytes_mean,
    (r.mem_used_bytes_mean + (coalesce(r.mem_used_bytes_to_p95, 0) + r.mem_used_bytes_to_max)) * 1024 AS
        mem_used_bytes_max,
    (r.mem_used_bytes_mean + r.mem_used_bytes_to_p95) * 1024 AS mem_used_bytes_p95,
    coalesce(CAST(substr(c.counts, 13, 6) AS INTEGER), CASE WHEN r.mem_used_bytes_mean IS NULL THEN 0 ELSE r.samples
        END) AS mem_used_bytes_n,
    r.disk_read_bytes_per_second_mean * 1024 AS disk_read_bytes_per_second_mean,
    (r.disk_read_bytes_per_second_mean + (coalesce(r.disk_read_bytes_per_second_to_p95, 0) +
        r.disk_read_bytes_per_second_to_max)) * 1024 AS disk_read_bytes_per_second_max,
    (r.disk_read_bytes_per_second_mean + r.disk_read_bytes_per_second_to_p95) * 1024 AS disk_read_bytes_per_second_p95,
    coalesce(CAST(substr(c.counts, 19, 6) AS INTEGER), CASE WHEN r.disk_read_bytes_per_second_mean IS NULL THEN 0 ELSE
        r.samples END) AS disk_read_bytes_per_second_n,
    r.disk_write_bytes_per_second_mean * 1024 AS disk_write_bytes_per_second_mean,
    (r.disk_write_bytes_per_second_mean + (coalesce(r.disk_write_bytes_per_second_to_p95, 0) +
        r.disk_write_bytes_per_second_to_max)) * 1024 AS disk_write_bytes_per_second_max,
    (r.disk_write_bytes_per_second_mean + r.disk_write_bytes_per_second_to_p95) * 1024 AS
        disk_write_bytes_per_second_p95,
    coalesce(CAST(substr(c.counts, 25, 6) AS INTEGER), CASE WHEN r.disk_write_bytes_per_second_mean IS NULL THEN 0 ELSE
        r.samples END) AS disk_write_bytes_per_second_n,
    r.mem_total_bytes * 1024 AS mem_total_bytes
    FROM minute p CROSS JOIN host_minute r ON r.id BETWEEN p.ts / 60 * 4096 AND p.ts / 60 * 4096 + 4095 CROSS JOIN
    node n ON n.id = r.id - p.ts / 60 * 4096 LEFT JOIN sample_counts c ON c.id = r.sample_counts;
CREATE VIEW host_hours AS SELECT
    p.ts, 3600.0 AS interval_seconds, n.node, (36000 - r.unobserved_seconds) * 0.1 AS observed_seconds,
    r.cpu_util_mean * 1e-04 AS cpu_util_mean,
    (r.cpu_util_mean + (coalesce(r.cpu_util_to_p95, 0) + r.cpu_util_to_max)) * 1e-04 AS cpu_util_max,
    (r.cpu_util_mean + r.cpu_util_to_p95) * 1e-04 AS cpu_util_p95,
    coalesce(CAST(substr(c.counts, 1, 6) AS INTEGER), CASE WHEN r.cpu_util_mean IS NULL THEN 0 ELSE r.samples END) AS
        cpu_util_n,
    r.io_wait_mean * 1e-04 AS io_wait_mean,
    (r.io_wait_mean + (coalesce(r.io_wait_to_p95, 0) + r.io_wait_to_max)) * 1e-04 AS io_wait_max,
    (r.io_wait_mean + r.io_wait_to_p95) * 1e-04 AS io_wait_p95,
    coalesce(CAST(substr(c.counts, 7, 6) AS INTEGER), CASE WHEN r.io_wait_mean IS NULL THEN 0 ELSE r.samples END) AS
        io_wait_n,
    r.mem_used_bytes_mean * 1024 AS mem_used_bytes_mean,
    (r.mem_used_bytes_mean + (coalesce(r.mem_used_bytes_to_p95, 0) + r.mem_used_bytes_to_max)) * 1024 AS
        mem_used_bytes_max,
    (r.mem_used_bytes_mean + r.mem_used_bytes_to_p95) * 1024 AS mem_used_bytes_p95,
    coalesce(CAST(substr(c.counts, 13, 6) AS INTEGER), CASE WHEN r.mem_used_bytes_mean IS NULL THEN 0 ELSE r.samples
        END) AS mem_used_bytes_n,
    r.disk_read_bytes_per_second_mean * 1024 AS disk_read_bytes_per_second_mean,
    (r.disk_read_bytes_per_second_mean + (coalesce(r.disk_read_bytes_per_second_to_p95, 0) +
        r.disk_read_bytes_per_second_to_max)) * 1024 AS disk_read_bytes_per_second_max,
    (r.disk_read_bytes_per_second_mean + r.disk_read_bytes_per_second_to_p95) * 1024 AS disk_read_bytes_per_second_p95,
    coalesce(CAST(substr(c.counts, 19, 6) AS INTEGER), CASE WHEN r.disk_read_bytes_per_second_mean IS NULL THEN 0 ELSE
        r.samples END) AS disk_read_bytes_per_second_n,
    r.disk_write_bytes_per_second_mean * 1024 AS disk_write_bytes_per_second_mean,
    (r.disk_write_bytes_per_second_mean + (coalesce(r.disk_write_bytes_per_second_to_p95, 0) +
        r.disk_write_bytes_per_second_to_max)) * 1024 AS disk_write_bytes_per_second_max,
    (r.disk_write_bytes_per_second_mean + r.disk_write_bytes_per_second_to_p95) * 1024 AS
        disk_write_bytes_per_second_p95,
    coalesce(CAST(substr(c.counts, 25, 6) AS INTEGER), CASE WHEN r.disk_write_bytes_per_second_mean IS NULL THEN 0 ELSE
        r.samples END) AS disk_write_bytes_per_second_n,
    r.mem_total_bytes * 1024 AS mem_total_bytes,
    '[' || substr('0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,', 1, 2 * substr(r.cpu_util_bins, 1, 2)) ||
        substr(r.cpu_util_bins, 5) || substr(',0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0', 1, 2 *
        substr(r.cpu_util_bins, 3, 2)) || ']' AS cpu_util_bins
    FROM hour p CROSS JOIN host_hour r ON r.id BETWEEN p.ts / 3600 * 4096 AND p.ts / 3600 * 4096 + 4095 CROSS JOIN
    node n ON n.id = r.id - p.ts / 3600 * 4096 LEFT JOIN sample_counts c ON c.id = r.sample_counts;
CREATE VIEW workloads AS SELECT workload_id, series_id, name, scheduler, job_id, namespace, pod, user, account, framework,
    command, first_seen, last_seen, partition, qos, array_job_id, array_task_id, restarts, controller_kind, image, team
    FROM workload;
CREATE VIEW workload_gpus AS SELECT w.workload_id, n.node, u.gpu_uuid, u.ts_start, u.ts_end, u.basis, u.shared,
    u.mem_used_bytes FROM workload_use u JOIN workload w ON w.id = u.workload_ref JOIN node n ON n.id = u.node_id;
CREATE VIEW serving_samples AS SELECT
    s.ts, s.interval_ms * 1e-3 AS interval_seconds, n.node, w.workload_id, v.engine, v.endpoint,
    s.kv_cache_usage * 1e-04 AS kv_cache_usage, s.requests_running * 1.0 AS requests_running,
    s.requests_waiting * 1.0 AS requests_waiting, s.prompt_tokens_per_second * 0.1 AS prompt_tokens_per_second,
    s.generation_tokens_per_second * 0.1 AS generation_tokens_per_second,
    s.time_to_first_token_seconds * 1e-04 AS time_to_first_token_seconds,
    s.preemptions_per_second * 1e-03 AS preemptions_per_second,
    s.time_per_output_token_seconds * 1e-05 AS time_per_output_token_seconds
    FROM serving_sample s JOIN server v ON v.id = s.server_id JOIN node n ON n.id = v.node_id
    LEFT JOIN workload w ON w.id = s.workload_ref;
CREATE VIEW serving_hours AS SELECT
    s.ts, s.interval_ms * 1e-3 AS interval_seconds, n.node, w.workload_id, v.engine, v.endpoint,
    s.first_token_bins, s.output_token_bins
    FROM serving_hour s JOIN server v ON v.id = s.server_id JOIN node n ON n.id = v.node_id
    LEFT JOIN workload w ON w.id = s.workload_ref;
CREATE VIEW events AS SELECT e.ts, e.last_ts, e.count, n.node, e.gpu_uuid, e.kind, e.code, e.detail
    FROM event e JOIN node n ON n.id = e.node_id;
CREATE VIEW slurm_jobs AS SELECT nullif(cluster, '') AS cluster, job_id, restarts, name, user, account, partition, qos,
    array_job_id, array_task_id, state, submitted_at, started_at, ended_at, nodes, gpus, cpus, mem_bytes, imported_at
    FROM slurm_job;
CREATE VIEW absences AS SELECT n.node, CASE a.scope WHEN 'gpu' THEN a.subject END AS gpu_uuid,
    CASE WHEN a.scope <> 'gpu' AND a.subject <> '' THEN a.subject END AS device, a.scope, a.metric, a.reason, a.detail,
    a.remedy, a.since, a.until FROM absence a JOIN node n ON n.id = a.node_id;
CREATE VIEW agent_stats AS SELECT a.ts, n.node, a.cpu_seconds, a.rss_bytes, a.tick_seconds, a.late_seconds, a.missed_ticks,
    a.clock_offset_seconds FROM agent_stat a JOIN node n ON n.id = a.node_id;
