-- Minor 3 (PRAGMA user_version = 1003): what the driver told of its own accord (XID, ECC and the like).
-- ts and last_ts: the first and the last of `count` like events; code: the XID's number.

CREATE TABLE event (
    id INTEGER PRIMARY KEY, node_id INTEGER NOT NULL REFERENCES node (id), gpu_uuid TEXT, kind TEXT NOT NULL,
    code INTEGER, detail TEXT NOT NULL DEFAULT '', ts REAL NOT NULL, last_ts REAL NOT NULL, count INTEGER NOT NULL
);
CREATE VIEW events AS SELECT e.ts, e.last_ts, e.count, n.node, e.gpu_uuid, e.kind, e.code, e.detail
    FROM event e JOIN node n ON n.id = e.node_id;
