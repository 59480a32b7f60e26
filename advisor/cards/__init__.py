"""Cards of single jobs, running or finished, and where they are kept."""
