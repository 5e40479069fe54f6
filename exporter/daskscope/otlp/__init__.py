"""Sends snapshots to OpenTelemetry: metrics, traces and logs over OTLP."""

from daskscope.otlp.limits import import_sdk

import_sdk()
