"""What every room of the advisor speaks in: advice, frames, histograms, times, ids, sums. It imports no other room."""
