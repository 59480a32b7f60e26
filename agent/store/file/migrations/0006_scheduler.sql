-- Minor 5 (PRAGMA user_version = 1005): what a scheduler knows of a workload, beside who it is.

ALTER TABLE workload ADD COLUMN partition TEXT;
ALTER TABLE workload ADD COLUMN qos TEXT;
ALTER TABLE workload ADD COLUMN array_job_id TEXT;
ALTER TABLE workload ADD COLUMN array_task_id TEXT;
ALTER TABLE workload ADD COLUMN restarts INTEGER;
ALTER TABLE workload ADD COLUMN controller_kind TEXT;
ALTER TABLE workload ADD COLUMN image TEXT;
ALTER TABLE workload ADD COLUMN team TEXT;
DROP VIEW workloads;
CREATE VIEW workloads AS SELECT workload_id, series_id, name, scheduler, job_id, namespace, pod, user, account, framework,
    command, first_seen, last_seen, partition, qos, array_job_id, array_task_id, restarts, controller_kind, image, team
    FROM workload;
