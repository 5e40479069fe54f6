"""The table of patterns that recognize secrets; ``daskscope.scrubbing`` searches for them.

Patterns cannot recognize every secret. These recognize values behind a secret's name (``password =
…``), values in typical places (a bearer header, an address, an option of a command), and tokens
with a known form. All repeats are bounded, so the time is proportional to a text's length, whatever
its content.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Within = Literal["any text", "code", "prose"]


class Named(NamedTuple):
    """A kind of secret behind a name that means a secret.

    ``pattern`` matches right behind the name; its group ``keep`` stays, and the rest of the match
    is replaced. ``before`` is a pattern that must match right before the name. ``plain``: only for
    names whose value may be a plain word. ``within``: in code, a bare word may be a variable, so it
    must look random; in other texts it need not.
    """

    name: str
    pattern: str
    before: str = ""
    plain: bool = False
    within: Within = "any text"


class SecretKind(NamedTuple):
    """A kind of secret that is recognized without a name.

    A text with a match contains one of ``words``, in lower case; these are searched first, because
    that is much faster. The group ``keep`` of ``pattern`` stays in the text.
    """

    name: str
    words: tuple[str, ...]
    pattern: str


# --- the pieces -----------------------------------------------------------------------------------

# Words before "key" that make it a secret; other keys are those of mappings, tables and tasks.
_KEYS = (
    *("api", "access", "account", "auth", "private", "priv", "preshared", "shared", "encryption"),
    *("subscription", "storage", "signing", "signature", "master", "consumer", "fernet", "license"),
    *("client", "deploy", "admin", "service", "session", "ssh", "app"),
)
_BEHIND_ONE = "|".join(f"(?<={key})|(?<={key}[ _.-])" for key in _KEYS)
# The value behind these names may be a plain word.
_PLAIN = (
    r"pass[_-]?(?:word|wort|wd|phrase|code)|(?:(?<![a-z])|(?<=\\n))"  # after "\\n", too
    r"(?!(?-i:(?<![A-Za-z_])PASS\s{0,8}:))"
    r"pass(?![a-z]|[_-][a-z])"
    # PWD is also the working directory.
    r"""|(?<![a-z])pwd?(?![a-z]|["']?\s{0,8}[:=]\s{0,8}["']?[/~])|(?<=[a-z])pwd(?![a-z])"""
    rf"|secret(?!ar|e[ds]?\b|i[ov])|credential|(?:{_BEHIND_ONE})key(?!s\b|board|word)"
)
# Behind these names there may be ordinary text: "token: expired". Secrets there look random.
_MADE = r"token(?!i[sz])|authorization|(?<![a-z])cookie"
_ANY_NAME = rf"(?:{_PLAIN}|{_MADE})"
# A name with this ending means a property of a secret, not the secret.
_ABOUT = (
    r"(?![\w.-]{0,40}?(?:count|prefix|suffix|name|type|len|length|size|url|uri|endpoint|path|file"
    r"|dir|folder|polic(?:y|ie)|expir\w{0,6}|ttl|age|limit|budget|index|ids|idx|list|jar|field"
    r"|column|provider|manager|class|format|version|scope|error|required|valid|rate|ratio|max|min"
    r"|num|total|usage|cache|map|func|function|method|handler|factory|parser|validator|form|label"
    r"|hint|help|prompt|message|msg|enabled|disabled|arn|ref|mode|level|strength|position|embedding"
    r")s?(?![\w-]))"
)
_TAIL = rf"{_ABOUT} [\w.-]{{0,40}}"

_SPACE = r"[^\S\n]{0,8}"
_TYPE = r"[\w.\[\]|]{1,40}"
_SCHEME = r"(?: (?: bearer|basic|token | & \w{1,30} ) \s )?"
# The text between a name and its value. A bare value is on the same line.
_IS = rf""" (?: \\{{0,7}}["'] )? \]? (?: {_SPACE} : {_SPACE} {_TYPE} (?= {_SPACE} = ) )?"""
_SIGN = r"\s{0,8} (?> [:=!]= | => | [:=] ) \s{0,8}"
_BARE_SIGN = rf"{_SPACE} (?> := | => | [:=] (?! = ) ) {_SPACE}"

# Placeholders instead of a value: of an f-string, a shell, a document.
_PLACEHOLDER = (
    r"(?: \{ [a-z_][\w.]{0,60} (?: \[ [^\]\n]{0,40} \] )? (?: ![rsa] )? (?: :[^}\n]{0,20} )? \}"
    r" | % (?: \( \w{1,40} \) )? [sdr] | < [\w\s-]{1,60} > | \$ \{{0,2} [\w.\s]{1,60} \}{0,2}"
    r" | \*{3,} | \.{3,} | … )"
)
_NO_PLACE = rf"""(?! {_PLACEHOLDER} (?: [\s"'@&;,)\\<] | \Z ) ) (?! \[scrubbed )"""

# Types of columns, in quotes, as in {"token": "string[pyarrow]"}.
_DTYPE = r"""(?: u?int\d{1,2} | float\d{2} | object | category | bool(?:ean)? | str(?:ing)?
    (?: \[ \w{1,20} \] )? | (?: datetime64|timedelta64 ) (?: \[ [\w\s,/]{1,30} \] )? )"""

# A value in quotes always counts, even if it was cut. Quotes may be escaped several times, as in
# nested JSON.
# A quote that ends a text begins no value: getpass("Password: ", stream).
_QUOTED = rf"""[rbfu]{{0,2}} (?P<quote> \\{{0,7}} ["'] ) {_NO_PLACE}
    (?! {_DTYPE} (?P=quote) ) (?! [)\]}},] [^"'\n]{{0,80}} (?: \n | \Z ) )
    (?: (?! (?P=quote) ) (?: \\. | [^\\\n] ) )++ (?: (?P=quote) | (?= \\{{0,7}} (?: \n | \Z ) ) )"""
# Behind some names, a quoted value counts only if it looks random.
_IN_QUOTES = r"""(?: \\. | [^\\\n"'] )"""
_QUOTED_MADE_UP = rf"""(?= [rbfu]{{0,2}} \\{{0,7}} ["'] (?: [^\n"'\s]{{20}}
    | (?= {_IN_QUOTES}{{6}} ) {_IN_QUOTES}{{0,200}}? [0-9] ) ) {_QUOTED}"""
_LINES = r"""[rbfu]{0,2} (?P<lines> \"\"\" | ''' )
    (?: (?! (?P=lines) ) (?s: . ) ){1,8000}+ (?P=lines)?"""
# Any text in quotes that is not replaced.
_KEPT = r"""[rbfu]{0,2} \\{0,7} ["'] [^"'\n\\]{0,200} \\{0,7} ["']"""

# A bare value: no call, no subscript, and no name of a secret.
_WORD = r"""[^\s"'(),;\\<>&]"""
_BARE = rf"""{_NO_PLACE}
    (?! [a-z_][\w.]{{0,100}} (?: \( [^\n]{{0,200}}? \) | \[ [^\]\n]{{0,100}} \] ) )
    (?! [a-z_.]{{0,40}} {_ANY_NAME} [a-z_.]{{0,40}} (?! [\w$@!*+-] ) )"""
_REST = rf"(?: [()] {_WORD}{{1,}}+ )*+"
# Words that describe the state of a secret, instead of the secret.
_STATE = (
    r"(?! (?: none|null|nil|true|false|required|missing|invalid|expired?|incorrect|empty|unset|yes"
    r"|undefined|unknown|must|should|cannot|can|could|will|does|doesn|did|is|isn|was|were|are|has"
    r"|have|not|never|valid|denied|failed|wrong|expected|unexpected|optional|redacted|hidden|masked"
    r"|removed|given|provided|supplied|unavailable|disabled|enabled|accepted|rejected|revoked"
    r"|refresh\w{0,5}|please|the|this|that|your|for|from|with|and|enter|string|bytes|text|field"
    r"|value|name|self|user|used|using|set|returned?|yield|raise|pass|continue|break|changed?"
    r"|mismatch|forbidden|unauthorized|present|absent|too|only|ignored|default|prompt|stdin"
    r") (?! [\w$@!*+-] ) )"
)
_PROSE = rf"{_BARE} {_STATE} {_WORD}{{4,}}+ {_REST}"
_MADE_UP = rf"""{_BARE} {_STATE}
    (?! [a-z_][a-z_.]* (?: [-+*/%@] [a-z_][a-z_.]* )++ (?! [\w$@!*+-] ) )
    (?= {_WORD}{{0,200}}? [\d/+!@$%^*-] ) (?! [\w.]{{1,100}} [(\[] ) {_WORD}{{6,}}+ {_REST}"""
_RANDOM = rf"""{_BARE} {_STATE} (?! \d{{1,9}} (?: [.,]\d+ )? (?! [\w-] ) )
    (?! [\w.]{{1,100}} [(\[] ) (?: (?= {_WORD}{{0,200}}? \d ) {_WORD}{{6,}}+ | {_WORD}{{20,}}+ )"""
# In code, a plain word with a continuation that only text has.
_IN_A_STRING = rf"""{_BARE} {_STATE} {_WORD}{{4,300}}+ (?: [()] {_WORD}{{1,300}}+ ){{0,4}}+
    (?= \\n | \\?["'] | ; | & | [ ]\w{{1,30}}= )"""

_BASE64 = "[A-Za-z0-9+/]"
# A line of a PEM key, whose beginning may have been cut off.
_PEM_LINE = rf"""[^\S\n]{{0,40}}["']?{_BASE64}{{%s}}={{0,2}}(?:\\n)?["']?[^\S\n]{{0,4}}"""

# Tokens with a known form: their prefix, what follows, and whose tokens they are.
_FORMS = (
    ("dsk_", r"[a-z0-9]{2,20}_[0-9a-f]{8,}+", "daskscope"),
    ("ghp_", r"\w{20,}+", "GitHub"),
    ("gho_", r"\w{20,}+", "GitHub"),
    ("ghr_", r"\w{20,}+", "GitHub"),
    ("ghs_", r"\w{20,}+", "GitHub"),
    ("ghu_", r"\w{20,}+", "GitHub"),
    ("github_pat_", r"\w{20,}+", "GitHub"),
    ("glpat-", r"[\w.-]{16,}+", "GitLab"),
    ("gldt-", r"[\w.-]{16,}+", "GitLab"),
    ("glrt-", r"[\w.-]{16,}+", "GitLab"),
    ("glrtr-", r"[\w.-]{16,}+", "GitLab"),
    ("glcbt-", r"[\w.-]{16,}+", "GitLab"),
    ("glptt-", r"[\w.-]{16,}+", "GitLab"),
    ("glft-", r"[\w.-]{16,}+", "GitLab"),
    ("glimt-", r"[\w.-]{16,}+", "GitLab"),
    ("glagent-", r"[\w.-]{16,}+", "GitLab"),
    ("gloas-", r"[\w.-]{16,}+", "GitLab"),
    ("glsoat-", r"[\w.-]{16,}+", "GitLab"),
    ("glffct-", r"[\w.-]{16,}+", "GitLab"),
    ("glwt-", r"[\w.-]{16,}+", "GitLab"),
    ("xox", r"[abeoprs][.-][\w.-]{10,}+", "Slack"),
    ("xapp-", r"[\w-]{10,}+", "Slack"),
    ("AKIA", r"[A-Z0-9]{16}", "AWS"),
    ("ASIA", r"[A-Z0-9]{16}", "AWS"),
    ("ABSK", r"[A-Za-z0-9+/]{40,}+={0,2}", "AWS Bedrock"),
    ("AIza", r"[\w-]{30,}+", "Google"),
    ("1//", r"0[\w-]{28,}+", "Google"),
    ("GOCSPX-", r"[\w-]{20,}+", "Google"),
    ("ya29.", r"[\w-]{20,}+", "Google"),
    ("sk-", r"[\w-]{20,}+", "OpenAI, Anthropic and others"),
    ("sk_live_", r"\w{16,}+", "Stripe"),
    ("sk_test_", r"\w{16,}+", "Stripe"),
    ("rk_live_", r"\w{16,}+", "Stripe"),
    ("rk_test_", r"\w{16,}+", "Stripe"),
    ("whsec_", r"[\w+/=]{16,}+", "Stripe"),
    ("hf_", r"\w{30,}+", "Hugging Face"),
    ("gsk_", r"\w{30,}+", "Groq"),
    ("r8_", r"\w{30,}+", "Replicate"),
    ("pplx-", r"\w{30,}+", "Perplexity"),
    ("nvapi-", r"[\w-]{30,}+", "Nvidia"),
    ("lsv2_", r"\w{30,}+", "LangSmith"),
    ("dapi", r"[0-9a-f]{32}", "Databricks"),
    ("lin_api_", r"\w{30,}+", "Linear"),
    ("pnu_", r"\w{30,}+", "Prefect"),
    ("npm_", r"\w{36}", "npm"),
    ("pypi-", r"[\w-]{50,}+", "PyPI"),
    ("rubygems_", r"[0-9a-f]{48}", "RubyGems"),
    ("SG.", r"[\w-]{16,100}+\.[\w-]{16,}+", "SendGrid"),
    ("xkeysib-", r"[\w-]{40,}+", "Brevo"),
    ("key-", r"[0-9a-f]{32}(?!\w)", "Mailgun"),
    ("hvs.", r"[\w-]{20,}+", "Vault"),
    ("hvb.", r"[\w-]{20,}+", "Vault"),
    ("glsa_", r"\w{20,}+", "Grafana"),
    ("glc_", r"[\w+/=]{30,}+", "Grafana"),
    ("dckr_pat_", r"[\w-]{20,}+", "Docker"),
    ("dop_v1_", r"[0-9a-f]{40,}+", "DigitalOcean"),
    ("doo_v1_", r"[0-9a-f]{40,}+", "DigitalOcean"),
    ("dor_v1_", r"[0-9a-f]{40,}+", "DigitalOcean"),
    ("shp", r"(?:at|ca|pa|ss)_[0-9a-fA-F]{32}", "Shopify"),
    ("NRAK-", r"[A-Z0-9]{20,}+", "New Relic"),
    ("PMAK-", r"[0-9a-f-]{40,}+", "Postman"),
    ("pul-", r"[0-9a-f]{40}", "Pulumi"),
    ("ATATT3", r"[\w=-]{40,}+", "Atlassian"),
    ("ATCTT3", r"[\w=-]{40,}+", "Atlassian"),
    ("ATBB", r"\w{28,}+", "Bitbucket"),
    ("sntry", r"[su]_[\w+/=-]{40,}+", "Sentry"),
    ("dp.", r"(?:pt|st|ct|sa|scim|audit)\.[\w.-]{30,}+", "Doppler"),
    ("dt0c01.", r"[\w.]{40,}+", "Dynatrace"),
    ("AGE-SECRET-KEY-1", r"[A-Z0-9]{40,}+", "age"),
    ("sbp_", r"[0-9a-f]{40}", "Supabase"),
    ("pscale_", r"(?:tkn|pw|oauth)_[\w.=-]{30,}+", "PlanetScale"),
    ("figd_", r"[\w-]{30,}+", "Figma"),
    ("tskey-", r"[\w-]{20,}+", "Tailscale"),
    ("EAAA", r"[\w-]{50,}+", "Square, Facebook"),
    ("sq0", r"(?:atp|csp)-[\w-]{20,}+", "Square"),
    ("sqa_", r"[0-9a-f]{40}", "SonarQube"),
    ("sqp_", r"[0-9a-f]{40}", "SonarQube"),
    ("squ_", r"[0-9a-f]{40}", "SonarQube"),
    ("LTAI", r"[A-Za-z0-9]{16,}+", "Alibaba"),
    ("AKCp", r"[A-Za-z0-9]{60,}+", "Artifactory"),
    ("ops_", r"eyJ[\w=-]{40,}+", "1Password"),
    ("FlyV1", r"[ ]fm\d_[\w+/=,-]{40,}+", "Fly.io"),
    ("sha256~", r"[\w-]{40,}+", "OpenShift"),
)
_BEGINS = "|".join(begins.replace(".", r"\.") + rest for begins, rest, _ in _FORMS)
# The same for tokens with a known middle part.
_MARKS = (
    (".atlasv1.", r"\w{10,20}\.atlasv1\.[\w=-]{40,}+", "Terraform"),
    ("q~", r"[\w.~-]{3}[78]Q~[\w.~-]{30,}+", "Azure"),
    (":aa", r"\d{8,10}:AA[\w-]{32,}+", "Telegram"),
)

# Addresses that are secrets themselves: anyone who knows them may send to them.
_WEBHOOKS = (
    ("hooks.slack", r"hooks\.slack\.com/(?:services|workflows|triggers)/"),
    ("discord", r"discord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks/"),
    ("webhook.office", r"\w[\w-]{0,60}\.webhook\.office\.com/"),
    ("api.telegram", r"api\.telegram\.org/bot"),
    ("hooks.zapier", r"hooks\.zapier\.com/hooks/catch/"),
    ("maker.ifttt", r"maker\.ifttt\.com/trigger/[\w-]{1,60}/(?:json/)?with/key/"),
    ("hc-ping", r"hc-ping\.com/"),
    ("hook", r"[\w.-]{1,60}/(?:bot/v2/hook|hooks/incoming|webhook/send\?key=)/?"),
)


# --- the table ------------------------------------------------------------------------------------

_QUOTE = r"""\\{0,7}["']"""
# Between two words of a command, which may be a list, as Python's subprocess gets and shows it.
_NEXT = rf"(?: \s | {_QUOTE} \s{{0,20}} , \s{{0,20}} {_QUOTE} )"

#: The stems that are searched first, in lower case, to find names of secrets.
STEMS = r"pass|pw|secret|token|credential|authorization|cookie|key"
#: The names of secrets. If the group ``plain`` matches, the value may be a plain word.
NAME = rf"(?ix) (?: (?P<plain> {_PLAIN} ) | {_MADE} ) {_TAIL}"

# In the order in which they are tried: the more specific kinds come first.
NAMED = (
    Named(
        "in quotes",  # password = "…", api_key: …, os.environ["TOKEN"] = '…', password: str = "…"
        rf"(?P<keep> {_IS} {_SIGN} {_SCHEME} ) (?: {_LINES} | {_QUOTED} )",
        plain=True,
    ),
    Named(
        "in quotes, made up",
        rf"(?P<keep> {_IS} {_SIGN} {_SCHEME} ) (?: {_LINES} | {_QUOTED_MADE_UP} )",
    ),
    Named(
        "on the line below, as a block of YAML",
        rf"""(?P<keep> {_QUOTE}? : {_SPACE} [|>][+-]? {_SPACE} (?: \\n | \n ) {_SPACE} )
        {_NO_PLACE} [^\n\\]{{3,}}+""",
    ),
    Named(
        "to fall back on",  # getenv("DB_PASSWORD", "…"), get("db", "password", fallback="…")
        rf"""(?P<keep> {_QUOTE} \s{{0,4}} , \s{{0,20}} (?: [^()"'\n]{{0,60}} , \s{{0,20}} )?
        (?: (?: default|fallback|value|failobj ) \s? = \s? )? ) (?! ["'] - ) {_QUOTED}""",
        before=rf"""(?: get | getenv | setdefault | pop | getattr | setattr | setenv | putenv | set
        | env | config | str | var | option | argument ) \s{{0,4}} \(
        (?: [^()"'\n]{{0,60}} , \s{{0,20}} | {_KEPT} , \s{{0,20}} )? {_QUOTE} [\w./-]{{0,40}}""",
    ),
    Named(
        "given to what makes or encodes one",  # password = quote_plus("…"), Field(default="…")
        rf"""(?P<keep> {_IS} {_SIGN} (?: [\w.]{{0,60}} (?<! \w ) (?: quote | quote_plus | b64decode
        | b64encode | unhexlify | fromhex | bytes | bytearray | str | field | SecretStr
        | SecretBytes | SecretValue ) \s? \( \s{{0,20}} )++ (?: default \s? = \s? )? ) {_QUOTED}""",
    ),
    Named(
        "the second of a pair",  # [("user", "bob"), ("password", "…")]
        rf"(?P<keep> {_QUOTE} \s{{0,4}} , \s{{0,20}} ) {_QUOTED} (?= \s{{0,20}} [)\]] )",
        before=rf"[(\[] \s{{0,20}} {_QUOTE} [\w./-]{{0,40}}",
        plain=True,
    ),
    Named(
        "in a mapping of such",  # SECRETS = {"database": "…", "mail": "…"}
        rf"""(?P<keep> {_IS} {_SIGN} {{ \s{{0,20}}
        (?: {_KEPT} \s{{0,4}} : \s{{0,4}} {_KEPT} \s{{0,4}} , \s{{0,20}} ){{0,5}}?
        {_KEPT} \s{{0,4}} : \s{{0,4}} ) {_QUOTED_MADE_UP}
        (?: \s{{0,4}} , \s{{0,20}} {_KEPT} \s{{0,4}} : \s{{0,4}} {_KEPT} ){{0,100}}+""",
        plain=True,
    ),
    Named(
        "in a list of such",  # PASSWORDS = ["…", "…"]; not values with names in a mapping
        rf"""(?P<keep> {_IS} {_SIGN} [(\[{{] \s{{0,20}} )
        (?! {_KEPT} \s{{0,20}} : ) {_QUOTED} (?: \s{{0,20}} ,? \s{{0,20}} {_KEPT} ){{0,100}}+""",
        plain=True,
    ),
    Named(
        "behind an option, in a list",  # ["mysql", "--password", "…"]
        rf"""(?P<keep> {_QUOTE} \s{{0,4}} , \s{{0,20}} ) (?! ["'] - ) {_QUOTED}""",
        before=rf"{_QUOTE} --[\w-]{{0,40}}",
    ),
    Named(
        "in a command that sets it",  # ENV API_TOKEN …
        rf"""(?P<keep> [ ]{{1,4}} ) {_BARE} {_STATE} (?! [=:] ) ["']? [^\s"'\\]{{4,}}+""",
        before=r"\b (?: ENV | ARG | setx? | setenv | define ) [ ]{1,4} [\w./:-]{0,60}",
    ),
    Named(
        "on a line of its own",  # of .netrc
        rf"""(?P<keep> {_SPACE} [ ] ) {_NO_PLACE} {_STATE} [^\s"'\\]{{3,}}+
        (?= {_SPACE} (?: \n | \Z ) )""",
        before=r"(?: \A | \n ) [^\S\n]{0,8}",
        plain=True,
    ),
    Named(
        "of SQL",  # ALTER USER bob WITH PASSWORD '…'
        rf"""(?P<keep> (?: (?<= password ) | (?<= secret ) ) \s{{1,4}}
        (?: password \s? \(? \s? )? ) {_QUOTED}""",
        plain=True,
    ),
    Named(
        "of a connection string",  # PWD={…}; Password=… …;
        rf"""(?P<keep> \s{{0,4}} = \s{{0,4}} ) (?: (?! {_PLACEHOLDER} )
        \{{ (?: [^{{}}\n] | \}}\}} ){{1,200}}+ \}}
        | {_BARE} [^;\n"'{{}}\\]{{1,200}}+ (?= ; | \\?["'] | \n | \Z ) )""",
        before=r"""[;"'] \s{0,4}""",
        plain=True,
    ),
    Named(
        "of an element of XML",  # <password>…</password>
        rf"(?P<keep> (?: \s [^<>\n]{{0,200}} )? > \s{{0,20}} ) {_NO_PLACE} [^<>\s][^<>\n]{{2,}}+",
        before=r"< [\w:.-]{0,40}",
    ),
    Named(
        "of an attribute of XML",  # <add key="Password" value="…"/>
        rf"""(?P<keep> {_QUOTE} \s{{1,20}} (?: [\w:-]{{1,30}} = {_KEPT} \s{{1,20}} ){{0,3}}+
        value \s? = \s? ) {_QUOTED}""",
        before=rf"\b (?: key|name|id|property ) \s? = \s? {_QUOTE} [\w./-]{{0,40}}",
    ),
    Named(
        "of a property in XML, by its attribute",  # <property name="password">…
        rf"(?P<keep> {_QUOTE} [^<>\n]{{0,60}} > \s{{0,8}} ) {_NO_PLACE} [^<>\s][^<>\n]{{2,}}+",
        before=rf"< [^<>\n]{{0,60}} (?: key|name|id ) \s? = \s? {_QUOTE} [\w./-]{{0,40}}",
    ),
    Named(
        "of a property in XML",  # <name>fs.s3a.secret.key</name><value>…
        rf"""(?P<keep> \s{{0,8}} </name> (?: \s | \\n ){{0,40}} <value> )
        {_NO_PLACE} [^<>]{{3,}}+""",
        before=r"<name> \s{0,8} [\w.-]{0,60}",
    ),
    Named(
        "beside its name",  # {"name": "DB_PASSWORD", "value": "…"}
        rf"""(?P<keep> {_QUOTE}? \s{{0,4}} [,{{]? (?: \s | \\n ){{0,20}} {_QUOTE}?
        (?: value|default ) {_QUOTE}? \s{{0,4}} [:=] \s{{0,4}} )
        (?: {_QUOTED} | {_NO_PLACE} {_WORD}{{3,}}+ )""",
        before=rf"""\b (?: name|key|variable ) {_QUOTE}? \s{{0,4}} [:=]? \s{{0,4}} {_QUOTE}?
        [\w./-]{{0,40}}""",
    ),
    Named(
        "a parameter of an address",
        rf"""(?P<keep> = ) {_NO_PLACE} [^&\s"'\#]{{3,}}+""",
        before=r"[?&] [\w.-]{0,40}",
    ),
    Named(
        "bare",
        rf"(?P<keep> {_IS} {_BARE_SIGN} {_SCHEME} ) {_PROSE}",
        plain=True,
        within="prose",
    ),
    Named(
        "bare",
        rf"(?P<keep> {_IS} {_BARE_SIGN} {_SCHEME} ) (?: {_MADE_UP} | {_IN_A_STRING} )",
        plain=True,
        within="code",
    ),
    Named("bare, made up", rf"(?P<keep> {_IS} {_BARE_SIGN} {_SCHEME} ) {_RANDOM}"),
    Named(
        "in a sentence",  # login failed for bob with password …
        rf"""(?P<keep> [ ] (?: (?: is|was|of|with ) [ ] )? (?: [\w.@-]{{1,60}} [/] )? ["'`]? )
        {_BARE}
        (?= [\w$@!*+%\#.~-]{{0,60}}? [a-z] ) (?= [\w$@!*+%\#.~-]{{0,60}}? [0-9] )
        (?! [\w.-]{{1,60}} [(\[=:/] ) [\w$@!*+%\#.~-]{{8,}}+""",
    ),
)

KINDS = (
    SecretKind(
        "a header that signs",
        ("authorization",),
        r"""(?ix) (?P<keep> \b authorization \s{0,8} : \s{0,8} (?: digest|hawk|oauth|signature )
        \s{1,4} ) (?! \[scrubbed ) [^\n\\]{6,500}+""",
    ),
    SecretKind(
        "a header that authorises",
        ("authorization",),
        r"""(?ix) (?P<keep> \b authorization (?: \\{0,7}["'] )? \]? \s{0,8}
        (?: : \s{0,8} (?: \\{0,7}["'] )? | = \s{0,8} [rbfu]{0,2} \\{0,7}["'] )
        [a-z] [\w-]{2,20} \s{1,4} ) (?! \[scrubbed )
        (?= [^\n"'\\]{0,200}? [\d=] ) [^\n"'\\]{6,}+""",
    ),
    SecretKind(
        "cookies",
        ("cookie",),
        r"""(?ix) (?P<keep> \b (?: set- )? cookie (?: \\{0,7}["'] )? \s{0,8} : \s{0,8}
        (?: \\{0,7}["'] )? ) (?! \[scrubbed )
        (?: (?= [\w.-]{1,80} = ) [^\n"'\\]{3,}+ | [^\s"';\\]{4,}+ (?= ; ) )""",
    ),
    SecretKind(
        "in a call that is named for it",
        ("set_", "secretstr(", "secretbytes(", "fernet(", "credential(", "secret("),
        rf"""(?ix) (?P<keep> \b (?: set_\w{{0,30}}? (?: password|token|secret|api_?key ) | SecretStr
        | SecretBytes | Fernet | \w{{0,40}}? (?: Key|Token ) Credential
        | Secret (?= \( \s{{0,20}} value ) ) \( \s{{0,20}} (?: value \s? = \s? )? )
        {_QUOTED}""",
    ),
    SecretKind(
        "what signs, in its place",
        ("hmac.", "jwt.", "securestring", "login"),
        rf"""(?ix) (?P<keep> \b (?: hmac\.new \( | jwt\.(?: en|de )code \(
        (?: [^,()"'\n]{{1,60}} | \{{ [^{{}}\n]{{0,200}} \}} ) ,
        | ConvertTo-SecureString | login \( (?: key|token ) \s? = ) \s{{0,20}} ) {_QUOTED}""",
    ),
    SecretKind(
        "the second of a pair for auth",
        ("auth", "credential", "login"),
        rf"""(?ix) (?P<keep> (?: auth|credentials?|login ) (?: _?token )? \w{{0,20}} \s{{0,4}}
        (?: (?: \\{{0,7}}["'] )? \]? \s{{0,4}} [:=] \s{{0,4}} )?
        (?: [\w.]{{0,60}} ) \( \s{{0,20}} (?: \w{{1,20}}= )? {_KEPT} \s{{0,4}} , \s{{0,20}}
        (?: \w{{1,20}}= )? ) {_QUOTED}""",
    ),
    SecretKind(
        "behind an option",
        ("--",),
        r"""(?ix) (?P<keep> (?<! [\w-] ) -- (?= \w ) [\w-]{0,40} (?: password|secret|token|key )
        [\ =] ["']? ) (?! \[scrubbed | - ) [^\s"']{3,}+""",
    ),
    SecretKind(
        "of Oracle's user",
        ("connect", "sqlplus", "oracle:"),
        rf"""(?ix) (?P<keep> \b (?: connect \s? \( \s? ["'] | oracle:(?:thin|oci):
        | sqlplus [ ]{{1,4}} (?: -\w{{1,4}} [ ]{{1,4}} )? ["']? ) [\w$]{{1,60}} / )
        {_NO_PLACE} [^\s"'/@]{{3,100}}+ (?= @ )""",
    ),
    SecretKind(
        "of curl's and wget's user",
        ("-u", "--user", "--proxy-user"),
        rf"""(?ix) (?P<keep> \b (?: curl | https? ) \b [^\n]{{0,300}}?
        {_NEXT} (?: -u | --user | --proxy-user ) (?: {_NEXT} | [ =]? ["']? ) [^\s:"']{{1,100}} : )
        {_NO_PLACE} [^\s"']{{1,}}+""",
    ),
    SecretKind(
        "of a command's option of one letter",
        ("-p", "-a"),
        rf"""(?ix) (?P<keep> \b (?: mysql\w{{0,10}} | mariadb\w{{0,10}} | sshpass | mongo\w{{0,10}}
        | (?: docker|podman|helm|az|oc ) {_NEXT} (?: registry {_NEXT} )? login | redis-cli )
        \b [^\n]{{0,200}}? {_NEXT} (?: -p | -a (?= {_NEXT} ) ) (?: {_NEXT} | [ ]? ["']? ) )
        {_NO_PLACE} (?! - ) [^\s"']{{3,}}+""",
    ),
    SecretKind(
        "of a command that packs files",
        ("-p",),
        rf"""(?x) (?P<keep> \b (?: 7z[ar]? \b [^\n]{{0,200}}? {_NEXT} -p (?= \S ) ["']?
        | (?: un)? zip \b [^\n]{{0,200}}? {_NEXT} -P (?: {_NEXT} | [ ]? ["']? ) ) )
        {_NO_PLACE} (?! - ) [^\s"']{{3,}}+""",
    ),
    SecretKind(
        "the key beside a user's name",  # of kaggle.json
        ("username",),
        rf"""(?ix) (?P<keep> ["'] username ["'] \s{{0,4}} : \s{{0,4}} {_KEPT} \s{{0,4}} , \s{{0,20}}
        ["'] key ["'] \s{{0,4}} : \s{{0,4}} ) {_QUOTED}""",
    ),
    SecretKind(
        "of the Climate Data Store",  # key: 12345:…, in .cdsapirc and in calls
        ("cdsapi", "copernicus", "//cds", "//ads"),
        r"""(?ix) (?P<keep> \b key ["']? \s{0,4} [:=] \s{0,4} ["']? (?: \d{1,10} : )? )
        [0-9a-f]{8} (?: - [0-9a-f]{4} ){3} - [0-9a-f]{12} \b""",
    ),
    SecretKind(
        "a header that is a key",  # X-ClickHouse-Key: …
        ("-key",),
        r"""(?ix) (?P<keep> (?: (?<! [\w-] ) | (?<= \\n ) ) x- (?! [\w-]{0,40}?
        (?: cache|idempoten|surrogate|sort|partition|routing|object ) ) [\w-]{0,40} -key
        \\{0,7}["']? \s{0,4} : \s{0,4}
        \\{0,7}["']? ) (?! \[scrubbed ) [^\s"'\\]{6,}+""",
    ),
    SecretKind(
        "given to a command's standard input",  # echo … | kinit
        ("echo",),
        rf"""(?ix) (?P<keep> \b echo [ ]{{1,4}} (?: -n [ ]{{1,4}} )? ["']? ) {_NO_PLACE} (?! \$ )
        [^\s"'|<>]{{3,}}+ (?= ["']? \s{{0,4}} \| \s{{0,4}} (?: kinit\b
        | (?: \S{{0,20}}/ )? chpasswd\b | sudo [ ] [^\n|]{{0,40}} -S\b 
        | [^\n|]{{1,120}} --password-stdin ) )""",
    ),
    SecretKind(
        "the token in the address of a channel of conda's",
        ("/t/",),
        # A forum of Discourse has words with hyphens there: /t/dask-workers-2-die-often/3344.
        r"""(?x) (?P<keep> :// [\w.:-]{1,80} (?: /conda )? /t/ )
        (?: (?: [a-z]{2}- )? [0-9a-f]{8} [0-9a-f-]{4,}+
        | (?= [\w-]{0,60}? \d ) (?= [\w-]{0,60}? [A-Z_] ) [\w-]{12,}+ ) (?= / )""",
    ),
    SecretKind(
        "of .netrc",
        ("login",),
        rf"""(?ix) (?P<keep> \b login \s{{1,8}} [^\s"'\\]{{1,100}} (?: \s | \\n ){{1,8}} \s{{0,8}}
        password \s{{1,8}} ) {_NO_PLACE} [^\s"'\\]{{3,}}+""",
    ),
    SecretKind(
        "of .pgpass",  # host:5432:database:user:…
        (":",),
        rf"""(?x) (?P<keep> : (?: \d{{4,5}} | \* ) : (?= [\w-]{{0,60}} [A-Za-z_*] ) [\w*-]{{1,60}}
        : (?= [\w-]{{0,60}} [A-Za-z_*] ) [\w*-]{{1,60}} : ) {_NO_PLACE} [^\s"'\\]{{4,}}+""",
    ),
    SecretKind(
        "of Docker's and npm's auth",
        ("auth",),
        r"""(?ix) (?P<keep> (?: \\{0,7}["'] auth \\{0,7}["'] \s{0,8} : \s{0,8} \\{0,7}["']
        | (?<! \w ) _auth \s{0,4} = \s{0,4} ["']? ) )
        (?-i: (?= [A-Za-z]{0,200} [0-9+/=] ) [A-Za-z0-9+/]{8,}+={0,2} )""",
    ),
    SecretKind(
        "of SQL",
        ("identified",),
        rf"""(?ix) (?P<keep> \b identified \s{{1,4}} (?: with \s{{1,4}} \S{{1,60}} \s{{1,4}} )?
        (?: by|as ) \s{{1,4}} (?: password \s{{1,4}} )? ) {_QUOTED}""",
    ),
    SecretKind(
        "a parameter of an address that may be something else, too",
        ("?key=", "&key=", "?code=", "&code=", "?auth=", "&auth=", "?sig", "&sig", "signature="),
        r"""(?ix) (?P<keep> [?&] (?: (?: key|code|auth ) = (?= [\w%.~-]{0,60}? \d )
        (?= [\w%.~-]{24} ) | [\w.-]{0,40}? sig(?:nature)? = ) ) (?! \[scrubbed ) [^&\s"'\#]{3,}+""",
    ),
    SecretKind(
        "a session's id",
        ("sessionid", "sessid", ".sid"),
        r"""(?ix) (?P<keep> \b (?: (?: j|php|asp\w{0,6} )? (?: session|sess ) id [ ]? [=:] [ ]?
        ["']?
        | connect\.sid = ) ) (?= [\w%.-]{0,60}? \d ) [\w%.-]{16,}+""",
    ),
    SecretKind(
        "a bearer's",
        ("bearer",),
        r"""(?x) (?P<keep> \b (?i:bearer) \s{1,8} ) (?= [a-z._~+/=-]{0,200} [A-Z0-9] )
        [A-Za-z0-9._~+/=-]{8,}+""",
    ),
    SecretKind(
        "a user and a password, encoded",  # "basic" is a word, too
        ("basic",),
        rf"""(?x) (?P<keep> \b (?i:basic) \s{{1,8}} )
        (?= [A-Za-z]{{0,200}}? (?: [0-9+/=] | [a-z][A-Z] ) ) {_BASE64}{{8,}}+={{0,2}}""",
    ),
    SecretKind(
        "credentials in an address",  # a password may have a slash in it, unlike a port
        ("://",),
        rf"""(?x) (?P<keep> \b [a-zA-Z][a-zA-Z0-9+.-]{{0,20}} :// )
        (?! (?i: (?: {_PLACEHOLDER} | [^\s/@:"'{{]{{1,60}} )? : {_PLACEHOLDER} @ ) )
        (?: [^\s/@:"']{{0,200}} : (?! // | \d{{1,5}} (?: [/\s] | \Z ) ) 
        (?: (?! :// ) [^\s"'] ){{1,500}}
        | (?: (?<= (?i: http:// ) ) | (?<= (?i: https:// ) )
        | (?= [^\s/@:"']{{0,200}}? \d ) (?= [^\s/@:"']{{20}} ) )
        [^\s/@:"']{{8,500}} ) (?= @ )""",
    ),
    SecretKind(
        "a token, by how it begins",
        tuple(begins.lower() for begins, _, _ in _FORMS),
        rf"(?P<keep>)(?<![A-Za-z0-9])(?:{_BEGINS})",
    ),
    SecretKind(
        "a token, by a mark in it",
        tuple(mark for mark, _, _ in _MARKS),
        rf"(?P<keep>)(?<![\w.~-])(?:{'|'.join(pattern for _, pattern, _ in _MARKS)})",
    ),
    SecretKind("a key of Twilio's", ("sk",), r"(?P<keep>)SK[0-9a-f]{32}(?!\w)(?<!\w.{34})"),
    # Tokens of unknown origin: a short word, then a run of upper and lower case letters and digits.
    # Dask's own keys contain only lower case letters.
    SecretKind(
        "a token, by its shape",
        ("_", "-"),
        r"""(?x) (?P<keep> (?<! [A-Za-z0-9_./+=-] ) [A-Za-z][A-Za-z0-9]{1,9}
        (?: [_-][a-z0-9]{1,6} ){0,2} [_-] ) (?= [A-Za-z0-9]{30} )
        (?= [A-Za-z0-9]{0,60}? [A-Z] ) (?= [A-Za-z0-9]{0,60}? [a-z] )
        (?= (?: [A-Za-z]{0,20}? [0-9] ){3} ) [A-Za-z0-9]{30,}+ (?! [\w./-] )""",
    ),
    SecretKind(
        "the secret beside an access key",
        ("akia", "asia", "[scrubbed]"),
        rf"""(?x) (?P<keep> (?: \bA(?:KIA|SIA)[A-Z0-9]{{16}} | \[scrubbed\] ) ["']? [\s,:]{{1,8}}
        ["']? ) (?<! {_BASE64} ) {_BASE64}{{40}} (?! {_BASE64} )""",
    ),
    *(
        SecretKind(
            "an address that is a secret",
            (word,),
            rf"(?ix) (?P<keep> \b {begins} ) (?! \[scrubbed ) [\w/@:%.-]{{8,}}+",
        )
        for word, begins in _WEBHOOKS
    ),
    SecretKind(
        "a JSON Web Token",
        ("eyj",),
        r"(?P<keep>)(?<![\w-])eyJ[\w-]{5,2000}+\.[\w-]{5,8000}+\.[\w-]++",
    ),
    SecretKind(
        "of a JSON Web Key",
        ("kty",),
        r"""(?x) (?P<keep> \\{0,7}" (?: d|p|q|dp|dq|qi|k ) \\{0,7}" \s{0,4} : \s{0,4} \\{0,7}" )
        [\w-]{16,}+""",
    ),
    SecretKind(
        "a private key",
        ("-----begin",),
        r"""(?x) (?P<keep> -----BEGIN [A-Z ]{0,30}PRIVATE[ ]KEY(?: [ ]BLOCK )?----- )
        (?! \[scrubbed ) (?s: . )+? (?= -----END | \Z )""",
    ),
    SecretKind(
        "lines of a private key",
        ("\n",),
        rf"(?m)(?P<keep>)(?:^{_PEM_LINE % '48,76'}\n){{3,}}+(?:^{_PEM_LINE % '1,76'}$)?",
    ),
    SecretKind(
        "the last lines of a private key",
        ("-----end ",),
        rf"(?m)(?P<keep>)(?:^{_PEM_LINE % '1,76'}\n){{1,3}}(?=[^\S\n]{{0,40}}[\"']?-----END )",
    ),
    SecretKind(
        "a line of a private key",
        (),
        rf"""(?x) (?P<keep>) (?<! [A-Za-z0-9+/=_-] ) (?= {_BASE64}{{64}} )
        (?! (?: [A-Za-z0-9+]{{0,76}} / ){{6}} )
        (?= {_BASE64}{{0,63}}? [A-Z] ) (?= {_BASE64}{{0,63}}? [a-z] ) (?= {_BASE64}{{0,63}}? [0-9] )
        {_BASE64}{{64,76}}+ (?! [A-Za-z0-9+/=_-] )""",
    ),
    SecretKind(
        "a private key, encoded once more",
        ("ls0tls1crudjti",),
        rf"(?P<keep>)\bLS0tLS1CRUdJTiB(?!DRVJU){_BASE64}{{20,}}+={{0,2}}",
    ),
)
