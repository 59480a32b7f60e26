-- Minor 7 (PRAGMA user_version = 1007): how long a server's requests waited, by the hour, as counts in fixed bins.
-- Percentiles do not add up, counts do: each text holds the counts of the bins of agent/statistics/latency_bins.py, with
-- commas between, the empty ones at the end left out. NULL: the engine told no such histogram, or nothing was counted.
-- An hour may have several rows (of one after a restart of the agent): their counts add up. ts ends what a row counts.

ALTER TABLE serving_sample ADD COLUMN time_per_output_token_seconds INTEGER;
DROP VIEW serving_samples;
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
CREATE TABLE serving_hour (
    id INTEGER PRIMARY KEY, server_id INTEGER NOT NULL REFERENCES server (id), workload_ref INTEGER, ts REAL NOT NULL,
    interval_ms INTEGER NOT NULL, first_token_bins TEXT, output_token_bins TEXT
);
CREATE INDEX serving_hour_by_ts ON serving_hour (ts);
CREATE VIEW serving_hours AS SELECT
    s.ts, s.interval_ms * 1e-3 AS interval_seconds, n.node, w.workload_id, v.engine, v.endpoint,
    s.first_token_bins, s.output_token_bins
    FROM serving_hour s JOIN server v ON v.id = s.server_id JOIN node n ON n.id = v.node_id
    LEFT JOIN workload w ON w.id = s.workload_ref;
