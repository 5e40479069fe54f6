"""Findings: made and stored in the background, so that lists only have to read them."""
