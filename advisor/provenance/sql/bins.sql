-- block edges: the edges of the bins in which seconds are counted
SELECT column1 AS slot, column2 AS low, column3 AS high FROM (VALUES {edge_rows})

-- block fabric_rows needs span wanted: hours of the compute ports, and minutes after a node's last hour
SELECT f.node, f.device || '/' || f.port AS port, f.ts, f.interval_seconds, f.observed_seconds, f.util_mean,
    f.util_max, f.util_p95, f.util_bins
FROM fabric_hours f JOIN wanted w ON w.node = f.node, span
WHERE f.ts > start AND f.ts <= stop AND f.ts - f.interval_seconds >= start - 1 AND f.role = 'compute'
UNION ALL
SELECT m.node, m.device || '/' || m.port, m.ts, m.interval_seconds, m.observed_seconds, m.util_mean, m.util_max,
    m.util_p95, NULL
FROM (
    SELECT w.node, n.last_seen, coalesce(max(f.ts), max(start)) AS told_until, max(stop) AS stop
    FROM wanted w JOIN nodes n ON n.node = w.node JOIN span
    LEFT JOIN fabric_hours f ON f.node = w.node AND f.ts > start AND f.ts <= stop
    GROUP BY w.node
) e JOIN fabric_minutes m ON m.ts > e.told_until AND m.ts < e.stop + 60 AND m.ts <= e.last_seen + 60 AND m.node = e.node
WHERE m.role = 'compute'

-- block fabric_use needs fabric_rows: use of the node's compute ports at each moment, mean of the ports
SELECT node, ts, interval_seconds, avg(util_mean) AS i FROM fabric_rows GROUP BY node, ts, interval_seconds

-- block port_seconds needs fabric_rows edges: seconds of each port by bin; a row without bins counts by its p95 and max
SELECT f.node, f.port, b.key AS slot, b.value AS seconds FROM fabric_rows f, json_each(f.util_bins) b
WHERE f.util_bins IS NOT NULL
UNION ALL
SELECT node, port, coalesce((SELECT max(slot) FROM edges WHERE low <= util_max), 0), 0.05 * observed_seconds
FROM fabric_rows WHERE util_bins IS NULL AND util_max IS NOT NULL
UNION ALL
SELECT node, port, coalesce((SELECT max(slot) FROM edges WHERE low <= coalesce(util_p95, util_max)), 0),
    0.95 * observed_seconds
FROM fabric_rows WHERE util_bins IS NULL AND util_max IS NOT NULL

-- block port_p995 needs port_seconds edges: the upper edge of the bin in which 99.5 % of a port's seconds are reached
SELECT node, port, min(high) AS p995 FROM (
    SELECT s.node, s.port, e.high,
        sum(s.seconds) OVER (PARTITION BY s.node, s.port ORDER BY s.slot) AS so_far,
        sum(s.seconds) OVER (PARTITION BY s.node, s.port) AS in_all
    FROM (SELECT node, port, slot, sum(seconds) AS seconds FROM port_seconds GROUP BY node, port, slot) s
    JOIN edges e ON e.slot = s.slot
)
WHERE so_far >= 0.995 * in_all - 1e-9 AND in_all > 0
GROUP BY node, port

-- block fabrics needs fabric_rows port_p995: the compute fabric of each node
SELECT r.node, p.p995, r.highest, r.hours, r.ports FROM (
    SELECT node, max(highest) AS highest, min(seconds) / 3600 AS hours, count(*) AS ports FROM (
        SELECT node, port, max(util_max) AS highest,
            sum(CASE WHEN util_mean IS NOT NULL THEN observed_seconds ELSE 0 END) AS seconds
        FROM fabric_rows GROUP BY node, port
    ) GROUP BY node
) r JOIN (SELECT node, max(p995) AS p995 FROM port_p995 GROUP BY node) p ON p.node = r.node
WHERE r.node IN ({finding_nodes})

-- block link_seconds needs bounded edges: seconds of each GPU's NVLink by bin
SELECT r.node, r.gpu_uuid, b.key AS slot, sum(b.value) AS seconds FROM bounded r, json_each(r.nvlink_bins) b
WHERE r.nvlink_bins IS NOT NULL
GROUP BY r.node, r.gpu_uuid, b.key

-- block link_p995 needs link_seconds edges: the upper edge of the bin in which 99.5 % of a GPU's seconds are reached
SELECT node, gpu_uuid, min(high) AS p995 FROM (
    SELECT s.node, s.gpu_uuid, e.high,
        sum(s.seconds) OVER (PARTITION BY s.node, s.gpu_uuid ORDER BY s.slot) AS so_far,
        sum(s.seconds) OVER (PARTITION BY s.node, s.gpu_uuid) AS in_all
    FROM link_seconds s JOIN edges e ON e.slot = s.slot
)
WHERE so_far >= 0.995 * in_all - 1e-9 AND in_all > 0
GROUP BY node, gpu_uuid

-- block tensor_seconds needs shaped: seconds of tensor activity by bin, of each workload that holds GPUs now
SELECT u.workload_id, b.key AS slot, sum(b.value) AS seconds, max(u.eta_c) AS eta
FROM shaped u, json_each(u.tensor_active_bins) b WHERE u.tensor_active_bins IS NOT NULL AND u.now
GROUP BY u.workload_id, b.key

-- block dram_seconds needs shaped: seconds of memory activity by bin, of each workload that holds GPUs now
SELECT u.workload_id, b.key AS slot, sum(b.value) AS seconds, max(u.eta_m) AS eta
FROM shaped u, json_each(u.dram_active_bins) b WHERE u.dram_active_bins IS NOT NULL AND u.now
GROUP BY u.workload_id, b.key

-- block sm_seconds needs shaped: seconds of SM activity by bin, of each workload that holds GPUs now
SELECT u.workload_id, b.key AS slot, sum(b.value) AS seconds, 1.0 AS eta
FROM shaped u, json_each(u.sm_active_bins) b WHERE u.sm_active_bins IS NOT NULL AND u.now
GROUP BY u.workload_id, b.key

-- block nvlink_seconds needs shaped: seconds of NVLink use by bin, of each workload that holds GPUs now
SELECT u.workload_id, b.key AS slot, sum(b.value) AS seconds, 1.0 AS eta
FROM shaped u, json_each(u.nvlink_bins) b WHERE u.nvlink_bins IS NOT NULL AND u.now
GROUP BY u.workload_id, b.key
