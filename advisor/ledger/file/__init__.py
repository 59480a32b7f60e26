"""The ledger's file: its rows, its place, its locks, and the bounds it is read within."""
