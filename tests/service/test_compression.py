from __future__ import annotations

import gzip

import pytest
import requests

from tests.service.people import browser_of, make_user
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite


def raw(
    service: ServiceProcess, path: str, browser: requests.Session | None = None, **headers: str
) -> tuple[requests.Response, bytes]:
    """Return an answer, and its body as it was sent."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with (browser or requests).get(
        service.url + path, headers=named, stream=True, timeout=30
    ) as answer:
        return answer, answer.raw.read()


@pytest.mark.parametrize("path", ["/sign-in", "/static/app.css"])
def test_browsers_get_pages_and_styles_compressed(
    shared_service: ServiceProcess, path: str
) -> None:
    plain, whole = raw(shared_service, path, Accept_Encoding="identity")
    answer, sent = raw(shared_service, path, Accept_Encoding="br, gzip")

    assert "Content-Encoding" not in plain.headers
    assert answer.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(sent) == whole
    assert len(sent) < len(whole) / 2
    for one in (plain, answer):
        assert "Accept-Encoding" in one.headers["Vary"]


def test_who_refuses_gzip_gets_none(shared_service: ServiceProcess) -> None:
    answer, sent = raw(shared_service, "/sign-in", Accept_Encoding="gzip;q=0, br")

    assert "Content-Encoding" not in answer.headers
    assert sent.startswith(b"<!doctype html>")


def test_a_file_that_has_not_changed_is_not_sent_again(shared_service: ServiceProcess) -> None:
    first, _ = raw(shared_service, "/static/app.css", Accept_Encoding="gzip")
    again, sent = raw(
        shared_service,
        "/static/app.css",
        Accept_Encoding="gzip",
        If_None_Match=first.headers["ETag"],
    )

    assert first.headers["ETag"].startswith("W/")  # those of other bytes are as good
    assert (again.status_code, sent) == (304, b"")


def test_a_page_with_a_secret_goes_as_it_is(shared_service: ServiceProcess) -> None:
    owner = make_user(shared_service, {"compression": "owner"})
    browser = browser_of(shared_service, owner.name)

    answer = browser.post(
        f"{shared_service.url}/settings/tokens", data={"scope": "read"}, timeout=30
    )

    assert "dsk_" in answer.text
    assert "Content-Encoding" not in answer.headers
