"""Sessions with the services of the stack, each opened once: a test here asks hundreds of times."""

from __future__ import annotations

import functools

import requests

from tests.service.people import sign_in_by_link
from tests.service_process import ServiceProcess


@functools.cache
def api(service: ServiceProcess) -> requests.Session:
    """Return a session with a token that reads the workspace ``default``."""
    session = requests.Session()
    session.headers["Authorization"] = f"Bearer {service.token()}"
    return session


@functools.cache
def browser(service: ServiceProcess) -> requests.Session:
    """Return a session that is signed in."""
    session = requests.Session()
    sign_in_by_link(service, session)
    return session
