"""``make bench-agent``: what the node daemon costs by default, with all strategies on, and with these at work."""
