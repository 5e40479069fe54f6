"""Secrets in text: what they look like, and how they are taken out.

A pattern cannot know every secret. These know what is named as one (``password = …``), what stands
where one stands (bearer headers, URLs), and tokens that are made to be recognised. A text takes
time in proportion to its length, whatever is in it: what a pattern looks for is bounded.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from daskscope.protocol import MAX_NAME

SCRUBBED = "[scrubbed]"

_KEYS = (
    *("api", "access", "account", "auth", "private", "shared", "encryption", "subscription"),
    *("storage", "signing", "master", "consumer", "fernet", "license"),
)
_NAMES = (
    # Not of a tokenizer, and no numbers of tokens.
    r"passw(?:or)?d|passphrase|passcode|(?<![a-z])pass(?![a-z])|(?<![a-z])pwd?(?![a-z])"
    r"|(?<=[a-z])pwd|secret|token(?!i[sz]|s\s{0,8}[:=]\s{0,8}\d{1,9}(?!\w))|credential"
    rf"|authorization|(?<![a-z])cookie|(?:{'|'.join(_KEYS)})[_-]?key"
)
# Of which one is in every text that has such a name in it.
_WORDS = (
    *("pass", "pw", "secret", "token", "credential", "authorization", "cookie"),
    *(f"{name}{dash}key" for name in _KEYS for dash in ("", "_", "-")),
)

_BEGINNINGS = (
    *(
        "dsk_",
        "gho_",
        "ghp_",
        "ghr_",
        "ghs_",
        "ghu_",
        "github_pat_",
        "glpat-",
        "xox",
        "akia",
        "asia",
    ),
    *("aiza", "sk-", "k_live_", "k_test_", "hf_", "dapi", "npm_", "pypi-", "sg.", "ya29.", "hvs."),
    *("hvb.", "glsa_", "dckr_pat_"),
)

# What stands between such a name and its value: a type, a sign, a scheme.
_TYPE, _SIGN = r"[\w.\[\]|]{1,40}", r"\s{0,8} (?> [:=!]= | => | [:=] ) \s{0,8}"
_SCHEME = r"(?: (?: bearer|basic|token ) \s )?"

# A bare value behind such a name. Code is full of names: there it must look made up.
_NOT_YET = rf"(?! (?: {_TYPE} {_SIGN} )? {_SCHEME} \[scrubbed )"
_MADE_UP = rf"""{_NOT_YET} (?= [^\s"'(),;]{{0,200}}? [\d/+!@$%^*-] ) (?! [\w.]{{1,100}} \( )
    [^\s"'(),;\\]{{6,}}+"""
_ANY = rf"""{_NOT_YET} (?! (?: none|null|true|false ) \b ) [^\s"'(),;\\]{{4,}}+"""

# Of a key in PEM, of which the beginning may have been cut off, a line.
_BASE64 = r"""[^\S\n]{0,40}["']?[A-Za-z0-9+/]{%s}={0,2}(?:\\n)?["']?[^\S\n]{0,4}"""


def _named(bare: str) -> str:
    # password = "…", api_key: …, os.environ["TOKEN"] = '…', password: str = "…", also escaped
    # inside of JSON. A quoted value counts in any case, also one that was cut.
    return rf"""(?ix) (?P<keep>
        (?: {_NAMES} ) [\w.-]{{0,40}} (?: \\?["'] )? \]?
        (?: \s{{0,8}} : \s{{0,8}} {_TYPE} (?= \s{{0,8}} = ) )? {_SIGN} {_SCHEME} )
        (?: [rbfu]{{0,2}} (?P<lines> \"\"\" | ''' )
            (?: (?! (?P=lines) ) (?s: . ) ){{0,8000}}+ (?: (?P=lines) | \Z )
          | [rbfu]{{0,2}} (?P<quote> \\? ["'] )
            (?: (?! (?P=quote) ) (?: \\. | [^\\\n] ) )++
            (?: (?P=quote) | (?= \\? (?: \n | \Z ) ) )
          | {bare} )"""


# What a text must contain, one of them and in small letters, for a pattern to be searched for: to
# search takes long, and while Python does, all of its process waits. Each pattern keeps what its
# group ``keep`` matched; the rest of the match is replaced.
_PATTERNS = (
    # Authorization: SCHEME …, in a header and in code that sets one.
    (
        ("authorization",),
        r"""(?ix) (?P<keep> \b (?: proxy- )? authorization (?: \\?["'] )? \]? \s{0,8}
        (?: : \s{0,8} (?: \\?["'] )? | = \s{0,8} [rbfu]{0,2} \\?["'] )
        [a-z] [\w-]{2,20} \s{1,4} ) (?! \[scrubbed ) [^\n"'\\]{6,}+""",
    ),
    (_WORDS, _named(_MADE_UP)),
    # --token … on a command line.
    (
        ("--",),
        r"""(?ix) (?P<keep> (?<! [\w-] ) -- (?= \w ) [\w-]{0,40} (?: password|secret|token|key )
        [\ =] ["']? ) [^\s"']{3,}+""",
    ),
    # ?token=…&sig=… in an address.
    (
        (*_WORDS, "sig"),
        rf"""(?ix) (?P<keep> [?&] [\w.-]{{0,40}} (?: {_NAMES} | sig(?:nature)? ) [\w.-]{{0,40}} = )
        [^&\s"'\#]{{3,}}+""",
    ),
    # Bearer headers wherever they stand. "Basic" is a word, too.
    (("bearer",), r"(?P<keep>\b(?i:bearer)\s{1,8})[A-Za-z0-9._~+/=-]{8,}+"),
    (("basic",), r"(?P<keep>\b(?i:basic)\s{1,8})(?=[a-z]{0,200}[A-Z0-9+/=])[A-Za-z0-9+/=]{8,}+"),
    # Addresses with credentials: scheme://user:password@host, scheme://token@host. A password may
    # have a slash in it, unlike a port.
    (
        ("://",),
        r"""(?P<keep>\b[a-zA-Z][a-zA-Z0-9+.-]{0,20}://)(?:[^\s/@:"']{0,200}:"""
        r"""(?!//|\d{1,5}(?:[/\s]|\Z))(?:(?!://)[^\s"']){1,500}|[^\s/@:"']{8,500})(?=@)""",
    ),
    # Tokens that can be told by their form: daskscope, GitHub, GitLab, Slack, AWS, Google, OpenAI,
    # Stripe, Hugging Face, Databricks, npm, PyPI, SendGrid, Vault, Grafana, Docker, JSON Web
    # Tokens, keys in PEM.
    (
        _BEGINNINGS,
        r"(?P<keep>)\b(?:dsk_[a-z0-9]{2,20}_[0-9a-f]{8,}+|gh[pousr]_\w{20,}+|github_pat_\w{20,}+"
        r"|glpat-[\w-]{16,}+|xox[abeprs]-[\w-]{10,}+|A(?:KIA|SIA)[A-Z0-9]{16}|AIza[\w-]{30,}+"
        r"|sk-[\w-]{20,}+|[sr]k_(?:live|test)_\w{16,}+|hf_\w{30,}+|dapi[0-9a-f]{32}|npm_\w{36}"
        r"|pypi-[\w-]{50,}+|SG\.[\w-]{16,100}+\.[\w-]{16,}+|ya29\.[\w-]{20,}+|hv[sb]\.[\w-]{20,}+"
        r"|glsa_\w{20,}+|dckr_pat_[\w-]{20,}+)",
    ),
    (("hooks.slack",), r"(?P<keep>\bhooks\.slack\.com/services/)[\w/]{10,}+"),
    (("eyj",), r"(?P<keep>)(?<![\w-])eyJ[\w-]{5,2000}+\.[\w-]{5,8000}+\.[\w-]++"),
    (
        ("-----begin",),
        r"(?s)(?P<keep>-----BEGIN [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----).+?(?=-----END|\Z)",
    ),
    (("\n",), rf"(?m)(?P<keep>)(?:^{_BASE64 % '48,76'}\n){{3,}}+(?:^{_BASE64 % '1,76'}$)?"),
    (
        ("-----end ",),
        rf"(?m)(?P<keep>)(?:^{_BASE64 % '1,76'}\n){{1,3}}(?=[^\S\n]{{0,40}}[\"']?-----END )",
    ),
)

# How Python itself reads a pattern.
_parser: Any = importlib.import_module("re._parser")
# How often something may be repeated, at most, that takes no long time within another repeat.
_MANY = 10

_SECRETS = tuple((words, re.compile(pattern)) for words, pattern in _PATTERNS)
_BARE = (_WORDS, re.compile(_named(_ANY)))
_NAME = re.compile(_NAMES, re.IGNORECASE)

# A frame of a traceback. Source lines, and marks below them, are indented further.
_FRAME = re.compile(r"(?m)^  (?:File \".+\", line \d+, in .+|\[Previous line repeated .+)\n?")

# The same in any text, also where line ends are escaped; with what stands below it.
_FRAME_IN_TEXT = re.compile(
    r"""(?P<frame>(?:\A|\n|\\n)(?P<margin>[ \t|]{0,40})File \\?"[^"\n]{1,1000}", line \d+"""
    r"""(?:, in (?:(?!\\n)[^\n]){1,1000})?)"""
    r"""(?:(?:\n|\\n)(?P=margin)[ \t]++(?!File \\?")(?:(?!\\n)[^\n])*+)+"""
)


class Scrubber:
    """Takes secrets out of texts: those that can be known, and what users' own patterns match."""

    def __init__(self, users_own: Iterable[str] = ()) -> None:
        self._users_own = tuple(re.compile(pattern) for pattern in users_own)

    def scrub(self, text: str, limit: int, *, code: bool = False) -> str:
        """Return ``text`` without secrets, no longer than ``limit``.

        In ``code``, names stand for values: there, what is bare must look like a secret.
        """
        # Nothing that is cut off below needs to be searched; but a secret that the cut goes
        # through would not be known for one, so its last word goes.
        if len(text) > 2 * limit:
            text = text[: 2 * limit]
            text = text[: max(text.rfind(" "), text.rfind("\n"), len(text) - 1_000)]
        # Neither JSON nor OTLP can hold a lone surrogate, of a file name that is no UTF-8.
        text = text.encode(errors="replace").decode()
        lower = text.lower()
        for words, pattern in _SECRETS if code else (*_SECRETS, _BARE):
            if any(word in lower for word in words):
                text = pattern.sub(rf"\g<keep>{SCRUBBED}", text)
        for pattern in self._users_own:
            text = pattern.sub(SCRUBBED, text)
        return shortened(text, limit)

    def scrub_named(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Return short ``texts`` and their names without secrets: nothing of one that names one."""
        return {
            self.scrub(name, MAX_NAME): SCRUBBED
            if names_a_secret(name)
            else self.scrub(text, MAX_NAME)
            for name, text in texts.items()
        }


def names_a_secret(name: str) -> bool:
    """Return whether what goes by ``name`` is a secret."""
    return _NAME.search(name[:1_000]) is not None


def repeats_a_repeat(pattern: str) -> bool:
    """Return whether ``pattern`` repeats what is itself repeated, as in ``(\\w+ ?)+``.

    On a text that nearly matches, that may take for ever; and while Python searches, all of its
    process waits. What a possessive quantifier (``++``) or an atomic group has matched stays so.
    """
    return _nests(_parser.parse(pattern), repeated=False)


def _nests(parsed: Any, *, repeated: bool) -> bool:
    for operation, argument in parsed:
        name = str(operation)
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            least, most, inner = argument
            many = most > _MANY and least != most
            if repeated and many and name != "POSSESSIVE_REPEAT":
                return True
            if _nests(inner, repeated=name != "POSSESSIVE_REPEAT" and (repeated or many)):
                return True
        elif name == "ATOMIC_GROUP":
            if _nests(argument, repeated=False):
                return True
        elif name == "BRANCH":
            if any(_nests(branch, repeated=repeated) for branch in argument[1]):
                return True
        elif name in ("SUBPATTERN", "ASSERT", "ASSERT_NOT") and _nests(
            argument[-1], repeated=repeated
        ):
            return True
    return False


def without_source_lines(traceback: str) -> str:
    """Return a traceback's lines that name files, lines and functions, and no other."""
    return "".join(_FRAME.findall(traceback))


def without_code(text: str) -> str:
    """Return ``text`` without the source lines of tracebacks that are in it."""
    return _FRAME_IN_TEXT.sub(r"\g<frame>", text) if ", line " in text else text


def shortened(text: str, limit: int) -> str:
    """Return ``text``, its end replaced by an ellipsis if it is longer than ``limit``."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
