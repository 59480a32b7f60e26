"""Who is told of incidents, in what words, and by which channel."""
