"""What the scheduler did, as plain counters and records. No I/O, no OpenTelemetry."""
