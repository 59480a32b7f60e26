-- Minor 2 (PRAGMA user_version = 1002): rollups in little room, so that 90 days of minutes fit (docs/operations.md).
-- A rollup's id is its period's number * 4096 + device id (gpu.id, port.id or node.id), as a sample's is its tick's, and
-- the periods are listed in minute and hour, where a span of time is found by key.
-- A measure is kept as its mean and two distances, which are mostly small or zero: _to_p95 from mean to p95, _to_max from
-- p95 to max, in the steps of agent/store/codec.py. unobserved_seconds (in 0.1 s) is what a period lacks.
-- samples is how many the device has; a measure without a mean has none of them. Where counts differ otherwise,
-- sample_counts names a set of them: six digits a measure, in the order of the columns.
-- *_bins: two digits each for the zero bins in front and behind, then the seconds of those between.

DROP VIEW gpu_minutes;
DROP VIEW gpu_hours;
DROP VIEW fabric_minutes;
DROP VIEW fabric_hours;
DROP VIEW host_minutes;
DROP VIEW host_hours;
CREATE TABLE minute (ts INTEGER PRIMARY KEY);
CREATE TABLE hour (ts INTEGER PRIMARY KEY);
CREATE TABLE sample_counts (id INTEGER PRIMARY KEY, counts TEXT NOT NULL UNIQUE);
INSERT INTO minute SELECT ts FROM gpu_minute UNION SELECT ts FROM fabric_minute UNION SELECT ts FROM host_minute;
INSERT INTO hour SELECT ts FROM gpu_hour UNION SELECT ts FROM fabric_hour UNION SELECT ts FROM host_hour;

ALTER TABLE gpu_minute RENAME TO old_gpu_minute;
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
ALTER TABLE old_gpu_minute ADD COLUMN s INTEGER;
ALTER TABLE old_gpu_minute ADD COLUMN counts TEXT;
UPDATE old_gpu_minute SET s = max(
    coalesce(gpu_util_n, 0), coalesce(sm_active_n, 0), coalesce(sm_occupancy_n, 0), coalesce(tensor_active_n, 0),
    coalesce(dram_active_n, 0), coalesce(fp64_active_n, 0), coalesce(fp32_active_n, 0), coalesce(fp16_active_n, 0),
    coalesce(mem_used_bytes_n, 0), coalesce(power_watts_n, 0), coalesce(energy_joules_n, 0),
    coalesce(sm_clock_hertz_n, 0), coalesce(mem_clock_hertz_n, 0), coalesce(temperature_celsius_n, 0),
    coalesce(pcie_tx_bytes_per_second_n, 0), coalesce(pcie_rx_bytes_per_second_n, 0),
    coalesce(nvlink_tx_bytes_per_second_n, 0), coalesce(nvlink_rx_bytes_per_second_n, 0));
UPDATE old_gpu_minute SET counts = printf(replace(hex(zeroblob(18)), '00', '%06d'),
    coalesce(gpu_util_n, 0), coalesce(sm_active_n, 0), coalesce(sm_occupancy_n, 0), coalesce(tensor_active_n, 0),
    coalesce(dram_active_n, 0), coalesce(fp64_active_n, 0), coalesce(fp32_active_n, 0), coalesce(fp16_active_n, 0),
    coalesce(mem_used_bytes_n, 0), coalesce(power_watts_n, 0), coalesce(energy_joules_n, 0),
    coalesce(sm_clock_hertz_n, 0), coalesce(mem_clock_hertz_n, 0), coalesce(temperature_celsius_n, 0),
    coalesce(pcie_tx_bytes_per_second_n, 0), coalesce(pcie_rx_bytes_per_second_n, 0),
    coalesce(nvlink_tx_bytes_per_second_n, 0), coalesce(nvlink_rx_bytes_per_second_n, 0))
    WHERE s > min(
    coalesce(gpu_util_n, 0), coalesce(sm_active_n, 0), coalesce(sm_occupancy_n, 0), coalesce(tensor_active_n, 0),
    coalesce(dram_active_n, 0), coalesce(fp64_active_n, 0), coalesce(fp32_active_n, 0), coalesce(fp16_active_n, 0),
    coalesce(mem_used_bytes_n, 0), coalesce(power_watts_n, 0), coalesce(energy_joules_n, 0),
    coalesce(sm_clock_hertz_n, 0), coalesce(mem_clock_hertz_n, 0), coalesce(temperature_celsius_n, 0),
    coalesce(pcie_tx_bytes_per_second_n, 0), coalesce(pcie_rx_bytes_per_second_n, 0),
    coalesce(nvlink_tx_bytes_per_second_n, 0), coalesce(nvlink_rx_bytes_per_second_n, 0));
INSERT OR IGNORE INTO sample_counts (counts) SELECT DISTINCT counts FROM old_gpu_minute WHERE counts IS NOT NULL;
INSERT INTO gpu_minute SELECT
    ts / 60 * 4096 + gpu_id, s, (SELECT c.id FROM sample_counts c WHERE c.counts = o.counts), 600 - observed_seconds,
    gpu_util_mean, (gpu_util_p95 - gpu_util_mean) / 10,
    (gpu_util_max - gpu_util_mean) / 10 - (gpu_util_p95 - gpu_util_mean) / 10, sm_active_mean,
    (sm_active_p95 - sm_active_mean) / 10,
    (sm_active_max - sm_active_mean) / 10 - (sm_active_p95 - sm_active_mean) / 10, sm_occupancy_mean,
    (sm_occupancy_p95 - sm_occupancy_mean) / 10,
    (sm_occupancy_max - sm_occupancy_mean) / 10 - (sm_occupancy_p95 - sm_occupancy_mean) / 10, tensor_active_mean,
    (tensor_active_p95 - tensor_active_mean) / 10,
    (tensor_active_max - tensor_active_mean) / 10 - (tensor_active_p95 - tensor_active_mean) / 10, dram_active_mean,
    (dram_active_p95 - dram_active_mean) / 10,
    (dram_active_max - dram_active_mean) / 10 - (dram_active_p95 - dram_active_mean) / 10, fp64_active_mean,
    (fp64_active_p95 - fp64_active_mean) / 10,
    (fp64_active_max - fp64_active_mean) / 10 - (fp64_active_p95 - fp64_active_mean) / 10, fp32_active_mean,
    (fp32_active_p95 - fp32_active_mean) / 10,
    (fp32_active_max - fp32_active_mean) / 10 - (fp32_active_p95 - fp32_active_mean) / 10, fp16_active_mean,
    (fp16_active_p95 - fp16_active_mean) / 10,
    (fp16_active_max - fp16_active_mean) / 10 - (fp16_active_p95 - fp16_active_mean) / 10,
    (mem_used_bytes_mean + 32) / 64, ((mem_used_bytes_p95 + 32) / 64 - (mem_used_bytes_mean + 32) / 64) / 16,
    ((mem_used_bytes_max + 32) / 64 - (mem_used_bytes_mean + 32) / 64) / 16 - ((mem_used_bytes_p95 + 32) / 64 -
        (mem_used_bytes_mean + 32) / 64) / 16,
    power_watts_mean, (power_watts_p95 - power_watts_mean) / 10,
    (power_watts_max - power_watts_mean) / 10 - (power_watts_p95 - power_watts_mean) / 10, energy_joules_mean,
    (energy_joules_p95 - energy_joules_mean) / 10,
    (energy_joules_max - energy_joules_mean) / 10 - (energy_joules_p95 - energy_joules_mean) / 10, sm_clock_hertz_mean,
    (sm_clock_hertz_p95 - sm_clock_hertz_mean),
    (sm_clock_hertz_max - sm_clock_hertz_mean) - (sm_clock_hertz_p95 - sm_clock_hertz_mean), mem_clock_hertz_mean,
    (mem_clock_hertz_p95 - mem_clock_hertz_mean),
    (mem_clock_hertz_max - mem_clock_hertz_mean) - (mem_clock_hertz_p95 - mem_clock_hertz_mean),
    temperature_celsius_mean, (temperature_celsius_p95 - temperature_celsius_mean),
    (temperature_celsius_max - temperature_celsius_mean) - (temperature_celsius_p95 - temperature_celsius_mean),
    (pcie_tx_bytes_per_second_mean + 32) / 64,
    ((pcie_tx_bytes_per_second_p95 + 32) / 64 - (pcie_tx_bytes_per_second_mean + 32) / 64) / 16,
    ((pcie_tx_bytes_per_second_max + 32) / 64 - (pcie_tx_bytes_per_second_mean + 32) / 64) / 16 -
        ((pcie_tx_bytes_per_second_p95 + 32) / 64 - (pcie_tx_bytes_per_second_mean + 32) / 64) / 16,
    (pcie_rx_bytes_per_second_mean + 32) / 64,
    ((pcie_rx_bytes_per_second_p95 + 32) / 64 - (pcie_rx_bytes_per_second_mean + 32) / 64) / 16,
    ((pcie_rx_bytes_per_second_max + 32) / 64 - (pcie_rx_bytes_per_second_mean + 32) / 64) / 16 -
        ((pcie_rx_bytes_per_second_p95 + 32) / 64 - (pcie_rx_bytes_per_second_mean + 32) / 64) / 16,
    (nvlink_tx_bytes_per_second_mean + 32) / 64,
    ((nvlink_tx_bytes_per_second_p95 + 32) / 64 - (nvlink_tx_bytes_per_second_mean + 32) / 64) / 16,
    ((nvlink_tx_bytes_per_second_max + 32) / 64 - (nvlink_tx_bytes_per_second_mean + 32) / 64) / 16 -
        ((nvlink_tx_bytes_per_second_p95 + 32) / 64 - (nvlink_tx_bytes_per_second_mean + 32) / 64) / 16,
    (nvlink_rx_bytes_per_second_mean + 32) / 64,
    ((nvlink_rx_bytes_per_second_p95 + 32) / 64 - (nvlink_rx_bytes_per_second_mean + 32) / 64) / 16,
    ((nvlink_rx_bytes_per_second_max + 32) / 64 - (nvlink_rx_bytes_per_second_mean + 32) / 64) / 16 -
        ((nvlink_rx_bytes_per_second_p95 + 32) / 64 - (nvlink_rx_bytes_per_second_mean + 32) / 64) / 16,
    duty, idle_run_seconds, sm_active_cv, period_seconds, CAST(round(period_strength / 10.0) AS INTEGER),
    CAST(round(tensor_nvlink_correlation / 10.0) AS INTEGER), CAST(round(tensor_fabric_correlation / 10.0) AS INTEGER),
    throttled_fraction
    FROM old_gpu_minute o ORDER BY 1;
DROP TABLE old_gpu_minute;

ALTER TABLE gpu_hour RENAME TO old_gpu_hour;
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
ALTER TABLE old_gpu_hour ADD COLUMN s INTEGER;
ALTER TABLE old_gpu_hour ADD COLUMN counts TEXT;
UPDATE old_gpu_hour SET s = max(
    coalesce(gpu_util_n, 0), coalesce(sm_active_n, 0), coalesce(sm_occupancy_n, 0), coalesce(tensor_active_n, 0),
    coalesce(dram_active_n, 0), coalesce(fp64_active_n, 0), coalesce(fp32_active_n, 0), coalesce(fp16_active_n, 0),
    coalesce(mem_used_bytes_n, 0), coalesce(power_watts_n, 0), coalesce(energy_joules_n, 0),
    coalesce(sm_clock_hertz_n, 0), coalesce(mem_clock_hertz_n, 0), coalesce(temperature_celsius_n, 0),
    coalesce(pcie_tx_bytes_per_second_n, 0), coalesce(pcie_rx_bytes_per_second_n, 0),
    coalesce(nvlink_tx_bytes_per_second_n, 0), coalesce(nvlink_rx_bytes_per_second_n, 0));
UPDATE old_gpu_hour SET counts = printf(replace(hex(zeroblob(18)), '00', '%06d'),
    coalesce(gpu_util_n, 0), coalesce(sm_active_n, 0), coalesce(sm_occupancy_n, 0), coalesce(tensor_active_n, 0),
    coalesce(dram_active_n, 0), coalesce(fp64_active_n, 0), coalesce(fp32_active_n, 0), coalesce(fp16_active_n, 0),
    coalesce(mem_used_bytes_n, 0), coalesce(power_watts_n, 0), coalesce(energy_joules_n, 0),
    coalesce(sm_clock_hertz_n, 0), coalesce(mem_clock_hertz_n, 0), coalesce(temperature_celsius_n, 0),
    coalesce(pcie_tx_bytes_per_second_n, 0), coalesce(pcie_rx_bytes_per_second_n, 0),
    coalesce(nvlink_tx_bytes_per_second_n, 0), coalesce(nvlink_rx_bytes_per_second_n, 0))
    WHERE s > min(
    coalesce(gpu_util_n, 0), coalesce(sm_active_n, 0), coalesce(sm_occupancy_n, 0), coalesce(tensor_active_n, 0),
    coalesce(dram_active_n, 0), coalesce(fp64_active_n, 0), coalesce(fp32_active_n, 0), coalesce(fp16_active_n, 0),
    coalesce(mem_used_bytes_n, 0), coalesce(power_watts_n, 0), coalesce(energy_joules_n, 0),
    coalesce(sm_clock_hertz_n, 0), coalesce(mem_clock_hertz_n, 0), coalesce(temperature_celsius_n, 0),
    coalesce(pcie_tx_bytes_per_second_n, 0), coalesce(pcie_rx_bytes_per_second_n, 0),
    coalesce(nvlink_tx_bytes_per_second_n, 0), coalesce(nvlink_rx_bytes_per_second_n, 0));
INSERT OR IGNORE INTO sample_counts (counts) SELECT DISTINCT counts FROM old_gpu_hour WHERE counts IS NOT NULL;
INSERT INTO gpu_hour SELECT
    ts / 3600 * 4096 + gpu_id, s, (SELECT c.id FROM sample_counts c WHERE c.counts = o.counts),
    36000 - observed_seconds, gpu_util_mean, (gpu_util_p95 - gpu_util_mean) / 10,
    (gpu_util_max - gpu_util_mean) / 10 - (gpu_util_p95 - gpu_util_mean) / 10, sm_active_mean,
    (sm_active_p95 - sm_active_mean) / 10,
    (sm_active_max - sm_active_mean) / 10 - (sm_active_p95 - sm_active_mean) / 10, sm_occupancy_mean,
    (sm_occupancy_p95 - sm_occupancy_mean) / 10,
    (sm_occupancy_max - sm_occupancy_mean) / 10 - (sm_occupancy_p95 - sm_occupancy_mean) / 10, tensor_active_mean,
    (tensor_active_p95 - tensor_active_mean) / 10,
    (tensor_active_max - tensor_active_mean) / 10 - (tensor_active_p95 - tensor_active_mean) / 10, dram_active_mean,
    (dram_active_p95 - dram_active_mean) / 10,
    (dram_active_max - dram_active_mean) / 10 - (dram_active_p95 - dram_active_mean) / 10, fp64_active_mean,
    (fp64_active_p95 - fp64_active_mean) / 10,
    (fp64_active_max - fp64_active_mean) / 10 - (fp64_active_p95 - fp64_active_mean) / 10, fp32_active_mean,
    (fp32_active_p95 - fp32_active_mean) / 10,
    (fp32_active_max - fp32_active_mean) / 10 - (fp32_active_p95 - fp32_active_mean) / 10, fp16_active_mean,
    (fp16_active_p95 - fp16_active_mean) / 10,
    (fp16_active_max - fp16_active_mean) / 10 - (fp16_active_p95 - fp16_active_mean) / 10,
    (mem_used_bytes_mean + 32) / 64, ((mem_used_bytes_p95 + 32) / 64 - (mem_used_bytes_mean + 32) / 64) / 16,
    ((mem_used_bytes_max + 32) / 64 - (mem_used_bytes_mean + 32) / 64) / 16 - ((mem_used_bytes_p95 + 32) / 64 -
        (mem_used_bytes_mean + 32) / 64) / 16,
    power_watts_mean, (power_watts_p95 - power_watts_mean) / 10,
    (power_watts_max - power_watts_mean) / 10 - (power_watts_p95 - power_watts_mean) / 10, energy_joules_mean,
    (energy_joules_p95 - energy_joules_mean) / 10,
    (energy_joules_max - energy_joules_mean) / 10 - (energy_joules_p95 - energy_joules_mean) / 10, sm_clock_hertz_mean,
    (sm_clock_hertz_p95 - sm_clock_hertz_mean),
    (sm_clock_hertz_max - sm_clock_hertz_mean) - (sm_clock_hertz_p95 - sm_clock_hertz_mean), mem_clock_hertz_mean,
    (mem_clock_hertz_p95 - mem_clock_hertz_mean),
    (mem_clock_hertz_max - mem_clock_hertz_mean) - (mem_clock_hertz_p95 - mem_clock_hertz_mean),
    temperature_celsius_mean, (temperature_celsius_p95 - temperature_celsius_mean),
    (temperature_celsius_max - temperature_celsius_mean) - (temperature_celsius_p95 - temperature_celsius_mean),
    (pcie_tx_bytes_per_second_mean + 32) / 64,
    ((pcie_tx_bytes_per_second_p95 + 32) / 64 - (pcie_tx_bytes_per_second_mean + 32) / 64) / 16,
    ((pcie_tx_bytes_per_second_max + 32) / 64 - (pcie_tx_bytes_per_second_mean + 32) / 64) / 16 -
        ((pcie_tx_bytes_per_second_p95 + 32) / 64 - (pcie_tx_bytes_per_second_mean + 32) / 64) / 16,
    (pcie_rx_bytes_per_second_mean + 32) / 64,
    ((pcie_rx_bytes_per_second_p95 + 32) / 64 - (pcie_rx_bytes_per_second_mean + 32) / 64) / 16,
    ((pcie_rx_bytes_per_second_max + 32) / 64 - (pcie_rx_bytes_per_second_mean + 32) / 64) / 16 -
        ((pcie_rx_bytes_per_second_p95 + 32) / 64 - (pcie_rx_bytes_per_second_mean + 32) / 64) / 16,
    (nvlink_tx_bytes_per_second_mean + 32) / 64,
    ((nvlink_tx_bytes_per_second_p95 + 32) / 64 - (nvlink_tx_bytes_per_second_mean + 32) / 64) / 16,
    ((nvlink_tx_bytes_per_second_max + 32) / 64 - (nvlink_tx_bytes_per_second_mean + 32) / 64) / 16 -
        ((nvlink_tx_bytes_per_second_p95 + 32) / 64 - (nvlink_tx_bytes_per_second_mean + 32) / 64) / 16,
    (nvlink_rx_bytes_per_second_mean + 32) / 64,
    ((nvlink_rx_bytes_per_second_p95 + 32) / 64 - (nvlink_rx_bytes_per_second_mean + 32) / 64) / 16,
    ((nvlink_rx_bytes_per_second_max + 32) / 64 - (nvlink_rx_bytes_per_second_mean + 32) / 64) / 16 -
        ((nvlink_rx_bytes_per_second_p95 + 32) / 64 - (nvlink_rx_bytes_per_second_mean + 32) / 64) / 16,
    duty, idle_run_seconds, sm_active_cv, period_seconds, CAST(round(period_strength / 10.0) AS INTEGER),
    CAST(round(tensor_nvlink_correlation / 10.0) AS INTEGER), CAST(round(tensor_fabric_correlation / 10.0) AS INTEGER),
    throttled_fraction, '0000' || substr(gpu_util_bins, 2, length(gpu_util_bins) - 2),
    '0000' || substr(sm_active_bins, 2, length(sm_active_bins) - 2),
    '0000' || substr(sm_occupancy_bins, 2, length(sm_occupancy_bins) - 2),
    '0000' || substr(tensor_active_bins, 2, length(tensor_active_bins) - 2),
    '0000' || substr(dram_active_bins, 2, length(dram_active_bins) - 2),
    '0000' || substr(mem_used_bins, 2, length(mem_used_bins) - 2),
    '0000' || substr(power_bins, 2, length(power_bins) - 2), '0000' || substr(nvlink_bins, 2, length(nvlink_bins) - 2)
    FROM old_gpu_hour o ORDER BY 1;
DROP TABLE old_gpu_hour;

ALTER TABLE fabric_minute RENAME TO old_fabric_minute;
CREATE TABLE fabric_minute (
    id INTEGER PRIMARY KEY, samples INTEGER, sample_counts INTEGER, unobserved_seconds INTEGER NOT NULL,
    util_mean INTEGER, util_to_p95 INTEGER, util_to_max INTEGER, tx_bytes_per_second_mean INTEGER,
    tx_bytes_per_second_to_p95 INTEGER, tx_bytes_per_second_to_max INTEGER, rx_bytes_per_second_mean INTEGER,
    rx_bytes_per_second_to_p95 INTEGER, rx_bytes_per_second_to_max INTEGER, xmit_wait_per_second_mean INTEGER,
    xmit_wait_per_second_to_p95 INTEGER, xmit_wait_per_second_to_max INTEGER, active_fraction INTEGER,
    idle_run_seconds INTEGER
);
ALTER TABLE old_fabric_minute ADD COLUMN s INTEGER;
ALTER TABLE old_fabric_minute ADD COLUMN counts TEXT;
UPDATE old_fabric_minute SET s = max(
    coalesce(util_n, 0), coalesce(tx_bytes_per_second_n, 0), coalesce(rx_bytes_per_second_n, 0),
    coalesce(xmit_wait_per_second_n, 0));
UPDATE old_fabric_minute SET counts = printf(replace(hex(zeroblob(4)), '00', '%06d'),
    coalesce(util_n, 0), coalesce(tx_bytes_per_second_n, 0), coalesce(rx_bytes_per_second_n, 0),
    coalesce(xmit_wait_per_second_n, 0))
    WHERE s > min(
    coalesce(util_n, 0), coalesce(tx_bytes_per_second_n, 0), coalesce(rx_bytes_per_second_n, 0),
    coalesce(xmit_wait_per_second_n, 0));
INSERT OR IGNORE INTO sample_counts (counts) SELECT DISTINCT counts FROM old_fabric_minute WHERE counts IS NOT NULL;
INSERT INTO fabric_minute SELECT
    ts / 60 * 4096 + port_id, s, (SELECT c.id FROM sample_counts c WHERE c.counts = o.counts), 600 - observed_seconds,
    util_mean, (util_p95 - util_mean), (util_max - util_mean) - (util_p95 - util_mean),
    (tx_bytes_per_second_mean + 128) / 256,
    ((tx_bytes_per_second_p95 + 128) / 256 - (tx_bytes_per_second_mean + 128) / 256) / 64,
    ((tx_bytes_per_second_max + 128) / 256 - (tx_bytes_per_second_mean + 128) / 256) / 64 - ((tx_bytes_per_second_p95 +
        128) / 256 - (tx_bytes_per_second_mean + 128) / 256) / 64,
    (rx_bytes_per_second_mean + 128) / 256,
    ((rx_bytes_per_second_p95 + 128) / 256 - (rx_bytes_per_second_mean + 128) / 256) / 64,
    ((rx_bytes_per_second_max + 128) / 256 - (rx_bytes_per_second_mean + 128) / 256) / 64 - ((rx_bytes_per_second_p95 +
        128) / 256 - (rx_bytes_per_second_mean + 128) / 256) / 64,
    xmit_wait_per_second_mean, (xmit_wait_per_second_p95 - xmit_wait_per_second_mean),
    (xmit_wait_per_second_max - xmit_wait_per_second_mean) - (xmit_wait_per_second_p95 - xmit_wait_per_second_mean),
    active_fraction, idle_run_seconds
    FROM old_fabric_minute o ORDER BY 1;
DROP TABLE old_fabric_minute;

ALTER TABLE fabric_hour RENAME TO old_fabric_hour;
CREATE TABLE fabric_hour (
    id INTEGER PRIMARY KEY, samples INTEGER, sample_counts INTEGER, unobserved_seconds INTEGER NOT NULL,
    util_mean INTEGER, util_to_p95 INTEGER, util_to_max INTEGER, tx_bytes_per_second_mean INTEGER,
    tx_bytes_per_second_to_p95 INTEGER, tx_bytes_per_second_to_max INTEGER, rx_bytes_per_second_mean INTEGER,
    rx_bytes_per_second_to_p95 INTEGER, rx_bytes_per_second_to_max INTEGER, xmit_wait_per_second_mean INTEGER,
    xmit_wait_per_second_to_p95 INTEGER, xmit_wait_per_second_to_max INTEGER, active_fraction INTEGER,
    idle_run_seconds INTEGER, util_bins TEXT
);
ALTER TABLE old_fabric_hour ADD COLUMN s INTEGER;
ALTER TABLE old_fabric_hour ADD COLUMN counts TEXT;
UPDATE old_fabric_hour SET s = max(
    coalesce(util_n, 0), coalesce(tx_bytes_per_second_n, 0), coalesce(rx_bytes_per_second_n, 0),
    coalesce(xmit_wait_per_second_n, 0));
UPDATE old_fabric_hour SET counts = printf(replace(hex(zeroblob(4)), '00', '%06d'),
    coalesce(util_n, 0), coalesce(tx_bytes_per_second_n, 0), coalesce(rx_bytes_per_second_n, 0),
    coalesce(xmit_wait_per_second_n, 0))
    WHERE s > min(
    coalesce(util_n, 0), coalesce(tx_bytes_per_second_n, 0), coalesce(rx_bytes_per_second_n, 0),
    coalesce(xmit_wait_per_second_n, 0));
INSERT OR IGNORE INTO sample_counts (counts) SELECT DISTINCT counts FROM old_fabric_hour WHERE counts IS NOT NULL;
INSERT INTO fabric_hour SELECT
    ts / 3600 * 4096 + port_id, s, (SELECT c.id FROM sample_counts c WHERE c.counts = o.counts),
    36000 - observed_seconds, util_mean, (util_p95 - util_mean), (util_max - util_mean) - (util_p95 - util_mean),
    (tx_bytes_per_second_mean + 128) / 256,
    ((tx_bytes_per_second_p95 + 128) / 256 - (tx_bytes_per_second_mean + 128) / 256) / 64,
    ((tx_bytes_per_second_max + 128) / 256 - (tx_bytes_per_second_mean + 128) / 256) / 64 - ((tx_bytes_per_second_p95 +
        128) / 256 - (tx_bytes_per_second_mean + 128) / 256) / 64,
    (rx_bytes_per_second_mean + 128) / 256,
    ((rx_bytes_per_second_p95 + 128) / 256 - (rx_bytes_per_second_mean + 128) / 256) / 64,
    ((rx_bytes_per_second_max + 128) / 256 - (rx_bytes_per_second_mean + 128) / 256) / 64 - ((rx_bytes_per_second_p95 +
        128) / 256 - (rx_bytes_per_second_mean + 128) / 256) / 64,
    xmit_wait_per_second_mean, (xmit_wait_per_second_p95 - xmit_wait_per_second_mean),
    (xmit_wait_per_second_max - xmit_wait_per_second_mean) - (xmit_wait_per_second_p95 - xmit_wait_per_second_mean),
    active_fraction, idle_run_seconds, '0000' || substr(util_bins, 2, length(util_bins) - 2)
    FROM old_fabric_hour o ORDER BY 1;
DROP TABLE old_fabric_hour;

ALTER TABLE host_minute RENAME TO old_host_minute;
CREATE TABLE host_minute (
    id INTEGER PRIMARY KEY, samples INTEGER, sample_counts INTEGER, unobserved_seconds INTEGER NOT NULL,
    cpu_util_mean INTEGER, cpu_util_to_p95 INTEGER, cpu_util_to_max INTEGER, io_wait_mean INTEGER,
    io_wait_to_p95 INTEGER, io_wait_to_max INTEGER, mem_used_bytes_mean INTEGER, mem_used_bytes_to_p95 INTEGER,
    mem_used_bytes_to_max INTEGER, disk_read_bytes_per_second_mean INTEGER, disk_read_bytes_per_second_to_p95 INTEGER,
    disk_read_bytes_per_second_to_max INTEGER, disk_write_bytes_per_second_mean INTEGER,
    disk_write_bytes_per_second_to_p95 INTEGER, disk_write_bytes_per_second_to_max INTEGER, mem_total_bytes INTEGER
);
ALTER TABLE old_host_minute ADD COLUMN s INTEGER;
ALTER TABLE old_host_minute ADD COLUMN counts TEXT;
UPDATE old_host_minute SET s = max(
    coalesce(cpu_util_n, 0), coalesce(io_wait_n, 0), coalesce(mem_used_bytes_n, 0),
    coalesce(disk_read_bytes_per_second_n, 0), coalesce(disk_write_bytes_per_second_n, 0));
UPDATE old_host_minute SET counts = printf(replace(hex(zeroblob(5)), '00', '%06d'),
    coalesce(cpu_util_n, 0), coalesce(io_wait_n, 0), coalesce(mem_used_bytes_n, 0),
    coalesce(disk_read_bytes_per_second_n, 0), coalesce(disk_write_bytes_per_second_n, 0))
    WHERE s > min(
    coalesce(cpu_util_n, 0), coalesce(io_wait_n, 0), coalesce(mem_used_bytes_n, 0),
    coalesce(disk_read_bytes_per_second_n, 0), coalesce(disk_write_bytes_per_second_n, 0));
INSERT OR IGNORE INTO sample_counts (counts) SELECT DISTINCT counts FROM old_host_minute WHERE counts IS NOT NULL;
INSERT INTO host_minute SELECT
    ts / 60 * 4096 + node_id, s, (SELECT c.id FROM sample_counts c WHERE c.counts = o.counts), 600 - observed_seconds,
    cpu_util_mean, (cpu_util_p95 - cpu_util_mean), (cpu_util_max - cpu_util_mean) - (cpu_util_p95 - cpu_util_mean),
    io_wait_mean, (io_wait_p95 - io_wait_mean), (io_wait_max - io_wait_mean) - (io_wait_p95 - io_wait_mean),
    mem_used_bytes_mean, (mem_used_bytes_p95 - mem_used_bytes_mean),
    (mem_used_bytes_max - mem_used_bytes_mean) - (mem_used_bytes_p95 - mem_used_bytes_mean),
    disk_read_bytes_per_second_mean, (disk_read_bytes_per_second_p95 - disk_read_bytes_per_second_mean),
    (disk_read_bytes_per_second_max - disk_read_bytes_per_second_mean) - (disk_read_bytes_per_second_p95 -
        disk_read_bytes_per_second_mean),
    disk_write_bytes_per_second_mean, (disk_write_bytes_per_second_p95 - disk_write_bytes_per_second_mean),
    (disk_write_bytes_per_second_max - disk_write_bytes_per_second_mean) - (disk_write_bytes_per_second_p95 -
        disk_write_bytes_per_second_mean),
    mem_total_bytes
    FROM old_host_minute o ORDER BY 1;
DROP TABLE old_host_minute;

ALTER TABLE host_hour RENAME TO old_host_hour;
CREATE TABLE host_hour (
    id INTEGER PRIMARY KEY, samples INTEGER, sample_counts INTEGER, unobserved_seconds INTEGER NOT NULL,
    cpu_util_mean INTEGER, cpu_util_to_p95 INTEGER, cpu_util_to_max INTEGER, io_wait_mean INTEGER,
    io_wait_to_p95 INTEGER, io_wait_to_max INTEGER, mem_used_bytes_mean INTEGER, mem_used_bytes_to_p95 INTEGER,
    mem_used_bytes_to_max INTEGER, disk_read_bytes_per_second_mean INTEGER, disk_read_bytes_per_second_to_p95 INTEGER,
    disk_read_bytes_per_second_to_max INTEGER, disk_write_bytes_per_second_mean INTEGER,
    disk_write_bytes_per_second_to_p95 INTEGER, disk_write_bytes_per_second_to_max INTEGER, mem_total_bytes INTEGER,
    cpu_util_bins TEXT
);
ALTER TABLE old_host_hour ADD COLUMN s INTEGER;
ALTER TABLE old_host_hour ADD COLUMN counts TEXT;
UPDATE old_host_hour SET s = max(
    coalesce(cpu_util_n, 0), coalesce(io_wait_n, 0), coalesce(mem_used_bytes_n, 0),
    coalesce(disk_read_bytes_per_second_n, 0), coalesce(disk_write_bytes_per_second_n, 0));
UPDATE old_host_hour SET counts = printf(replace(hex(zeroblob(5)), '00', '%06d'),
    coalesce(cpu_util_n, 0), coalesce(io_wait_n, 0), coalesce(mem_used_bytes_n, 0),
    coalesce(disk_read_bytes_per_second_n, 0), coalesce(disk_write_bytes_per_second_n, 0))
    WHERE s > min(
    coalesce(cpu_util_n, 0), coalesce(io_wait_n, 0), coalesce(mem_used_bytes_n, 0),
    coalesce(disk_read_bytes_per_second_n, 0), coalesce(disk_write_bytes_per_second_n, 0));
INSERT OR IGNORE INTO sample_counts (counts) SELECT DISTINCT counts FROM old_host_hour WHERE counts IS NOT NULL;
INSERT INTO host_hour SELECT
    ts / 3600 * 4096 + node_id, s, (SELECT c.id FROM sample_counts c WHERE c.counts = o.counts),
    36000 - observed_seconds, cpu_util_mean, (cpu_util_p95 - cpu_util_mean),
    (cpu_util_max - cpu_util_mean) - (cpu_util_p95 - cpu_util_mean), io_wait_mean, (io_wait_p95 - io_wait_mean),
    (io_wait_max - io_wait_mean) - (io_wait_p95 - io_wait_mean), mem_used_bytes_mean,
    (mem_used_bytes_p95 - mem_used_bytes_mean),
    (mem_used_bytes_max - mem_used_bytes_mean) - (mem_used_bytes_p95 - mem_used_bytes_mean),
    disk_read_bytes_per_second_mean, (disk_read_bytes_per_second_p95 - disk_read_bytes_per_second_mean),
    (disk_read_bytes_per_second_max - disk_read_bytes_per_second_mean) - (disk_read_bytes_per_second_p95 -
        disk_read_bytes_per_second_mean),
    disk_write_bytes_per_second_mean, (disk_write_bytes_per_second_p95 - disk_write_bytes_per_second_mean),
    (disk_write_bytes_per_second_max - disk_write_bytes_per_second_mean) - (disk_write_bytes_per_second_p95 -
        disk_write_bytes_per_second_mean),
    mem_total_bytes, '0000' || substr(cpu_util_bins, 2, length(cpu_util_bins) - 2)
    FROM old_host_hour o ORDER BY 1;
DROP TABLE old_host_hour;
