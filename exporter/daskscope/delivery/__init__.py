"""Snapshot to the daskscope service: heartbeats."""
