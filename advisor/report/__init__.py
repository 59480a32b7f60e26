"""What one report tells: chosen from advice, the week before and the ledger, in the order in which people read it."""
