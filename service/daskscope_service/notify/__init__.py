"""Notifications: what is worth telling, whom, and how it gets there."""
