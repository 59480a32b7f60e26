"""Speed, memory and storage: the figures of docs/benchmarks.md."""
