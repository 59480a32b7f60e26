"""Commands, one a file: the options they share, and where their output goes."""
