"""The command line: one file a command, the options they share, and where their output goes."""
