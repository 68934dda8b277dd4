"""Koordinator's own peers as doubles, written from what is known of them: a hook server and a CRI proxy."""
