"""Who is told, and how it gets there: routes, letters, the outbox, SMTP and webhooks."""
