"""Snapshot to OpenTelemetry: metrics, traces and logs over OTLP."""
