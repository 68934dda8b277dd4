"""Answers as text for people: pure functions from messages to lines."""
