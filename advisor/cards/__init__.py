"""Cards of single jobs: running or finished, from telemetry or kept."""
