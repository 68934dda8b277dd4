"""Measurements that print a table; see README.md. Never part of the tests."""
