"""The metrics of Koordinator's node agent, koordlet, under its own names, so that its dashboards and alerts go on.

``table`` has a row for each of them: its source here, or why it is not exported. Nothing is kept or counted for them: a
scrape renders the newest tick's report, the samples, and the daemon's own counters; the modules are imported by the
first scrape.
"""
