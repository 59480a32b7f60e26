"""From telemetry to advice: what each workload is, what holds it back, where it should run."""
