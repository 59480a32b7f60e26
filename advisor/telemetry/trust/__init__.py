"""Which file speaks for which node where several tell of it."""
