"""The evictor: phases, journal and notes of each course that an eviction can take."""
