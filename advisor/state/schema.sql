-- The state of one fleet: what was recommended and decided, incidents, cards of finished jobs, messages.
-- Times are Unix seconds, UTC. JSON columns hold one frozen dataclass each, by the names of its fields.
CREATE TABLE fleets (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, simulated INTEGER NOT NULL, match TEXT NOT NULL, clusters TEXT NOT NULL,
    server TEXT NOT NULL, labels TEXT NOT NULL, first_seen REAL NOT NULL, last_seen REAL NOT NULL
);
CREATE TABLE fleet_members (
    fleet TEXT NOT NULL REFERENCES fleets (id), member TEXT NOT NULL, node TEXT NOT NULL, last_seen REAL NOT NULL,
    PRIMARY KEY (fleet, member)
);
-- recommendation: as it was last proposed (core/advice_types.py); snapshot: what its prediction rested on when it was
-- accepted (recommend/progress.py), NULL: it was always blocked.
CREATE TABLE recommendations (
    id TEXT PRIMARY KEY, action TEXT NOT NULL, about TEXT NOT NULL, source TEXT NOT NULL,
    first_proposed REAL NOT NULL, last_proposed REAL NOT NULL, recommendation TEXT NOT NULL, snapshot TEXT
);
-- Only ever added to. until: the end of a snooze; realised: what was measured, JSON.
CREATE TABLE decisions (
    seq INTEGER PRIMARY KEY, recommendation TEXT NOT NULL REFERENCES recommendations (id), act TEXT NOT NULL,
    at REAL NOT NULL, by TEXT NOT NULL, until REAL, why TEXT, realised TEXT
);
CREATE INDEX decisions_of ON decisions (recommendation);
-- Which recommendation a recipient of the report was told of, in the week that ended then; decision: the newest then.
CREATE TABLE told (
    seq INTEGER PRIMARY KEY, recipient TEXT NOT NULL, recommendation TEXT NOT NULL, at REAL NOT NULL, week REAL,
    decision INTEGER NOT NULL
);
CREATE INDEX told_to ON told (recipient);
-- sighting: as it was last found (core/incident_types.py), JSON.
CREATE TABLE incidents (
    id TEXT PRIMARY KEY, state TEXT NOT NULL, opened_at REAL NOT NULL, since REAL NOT NULL, updated_at REAL NOT NULL,
    last_seen_at REAL NOT NULL, gpu_hours REAL NOT NULL, cost_usd REAL, silent_since REAL, acknowledged_at REAL,
    acknowledged_by TEXT, snoozed_until REAL, resolved_at REAL, resolution TEXT, reminders INTEGER NOT NULL,
    told_at REAL, data_until REAL, reopenings INTEGER NOT NULL, resolution_told INTEGER NOT NULL, sighting TEXT NOT NULL
);
-- settled: nobody is to be told of it any more; printed: a dry run has shown it.
CREATE TABLE incident_events (
    incident TEXT NOT NULL REFERENCES incidents (id), number INTEGER NOT NULL, kind TEXT NOT NULL, at REAL NOT NULL,
    settled INTEGER NOT NULL DEFAULT 0, printed INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (incident, number)
);
-- One message to one recipient. state: due, sending (handed over, the end is not known), sent, failed.
-- unsure: attempts whose end nobody knows, after which it may have arrived.
CREATE TABLE deliveries (
    id INTEGER PRIMARY KEY, batch TEXT NOT NULL, team TEXT NOT NULL, channel TEXT NOT NULL, recipient TEXT NOT NULL,
    message_id TEXT NOT NULL, subject TEXT NOT NULL, content BLOB, queued_at REAL NOT NULL, state TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0, unsure INTEGER NOT NULL DEFAULT 0, first_attempt_at REAL, next_attempt_at REAL,
    ended_at REAL, reply TEXT NOT NULL DEFAULT '', UNIQUE (batch, team, channel, recipient)
);
CREATE INDEX deliveries_waiting ON deliveries (state);
-- What a delivery of the watch informs of: the key of an incident's event (INCIDENT/NUMBER).
CREATE TABLE delivery_items (
    delivery INTEGER NOT NULL REFERENCES deliveries (id) ON DELETE CASCADE, item TEXT NOT NULL,
    PRIMARY KEY (item, delivery)
);
-- card: core/card_types.py, JSON; the other columns are what it is found by.
CREATE TABLE cards (
    id TEXT PRIMARY KEY, series_id TEXT NOT NULL, name TEXT NOT NULL, job_id TEXT, namespace TEXT, pod TEXT, user TEXT,
    account TEXT, ended_at REAL NOT NULL, kept_at REAL NOT NULL, card TEXT NOT NULL
);
CREATE INDEX cards_job ON cards (job_id);
CREATE INDEX cards_name ON cards (name);
CREATE INDEX cards_pod ON cards (pod);
CREATE INDEX cards_series ON cards (series_id);
CREATE INDEX cards_ended ON cards (ended_at);
