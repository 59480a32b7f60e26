-- Minor 1 (PRAGMA user_version = 1001): what local inference servers tell of themselves.
-- Values are integers in quanta as in 0001; ts ends the interval. A server's row names its engine and its page once.

CREATE TABLE server (
    id INTEGER PRIMARY KEY, node_id INTEGER NOT NULL REFERENCES node (id), engine TEXT NOT NULL, endpoint TEXT NOT NULL
);
CREATE TABLE serving_sample (
    id INTEGER PRIMARY KEY, server_id INTEGER NOT NULL REFERENCES server (id), workload_ref INTEGER, ts REAL NOT NULL,
    interval_ms INTEGER NOT NULL, kv_cache_usage INTEGER, requests_running INTEGER, requests_waiting INTEGER,
    prompt_tokens_per_second INTEGER, generation_tokens_per_second INTEGER, time_to_first_token_seconds INTEGER,
    preemptions_per_second INTEGER
);
CREATE INDEX serving_sample_by_ts ON serving_sample (ts);
CREATE VIEW serving_samples AS SELECT
    s.ts, s.interval_ms * 1e-3 AS interval_seconds, n.node, w.workload_id, v.engine, v.endpoint,
    s.kv_cache_usage * 1e-04 AS kv_cache_usage, s.requests_running * 1.0 AS requests_running,
    s.requests_waiting * 1.0 AS requests_waiting, s.prompt_tokens_per_second * 0.1 AS prompt_tokens_per_second,
    s.generation_tokens_per_second * 0.1 AS generation_tokens_per_second,
    s.time_to_first_token_seconds * 1e-04 AS time_to_first_token_seconds,
    s.preemptions_per_second * 1e-03 AS preemptions_per_second
    FROM serving_sample s JOIN server v ON v.id = s.server_id JOIN node n ON n.id = v.node_id
    LEFT JOIN workload w ON w.id = s.workload_ref;
