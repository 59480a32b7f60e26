-- block own needs uses wanted span: each workload's spans on each GPU, joined where they touch
SELECT workload_id, node, gpu_uuid, min(a) AS a, max(b) AS b FROM (
    SELECT *, sum(fresh) OVER (PARTITION BY workload_id, node, gpu_uuid ORDER BY a, b ROWS UNBOUNDED PRECEDING) AS island
    FROM (
        SELECT *, coalesce(a > max(b) OVER (PARTITION BY workload_id, node, gpu_uuid ORDER BY a, b
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS fresh
        FROM (
            SELECT u.workload_id, u.node, u.gpu_uuid, max(u.ts_start, start) AS a, min(u.ts_end, stop) AS b
            FROM uses u JOIN wanted w ON w.node = u.node, span
        )
    )
)
GROUP BY workload_id, node, gpu_uuid, island

-- block drained needs cards span: when a node was out of service
SELECT c.node, c.gpu_uuid, max(d.since, start) AS a, min(coalesce(d.until, n.last_seen), stop) AS b
FROM absences d JOIN nodes n ON n.node = d.node JOIN cards c ON c.node = d.node, span
WHERE d.reason = 'drained' AND d.since < stop AND coalesce(d.until, n.last_seen) > start

-- block marks needs own drained cards span wanted: every moment at which it may change who holds a GPU
SELECT node, gpu_uuid, a AS t FROM own UNION SELECT node, gpu_uuid, b FROM own
UNION SELECT node, gpu_uuid, a FROM drained UNION SELECT node, gpu_uuid, b FROM drained
UNION SELECT c.node, c.gpu_uuid, start FROM cards c JOIN wanted w ON w.node = c.node, span
UNION SELECT c.node, c.gpu_uuid, stop FROM cards c JOIN wanted w ON w.node = c.node, span

-- block together needs marks own: how many held it between two marks
SELECT s.node, s.gpu_uuid, s.a, s.b, count(o.workload_id) AS holders, max(o.workload_id) AS holder
FROM (
    SELECT node, gpu_uuid, t AS a, lead(t) OVER (PARTITION BY node, gpu_uuid ORDER BY t) AS b FROM marks
) s LEFT JOIN own o ON o.node = s.node AND o.gpu_uuid = s.gpu_uuid AND o.a <= s.a AND o.b >= s.b
WHERE s.b IS NOT NULL
GROUP BY s.node, s.gpu_uuid, s.a, s.b

-- block held needs together: two for a moment are one after the other: it goes to whoever was there before
SELECT node, gpu_uuid, a, b,
    CASE WHEN brief THEN min(1, coalesce(lag(holders) OVER earlier, 0)) ELSE holders END AS holders,
    CASE WHEN brief THEN lag(holder) OVER earlier ELSE holder END AS holder
FROM (SELECT *, holders > 1 AND b - a <= {handover} AS brief FROM together)
WINDOW earlier AS (PARTITION BY node, gpu_uuid ORDER BY a)

-- block sweep needs held drained uses: whose each moment was: nobody's, one workload's, of several, out of service
SELECT h.node, h.gpu_uuid, h.a, h.b, h.holder, CASE
    WHEN h.holders > 1 THEN 'shared'
    WHEN h.holders = 1 AND EXISTS (SELECT 1 FROM uses u WHERE u.shared = 1 AND u.node = h.node
        AND u.gpu_uuid = h.gpu_uuid AND u.ts_start <= h.a AND u.ts_end >= h.b) THEN 'shared'
    WHEN h.holders = 1 THEN 'held'
    WHEN EXISTS (SELECT 1 FROM drained d WHERE d.node = h.node AND d.gpu_uuid = h.gpu_uuid
        AND d.a <= h.a AND d.b >= h.b) THEN 'drained'
    ELSE 'nobody' END AS state
FROM held h

-- block places needs judged sweep: every row, shared out over whoever held the GPU meanwhile
SELECT j.*, s.holder, s.state,
    j.observed * min(1, (min(j.ended, s.b) - max(j.began, s.a)) / (j.ended - j.began)) AS seconds
FROM judged j
JOIN sweep s ON s.node = j.node AND s.gpu_uuid = j.gpu_uuid AND s.a < j.ended AND s.b > j.began

-- block spare needs places: the time in which nobody held these GPUs while in service; part: of a GPU that each is
SELECT *, {part} AS part FROM places
WHERE state = 'nobody' AND seconds > 0 AND node IN ({finding_nodes}) AND gpu_uuid IN (
    {gpus}
)

-- block nodehours needs places: the observed hours of each node, over its GPUs
SELECT p.node, coalesce(n.gpu_count, count(DISTINCT p.gpu_uuid)) AS gpu_count,
    sum(p.seconds) / 3600 / max(coalesce(n.gpu_count, count(DISTINCT p.gpu_uuid)), 1) AS hours
FROM places p JOIN nodes n ON n.node = p.node
WHERE p.kind = 'gpu'
GROUP BY p.node

-- block mine needs judged own sweep fabric_use: the rows of its workloads; whole: all of the row was its own
SELECT j.*, o.workload_id,
    j.observed * min(1, (min(j.ended, o.b) - max(j.began, o.a)) / (j.ended - j.began)) AS seconds,
    (min(j.ended, o.b) - max(j.began, o.a)) / (j.ended - j.began) >= 0.98 AS whole,
    EXISTS (SELECT 1 FROM sweep s WHERE s.node = o.node AND s.gpu_uuid = o.gpu_uuid AND s.state = 'shared'
        AND s.b > o.a AND s.a < o.b) AS shared,
    coalesce(e.i, h.i) AS i
FROM own o
JOIN judged j ON j.node = o.node AND j.gpu_uuid = o.gpu_uuid AND j.ended > o.a AND j.began < o.b
LEFT JOIN fabric_use e ON e.node = j.node AND e.ts = j.ts AND e.interval_seconds = j.interval_seconds
LEFT JOIN fabric_use h ON h.node = j.node AND h.interval_seconds = 3600
    AND h.ts = 3600.0 * (CAST(j.ts / 3600 AS INTEGER) + (j.ts > 3600.0 * CAST(j.ts / 3600 AS INTEGER)))
WHERE o.workload_id IN ({members})

-- block used needs mine: the same with its use of each resource over what the GPU sustains
SELECT *, c / eta_c AS u_c, m / eta_m AS u_m, n / link_share AS u_n, i AS u_i, p AS u_p, workload_id IN ({now}) AS now
FROM mine

-- block shaped needs used: the rows that were wholly its own (those it shared only where there are no others)
SELECT * FROM (SELECT *, max(whole AND NOT shared) OVER (PARTITION BY workload_id) AS any_own FROM used)
WHERE whole AND (NOT shared OR NOT any_own)

-- block load needs used: the load of each moment: the cube root of the sum of cubes of all uses, mean of its GPUs
SELECT ts, sum(seconds * min(x, 1)) / sum(seconds) AS load FROM (
{cube_root}
) GROUP BY ts
