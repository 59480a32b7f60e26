"""The road of telemetry through node databases: read in a process apart, within bounds."""
