"""Secrets in text: what they look like, and how they are taken out.

A pattern cannot know every secret. These know what is named as one (``password = …``), what stands
where one stands (bearer headers, URLs), and tokens that are made to be recognised. A text takes
time in proportion to its length, whatever is in it: what a pattern looks for is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

SCRUBBED = "[scrubbed]"

_NAMES = (
    r"passw(?:or)?d|passphrase|(?<![a-z])pass(?![a-z])|(?<![a-z])pwd|secret|token(?!i[sz])"
    r"|(?:api|access|account|auth|private|shared|encryption)[_-]?key|credential|authorization"
)

# Each keeps what its group ``keep`` matched; the rest of the match is replaced.
_PATTERNS = (
    # password = "…", api_key: …, os.environ["TOKEN"] = '…', password: str = "…", also escaped
    # inside of JSON. A quoted value counts in any case, also one that was cut; a bare one only if
    # it looks made up, for code is full of names.
    rf"""(?ix) (?P<keep>
        (?: {_NAMES} ) [\w.-]{{0,40}} (?: \\?["'] )? \]?
        (?: \s{{0,8}} : \s{{0,8}} [\w.\[\]|]{{1,40}} (?= \s{{0,8}} = ) )?
        \s{{0,8}} (?: [:=!]= | => | [:=] ) \s{{0,8}}
        (?: (?: bearer|basic|token ) \s )? )
        (?: [rbfu]{{0,2}} (?P<quote> \\? (?: \"\"\" | ''' | ["'] ) )
            (?: (?! (?P=quote) ) (?: \\. | [^\\\n] ) )++
            (?: (?P=quote) | (?= \\? (?: \n | \Z ) ) )
          | (?= [^\s"'(),;]{{0,200}}? [\d/+!@$%^*-] ) (?! [\w.]{{1,100}} \( ) (?! \[scrubbed )
            [^\s"'(),;\\]{{6,}}+ )""",
    # --token … on a command line.
    r"""(?ix) (?P<keep> --[\w-]{0,40} (?: password|secret|token|key ) [\ =] ["']? )
        [^\s"']{3,}+""",
    # ?token=…&sig=… in an address.
    rf"""(?ix) (?P<keep> [?&] [\w.-]{{0,40}} (?: {_NAMES} | sig(?:nature)? ) [\w.-]{{0,40}} = )
        [^&\s"'\#]{{3,}}+""",
    # Authorization headers wherever they stand. "Basic" is a word, too.
    r"(?P<keep>\b(?i:bearer)\s{1,8})[A-Za-z0-9._~+/=-]{8,}+",
    r"(?P<keep>\b(?i:basic)\s{1,8})(?=[a-z]{0,200}[A-Z0-9+/=])[A-Za-z0-9+/=]{8,}+",
    # Addresses with credentials: scheme://user:password@host, scheme://token@host.
    r"""(?P<keep>\b[a-zA-Z][a-zA-Z0-9+.-]{0,20}://)"""
    r"""(?:[^\s/@:"']{0,200}:[^\s/"']{1,500}|[^\s/@:"']{8,500})(?=@)""",
    # Tokens that can be told by their form: daskscope, GitHub, GitLab, Slack, AWS, Google, OpenAI,
    # Stripe, Hugging Face, Databricks, npm, PyPI, JSON Web Tokens.
    r"(?P<keep>)\b(?:dsk_[a-z0-9]{2,20}_[0-9a-f]{8,}+|gh[pousr]_\w{20,}+|github_pat_\w{20,}+"
    r"|glpat-[\w-]{16,}+|xox[abeprs]-[\w-]{10,}+|A(?:KIA|SIA)[A-Z0-9]{16}|AIza[\w-]{30,}+"
    r"|sk-[\w-]{20,}+|[sr]k_(?:live|test)_\w{16,}+|hf_\w{30,}+|dapi[0-9a-f]{32}|npm_\w{36}"
    r"|pypi-[\w-]{50,}+|eyJ[\w-]{5,2000}+\.[\w-]{5,8000}+\.[\w-]++)",
    r"(?s)(?P<keep>-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----).+?(?=-----END|\Z)",
)

_SECRETS = tuple(re.compile(pattern) for pattern in _PATTERNS)
_NAME = re.compile(_NAMES, re.IGNORECASE)

# A frame of a traceback. Source lines, and marks below them, are indented further.
_FRAME = re.compile(r"(?m)^  (?:File \".+\", line \d+, in .+|\[Previous line repeated .+)\n?")


class Scrubber:
    """Takes secrets out of texts: those that can be known, and what users' own patterns match."""

    def __init__(self, users_own: Iterable[str] = ()) -> None:
        self._users_own = tuple(re.compile(pattern) for pattern in users_own)

    def scrub(self, text: str, limit: int) -> str:
        """Return ``text`` without secrets, no longer than ``limit``."""
        # Nothing that is cut off below needs to be searched; but a secret that the cut goes
        # through would not be known for one, so its last word goes.
        if len(text) > 2 * limit:
            text = text[: 2 * limit]
            text = text[: max(text.rfind(" "), text.rfind("\n"), len(text) - 1_000)]
        for pattern in _SECRETS:
            text = pattern.sub(rf"\g<keep>{SCRUBBED}", text)
        for pattern in self._users_own:
            text = pattern.sub(SCRUBBED, text)
        # Neither JSON nor OTLP can hold a lone surrogate, of a file name that is no UTF-8.
        return shortened(text.encode(errors="replace").decode(), limit)


def names_a_secret(name: str) -> bool:
    """Return whether what goes by ``name`` is a secret."""
    return _NAME.search(name[:1_000]) is not None


def without_source_lines(traceback: str) -> str:
    """Return a traceback's lines that name files, lines and functions, and no other."""
    return "".join(_FRAME.findall(traceback))


def shortened(text: str, limit: int) -> str:
    """Return ``text``, its end replaced by an ellipsis if it is longer than ``limit``."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
