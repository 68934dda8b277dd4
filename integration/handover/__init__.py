"""Hand-overs of the proxy at random moments, with held calls in flight and faults at every step."""
