"""Texts with secrets in them, and texts without, as people write and programs log them.

``FIRST`` and ``INNOCENT_FIRST`` were there while the patterns of ``daskscope.secret_patterns`` were
written. ``SECOND`` and ``INNOCENT_SECOND`` were written afterwards, of kinds that no pattern had
been made for, to see how many of those are known; then the patterns were mended.

A secret is made up as the text is put together: none that looks real stands in this file.
"""

from __future__ import annotations

import random
import string
from typing import NamedTuple

_WORD = string.ascii_letters + string.digits


class SecretText(NamedTuple):
    """A text of some ``kind``, with a ``secret`` in it. ``code`` says that it is Python."""

    kind: str
    text: str
    secret: str
    code: bool = False


def _some(length: int, alphabet: str = _WORD) -> str:
    """Return characters that always are the same ones, and hold a letter and a digit."""
    chosen = random.Random(length * 7919 + len(alphabet))
    return "".join(chosen.choices(alphabet, k=length - 2)) + ("a7" if "a" in alphabet else "A7")


def _row(kind: str, text: str, secret: str, *, code: bool = False) -> SecretText:
    return SecretText(kind, text.replace("§", secret), secret, code)


def _pem(kind: str, end_of_line: str = "\n") -> str:
    return end_of_line.join([f"-----BEGIN {kind}-----", "§", f"-----END {kind}-----"])


_HEX = "0123456789abcdef"
_UPPER = string.ascii_uppercase + string.digits
_BASE64 = _WORD + "+/"
_PASSWORD = "Tr0ub4dor-zebra"
_PLAIN = "swordfish"
_PEM = [_some(64, _BASE64), _some(65, _BASE64)[:64], _some(66, _BASE64)[:64]]


FIRST = (
    # --- what is named -----------------------------------------------------------------------
    _row("assignment", 'password = "§"', _PASSWORD, code=True),
    _row("assignment of a plain word", "password = '§'", _PLAIN, code=True),
    _row("assignment with a type", 'api_key: str = "§"', _some(24), code=True),
    _row("triple quotes", 'secret = """one\n§\nthree"""', _PASSWORD, code=True),
    _row("keyword argument", 'connect(host="db", passwd="§", port=3306)', _PLAIN, code=True),
    _row("environment in code", 'os.environ["DB_PASSWORD"] = "§"', _PASSWORD, code=True),
    _row("default of getenv", 'os.getenv("DB_PASSWORD", "§")', "hunter2x", code=True),
    _row("default of environ.get", "os.environ.get('API_TOKEN', '§')", _some(20), code=True),
    _row("setdefault", 'os.environ.setdefault("PGPASSWORD", "§")', _PLAIN, code=True),
    _row("fallback", 'config.get("db", "password", fallback="§")', _PLAIN, code=True),
    _row("default of an option", '@click.option("--password", default="§")', _PLAIN, code=True),
    _row("default of an argument", 'p.add_argument("--api-key", default="§")', _PLAIN, code=True),
    _row("field's default", 'password: str = Field(default="§")', _PLAIN, code=True),
    _row("getattr", 'getattr(settings, "SECRET_KEY", "§")', _PLAIN, code=True),
    _row("tuple for auth", 'requests.get(url, auth=("admin", "§"))', _PLAIN, code=True),
    _row("auth object", 'session.auth = HTTPBasicAuth("admin", "§")', _PLAIN, code=True),
    _row("secret object", 'SecretStr("§")', _PLAIN, code=True),
    _row("encoded", 'password = quote_plus("§")', _PLAIN, code=True),
    _row("pair", '[("user", "bob"), ("password", "§")]', _PLAIN, code=True),
    _row("list of names", 'PASSWORDS = ["§", "x"]', _PLAIN, code=True),
    _row("comparison", 'if password == "§":', _PLAIN, code=True),
    _row("mapping", "{'user': 'bob', 'passwd': '§'}", _PLAIN, code=True),
    _row("arguments of a command", '["mysql", "--password", "§", "db"]', _PLAIN, code=True),
    _row("JSON", '{"user": "bob", "client_secret": "§"}', _PASSWORD),
    _row("JSON in JSON", '{"body": "{\\"password\\": \\"§\\"}"}', _PASSWORD),
    _row(
        "JSON in JSON in JSON", '{\\"a\\": \\"{\\\\\\"token\\\\\\": \\\\\\"§\\\\\\"}\\"}', _some(20)
    ),
    _row("YAML", "db:\n  user: bob\n  password: §\n", _PLAIN),
    _row("YAML block", "password: |\n  §\nuser: bob", _PLAIN),
    _row("TOML", '[db]\npassword = "§"', _PASSWORD),
    _row("INI", "[client]\nuser = bob\npassword = §", _PLAIN),
    _row(".env", "AWS_REGION=eu-west-1\nDB_PASS=§\n", _PASSWORD),
    _row("export", "export STRIPE_SECRET=§", _PASSWORD),
    _row("XML element", "<user>bob</user><password>§</password>", _PLAIN),
    _row("XML attribute", '<add key="Password" value="§"/>', _PLAIN),
    _row("Hadoop's XML", "<name>fs.s3a.secret.key</name>\n<value>§</value>", _some(40, _BASE64)),
    _row("libpq", "host=db user=etl password=§ dbname=x", _PLAIN),
    _row("ODBC", "Driver=x;Server=db;UID=sa;PWD=§;", _PASSWORD),
    _row(
        "ODBC with spaces", "Server=db;User Id=sa;Password=§;Encrypt=yes", "correct horse battery"
    ),
    _row("ODBC in braces", "DRIVER={SQL Server};UID=sa;PWD={§};Encrypt=yes", "a;b c}}d"),
    _row("Azure storage", "AccountName=a;AccountKey=§;EndpointSuffix=x", _some(86, _BASE64) + "=="),
    _row("JAAS", "PlainLoginModule required username='u' password='§';", _PLAIN),
    _row("kwargs in a message", "could not connect: user='bob', password='§'", _PLAIN),
    _row("repr of a value", "Settings(user='bob', token=SecretStr('§'))", _some(20)),
    # --- commands and files ------------------------------------------------------------------
    _row("command line", "run --api-token § now", _some(20)),
    _row("command line with =", "run --password='§'", _PASSWORD),
    _row("curl -u", "curl -s -u bob:§ https://host/x", _PASSWORD),
    _row("curl --user", 'curl --user "bob:§" https://host', _PLAIN),
    _row("curl -H", "curl -H 'Authorization: Bearer §' https://host", _some(20)),
    _row("mysql -p", "mysql -h db -u root -p§ shop", _PASSWORD),
    _row("sshpass", "sshpass -p '§' ssh bob@host", _PLAIN),
    _row("curl -u in a list", "['curl', '-s', '-u', 'bob:§', 'https://host/x']", _PASSWORD),
    _row("curl --user in a list", '["curl", "--user", "bob:§", "https://host"]', _PASSWORD),
    _row("mysql -p in a list", "['mysql', '-h', 'db', '-u', 'root', '-p§', 'shop']", _PASSWORD),
    _row("sshpass in a list", '["sshpass", "-p", "§", "ssh", "bob@host"]', _PLAIN),
    _row("docker login in a list", "['docker', 'login', '-u', 'bob', '-p', '§']", _PASSWORD),
    _row("redis-cli in a list", "['redis-cli', '-h', 'db', '-a', '§', 'ping']", _PASSWORD),
    _row("zip in a list", "['zip', '-P', '§', 'a.zip', 'a']", _PASSWORD),
    _row("7z in a list", "['7z', 'a', '-p§', 'a.7z', 'a']", _PASSWORD),
    _row(".netrc", "machine host login bob password §", _PLAIN),
    _row(".netrc over lines", "machine host\n  login bob\n  password §\n", _PLAIN),
    _row(".npmrc", "//registry.host/:_authToken=§", _some(36)),
    _row(".pgpass", "db.host:5432:shop:bob:§", _PASSWORD),
    _row("docker auth", '{"auths": {"host": {"auth": "§"}}}', _some(24) + "=="),
    _row("kubeconfig key", "users:\n- user:\n    client-key-data: §", _some(90, _BASE64) + "=="),
    _row("SQL, identified by", "CREATE USER 'bob'@'%' IDENTIFIED BY '§'", _PLAIN),
    _row("SQL, with password", "CREATE ROLE bob LOGIN PASSWORD '§'", _PLAIN),
    _row("SQL, encrypted", "ALTER USER bob WITH ENCRYPTED PASSWORD '§' VALID UNTIL 'x'", _PLAIN),
    # --- headers and addresses ---------------------------------------------------------------
    _row("bearer", "Authorization: Bearer §", _some(30)),
    _row("basic", "Authorization: Basic §", _some(22) + "=="),
    _row("scheme of its own", "authorization: ApiKey §", _some(30)),
    _row("header in code", 'headers = {"X-API-Key": "§"}', _some(30), code=True),
    _row("cookie", "Cookie: sid=§; theme=dark", _some(26)),
    _row("second cookie", "Cookie: theme=dark; sessionid=§", _some(26)),
    _row("set-cookie", "Set-Cookie: session=§; Path=/; HttpOnly", _some(26)),
    _row("password in an address", "postgresql://bob:§@db:5432/x", _PASSWORD),
    _row("token in an address", "https://§@host/x.git", _some(30)),
    _row("redis", "redis://:§@cache:6379/0", _PLAIN),
    _row("parameter", "https://host/x?a=1&access_token=§&b=2", _some(30)),
    _row("signed address", "https://host/x?X-Amz-Date=1&X-Amz-Signature=§", _some(64, _HEX)),
    _row("SAS", "https://a.blob.core.windows.net/c?sv=2020&sig=§", _some(43) + "%3D"),
    _row("Slack webhook", "https://hooks.slack.com/services/T0001/B0001/§", _some(24)),
    _row("Discord webhook", "https://discord.com/api/webhooks/123456789012345678/§", _some(68)),
    _row("Telegram bot", "https://api.telegram.org/bot123456789:§/sendMessage", _some(35)),
    _row("Teams webhook", "https://x.webhook.office.com/webhookb2/§", _some(36) + "@" + _some(36)),
    # --- what is known by its form -----------------------------------------------------------
    _row("daskscope", "§", "dsk_abc2345678_" + "0123456789abcdef" * 4),
    _row("GitHub", "found § in x", "ghp_" + _some(36)),
    _row("GitHub, fine-grained", "found § in x", "github_pat_" + _some(60)),
    _row("GitLab", "found § in x", "glpat-" + _some(20)),
    _row("GitLab runner", "found § in x", "glrt-" + _some(20)),
    _row("Google client secret", "found § in x", "GOCSPX-" + _some(28)),
    _row("Google API", "found § in x", "AIza" + _some(35)),
    _row("AWS", "found § in x", "AKIA" + _some(16, _UPPER)),
    _row("AWS pair", '("AKIA' + "ABCDEFGH12345678" + '", "§")', _some(40, _BASE64), code=True),
    _row("Slack", "found § in x", "xoxb-" + _some(30)),
    _row("OpenAI", "found § in x", "sk-proj-" + _some(40)),
    _row("Anthropic", "found § in x", "sk-ant-api03-" + _some(40)),
    _row("Stripe", "found § in x", "sk_live_" + _some(24)),
    _row("Hugging Face", "found § in x", "hf_" + _some(34)),
    _row("Databricks", "found § in x", "dapi" + _some(32, _HEX)),
    _row("JSON Web Token", "found § in x", f"eyJ{_some(20)}.eyJ{_some(30)}.{_some(40)}"),
    _row(
        "private key",
        _pem("RSA PRIVATE KEY"),
        "\n".join(_PEM),
    ),
    _row("private key, one line of it", f'    "{_PEM[0]}\\n"', _PEM[0], code=True),
    _row(
        "private key in a line",
        'key = "' + _pem("PRIVATE KEY", "\\n") + '"',
        "\\n".join(_PEM),
        code=True,
    ),
    _row(
        "private key, lines in quotes",
        'key = (\n    "-----BEGIN PRIVATE KEY-----\\n"\n    "§\\n"\n)',
        _PEM[0],
        code=True,
    ),
)

INNOCENT_FIRST = (
    # --- code --------------------------------------------------------------------------------
    "pwd = os.getcwd()",
    "cookie_jar = CookieJar()",
    "if token == expected_token_1:",
    "for token in tokens: yield token",
    "storage_key_prefix = bucket + '/x'",
    "storage_key_prefix='raw/2024'",
    "tokens = tokenize(text)",
    'tokenizer = "bert-base"',
    "for token in tokens: count[token] += 1",
    "login(password=password, user=user)",
    "token = make_token_2(user)",
    "x = first / second",
    "if pass_count > 3: pass",
    "dsk_optimized_for_everyone = dsk",
    "token = tokens[0]",
    "pass_rate = passed/total",
    "password = getpass()",
    'password = os.environ["DB_PASSWORD"]',
    'token = os.getenv("API_TOKEN")',
    'f"password={password}"',
    'dsn = f"postgresql://{user}:{password}@{host}/{name}"',
    "secret = boto3.client('secretsmanager').get_secret_value(SecretId=name)",
    'df.groupby(["token", "count"]).sum()',
    'columns = ["user", "password", "email"]',
    "def login(user: str, password: str) -> Token:",
    "max_tokens=4096, temperature=0.2",
    "token_count = 12",
    "access_keys = list(d)",
    "auth = get_auth(config)",
    'raise ValueError("password must not be empty")',
    "n_passes=3",
    "credentials = DefaultAzureCredential()",
    "self.token = token",
    "x_token = self.rows[i+1]",
    "df['cookie'].nunique()",
    # --- prose -------------------------------------------------------------------------------
    "secretary: Mrs. Jones",
    "authorization: required",
    "PASS: test_1",
    "PASS: test_2, FAIL: test_3",
    "shared_key_count: 12",
    "tokenizer: bert-base",
    "max_tokens=4096, tokens: 120",
    "see https://example.org/a:b",
    "http://host:8690/users/@me",
    "a basic question of bearers",
    "HTTP Basic Authentication is off",
    "token=None, password: null",
    "----- a table -----",
    "password: required",
    "token: expired",
    "invalid token: unexpected end of file",
    "Password: must be at least 8 characters long",
    "secret: not found",
    "the cookie: a small text file",
    "KeyError: 'password'",
    "the access key is missing",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "commit 356a192b7913b04c54574d18c28d46e6395428ab",
    "passed: 12, failed: 3",
    "worker tcp://10.0.0.1:4711 left",
)

_UUID = "123e4567-e89b-42d3-a456-" + _some(12, _HEX)

SECOND = (
    # --- what is named -----------------------------------------------------------------------
    _row(
        "Spark's configuration",
        'spark.conf.set("fs.azure.account.key.x.net", "§")',
        _some(60),
        code=True,
    ),
    _row("boto3", 'boto3.client("s3", aws_secret_access_key="§")', _some(40, _BASE64), code=True),
    _row("storage options", '{"key": "me", "secret": "§"}', _some(40, _BASE64), code=True),
    _row("s3fs", 's3fs.S3FileSystem(key="me", secret="§")', _some(40, _BASE64), code=True),
    _row("smtp.login", 'smtp.login("bob@host", "§")', _PLAIN, code=True),
    _row("FTP, by place", 'FTP("host", "bob", "§")', _PLAIN, code=True),
    _row("wandb.login", 'wandb.login(key="§")', _some(40, _HEX), code=True),
    _row("attribute of a module", 'openai.api_key = "§"', _some(32, _HEX), code=True),
    _row("environ.update", 'os.environ.update(GH_TOKEN="§")', _some(32, _HEX), code=True),
    _row("setenv", 'monkeypatch.setenv("API_KEY", "§")', _PLAIN, code=True),
    _row("token scheme", 'headers={"Authorization": "Token §"}', _some(32, _HEX), code=True),
    _row("X-Auth-Token", 'headers={"X-Auth-Token": "§"}', _some(32, _HEX), code=True),
    _row("Vault's header", 'session.headers["X-Vault-Token"] = "§"', _some(24), code=True),
    _row(
        "key of a JWT, by place",
        'jwt.encode(payload, "§", algorithm="HS256")',
        _PASSWORD,
        code=True,
    ),
    _row("key of an HMAC, by place", 'hmac.new(b"§", message, "sha256")', _PASSWORD, code=True),
    _row("Flask", 'app.secret_key = b"§"', _PASSWORD, code=True),
    _row("Django", 'SECRET_KEY = "django-insecure-§"', _some(40), code=True),
    _row("databases", '{"default": {"PASSWORD": "§"}}', _PLAIN, code=True),
    _row("decouple", 'SECRET = config("APP_SECRET", default="§")', _PLAIN, code=True),
    _row("bytes of a mapping", "{b'password': b'§'}", _PLAIN, code=True),
    _row("argument with =", '["serve", "--api-key=§"]', _some(20), code=True),
    _row("Oracle", 'cx_Oracle.connect("scott/§@host/XE")', "tiger42x", code=True),
    _row("walrus", 'if (token := "§"):', _some(24), code=True),
    _row("annotation", 'class A:\n    db_pass: ClassVar[str] = "§"', _PASSWORD, code=True),
    _row("header of a tuple", '[("X-Api-Key", "§")]', _some(32, _HEX), code=True),
    _row("name and value", '{"name": "DB_PASSWORD", "value": "§"}', _PLAIN),
    _row("Kubernetes, environment", "- name: DB_PASSWORD\n  value: §", _PASSWORD),
    _row("Kubernetes, secret", "kind: Secret\ndata:\n  password: §", _some(16) + "=="),
    _row("properties", "spring.datasource.password=§", _PLAIN),
    _row("Ansible", "ansible_become_pass=§", _PASSWORD),
    _row("Terraform", 'variable "db_password" {\n  default = "§"\n}', _PLAIN),
    _row("compose", "    - POSTGRES_PASSWORD=§", _PLAIN),
    _row("YAML anchor", "password: &pw §", _PASSWORD),
    _row("XML property", '<property name="password">§</property>', _PLAIN),
    _row("PowerShell", '$env:API_TOKEN = "§"', _some(24)),
    _row("SecureString", 'ConvertTo-SecureString "§" -AsPlainText -Force', _PASSWORD),
    _row("Dockerfile", "ENV API_TOKEN §", _some(24)),
    _row("setx", 'setx DB_PASSWORD "§"', _PASSWORD),
    _row("aws configure", "aws configure set aws_secret_access_key §", _some(40, _BASE64)),
    _row("docker run -e", "docker run -e MYSQL_ROOT_PASSWORD=§ mysql", _PASSWORD),
    _row("from-literal", "kubectl create secret generic db --from-literal=password=§", _PLAIN),
    _row("helm --set", "helm install x --set auth.password=§", _PLAIN),
    _row("az login", "az login --service-principal -u id -p § --tenant t", _some(34)),
    _row("sqlplus", "sqlplus scott/§@XE", "tiger42x"),
    _row("psql", "PGPASSWORD='§' psql -h db", _PLAIN),
    _row("git's header", 'git -c http.extraheader="AUTHORIZATION: bearer §" fetch', _some(40)),
    # --- sentences ---------------------------------------------------------------------------
    _row("sentence, is", "the password is §", _PASSWORD),
    _row("sentence, with", "login failed for bob with password §", _PASSWORD),
    _row("sentence, using", "using token § for host", _some(32)),
    _row("sentence, credentials", "credentials bob/§ were refused", _PASSWORD),
    _row("table", "user,password\nbob,§", _PASSWORD),
    # --- headers and addresses ---------------------------------------------------------------
    _row(
        "digest", 'Authorization: Digest username="bob", nonce="x", response="§"', _some(32, _HEX)
    ),
    _row("proxy", "Proxy-Authorization: Basic §", _some(20) + "="),
    _row("session token's header", "X-Amz-Security-Token: §", _some(80, _BASE64)),
    _row(
        "AWS signature",
        "Authorization: AWS4-HMAC-SHA256 Credential=x/2024, Signature=§",
        _some(64, _HEX),
    ),
    _row("Datadog's header", "DD-API-KEY: §", _some(32, _HEX)),
    _row("jsessionid", "GET /x;jsessionid=§?a=1", _some(32, _HEX)),
    _row("srv address", "mongodb+srv://u:§@cluster0.mongodb.net/x", _PASSWORD),
    _row("amqp", "amqp://guest:§@rabbit:5672//", _PASSWORD),
    _row("parameter of an address, apikey", "https://host/x?apikey=§", _some(32)),
    _row("parameter of an address, key", "https://host/x?key=§", _some(32)),
    _row(
        "parameter of an address, code",
        "https://a.azurewebsites.net/api/x?code=§",
        _some(54) + "==",
    ),
    _row("form", "grant_type=password&username=bob&password=§", _PASSWORD),
    _row("one-time secret", "otpauth://totp/x?secret=§&issuer=y", "JBSWY3DPEHPK3PXP"),
    _row("Zapier", "https://hooks.zapier.com/hooks/catch/123456/§/", _some(8)),
    _row("Google Chat", "https://chat.googleapis.com/v1/spaces/A/messages?token=§", _some(43)),
    _row("IFTTT", "https://maker.ifttt.com/trigger/x/with/key/§", _some(43)),
    _row("healthchecks", "https://hc-ping.com/§", _UUID),
    _row("Sentry DSN", "https://§@o1.ingest.sentry.io/1", _some(32, _HEX)),
    # --- what is known by its form -----------------------------------------------------------
    *(
        _row(whose, "found § in x", secret)
        for whose, secret in (
            ("DigitalOcean", "dop_v1_" + _some(64, _HEX)),
            ("Shopify", "shpat_" + _some(32, _HEX)),
            ("New Relic", "NRAK-" + _some(27, _UPPER)),
            ("Linear", "lin_api_" + _some(40)),
            ("Notion", "ntn_" + _some(46)),
            ("Postman", "PMAK-" + _some(24, _HEX) + "-" + _some(34, _HEX)),
            ("Pulumi", "pul-" + _some(40, _HEX)),
            ("Atlassian", "ATATT3xFfGF0" + _some(180)),
            ("Twilio", "SK" + _some(32, _HEX)),
            ("Mailgun", "key-" + _some(32, _HEX)),
            ("Telegram", "123456789:AA" + _some(33)),
            ("Terraform Cloud", _some(14) + ".atlasv1." + _some(67)),
            ("RubyGems", "rubygems_" + _some(48, _HEX)),
            ("Sentry", "sntrys_" + _some(80)),
            ("Doppler", "dp.pt." + _some(43)),
            ("age", "AGE-SECRET-KEY-1" + _some(58, _UPPER)),
            ("Prefect", "pnu_" + _some(36)),
            ("LangSmith", "lsv2_pt_" + _some(32, _HEX) + "_" + _some(10, _HEX)),
            ("Groq", "gsk_" + _some(52)),
            ("Replicate", "r8_" + _some(37)),
            ("Perplexity", "pplx-" + _some(48)),
            ("Supabase", "sbp_" + _some(40, _HEX)),
            ("PlanetScale", "pscale_tkn_" + _some(43)),
            ("Figma", "figd_" + _some(40)),
            ("Tailscale", "tskey-auth-" + _some(16) + "-" + _some(32)),
            ("GitLab, older kinds", "gloas-" + _some(64, _HEX)),
            ("Slack app", "xapp-1-A0-" + _some(64, _HEX)),
            ("Square", "EAAA" + _some(60)),
            ("Azure AD", "abc8Q~" + _some(34)),
            ("OpenShift", "sha256~" + _some(43)),
        )
    ),
    _row(
        "service account", '{"private_key": "' + _pem("PRIVATE KEY", "\\n") + '"}', "\\n".join(_PEM)
    ),
    _row("OpenSSH key", _pem("OPENSSH PRIVATE KEY"), _some(70, _BASE64)),
    _row("PGP key", _pem("PGP PRIVATE KEY BLOCK"), _some(64, _BASE64)),
    _row("PuTTY key", "Private-Lines: 2\n§\nPrivate-MAC: x", _some(64, _BASE64)),
    _row("WireGuard", "[Interface]\nPrivateKey = §", _some(43, _BASE64) + "="),
    _row("JSON Web Key", '{"kty": "EC", "crv": "P-256", "d": "§"}', _some(43)),
    _row(
        "key in base64 twice",
        "tls.key: §",
        "LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQ" + _some(80),
    ),
)

INNOCENT_SECOND = (
    # --- code --------------------------------------------------------------------------------
    "tok = next(tokens)",
    "def get_token(self): return self._token",
    "class TokenBucket(Limiter): pass",
    "secrets.token_hex(16)",
    'key = f"{user}-{number}"',
    'cache_key = "users:42"',
    "Column(Integer, primary_key=True)",
    "df.sort_values(key=lambda x: x[1])",
    'df["api_key_count"] = 3',
    "password_validator = MinLength(8)",
    'if not password: raise ValueError("no password given")',
    'parser.add_argument("--password", help="password of the user")',
    'parser.add_argument("--token-file", default="/etc/token")',
    '@click.option("--pass-through", default="yes")',
    "PASSWORD_MIN_LENGTH = 12",
    "token_ids = [101, 2023, 102]",
    "input_ids, token_type_ids = batch",
    'pad_token = "<pad>"',
    "from secrets import choice",
    "credentials, project = google.auth.default()",
    'with open(os.path.expanduser("~/.netrc")) as file:',
    "session = Session(auth=auth)",
    "cookies = response.cookies",
    "x = compute(token=tokenize(a, b))",
    'da.from_array(x, name="token-1")',
    "assert token != other_token",
    "bypass = True",
    "compass_heading=270",
    "passenger_count: 3",
    "password_hash = bcrypt.hashpw(plain, salt)",
    'author = "J. Smith"',
    "auth=None",
    "basic = BasicBlock(64, 64)",
    "bearer_angle = 12.5",
    'url = "https://example.org/path?key=name&page=2"',
    "ssh://git@host/x",
    "git clone git@github.com:org/repo.git",
    "while not token: token = queue.get()",
    "for pwd in users: check(pwd)",
    'logger.info("token: %s", token)',
    # --- prose -------------------------------------------------------------------------------
    "Secretary of State: John Smith",
    'password authentication failed for user "bob"',
    "password reset link sent to bob",
    "token bucket: 5 per second",
    "Enter your password: ",
    "No API key was provided",
    "api key: none",
    "the token expired 3 minutes ago",
    "Unexpected token } in JSON at position 12",
    "access key rotation: monthly",
    "cookie policy: strict",
    "authorization failed: user not in group admin",
    "Bearer authentication is required",
    "Basic usage: see the docs",
    "login bob at 12:00",
    "Pass 3 of 10: 12 passengers",
    "pass: 12 fail: 0",
    "md5: d41d8cd98f00b204e9800998ecf8427e",
    "uuid 123e4567-e89b-12d3-a456-426614174000",
    "10.0.0.1:8786:tcp at 12:30:45:123",
    "KeyError: ('token', 3)",
    "/home/bob/.ssh/id_rsa not found",
    "the secret of good code: short functions",
    "token 17 of 4096, n_tokens: 1,024",
    "password=*** user=bob",
    "Password: <redacted>",
    "${DB_PASSWORD} is not set",
    "PWD=/home/bob/work",
    "tokens per second: 123.4",
    "public key: ssh-rsa AAAAB3NzaC1yc2E",
    "/Users/alice/Documents/Project2/data/raw/2024/05/01/part/final/outputs",
    "s3://bucket/key/part-0001.parquet",
    "certificate-authority-data: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t",
    "integrity sha512-9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
)
