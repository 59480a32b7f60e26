-- Minor 4 (PRAGMA user_version = 1004): what bursts of faster readings tell, beside the minutes and hours.
-- gpu_burst.id is that of the minute's row (0003) in which the burst ended, gpu_burst_hour.id that of the hour's. The
-- steps are those of agent/store/burst_rows.py. They are tables of their own because most minutes have no burst.

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
DROP VIEW gpu_minutes;
DROP VIEW gpu_hours;
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
