"""The card of a job in its formats: text, Markdown, HTML, a list and Slurm's comment."""
