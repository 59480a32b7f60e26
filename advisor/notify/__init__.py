"""Mails, webhooks and alerts: recipients, contents, sending."""
