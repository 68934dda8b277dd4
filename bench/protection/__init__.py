"""Does best-effort work hurt a latency-sensitive service, and what does each policy do? See bench/README.md."""
