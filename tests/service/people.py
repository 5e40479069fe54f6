"""Users for tests, and browsers in which they are signed in."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import requests

from daskscope_service.accounts import sign_in, users
from daskscope_service.accounts.users import Role, User
from tests.service_process import ServiceProcess

PASSWORD = "correct horse battery"


def make_user(service: ServiceProcess, roles: Mapping[str, Role]) -> User:
    """Make a user with ``roles`` by workspace and the password :data:`PASSWORD`."""
    (workspace, role), *more = roles.items()
    user = users.create(
        service.engine,
        name=f"Maria-{uuid.uuid4().hex[:8]}@example.org",
        password=PASSWORD,
        workspace=workspace,
        role=role,
    )
    for other, its_role in more:
        users.set_role(service.engine, user, other, its_role)
    return user


def try_to_sign_in(
    service: ServiceProcess, name: str, password: str = PASSWORD, **form: str
) -> requests.Response:
    """Send the form of the sign-in page."""
    return requests.post(
        f"{service.url}/sign-in",
        data={"name": name, "password": password} | form,
        allow_redirects=False,
        timeout=30,
    )


def browser_of(service: ServiceProcess, name: str, password: str = PASSWORD) -> requests.Session:
    """Return a browser in which the user is signed in."""
    browser = requests.Session()
    browser.headers["User-Agent"] = (
        "Mozilla/5.0 (X11; Linux x86_64; rv:144.0) Gecko/20100101 Firefox/144.0"
    )
    form = {"name": name, "password": password}
    answer = browser.post(f"{service.url}/sign-in", data=form, timeout=30)
    assert answer.ok, answer.text
    return browser


def follow(link: str, browser: requests.Session, **options: Any) -> requests.Response:
    """Open a sign-in link and press the button on its page."""
    page = browser.get(link, timeout=30, **options)
    assert page.ok, page.text
    form = {"code": link.partition("code=")[2]}
    return browser.post(link.partition("?")[0], data=form, timeout=30, **options)


def sign_in_by_link(
    service: ServiceProcess, browser: requests.Session, workspace: str = "default"
) -> None:
    """Sign in with a fresh link, as an owner of ``workspace``."""
    answer = follow(sign_in.make_link(service.engine, service.url, workspace), browser)
    assert answer.ok, answer.text


def is_in(service: ServiceProcess, browser: requests.Session) -> bool:
    """Return whether the browser is signed in: at the pages and at the API alike."""
    page = browser.get(f"{service.url}/exceptions", allow_redirects=False, timeout=30)
    answer = browser.get(f"{service.url}/api/v1/clusters", timeout=30)
    assert (page.status_code, answer.status_code) in ((200, 200), (303, 401))
    return answer.ok
