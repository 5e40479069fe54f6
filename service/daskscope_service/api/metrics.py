"""``/metrics``: the service's own metrics, in the format of Prometheus.

They name all workspaces, so only the operator of the service may read them: no token of a workspace
is enough.
"""

from __future__ import annotations

import hmac

from flask import Blueprint, Response, current_app, request
from prometheus_client import exposition

from daskscope_service.services import services
from daskscope_service.settings import Settings
from daskscope_service.web.problems import Problem

blueprint = Blueprint("metrics", __name__)


@blueprint.get("/metrics")
def get_metrics() -> Response:
    """Answer with all metrics, if the request has the secret of the settings."""
    settings: Settings = current_app.config["SETTINGS"]
    if not settings.metrics_token:
        raise Problem(
            403,
            "The metrics cover all workspaces, so only the operator of the service may read "
            "them: set DASKSCOPE_METRICS_TOKEN, and send it as 'Authorization: Bearer …'.",
        )
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    right = hmac.compare_digest(secret.strip().encode(), settings.metrics_token.encode())
    if scheme.lower() != "bearer" or not right:
        raise Problem(
            401,
            "This needs the secret in DASKSCOPE_METRICS_TOKEN, as 'Authorization: Bearer …'.",
            headers={"WWW-Authenticate": 'Bearer realm="daskscope metrics"'},
        )
    instruments = services().instruments
    encode, content_type = exposition.choose_encoder(request.headers.get("Accept", ""))
    return Response(encode(instruments.registry), content_type=content_type)
