"""Act: one value per kernel file out of all opinions, and one actuator that writes it, explains it and undoes it."""
