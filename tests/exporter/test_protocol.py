"""What is on the wire can be read on the other side."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from typing import Any

import pytest

from daskscope import codec, protocol
from daskscope.config import settings
from daskscope.observe.cluster.opt_outs import OptOuts
from daskscope.privacy import Privacy
from tests.service.beats import make_beat, make_cluster

ODD = "/data/\udcff.csv"  # how Python spells a file name that is no UTF-8


@pytest.mark.parametrize("status", ["running", "finished", "erred", "cancelled"])
def test_as_many_tasks_are_done_as_there_may_be_whatever_the_counts_say(status: Any) -> None:
    for cancelled in (0, 1, 2**31):
        done = protocol.tasks_done(
            tasks=1, completed=1, erred=0, states={}, status=status, cancelled=cancelled
        )
        assert 0 <= done <= 1


def test_a_file_name_that_is_no_utf8_stops_nothing() -> None:
    cluster = dataclasses.replace(make_cluster(), name=ODD)
    body = codec.encode(make_beat(cluster))
    assert json.loads(body)["cluster"]["name"] == "/data/?.csv"


def test_the_hash_of_code_is_the_same_before_and_after_the_wire() -> None:
    on_the_wire = codec.code_hash("/data/?.csv", 1, False, "x")
    assert codec.code_hash(ODD, 1, False, "x") == on_the_wire


def test_scrubbed_text_is_utf8() -> None:
    assert Privacy(settings(), OptOuts(Counter()), Counter()).scrub(f"no {ODD}") == "no /data/?.csv"


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"{}",
        b"no json",
        b'{"server_time": "x", "interval": 1}',
        b'{"server_time": 1, "interval": 1%s}' % (b"0" * 400),
        b"[" * 100_000,
    ],
    ids=lambda body: body[:40].decode(),
)
def test_an_answer_that_is_no_reply_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"reply|Expecting|convert"):
        codec.decode_reply(body)


@pytest.mark.parametrize(
    "odd",
    [
        *(7, {"a": 1}, "", "javascript:alert(1)", "clusters/1"),
        *("https://host/\x1b]0;mine\x07", "https://h/" + "x" * 4_000),
    ],
)
def test_a_page_is_an_address_of_the_web_or_none(odd: object) -> None:
    body = json.dumps({"server_time": 1, "interval": 10, "url": odd}).encode()
    assert codec.decode_reply(body).url is None
    url = "https://monitor.example/clusters/Scheduler-é"
    assert codec.decode_reply(codec.encode(protocol.Reply(1.0, 10.0, url=url))).url == url


def test_commands_are_read_as_they_were_sent() -> None:
    commands = (
        protocol.Command("1", "shutdown", "ada", "It is Friday.", 30.0, True),
        protocol.Command("1", "call off", "ada", ""),
    )
    body = codec.encode(protocol.Reply(1.0, 10.0, commands=commands))
    assert codec.decode_reply(body).commands == commands


SHUTDOWN = {"id": "1", "action": "shutdown", "requested_by": "ada", "reason": ""}


@pytest.mark.parametrize(
    "odd",
    [
        7,
        "shutdown",
        {"action": "shutdown"},
        *([SHUTDOWN | {"grace": grace}] for grace in (10**400, float("inf"), float("nan"), -1)),
        [SHUTDOWN | {"grace": protocol.MAX_GRACE + 1}],
    ],
)
def test_an_answer_with_odd_commands_is_a_reply_all_the_same(odd: object) -> None:
    drops: Counter[str] = Counter()
    body = json.dumps({"server_time": 1, "interval": 10, "commands": odd}).encode()
    assert codec.decode_reply(body, drops).commands == ()
    assert drops == {"unknown command": 1}


def test_an_answer_without_commands_drops_nothing() -> None:
    drops: Counter[str] = Counter()
    assert codec.decode_reply(b'{"server_time": 1, "interval": 10}', drops).commands == ()
    assert not drops


@pytest.mark.parametrize(
    ("said", "read"),
    [(3, 3), (-5, 0), (1e308, protocol.MAX_LEFT_OUT), (10**4200, protocol.MAX_LEFT_OUT)],
)
def test_a_reply_cannot_make_a_count_that_nothing_can_send(said: float, read: int) -> None:
    body = json.dumps({"server_time": 1, "interval": 1, "rows_left_out": said}).encode()
    assert codec.decode_reply(body).rows_left_out == read


def test_a_reply_says_what_of_a_beat_was_not_stored_as_it_was() -> None:
    correction = protocol.Correction("$.events[0].id", "it is too long", left_out=True)
    reply = protocol.Reply(1.0, 10.0, corrections=(correction,), rows_left_out=1)
    assert codec.decode_reply(codec.encode(reply)) == reply
    # An earlier service says nothing of it.
    assert codec.decode_reply(b'{"server_time": 1, "interval": 10}').corrections == ()
