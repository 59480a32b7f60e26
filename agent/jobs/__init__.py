"""Which job holds which GPU: Slurm, Kubernetes, containers, processes; and what this node is."""
