-- block span: the window
SELECT {start} AS start, {stop} AS stop

-- block wanted: the nodes it is about
SELECT column1 AS node FROM (VALUES {node_rows})

-- block skus: the kinds of GPU as the catalog has them; link_share is what all-reduce sustains of NVLink
SELECT column1 AS called, column2 AS name, column3 AS clock, column4 AS nvlink, column5 AS pcie, column6 AS tdp,
    column7 AS eta_c, column8 AS eta_m, column9 AS link_share, column10 AS rest_low, column11 AS rest_high
FROM (VALUES {sku_rows})

-- block cards needs span skus: every GPU as it was last described in the window
SELECT g.node, g.gpu_uuid, g.kind, g.parent_uuid, coalesce(s.name, g.called) AS name,
    coalesce(nullif(g.power_limit_watts, 0), s.tdp) AS power_limit,
    coalesce(nullif(g.nvlink_bytes_per_second, 0), s.nvlink) AS nvlink, s.pcie, s.clock, s.eta_c, s.eta_m, s.link_share,
    coalesce(s.rest_low, {rest_low_share} * coalesce(nullif(g.power_limit_watts, 0), s.tdp)) AS rest_low,
    coalesce(s.rest_high, {rest_high_share} * coalesce(nullif(g.power_limit_watts, 0), s.tdp)) AS rest_high
FROM (
    SELECT node, gpu_uuid, kind, parent_uuid, coalesce(sku, name) AS called, power_limit_watts,
        nvlink_bytes_per_second, max(valid_from)
    FROM gpus, span
    WHERE valid_from <= stop AND (valid_to IS NULL OR valid_to >= start)
    GROUP BY node, gpu_uuid
) g LEFT JOIN skus s ON s.called = g.called

-- block uses needs span: who held which GPU
SELECT workload_id, node, gpu_uuid, ts_start, max(ts_end) AS ts_end, max(shared) AS shared
FROM {held}, span
WHERE ts_start < stop AND ts_end > start AND ts_end > ts_start
GROUP BY workload_id, node, gpu_uuid, ts_start

-- block cut needs uses: hours that a start or end of a workload cuts are read by the minute, where minutes are kept
SELECT DISTINCT node, gpu_uuid, hour FROM (
    SELECT node, gpu_uuid, edge,
        3600.0 * (CAST(edge / 3600 AS INTEGER) + (edge > 3600.0 * CAST(edge / 3600 AS INTEGER))) AS hour
    FROM (SELECT node, gpu_uuid, ts_start AS edge FROM uses UNION ALL SELECT node, gpu_uuid, ts_end FROM uses)
), span
WHERE edge > start AND edge < stop AND hour - edge > 60 AND edge - (hour - 3600) > 60

-- block hours needs span: hours of GPUs
SELECT {gpu_columns}, {bin_columns} FROM gpu_hours, span
WHERE ts > start AND ts <= stop AND ts - interval_seconds >= start - 1
    AND observed_seconds >= 0 AND observed_seconds <= interval_seconds * {observed_share} + {observed_more}

-- block fine needs cut: the minutes of the hours that are cut
SELECT c.hour, m.* FROM cut c JOIN (
    SELECT {gpu_columns} FROM gpu_minutes
    WHERE observed_seconds >= 0 AND observed_seconds <= interval_seconds * {observed_share} + {observed_more}
) m ON m.ts > c.hour - 3600 AND m.ts <= c.hour AND m.node = c.node AND m.gpu_uuid = c.gpu_uuid

-- block told needs fine hours: the hours of which their minutes tell nearly all
SELECT f.node, f.gpu_uuid, f.hour
FROM fine f JOIN hours h ON h.node = f.node AND h.gpu_uuid = f.gpu_uuid AND h.ts = f.hour
GROUP BY f.node, f.gpu_uuid, f.hour
HAVING sum(f.observed_seconds) >= 0.9 * max(h.observed_seconds)

-- block newest needs hours span: the minutes after a node's last hour
SELECT m.* FROM (
    SELECT n.node, n.last_seen, coalesce(max(h.ts), max(start)) AS told_until, max(start) AS start, max(stop) AS stop
    FROM nodes n JOIN span LEFT JOIN hours h ON h.node = n.node
    GROUP BY n.node
) e JOIN (SELECT {gpu_columns} FROM gpu_minutes
    WHERE observed_seconds >= 0 AND observed_seconds <= interval_seconds * {observed_share} + {observed_more}) m
ON m.ts > e.told_until AND m.ts < e.stop + 60 AND m.ts <= e.last_seen + 60 AND m.ts - 60 >= e.start - 1
    AND m.node = e.node

-- block raw needs hours told fine newest: each moment of each GPU once
SELECT h.* FROM hours h
LEFT JOIN told t ON t.node = h.node AND t.gpu_uuid = h.gpu_uuid AND t.hour = h.ts
WHERE t.hour IS NULL
UNION ALL
SELECT {fine_columns}, {no_bins} FROM fine f
JOIN told t ON t.node = f.node AND t.gpu_uuid = f.gpu_uuid AND t.hour = f.hour
UNION ALL
SELECT n.*, {no_bins} FROM newest n

-- block kin needs raw cards wanted: rows of the same kinds of GPU on all nodes: they tell idle power and memory clock
SELECT c.name, c.power_limit, r.power_watts_mean AS power, r.mem_clock_hertz_mean AS mem_clock,
    coalesce(r.gpu_util_mean, r.sm_active_mean) AS g, 1.0 * r.mem_used_bytes_mean / r.mem_total_bytes AS mem
FROM raw r JOIN cards c ON c.node = r.node AND c.gpu_uuid = r.gpu_uuid
WHERE c.name IN (SELECT name FROM cards WHERE node IN (SELECT node FROM wanted))

-- block free needs kin: the free ones first (at rest, nothing in memory, power that can be idle power), by their power
SELECT *, row_number() OVER (PARTITION BY name, free ORDER BY power) - 1 AS place,
    0.1 * (count(*) OVER (PARTITION BY name, free) - 1) AS tenth
FROM (
    SELECT *, coalesce(g < 0.01 AND mem < {free_mem} AND power IS NOT NULL, 0)
        AND NOT coalesce(power > {idle_share_max} * power_limit, 0) AS free
    FROM kin
)

-- block still needs free: idle power: the lowest decile of the free ones, else an eighth of the power limit
SELECT name, max(mem_clock) AS mem_clock, coalesce(
    sum(CASE WHEN free THEN power * CASE place - CAST(tenth AS INTEGER)
        WHEN 0 THEN 1 - (tenth - CAST(tenth AS INTEGER)) WHEN 1 THEN tenth - CAST(tenth AS INTEGER) END END),
    min({idle_share} * min(power_limit), min(power))) AS idle_power
FROM free
GROUP BY name

-- block bounded needs raw wanted: its nodes' rows; the first and last of a node begin and end with the node
SELECT r.*,
    CASE WHEN short THEN r.ts - r.interval_seconds ELSE r.begun END AS began,
    CASE WHEN short THEN r.ts ELSE r.finish END AS ended
FROM (
    SELECT *, finish - begun < 0.5 * observed_seconds AS short FROM (
        SELECT *, CASE WHEN last_seen < ts AND last_seen > begun THEN last_seen ELSE ts END AS finish FROM (
            SELECT r.*, n.last_seen, CASE WHEN n.first_seen > r.ts - r.interval_seconds AND n.first_seen < r.ts
                THEN n.first_seen ELSE r.ts - r.interval_seconds END AS begun
            FROM raw r JOIN wanted w ON w.node = r.node
            JOIN (SELECT node, min(first_seen) AS first_seen, max(last_seen) AS last_seen FROM nodes GROUP BY node) n
                ON n.node = r.node
        )
    )
) r

-- block sound needs bounded: without the profiler's counters where they stand at zero beside a busy engine
SELECT {sound_columns}, {bin_columns}, began, ended, blind
FROM (
    SELECT *, coalesce(gpu_util_mean >= {contradicts}
        AND coalesce(tensor_active_max, tensor_active_mean) = 0
        AND coalesce(dram_active_max, dram_active_mean) = 0
        AND coalesce(sm_active_max, sm_active_mean, 0) = 0, 0) AS blind
    FROM bounded
)

-- block measured needs sound cards still: use relative to the peaks of its kind of GPU
SELECT b.node, b.gpu_uuid, coalesce(c.parent_uuid, b.gpu_uuid) AS board, c.kind, b.ts, b.interval_seconds, b.began, b.ended,
    min(coalesce(b.observed_seconds, 0), b.ended - b.began) AS observed,
    min(max(coalesce(b.gpu_util_mean, b.sm_active_mean), 0), 1) AS g, coalesce(b.gpu_util_max, b.sm_active_max) AS g_max,
    coalesce(b.gpu_util_p95, min(b.gpu_util_mean / {p95_rest}, coalesce(b.gpu_util_max, b.gpu_util_mean / {p95_rest})),
        b.sm_active_p95, min(b.sm_active_mean / {p95_rest}, coalesce(b.sm_active_max, b.sm_active_mean / {p95_rest})))
        AS g_p95_most, b.sm_active_mean AS sm, b.sm_occupancy_mean AS o,
    b.tensor_active_mean * coalesce(b.sm_clock_hertz_mean / c.clock, 1) AS c,
    b.dram_active_mean * min(coalesce(b.mem_clock_hertz_mean / y.mem_clock, 1), 1) AS m,
    CASE WHEN min(b.nvlink_tx_bytes_per_second_mean, b.nvlink_rx_bytes_per_second_mean) > 0
        OR max(b.nvlink_tx_bytes_per_second_mean, b.nvlink_rx_bytes_per_second_mean) <= {one_way_most}
        THEN max(b.nvlink_tx_bytes_per_second_mean, b.nvlink_rx_bytes_per_second_mean) / c.nvlink END AS n,
    CASE WHEN min(b.pcie_tx_bytes_per_second_mean, b.pcie_rx_bytes_per_second_mean) > 0
        OR max(b.pcie_tx_bytes_per_second_mean, b.pcie_rx_bytes_per_second_mean) <= {one_way_most}
        THEN max(b.pcie_tx_bytes_per_second_mean, b.pcie_rx_bytes_per_second_mean) / c.pcie END AS p,
    b.sm_clock_hertz_mean / c.clock AS clock_ratio, b.duty, b.throttled_fraction AS throttled,
    1.0 * b.mem_used_bytes_mean / b.mem_total_bytes AS mem, 1.0 * b.mem_used_bytes_max / b.mem_total_bytes AS mem_max,
    b.power_watts_mean AS power, y.idle_power, b.power_watts_mean / y.idle_power AS over_idle,
    b.gpu_util_mean IS NOT NULL OR coalesce(b.sm_active_mean < {trace}, 0) AND NOT coalesce(b.dram_active_mean >= {trace}, 0)
        AND NOT coalesce(b.tensor_active_mean >= {trace}, 0) AS engine_known,
    b.gpu_util_mean IS NOT NULL AND (b.sm_active_mean IS NOT NULL OR b.dram_active_mean IS NOT NULL) AS two_sources,
    c.rest_low, c.rest_high, c.power_limit, b.blind,
    c.eta_c, c.eta_m, c.link_share, {bin_columns}
FROM sound b JOIN cards c ON c.node = b.node AND c.gpu_uuid = b.gpu_uuid JOIN still y ON y.name = c.name

-- block signals needs measured: which rows know of work, and in which no counter that is known shows any
SELECT *, kind = 'mig' AS instance, g IS NOT NULL OR m IS NOT NULL AS known,
    g IS NOT NULL AND (m IS NOT NULL OR c IS NOT NULL) AS two_counters,
    NOT coalesce(g >= {engine_max}, 0) AND NOT coalesce(m >= {dram_max}, 0)
        AND NOT coalesce(sm >= {engine_max}, 0) AND NOT coalesce(g_p95_most >= {engine_max}, 0)
        AND NOT coalesce(c >= {engine_max}, 0) AS quiet
FROM measured

-- block resting needs signals: a GPU in MIG instances is as busy as all of them, and they share its power
SELECT *, all_quiet AND believed AND NOT blind AS rests, coalesce(mem < {free_mem}, 0) AS free
FROM (
    SELECT *, quiet AND (instance OR parts = 0 OR busy = 0) AS all_quiet,
        instance AND busy > (NOT quiet) AS others_work,
        parts > 0 AND NOT instance OR known AS believed,
        CASE WHEN parts > 0 AND NOT instance THEN dark = 0 ELSE engine_known END AS engine_told,
        CASE WHEN parts > 0 AND NOT instance THEN dark = 0 WHEN instance THEN two_counters ELSE two_sources END AS agreed,
        CASE WHEN parts > 0 THEN coalesce(whole_power, part_power) ELSE power END AS drawn
    FROM (
        SELECT *, sum(instance) OVER moment AS parts, sum(instance AND NOT quiet) OVER moment AS busy,
            sum(instance AND NOT (two_counters AND engine_known)) OVER moment AS dark,
            max(CASE WHEN NOT instance THEN power END) OVER moment AS whole_power, max(power) OVER moment AS part_power
        FROM signals
        WINDOW moment AS (PARTITION BY node, board, ts, interval_seconds)
    )
)

-- block levels needs resting: what each GPU draws at rest itself: the lowest decile, with memory held and without
SELECT node, board, free, sum(drawn * CASE place - CAST(tenth AS INTEGER)
    WHEN 0 THEN 1 - (tenth - CAST(tenth AS INTEGER)) WHEN 1 THEN tenth - CAST(tenth AS INTEGER) END) AS watts
FROM (
    SELECT node, board, free, drawn, row_number() OVER (PARTITION BY node, board, free ORDER BY drawn) - 1 AS place,
        {rest_quantile} * (count(*) OVER own - 1) AS tenth, count(*) OVER own AS count
    FROM resting WHERE rests AND NOT others_work AND drawn IS NOT NULL
    WINDOW own AS (PARTITION BY node, board, free)
)
WHERE count >= {rest_rows}
GROUP BY node, board, free

-- block judged needs resting levels: which rows were idle, and in which the signals contradict one another
SELECT *, rests AND engine_told AND NOT fault AND (NOT coalesce(drawn > rest_watts, 0) OR others_work)
    AND (agreed OR free OR coalesce(drawn <= sure_watts, 0)) AS idle
FROM (
    SELECT *, blind OR suspect AND sum(CASE WHEN suspect THEN observed ELSE 0 END)
        OVER (PARTITION BY node, board) >= {fault_seconds} AS fault
    FROM (
        SELECT *, rests AND engine_told AND NOT instance
            AND coalesce(drawn > max(rest_watts, {fault_power} * power_limit), 0) AS suspect
        FROM (
            SELECT r.*, {rest_margin} * max(r.rest_high,
                CASE WHEN f.watts <= {own_max} * r.rest_high THEN f.watts ELSE r.rest_high END,
                CASE WHEN h.watts <= {own_max} * r.rest_high THEN h.watts ELSE r.rest_high END) AS rest_watts,
                {sure_margin} * CASE WHEN f.watts <= r.rest_high THEN max(f.watts, r.rest_low) ELSE r.rest_low END
                AS sure_watts
            FROM resting r
            LEFT JOIN levels f ON f.node = r.node AND f.board = r.board AND f.free = 1
            LEFT JOIN levels h ON h.node = r.node AND h.board = r.board AND h.free = 0
        )
    )
)
