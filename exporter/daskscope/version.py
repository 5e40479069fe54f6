"""The version of the distribution, which contains both the exporter and the service."""

from __future__ import annotations

__version__ = "0.1.0"
