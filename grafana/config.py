"""The thresholds of the dashboards and of the alert rules, and how long an alert waits."""

from __future__ import annotations

#: Seconds without work after which a cluster that still has threads is a waste.
IDLE_SECONDS = 1800
#: Shares of the workers' memory: Dask spills from about the first on, and pauses near the second.
MUCH_MEMORY, NEARLY_ALL_MEMORY = 0.8, 0.9
#: Items in a queue of the plugin: a destination that answers leaves it far below.
LONG_QUEUE = 1000
#: Lost workers in a quarter of an hour: one may be an accident.
LOST_WORKERS = 2

#: The log records of workers that were lost. OpenTelemetry's severity 17 is ERROR; a worker that
#: was asked to leave has a lower one.
WERE_LOST = '"severity_number" >= 17'
