"""Relays connections of CRI clients to the runtime frame by frame, and holds a few streams on the way."""
