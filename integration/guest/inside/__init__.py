"""Programs that run inside the guest."""
