"""What OpenTelemetry's providers of one cluster have in common.

Nothing global is set or read but the ``OTEL_*`` variables: an application's own providers stay as
they are.
"""

from __future__ import annotations

from opentelemetry.sdk.resources import Attributes, OTELResourceDetector, Resource

from daskscope import names, protocol
from daskscope.scrubbing import Scrubber

#: Attributes of every span and log record are few; the SDK's defaults suffice.
SCOPE = "daskscope"


class Who(Resource):
    """Who speaks: the attributes of DESIGN's contract and what ``OTEL_*`` variables add.

    Providers keep theirs for good, but a cluster may be called something else once its manager has
    told of it: what is sent from then on goes by :attr:`name`.
    """

    def __init__(self, cluster: protocol.Cluster, scrubber: Scrubber) -> None:
        environment = OTELResourceDetector().detect().attributes
        super().__init__(
            {
                names.SERVICE_NAME: "dask",
                names.SERVICE_NAMESPACE: cluster.workspace or "default",
                names.HOST_NAME: cluster.host,
                **scrubber.scrub_named({key: str(value) for key, value in environment.items()}),
                # Whatever the environment says: another instance would be another series at every
                # start.
                names.SERVICE_INSTANCE_ID: cluster.id,
                names.CLUSTER_ID: cluster.id,
            }
        )
        self.name = cluster.name

    @property
    def attributes(self) -> Attributes:
        """The attributes as they are now."""
        return {names.CLUSTER_NAME: self.name, **super().attributes}
