"""Counts and records what the scheduler does. No I/O, no OpenTelemetry."""
