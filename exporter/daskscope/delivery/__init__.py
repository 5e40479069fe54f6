"""Delivers snapshots to the daskscope service as heartbeats."""
