"""How long a test waits for what comes at once, if it comes at all."""

HANG_S = 60.0
"""Only what hangs takes so long, however busy the machine is."""
