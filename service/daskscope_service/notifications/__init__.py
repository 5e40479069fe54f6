"""Notifications: messages about events, and the targets that receive them."""
