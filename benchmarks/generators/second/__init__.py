"""A second generator of labelled fleets, for evaluation alone.

It shares no code with `advisor/demo`: work is a schedule of segments or a queue of requests, integrated onto
seconds, with its own hardware table, noise and naming. What both use is the measuring device: the store, and the
rollups that are tested to equal the agent's. Seeds below 1000 are kept for reporting: nothing is fitted or tuned on
them.
"""
