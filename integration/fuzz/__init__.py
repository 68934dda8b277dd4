"""Malformed input from clients, runtimes and hook servers, while a good client goes on."""
