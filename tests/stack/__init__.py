"""The real stack: collector and InfluxDB built from source, with the service and a real cluster."""
