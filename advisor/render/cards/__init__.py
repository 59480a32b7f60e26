"""The card of a job in its formats: text, Markdown, HTML, a list, Slurm's comment and Kubernetes' manifests."""
