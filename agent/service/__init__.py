"""The running agent: its loop, its signals, its doctor, its installation."""
