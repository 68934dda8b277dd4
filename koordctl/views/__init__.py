"""Renders answers as text for people, by pure functions from messages to lines."""
