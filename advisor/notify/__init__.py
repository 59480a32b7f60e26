"""Mails, webhooks, alerts: recipients, contents, sending."""
