"""Idle policies: rules of a workspace that close idle clusters."""
