"""What a user without any right may do to Koord on its node: nothing."""
