"""What Slurm's daemons and files on this node say of jobs and their GPUs."""
