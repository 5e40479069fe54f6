"""Files that a page gives away, under a name that says what is in them."""

from __future__ import annotations

import re

from flask import Response

#: Characters of a part of a name: of an id of a cluster, all.
_LONGEST = 80


def attach(response: Response, *parts: str, ending: str) -> Response:
    """Have browsers keep ``response`` as the file ``part-part.ending``."""
    plain = (re.sub("[^A-Za-z0-9._]+", "-", part)[:_LONGEST].strip("-.") for part in parts)
    name = "-".join(part for part in plain if part)
    response.headers["Content-Disposition"] = f'attachment; filename="{name}.{ending}"'
    return response
