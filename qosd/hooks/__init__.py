"""Runtime hooks: pure functions from a pod's context and the policy to edits, each with the sentence saying why.

One engine (``engine.decide``), one ordered tuple of hooks and one table of the fields that each edits (``table.py``).
Front ends (the hook service, NodeInspect) translate; they never decide.
"""
