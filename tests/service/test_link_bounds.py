"""No page has a link whose address a proxy in front of the service would refuse."""

from __future__ import annotations

import re
import uuid
from urllib.parse import urlencode

import pytest
import requests

from tests.service.beats import full_beat, make_cluster, post
from tests.service.pages import words
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite


def test_names_of_many_odd_characters_make_no_link_that_nginx_refuses(
    shared_service: ServiceProcess,
) -> None:
    service, workspace = shared_service, f"links-{uuid.uuid4().hex}"
    odd = "\N{GRINNING FACE}" * 250
    token = service.token(workspace=workspace)
    cluster = make_cluster(f"Scheduler-{uuid.uuid4().hex}", user=odd, kind=odd, tags={"team": odd})
    assert post(service.url, token, full_beat(cluster)).ok
    browser = requests.Session()
    browser.post(f"{service.url}/sign-in", data={"token": token}, timeout=30)
    page = browser.get(
        f"{service.url}/clusters?{urlencode({'user': odd, 'kind': odd})}", timeout=30
    )
    assert page.ok
    assert odd[:20] in page.text
    addresses = re.findall(r'href="([^"]*)"', words(page.text))
    assert any(len(one) > 3_000 for one in addresses)
    assert max(map(len, addresses)) <= 8_000
