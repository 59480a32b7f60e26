"""Work whose limit is known from physics alone: small hand-made cases for bottleneck verdicts."""
