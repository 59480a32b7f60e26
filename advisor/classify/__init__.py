"""What each workload is and what holds it back."""
