-- Minor 6 (PRAGMA user_version = 1006): Slurm's job table, as `skuwise slurm import` reads it. A job that was requeued,
-- or was given a recycled id, has a row for each run. cluster '' is: not told.

CREATE TABLE slurm_job (
    id INTEGER PRIMARY KEY,
    cluster TEXT NOT NULL,
    job_id TEXT NOT NULL,
    started_at REAL NOT NULL,
    ended_at REAL,
    submitted_at REAL,
    restarts INTEGER,
    name TEXT,
    user TEXT,
    account TEXT,
    partition TEXT,
    qos TEXT,
    array_job_id TEXT,
    array_task_id TEXT,
    state TEXT,
    nodes TEXT,
    gpus INTEGER,
    cpus INTEGER,
    mem_bytes REAL,
    imported_at REAL NOT NULL,
    UNIQUE (cluster, job_id, started_at)
);
CREATE VIEW slurm_jobs AS SELECT nullif(cluster, '') AS cluster, job_id, restarts, name, user, account, partition, qos,
    array_job_id, array_task_id, state, submitted_at, started_at, ended_at, nodes, gpus, cpus, mem_bytes, imported_at
    FROM slurm_job;
