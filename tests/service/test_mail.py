"""Notifications by e-mail: what a mail server gets, and what is told where it takes nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import requests
from sqlalchemy import delete

from daskscope_service.db import schema
from daskscope_service.db.engine import writing
from tests.service.mail_server import MailServer
from tests.service.test_commands import Workspace, workspace
from tests.service.test_notifications import add, erred
from tests.service.test_policies import owner
from tests.service_process import ServiceProcess

__all__ = ["owner", "workspace"]  # fixtures


@pytest.fixture(scope="module")
def shared_service(quick_service: ServiceProcess) -> ServiceProcess:
    return quick_service


@pytest.fixture
def mail_server(workspace: Workspace) -> Iterator[MailServer]:
    with MailServer() as server:
        yield server
        with writing(workspace.service.engine) as connection:  # no one listens any more
            target = schema.notification_target
            connection.execute(delete(target).where(target.c.workspace == workspace.name))


def test_what_happens_comes_by_mail_with_its_link(
    workspace: Workspace, owner: requests.Session, mail_server: MailServer
) -> None:
    assert add(workspace, owner, mail_server.address())["service"] == "mailto"
    workspace.beat(computations=(erred("c1"),))
    recipients, mail = mail_server.wait(1)
    assert recipients == ["ada@example.org"]
    assert mail["From"].addresses[0].addr_spec == "daskscope@example.org"
    assert mail["Subject"] == f"daskscope, {workspace.name}: computation failed"
    body = mail.get_body(("plain",))
    assert body is not None
    text = body.get_content()
    assert "A computation of ada on nightly failed after" in text
    assert f"{workspace.service.url}/clusters/{workspace.cluster.id}/computations/c1" in text
    assert MailServer.password not in mail.as_string()


def test_the_test_button_tells_what_the_mail_server_said_and_no_password(
    workspace: Workspace, owner: requests.Session, mail_server: MailServer
) -> None:
    url = f"{workspace.service.url}/api/v1/targets"
    target = add(workspace, owner, mail_server.address())["id"]
    assert owner.post(f"{url}/{target}/test", timeout=60).json() == {"sent": True, "failure": None}
    _, mail = mail_server.wait(1)
    assert mail["Subject"] == f"daskscope, {workspace.name}: a test"
    mail_server.refuses = True
    answer = owner.post(f"{url}/{target}/test", timeout=60).json()
    assert answer["sent"] is False
    assert answer["failure"]
    assert MailServer.password not in str(answer)
    wrong = add(workspace, owner, mail_server.address("wr0ng-one"), name="other")["id"]
    answer = owner.post(f"{url}/{wrong}/test", timeout=60).json()
    assert answer["sent"] is False
    assert "wr0ng-one" not in str(answer)
    assert len(mail_server.mails) == 1
    items = owner.get(url, timeout=30).text
    assert MailServer.password not in items
