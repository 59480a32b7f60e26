"""How often verdicts, owners and predictions are right: the figures of docs/method.md."""
