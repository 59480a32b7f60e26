"""Shared types and formats: advice, frames, histograms, times, ids, sums. It imports no other room."""
