"""The metrics of Koordinator's node agent, koordlet, under its own names, so that its dashboards and alerts go on.

``table`` has a row for each of them: what it is made of here, or why it is not exported. Nothing is kept or counted for
them: a scrape renders what the newest tick has left, what is measured, and what the daemon counts anyway; the modules
are imported by the first scrape.
"""
