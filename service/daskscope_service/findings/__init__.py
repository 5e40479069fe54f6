"""Findings, made in the background and stored, so that lists of them need no work."""
