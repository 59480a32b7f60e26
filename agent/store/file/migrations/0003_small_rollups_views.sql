-- The views of the rollups of 0003_small_rollups, in base units; part of minor 2.
-- CROSS JOIN keeps SQLite from reordering; the joined counts cost nothing where no _n is asked for.
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
    r.throttled_fraction * 1e-04 AS throttled_fraction, d.mem_total_bytes
    FROM minute p CROSS JOIN gpu_minute r ON r.id BETWEEN p.ts / 60 * 4096 AND p.ts / 60 * 4096 + 4095 CROSS JOIN gpu
    d ON d.id = r.id - p.ts / 60 * 4096 CROSS JOIN node n ON n.id = d.node_id LEFT JOIN sample_counts c ON c.id =
    r.sample_counts;
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
        substr(r.nvlink_bins, 3, 2)) || ']' AS nvlink_bins
    FROM hour p CROSS JOIN gpu_hour r ON r.id BETWEEN p.ts / 3600 * 4096 AND p.ts / 3600 * 4096 + 4095 CROSS JOIN gpu
    d ON d.id = r.id - p.ts / 3600 * 4096 CROSS JOIN node n ON n.id = d.node_id LEFT JOIN sample_counts c ON c.id =
    r.sample_counts;
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
