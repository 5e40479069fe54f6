"""Secrets are taken out of texts, whatever else is in them, in time that their length bounds."""

from __future__ import annotations

import json
import re

import hypothesis
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from daskscope import scrubbing, slow_patterns
from daskscope.cutting import without_middle
from daskscope.messages import is_dasks, json_safe, of_dask
from daskscope.scrubbing import (
    MAX_WITHOUT_VALUE,
    SCRUBBED,
    Scrubber,
    without_code,
    without_source_lines,
)

LIMIT = 20_000
SECRET = "s3cr3t-W0rd+4711"


def scrub(text: str) -> str:
    return Scrubber().scrub(text, LIMIT)


@pytest.mark.parametrize(
    "text",
    [
        "password='{}'",
        'password = "{}"',
        "password = '''{}'''",
        'password: str = f"{}"',
        'os.environ["DB_PASSWORD"] = "{}"',
        "DB_PASS={}",
        "UID=sa;PWD={};",
        "AccountKey={};EndpointSuffix=core.windows.net",
        '{{"api_key": "{}"}}',
        '{{\\"api_key\\": \\"{}\\"}}',
        'if token == "{}":',
        'token="{}',  # what was cut
        'token="x\\"{}"',  # an escaped quote
        "Authorization: Bearer {}",
        "authorization: token {}",
        "curl -H 'X: bearer {}'",
        "run --api-token {} now",
        "run --password='{}'",
        "https://bob:{}@host/x",
        "https://{}@host/x",
        "https://bob:{}@@host/x",
        "https://host/x?a=1&token={}&b=2",
        "https://host/x?sv=1&sig={}",
        "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\n{}",
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\n{}",
        'password = """one\n{}\nthree"""',
        "Authorization: ApiKey {}",
        'headers["Authorization"] = "SharedKey account:{}"',
        "s3://AKIA:abc/{}/x@bucket",
    ],
)
def test_what_is_named_or_placed_as_a_secret_is_scrubbed(text: str) -> None:
    scrubbed = scrub(f"before {text.format(SECRET)} after")
    assert SCRUBBED in scrubbed
    assert "s3cr3t" not in scrubbed
    assert "4711" not in scrubbed
    assert scrubbed.startswith("before ")


@pytest.mark.parametrize(
    "text",
    [
        'credentials = {"password": "{}"}',
        'credentials = {"username": "bob", "password": "{}"}',
        '{"secret": {"token": "{}"}, "a": 1}',
        'SECRETS = {\n    "database": "{}",\n    "mail": "{}1"}',
        "passwords = {'ann': 'b', 'bob': '{}', 'cleo': 'd'}",
        'PASSWORDS = {"{}", "swordfish"}',
        '{"username": "bob", "key": "{}"}',
        "7z x file.7z -p{}",
        "unzip -P {} file.zip",
        "jdbc:oracle:thin:bob/{}@host:1521:x",
    ],
)
@pytest.mark.parametrize("code", [False, True])
def test_what_is_in_a_mapping_or_a_command_is_scrubbed(text: str, code: bool) -> None:
    scrubbed = Scrubber().scrub(f"before {text.replace('{}', SECRET)} after", LIMIT, code=code)
    assert SCRUBBED in scrubbed
    assert "s3cr3t" not in scrubbed
    assert "4711" not in scrubbed
    assert (scrubbed[:7], scrubbed[-6:]) == ("before ", " after")


@pytest.mark.parametrize("key", ["{}", "12345:{}"])
def test_the_key_of_the_climate_data_store_is_scrubbed(key: str) -> None:
    uuid = "1cb7a5d3-7a5c-4b1e-9d7f-0a1b2c3d4e5f"
    for text in ("url: https://cds.climate.copernicus.eu/api\nkey: §", "cdsapi.Client(key='§')"):
        assert uuid not in scrub(text.replace("§", key.format(uuid)))


@pytest.mark.parametrize(
    "token",
    [
        "dsk_abc2345678_" + "0123456789abcdef" * 4,
        "ghp_" + "a1" * 18,
        "github_pat_" + "a1" * 20,
        "glpat-" + "a1" * 10,
        "xoxb-" + "1234567890-abc",
        "AKIA" + "ABCDEFGH12345678",
        "AIza" + "a1" * 18,
        "sk-" + "a1" * 20,
        "sk_live_" + "a1" * 12,
        "hf_" + "a1" * 17,
        "dapi" + "0a" * 16,
        "npm_" + "a1" * 18,
        "pypi-" + "a1" * 30,
        "xoxp-1234567890-abc",
        "SG." + "a1" * 11 + "." + "a1" * 20,
        "ya29." + "a1" * 15,
        "hvs." + "a1" * 15,
        "glsa_" + "a1" * 16,
        "dckr_pat_" + "a1" * 12,
        "eyJhbGciOi." + "eyJzdWIiOiIx." + "c2lnbmF0dXJl",
    ],
)
def test_tokens_are_known_by_their_form(token: str) -> None:
    assert scrub(f"found {token}, and more") == f"found {SCRUBBED}, and more"


@pytest.mark.parametrize(
    "text",
    [
        "tokens = tokenize(text)",
        'tokenizer = "bert-base"',
        "for token in tokens: count[token] += 1",
        "login(password=password, user=user)",
        "token = make_token_2(user)",
        "see https://example.org/a:b",
        "x = first / second",
        "a basic question of bearers",
        "if pass_count > 3: pass",
        "dsk_optimized_for_everyone = dsk",
    ],
)
def test_plain_code_is_left_alone(text: str) -> None:
    assert Scrubber().scrub(text, LIMIT, code=True) == text


@pytest.mark.parametrize(
    "text",
    [
        "tokenizer: bert-base",
        "max_tokens=4096, tokens: 120",
        "see https://example.org/a:b",
        "http://host:8690/users/@me",
        "a basic question of bearers",
        "token=None, password: null",
        "----- a table -----",
        '{"password": {"type": "string", "minLength": 8}}',
        "{'secret': {'type': 'string', 'format': 'v1'}}",
        "unzip -p archive.zip file",
    ],
)
def test_plain_prose_is_left_alone(text: str) -> None:
    assert scrub(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "user=etl password={}",
        "PGPASSWORD={}",
        "client_secret={}",
        "Password={};",
        "password: {}",
        "subscription-key: {}",
        "Cookie: {}; x",
    ],
)
def test_in_prose_any_word_behind_such_a_name_is_scrubbed(text: str) -> None:
    assert scrub(f"before {text.format('swordfish')} after") == (
        f"before {text.format(SCRUBBED)} after"
    )


# Pieces of what the patterns look for, so that chance puts together what is nearly one.
_PIECES = st.sampled_from(
    [
        *("password", "token", "_key", "api_key", "authorization", "bearer ", "basic ", "--token "),
        *("=", ":", " = ", "==", "?", "&", "://", "@", "https://", '"', "'", '"""', "\\", "\\n"),
        *("\n", " ", "[", "]", SCRUBBED, "abc", "A1b2C3d4", "eyJabcdefgh", ".", "(", "sig="),
        *("-----BEGIN PRIVATE KEY-----", "-----END", "ghp_", "a" * 20, "\ud800", "ü"),
    ]
)
_TEXTS = st.lists(_PIECES | st.text(max_size=5), max_size=30).map("".join)


@hypothesis.settings(deadline=None)
@given(_TEXTS)
@example("password==password")
@example("password:sig=password")
@example("\ud800sig=password")
def test_scrubbing_never_fails_and_what_it_leaves_needs_none(text: str) -> None:
    once = scrub(text)
    assert scrub(once) == once
    once.encode()


@hypothesis.settings(deadline=None)
@given(_TEXTS, _TEXTS)
def test_a_secret_is_scrubbed_whatever_is_around_it(before: str, after: str) -> None:
    # On a line of its own: a quote or an escape before it could make it part of something else.
    assert SECRET not in scrub(f'{before}\npassword = "{SECRET}"\n{after}')


@hypothesis.settings(deadline=None)
@given(_TEXTS, st.integers(10, 200))
def test_a_text_is_never_longer_than_it_may_be(text: str, limit: int) -> None:
    assert len(Scrubber().scrub(text * 100, limit)) <= limit


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece",
    [
        *("password=", 'password="', "token='x\\", "token=a1b2c3(", "token" + "-" * 40, "a.", "a:"),
        *("--", "--token", "bearer ", "basic a", "https://", "https://a:", "x://a", "?token", "&a"),
        *("eyJ", "eyJabcdefgh-", "eyJabcdefgh.", "-----BEGIN PRIVATE KEY-----", "pass", " ", "\\"),
        *(
            "-",
            "eyJ-",
            "authorization: abc ",
            "A" * 60 + "\n",
            "x://a:b",
            "cookie",
            "SG.aaaaaaaaaaaaaaaa",
        ),
        *("xoxb-", "sk-", "pypi-", "password: a ", "[scrubbed]", '"', '"""', "api_key", ";pwd="),
        *('("password", ', '"name": "token", ', "password = str(", "<password>a", "curl -u a:"),
        *("?token=a", 'get("token", ', "ENV a_token ", ":5432:a:b:", "a_", "Aa1", "Aa1/"),
    ],
)
def test_no_text_takes_long(piece: str) -> None:
    """A quadratic search of as much as is searched at most would meet the time limit of a test."""
    for code in (False, True):
        assert Scrubber().scrub(piece * (2 * LIMIT // len(piece)), LIMIT, code=code)


def test_of_a_text_full_of_secrets_names_the_rest_is_left_out() -> None:
    few = "token " * MAX_WITHOUT_VALUE
    assert Scrubber().scrub(few, LIMIT) == few
    assert Scrubber().scrub(f"{few}token and more", LIMIT) == f"{few}[scrubbed]"


@pytest.mark.parametrize("kept", [0, 2, 4])
def test_of_a_private_key_no_line_is_told_wherever_it_was_cut(kept: int) -> None:
    lines = [
        *["MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"] * 4,
        "s3cr3tEnd==",
    ]
    for code in (True, False):
        for indent in ("", "    "):
            end = [*lines[kept:], "-----END PRIVATE KEY-----", "after()"]
            told = Scrubber().scrub("\n".join(indent + line for line in end), LIMIT, code=code)
            assert "s3cr3t" not in told
            assert kept > 2 or "MIIE" not in told
            assert "after()" in told


def test_what_a_cut_goes_through_is_not_told_in_half() -> None:
    text = "x" * 15 + f" password='{SECRET}' " * 3
    for limit in range(10, 40):
        assert "s3cr3t" not in Scrubber().scrub(text, limit)


@pytest.mark.parametrize("before", [0, 900, 1_990, 2_000, 5_000])
@pytest.mark.parametrize("length", [5, 900])
def test_users_patterns_match_wherever_it_is_in_a_long_text(before: int, length: int) -> None:
    secret = "EMP-" + "7" * length
    text = "x" * before + secret + "y" * 3_000
    told = Scrubber([r"EMP-\d+"]).scrub(text + secret, LIMIT)
    assert told == "x" * before + SCRUBBED + "y" * 3_000 + SCRUBBED
    assert Scrubber([r"EMP-\d+$"]).scrub(text, LIMIT) == text


@pytest.mark.parametrize("frames", [3, 500])
def test_of_a_long_traceback_both_ends_stay_and_no_half_of_a_secret(frames: int) -> None:
    frame = '  File "/etl/tree.py", line {}, in walk\n    walk(token="' + SECRET + '{}")\n'
    lines = [frame.format(number, number) for number in range(frames)]
    told = Scrubber().scrub_traceback("".join(lines), LIMIT, code=True)
    assert len(told) <= LIMIT
    assert "s3cr3t" not in told
    assert "4711" not in told
    assert "line 0, in walk\n    walk(token=[scrubbed])" in told
    assert told.endswith(f"line {frames - 1}, in walk\n    walk(token=[scrubbed])\n")
    assert ("left out" in told) == (frames > 3)
    # More of the end.
    assert told.index("left out") < LIMIT / 3 if frames > 3 else True


@given(st.text(alphabet="ab \n", max_size=300), st.integers(60, 200))
def test_a_text_without_its_middle_is_no_longer_than_it_may_be(text: str, limit: int) -> None:
    cut = without_middle(text, limit)
    assert len(cut) <= limit
    assert cut == text or len(text) > limit


def test_users_add_patterns_of_their_own() -> None:
    assert Scrubber([r"EMP-\d+"]).scrub("of EMP-4711", LIMIT) == f"of {SCRUBBED}"


def test_of_a_traceback_only_its_frames_are_left() -> None:
    frames = (
        '  File "/a b/c.py", line 3, in f\n',
        '  File "<frozen runpy>", line 198, in _run\n',
        "  [Previous line repeated 9 more times]\n",
    )
    traceback = (
        "rest of a line that was cut\n"
        f"{frames[0]}    secret = (\n"
        f"        1 + 2\n             ^^^\n    )\n{frames[1]}{frames[2]}"
    )
    assert without_source_lines(traceback) == "".join(frames)


@pytest.mark.parametrize("escaped", [False, True])
@pytest.mark.parametrize("margin", ["", "    ", "  | "])
def test_in_any_text_a_traceback_loses_its_source_lines(margin: str, escaped: bool) -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "/a b/c.py", line 3, in f',
        '    secret = "s3cr3t"',
        "             ^^^^^^^^",
        '  File "/a b/d.py", line 4, in g',
        "    s3cr3t()",
        "ValueError: bad",
        '  File "<string>", line 1',
        "    s3cr3t(",
        "SyntaxError: bad",
    ]
    text = "it failed:\n" + "\n".join(margin + line for line in lines)
    kept = "it failed:\n" + "\n".join(margin + lines[number] for number in (0, 1, 4, 6, 7, 9))
    if escaped:
        text, kept = repr(text), repr(kept)
    assert without_code(text) == kept
    assert without_code("on line 3, in f\n    indented") == "on line 3, in f\n    indented"


def test_no_text_takes_long_to_look_for_source_lines() -> None:
    for piece in ('File "', 'File "a", line 1', 'File "a", line 1, in f\n    ', "\n    ", "\\n   "):
        assert without_code(piece * (300_000 // len(piece)) + ", line ")


# --- messages -------------------------------------------------------------------------------------

_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=10**5_000, max_value=10**5_001)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.builds(object)
    | st.just(SECRET),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=5) | st.just(SECRET) | st.integers(), inner, max_size=3)
    ),
    max_leaves=10,
)


@hypothesis.settings(deadline=None)
@given(_VALUES)
def test_every_message_becomes_json(message: object) -> None:
    json.dumps(json_safe(message, scrub).value)


@hypothesis.settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["keys", "story", "worker", "exception_text"]), _VALUES))
def test_no_text_of_dasks_messages_is_told_unless_it_is_known(message: object) -> None:
    told = json.dumps(of_dask({"x": message}, scrub, tracebacks=True).value)
    assert SECRET not in told


def test_of_dasks_messages_numbers_states_and_addresses_are_told() -> None:
    message = {
        "action": "remove-worker",
        "worker": "tcp://127.0.0.1:4711",
        "expected": False,
        "processing-tasks": {"a-key": 1.5, "another": 2.5},
        "lost-computed-tasks": ["a-key", "another"],
        "recipients": {"tcp://127.0.0.1:1": 3},
        "story": [("a-key", "waiting", "ready", {"a-key": "x"}, 1.5)],
        "exception_text": "ValueError('a-key')",
    }
    told, cut = of_dask(message, scrub, tracebacks=True)
    assert not cut
    assert told == {
        "action": "remove-worker",
        "worker": "tcp://127.0.0.1:4711",
        "expected": False,
        "processing-tasks": 2,
        "lost-computed-tasks": 2,
        "recipients": {"tcp://127.0.0.1:1": 3},
        "story": [["…", "waiting", "ready", 1, 1.5]],
        "exception_text": "ValueError",
    }


ID = "b3c1d0f2-e8bc-11f1-9324-02fc00000001"


@pytest.mark.parametrize(
    ("topic", "dasks"),
    [
        *((topic, True) for topic in ("all", "stealing", "invalid-worker-task-state", "print")),
        *((topic, True) for topic in ("tcp://127.0.0.1:1", "inproc://1/2/3")),
        *(
            (f"{name}-{ID}", True)
            for name in ("Client", "Client-worker", "Client-my own", "Worker")
        ),
        *((topic, False) for topic in ("mine", "all-mine", "quality", "invalid", "Client-stats")),
    ],
)
def test_topics_of_dask_are_told_from_the_users_own(topic: str, dasks: bool) -> None:
    assert is_dasks(topic) is dasks


def test_a_pattern_that_takes_too_long_for_a_text_costs_the_rest_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "and more " * 1_000 + "CUST-2"
    scrubber = Scrubber([r"CUST-\d"])
    assert scrubber.scrub(text, 10_000).endswith(f"more {SCRUBBED}")
    monkeypatch.setattr(scrubbing, "MAX_SECONDS", 0)
    told = scrubber.scrub(text, 10_000)
    assert told.startswith("and more and more")
    assert told.endswith(SCRUBBED)
    assert "CUST" not in told
    assert len(told) < len(text) / 2


def test_where_python_does_not_say_how_it_reads_a_pattern_its_text_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slow_patterns, "_parser", None)
    for fast in (r"CUST-\d{6}", r"[a*+?]\*x+", "plain"):
        assert slow_patterns.why_slow(fast) is None
    for slow in (r"(a+)+b", r"(a|a)*b", r".*.*x"):
        assert slow_patterns.why_slow(slow) is not None
    with pytest.raises(re.error):
        slow_patterns.why_slow("(")
