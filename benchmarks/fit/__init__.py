"""What the packaged models are fitted on, and the fits."""
