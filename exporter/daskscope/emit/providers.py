"""Who speaks: what OpenTelemetry's providers of one cluster have in common.

Nothing global is set or read but the ``OTEL_*`` variables: an application's own providers stay as
they are.
"""

from __future__ import annotations

from opentelemetry.sdk.resources import OTELResourceDetector, Resource

from daskscope import names, protocol

#: Attributes of every span and log record are few; the SDK's defaults suffice.
SCOPE = "daskscope"


def resource(cluster: protocol.Cluster) -> Resource:
    """Return who speaks: the attributes of DESIGN's contract and what ``OTEL_*`` variables add."""
    attributes: dict[str, str] = {
        names.SERVICE_NAME: "dask",
        names.SERVICE_NAMESPACE: cluster.workspace or "default",
        names.CLUSTER_NAME: cluster.name,
        names.HOST_NAME: cluster.host,
    }
    attributes |= {
        key: str(value) for key, value in OTELResourceDetector().detect().attributes.items()
    }
    # Whatever the environment says: another instance would be another series at every start.
    attributes[names.SERVICE_INSTANCE_ID] = attributes[names.CLUSTER_ID] = cluster.id
    return Resource(attributes)
