"""The tables of the service. Rows of heartbeats have the columns that ``daskscope.protocol`` says.

Times are seconds since the Unix epoch, UTC. Ids are text. Whole numbers have 64 bits, as on the
wire. Every row of user data carries its workspace, first in its key, so that no query can reach
over the border by accident.

What users' programs say, and may quote code of theirs, is sealed: encrypted. Names, numbers and
times are in clear.

What is changed here needs a revision in ``migrations/versions``: see CONTRIBUTING.md.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from daskscope import protocol
from daskscope_service.db.sealing import Sealed, SealedJSON
from daskscope_service.db.wire import columns_of

metadata = MetaData()

# --- accounts -------------------------------------------------------------------------------------

workspace = Table(
    "workspace",
    metadata,
    Column("id", String, primary_key=True),
    Column("created_at", Float, nullable=False),
)

token = Table(
    "token",
    metadata,
    Column("id", String, primary_key=True),
    Column("workspace", String, nullable=False),
    Column("label", String, nullable=False),
    Column("scopes", String, nullable=False),  # "admin", "ingest", "read", with spaces between
    Column("secret_hash", LargeBinary, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float),
    Column("revoked_at", Float),
    Column("last_used_at", Float),
    Column("made_by", String),  # None: made before this was kept
    Column("user", String),  # removed with that user. None: no user's
    Index("token_by_workspace", "workspace", "created_at"),
    Index("token_by_user", "user"),
)

sign_in_link = Table(
    "sign_in_link",
    metadata,
    Column("code_hash", LargeBinary, primary_key=True),
    Column("workspace", String, nullable=False),
    Column("expires_at", Float, nullable=False),
)

user = Table(
    "user",
    metadata,
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False),  # as it was given
    Column("name_key", String, nullable=False),  # the name as it is compared: without case
    Column("display_name", String, nullable=False),
    Column("password_hash", String, nullable=False),  # "": none, signs in by OpenID Connect
    Column("created_at", Float, nullable=False),
    Column("disabled_at", Float),
    # The workspace whose invitation made it: the name is not proven to be theirs. None: whoever
    # runs the service, or the provider, says that it is.
    Column("made_in", String),
    UniqueConstraint("name_key"),
)

member = Table(
    "member",
    metadata,
    Column("workspace", String, primary_key=True),
    Column("user", String, primary_key=True),
    Column("role", String, nullable=False),  # "owner", "member" or "viewer"
    Index("member_by_user", "user"),
)

session = Table(
    "session",
    metadata,
    Column("id_hash", LargeBinary, primary_key=True),
    Column("workspace", String, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("user", String),  # None: began with a link or a token
    Column("token", String),  # the id of the one that it began with
    Column("role", String),  # None: what the user is in the workspace
    Column("last_seen_at", Float),
    Column("browser", String),
    # False: a provider let them in, and may not have asked who they are
    Column("proven", Boolean, nullable=False),
    Index("session_by_user", "user"),
)

sign_in_attempt = Table(
    "sign_in_attempt",
    metadata,
    Column("id", String, primary_key=True),  # one for each key of one attempt
    Column("key_hash", LargeBinary, nullable=False),  # of a name, or of an address
    Column("at", Float, nullable=False),
    Index("sign_in_attempt_by_key", "key_hash", "at"),
    Index("sign_in_attempt_by_time", "at"),
)

invitation = Table(
    "invitation",
    metadata,
    Column("id", String, primary_key=True),
    Column("code_hash", LargeBinary, nullable=False),
    Column("workspace", String, nullable=False),
    Column("name", String, nullable=False),  # of the user that it makes, if it makes one
    Column("role", String, nullable=False),
    Column("made_by", String, nullable=False),
    Column("user", String),  # who must still be an owner. None: made with a link or no one's token
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
    UniqueConstraint("code_hash"),
    Index("invitation_by_workspace", "workspace", "created_at"),
    Index("invitation_by_expiry", "expires_at"),
)

identity = Table(
    "identity",
    metadata,
    Column("issuer", String, primary_key=True),
    Column("subject", String, primary_key=True),
    Column("user", String, nullable=False),
    Column("created_at", Float, nullable=False),
    Index("identity_by_user", "user"),
)

openid_attempt = Table(
    "openid_attempt",
    metadata,
    Column("state_hash", LargeBinary, primary_key=True),
    Column("ticket_hash", LargeBinary, nullable=False),  # of what the browser's cookie holds
    Column("nonce", String, nullable=False),
    Column("verifier", String, nullable=False),
    Column("target", String, nullable=False),
    Column("user", String),  # who connects their account; None: a sign-in
    Column("address", String, nullable=False),  # of IPv6, its network
    Column("expires_at", Float, nullable=False),
    Column("again", Boolean, nullable=False),  # the provider asks them who they are
    Index("openid_attempt_by_address", "address", "expires_at"),
    Index("openid_attempt_by_expiry", "expires_at"),
)

device_login = Table(
    "device_login",
    metadata,
    Column("code_hash", LargeBinary, primary_key=True),  # of what the program polls with
    Column("user_code", String, nullable=False),  # what the user compares, as it is compared
    Column("host", String, nullable=False),
    Column("address", String, nullable=False),  # of IPv6, its network
    Column("scopes", String, nullable=False),  # asked for, with spaces between
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("interval", Float, nullable=False),  # the least number of seconds between two polls
    Column("polled_at", Float),
    Column("answer", String),  # "allowed" or "denied"
    Column("answered_by", String),
    Column("workspace", String),
    Column("user", String),  # None: answered by someone with a link
    UniqueConstraint("user_code"),
    Index("device_login_by_address", "address", "expires_at"),
    Index("device_login_by_expiry", "expires_at"),
)

audit_entry = Table(
    "audit_entry",
    metadata,
    Column("id", String, primary_key=True),
    Column("at", Float, nullable=False),
    Column("action", String, nullable=False),
    Column("actor", String, nullable=False),
    Column("detail", Text, nullable=False),
    Column("workspace", String),  # None: of no workspace, or of all
    Column("address", String),  # None: not by the network
    Index("audit_entry_by_time", "at"),
    Index("audit_entry_by_workspace", "workspace", "at", "id"),
)

code_key = Table(
    "code_key",
    metadata,
    Column("id", String, primary_key=True),
    Column("made_at", Float, nullable=False),
    Column("retired_at", Float),  # None: in use
    Column("hash_secret", LargeBinary, nullable=False),  # the same in all rows, sealed by each
)

# --- what heartbeats bring ------------------------------------------------------------------------
# ``seq`` is the beat's: a row is replaced only by one of the same or a later beat. The fields of
# ``daskscope.protocol`` follow, whose docstrings explain them.


def _of_a_beat() -> tuple[Column[Any], ...]:
    return (
        Column("workspace", String, primary_key=True),
        Column("cluster", String, primary_key=True),
        Column("seq", BigInteger, nullable=False),
    )


cluster = Table(
    "cluster",
    metadata,
    Column("workspace", String, primary_key=True),
    Column("seq", BigInteger, nullable=False),
    *columns_of(protocol.Cluster, "cluster", workspace=None, in_client=None),
    *columns_of(
        protocol.Status,
        "status",
        at=Column("status_at", Float, nullable=False),
        at_work=None,
        busy_by=Column("busy_by", JSON(none_as_null=True)),
    ),
    Column("drops", JSON, nullable=False, info={"field": "drops"}),
    Column("first_seen_at", Float, nullable=False),  # the service's clock
    Column("last_seen_at", Float, nullable=False),  # the service's clock
    # Sums of ``worker_seconds``, to sort by: to read JSON of all clusters takes longer.
    Column("thread_seconds", Float, nullable=False),
    Column("thread_idle_seconds", Float, nullable=False),
    # Whether it may end without a word: in the process of a client, and without work.
    Column("may_end", Boolean, nullable=False),
    Column("token", String),  # the id of the one that it was first sent with; None: not known
    Index("cluster_by_start", "workspace", "started_at", "id"),
    # The name first: else SQLite takes it for all of a workspace, too.
    Index("cluster_by_name", "name", "workspace", "started_at", "id"),
    Index("cluster_by_user", "workspace", "user", "started_at", "id"),
    # To find a few of many without their rows. PostgreSQL's would refuse tags of some length.
    Index("cluster_by_label", "workspace", "started_at", "id", "kind", "tags").ddl_if(
        dialect="sqlite"
    ),
    # Those that never said that they stopped: few, of all that there were.
    Index(
        "cluster_open",
        *("workspace", "started_at", "id"),
        sqlite_where=text("stopped_at IS NULL"),
        postgresql_where=text("stopped_at IS NULL"),
    ),
    # All others, with what they can be sorted by. It changes no more once they have stopped, so
    # that nothing is written to it while they run.
    Index(
        "cluster_closed",
        *("workspace", "started_at", "id", "stopped_at", "status_at", "peak_workers"),
        *("peak_memory_used", "cost", "thread_seconds", "thread_idle_seconds"),
        *("gib_seconds", "gpu_seconds"),
        sqlite_where=text("stopped_at IS NOT NULL"),
        postgresql_where=text("stopped_at IS NOT NULL"),
    ),
)

# What a cluster had come to, in all, when it was last heard on a day: the days' differences are
# what each day had. Small rows in the order of time, so that months of them are summed up at once.
# While a cluster runs, its row is up to a minute behind it: ingest/cluster_rows.py.
usage = Table(
    "usage",
    metadata,
    Column("workspace", String, primary_key=True),
    Column("day", BigInteger, primary_key=True),  # of UTC, since the Unix epoch
    Column("cluster", String, primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("user", String, nullable=False),  # the cluster's
    Column("started_at", Float, nullable=False),  # the cluster's
    Column("up_seconds", Float, nullable=False),
    Column("thread_seconds", Float, nullable=False),
    Column("idle_seconds", Float, nullable=False),  # of the threads
    Column("cost", Float),
    Column("idle_cost", Float),
    Column("prices", Text),  # JSON; None: none set
    Column("gib_seconds", Float),
    Column("gpu_seconds", Float),
    Index("usage_by_cluster", "workspace", "cluster", "day"),
    sqlite_with_rowid=False,
)

# What ``usage`` comes to by user, in days and weeks that are over: db/usage_sums.py.
usage_sum = Table(
    "usage_sum",
    metadata,
    Column("workspace", String, primary_key=True),
    Column("days", BigInteger, primary_key=True),  # how long it is: 1 or 7
    Column("first_day", BigInteger, primary_key=True),  # of UTC, since the Unix epoch
    Column("sums", JSON, nullable=False),
)

computation = Table(
    "computation",
    metadata,
    *_of_a_beat(),
    *columns_of(protocol.Computation),
    Column("judge_at", Float),  # when its findings are to be made; None: they are
    Column("job", String),  # whose run it is; None: not known yet, or of none
    Column("job_due_at", Float),  # when to look at its job next; None: never
    Index("computation_by_id", "workspace", "id"),
    Index(
        "computation_by_job",
        *("workspace", "job", "started_at", "id"),
        sqlite_where=text("job IS NOT NULL"),
        postgresql_where=text("job IS NOT NULL"),
    ),
    Index(
        "computation_job_due",
        *("workspace", "job_due_at"),
        sqlite_where=text("job_due_at IS NOT NULL"),
        postgresql_where=text("job_due_at IS NOT NULL"),
    ),
    Index(
        "computation_due",
        *("workspace", "judge_at"),
        sqlite_where=text("judge_at IS NOT NULL"),
        postgresql_where=text("judge_at IS NOT NULL"),
    ),
    Index("computation_by_start", "workspace", "started_at", "id"),
    Index("computation_by_cluster", "workspace", "cluster", "started_at", "id"),
    Index("computation_by_user", "workspace", "user", "started_at", "id"),
)

# The same work over time: ``insight/jobs``. All but its id, level and name is what its runs came to
# when ``jobs/namer.py`` last summed them up.
job = Table(
    "job",
    metadata,
    Column("workspace", String, primary_key=True),
    Column("id", String, primary_key=True),  # keyed hash of what its runs have in common
    Column("level", String, nullable=False),  # "name", "code" or "shape": what that is
    Column("name", Text, nullable=False),  # that users gave it; "": of another level
    Column("first_at", Float, nullable=False),  # when the first run began
    Column("last_at", Float, nullable=False),  # when the newest run began
    Column("last_cluster", String, nullable=False),
    Column("last_computation", String, nullable=False),
    Column("runs", BigInteger, nullable=False),
    Column("duration", Float),  # of the usual run; None: none has passed
    Column("spread", Float),  # of durations, as a share of it
    Column("task_seconds", Float),  # of the usual run
    Column("cost", Float),  # of the runs of a month
    Column("currency", String),
    Column("price_source", String),  # "cluster", "workspace" or "list": whose prices those are
    Column("change", JSON(none_as_null=True)),  # the newest one
    Column("change_at", Float),
    Column("due_at", Float),  # when to sum it up anew; None: not before there is another run
    Index("job_by_last_run", "workspace", "last_at", "id"),
    Index(
        "job_due",
        *("workspace", "due_at"),
        sqlite_where=text("due_at IS NOT NULL"),
        postgresql_where=text("due_at IS NOT NULL"),
    ),
)

#: What is true of a finding that is worth an alarm, and no effect of another. A query says it in
#: the same words, or databases do not take the index that is for it.
FINDING_COSTS = text("severity != 'notice' AND suppressed_by IS NULL")

# What stands out about a computation, or about a cluster: ``insight/findings``.
finding = Table(
    "finding",
    metadata,
    Column("workspace", String, primary_key=True),
    Column("cluster", String, primary_key=True),
    Column("id", String, primary_key=True),
    Column("computation", String, nullable=False),  # "": of the cluster itself
    Column("rule", String, nullable=False),
    Column("version", BigInteger, nullable=False),  # the rule's
    Column("position", BigInteger, nullable=False),  # 0: the cause that is named first
    Column("severity", String, nullable=False),  # "critical", "warning" or "notice"
    Column("user", String, nullable=False),  # the computation's, or the cluster's
    Column("at", Float, nullable=False),  # when the computation or the cluster began
    Column("found_at", Float, nullable=False),  # the service's clock
    Column("sentence", Text, nullable=False),
    Column("evidence", JSON, nullable=False),
    Column("actions", JSON, nullable=False),
    Column("seconds", Float),
    Column("share", Float),
    Column("cost", Float),
    Column("currency", String),
    Column("price_source", String),  # "cluster", "workspace" or "list": whose prices those are
    Column("saving", JSON(none_as_null=True)),
    Column("confidence", String, nullable=False),  # "high" or "medium"
    Column("suppressed_by", String),  # the rule that explains it
    Index("finding_by_time", "workspace", "at", "id", "cluster"),
    Index("finding_by_user", "workspace", "user", "at", "id", "cluster"),
    Index("finding_by_computation", "workspace", "cluster", "computation"),
    Index("finding_by_rule", "workspace", "rule", "at", "id", "cluster"),
    # What causes cost together is read of it alone: most findings are notices, and not in it.
    Index(
        "finding_that_costs",
        *("workspace", "at", "rule", "seconds", "cost", "currency", "price_source"),
        sqlite_where=FINDING_COSTS,
        postgresql_where=FINDING_COSTS,
    ),
)

# Findings that someone has muted until a time: queries/mutes.py.
mute = Table(
    "mute",
    metadata,
    Column("workspace", String, primary_key=True),
    Column("id", String, primary_key=True),
    Column("rule", String, nullable=False),
    Column("cluster", String, nullable=False),
    Column("computation", String, nullable=False),  # "": of the cluster, and all that run on it
    Column("reason", String, nullable=False),
    Column("until", Float, nullable=False),
    Column("changed_at", Float, nullable=False),
    Column("changed_by", String, nullable=False),
    Index("mute_by_cluster", "workspace", "cluster"),
)

task_group = Table(
    "task_group",
    metadata,
    *_of_a_beat(),
    *columns_of(protocol.TaskGroup),
)

failure = Table(
    "failure",
    metadata,
    *_of_a_beat(),
    *columns_of(protocol.Failure),
    Column("user", String, nullable=False),  # the cluster's
    Index("failure_by_time", "workspace", "last_at", "fingerprint"),
    # Groups are made of it alone: rows are large.
    Index(
        "failure_by_fingerprint",
        *("workspace", "fingerprint", "last_at", "user", "cluster", "count", "first_at"),
    ),
    Index("failure_by_cluster", "workspace", "cluster", "fingerprint", "last_at"),
)

worker_loss = Table(
    "worker_loss",
    metadata,
    *_of_a_beat(),
    *columns_of(protocol.WorkerLoss),
    Index("worker_loss_by_cluster", "workspace", "cluster", "at"),
)

activity = Table(
    "activity",
    metadata,
    *_of_a_beat(),
    *columns_of(protocol.Activity),
)

profile = Table(
    "profile",
    metadata,
    *_of_a_beat(),
    *columns_of(protocol.Profile),
    Column("user", String, nullable=False),  # the cluster's
    Index("profile_by_start", "workspace", "started_at", "id"),
    Index("profile_by_cluster", "workspace", "cluster", "started_at", "id"),
    Index("profile_by_user", "workspace", "user", "started_at", "id"),
)

shutdown = Table(
    "shutdown",
    metadata,
    *_of_a_beat(),
    *columns_of(protocol.Shutdown),
)

# What people and policies ask of clusters; what clusters answer is in ``shutdown``, under its id.
command = Table(
    "command",
    metadata,
    Column("workspace", String, primary_key=True),
    Column("id", String, primary_key=True),
    Column("cluster", String, nullable=False),
    Column("requested_by", String, nullable=False),
    Column("requested_at", Float, nullable=False),
    Column("reason", Text, nullable=False),
    Column("grace", Float),  # None: as the cluster's settings say
    Column("even_if_busy", Boolean, nullable=False),
    Column("expires_at", Float, nullable=False),  # until then it is handed to the cluster
    Column("delivered_at", Float),  # when it was first handed over
    Column("called_off_by", String),
    Column("called_off_at", Float),
    Column("called_off_reason", Text),
    Index("command_by_time", "workspace", "requested_at", "id"),
    Index("command_by_cluster", "workspace", "cluster", "requested_at"),
    Index("command_by_expiry", "workspace", "expires_at"),
)

policy = Table(
    "policy",
    metadata,
    Column("workspace", String, primary_key=True),
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("after", Float, nullable=False),  # seconds of idleness
    Column("action", String, nullable=False),  # "notice" or "shutdown"
    Column("users", JSON, nullable=False),  # patterns of names; []: of everyone
    Column("tags", JSON, nullable=False),  # patterns by tag, all of which must fit
    Column("begins", String),  # "20:00", local time; None: all day
    Column("ends", String),
    Column("time_zone", String, nullable=False),
    Column("enabled", Boolean, nullable=False),
    Column("changed_at", Float, nullable=False),
    Column("changed_by", String, nullable=False),
    UniqueConstraint("workspace", "name"),
)

# What a policy did about a cluster, and why.
decision = Table(
    "decision",
    metadata,
    Column("workspace", String, primary_key=True),
    Column("id", String, primary_key=True),
    Column("cluster", String, nullable=False),
    Column("policy", String, nullable=False),
    Column("policy_name", String, nullable=False),  # as it was then
    Column("at", Float, nullable=False),
    Column("outcome", String, nullable=False),  # "notice" or "shutdown"
    Column("sentence", Text, nullable=False),
    Column("command", String),  # the shutdown that was asked for
    Index("decision_by_cluster", "workspace", "cluster", "at"),
)

# What notifications report; the id is made of what happened, so that it is written down once.
notice = Table(
    "notice",
    metadata,
    Column("workspace", String, primary_key=True),
    Column("id", String, primary_key=True),
    Column("kind", String, nullable=False),
    Column("cluster", String, nullable=False),  # "": of none
    Column("found_at", Float, nullable=False),
    Column("sentence", Text, nullable=False),
    Column("path", String, nullable=False),  # of the page that shows it
    Index("notice_by_time", "workspace", "found_at"),
)

notification_target = Table(
    "notification_target",
    metadata,
    Column("workspace", String, primary_key=True),
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("address", Sealed, nullable=False),  # a secret
    Column("kinds", JSON, nullable=False),
    Column("changed_at", Float, nullable=False),
    Column("changed_by", String, nullable=False),
    Column("told_until", Float, nullable=False),  # of the notices: those found up to then
    Column("next_at", Float, nullable=False),  # no message before
    Column("sent_at", Float),
    Column("failed_at", Float),
    Column("failure", Text),
    UniqueConstraint("workspace", "name"),
)

budget = Table(
    "budget",
    metadata,
    Column("workspace", String, primary_key=True),
    Column("amount", Float, nullable=False),  # for the clusters that start in a month of UTC
    Column("currency", String, nullable=False),
    Column("changed_at", Float, nullable=False),
    Column("changed_by", String, nullable=False),
)

# What an hour costs, for clusters that brought no prices: list prices where there is no row.
price = Table(
    "price",
    metadata,
    Column("workspace", String, primary_key=True),
    Column("source", String, nullable=False),  # "workspace", "list" or "none"
    Column("findings_due", Boolean, nullable=False),  # those stored are still by earlier prices
    Column("currency", String, nullable=False),
    Column("per_hour", JSON, nullable=False),  # by what is priced
    Column("changed_at", Float, nullable=False),
    Column("changed_by", String, nullable=False),
)

# Thresholds of findings that a workspace has set for itself; all others are the defaults.
threshold = Table(
    "threshold",
    metadata,
    Column("workspace", String, primary_key=True),
    Column("own", JSON, nullable=False),  # values by name
    Column("findings_due", Boolean, nullable=False),  # those stored are still by earlier ones
    Column("changed_at", Float, nullable=False),
    Column("changed_by", String, nullable=False),
)

event = Table(
    "event",
    metadata,
    *_of_a_beat(),
    *columns_of(protocol.Event),
    Column("user", String, nullable=False),  # the cluster's
    Index("event_by_time", "workspace", "at", "id"),
    Index("event_by_cluster", "workspace", "cluster", "at", "id"),
    Index("event_by_user", "workspace", "user", "at", "id"),
)

code = Table(
    "code",
    metadata,
    Column("workspace", String, primary_key=True),
    *columns_of(protocol.Code),  # its hash is keyed: see key_register.hasher
    Column("unused_since", Float),  # None: named by computations. Else it is asked for again
)

# --- the embedded store of OTLP data --------------------------------------------------------------

series = Table(
    "series",
    metadata,
    # SQLite numbers the rows itself only if it is called Integer.
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("workspace", String, nullable=False),
    Column("cluster", String, nullable=False),  # "" where the resource names none
    Column("metric", String, nullable=False),
    Column("field", String, nullable=False),  # "value", "count", "sum", or a bucket's upper bound
    Column("kind", String, nullable=False),  # "gauge" or "counter"
    Column("unit", String, nullable=False),
    Column("attributes", String, nullable=False),  # JSON object, keys sorted
    UniqueConstraint("workspace", "cluster", "metric", "field", "attributes"),
)

point = Table(
    "point",
    metadata,
    Column("series", BigInteger, primary_key=True, autoincrement=False),
    Column("time", BigInteger, primary_key=True, autoincrement=False),  # milliseconds
    Column("value", Float, nullable=False),
    sqlite_with_rowid=False,
)

# The newest points, on their way into ``point``; only on SQLite: db/points.py.
recent_point = Table(
    "recent_point",
    metadata,
    Column("series", BigInteger, primary_key=True, autoincrement=False),
    Column("time", BigInteger, primary_key=True, autoincrement=False),  # milliseconds
    Column("value", Float, nullable=False),
    sqlite_with_rowid=False,
)

span = Table(
    "span",
    metadata,
    Column("workspace", String, primary_key=True),
    Column("trace_id", String, primary_key=True),
    Column("span_id", String, primary_key=True),
    Column("parent_span_id", String),
    Column("cluster", String, nullable=False),
    Column("name", String, nullable=False),
    Column("started_at", Float, nullable=False),
    Column("stopped_at", Float, nullable=False),
    Column("status", String, nullable=False),  # "unset", "ok" or "error"
    Column("attributes", SealedJSON, nullable=False),
    Index("span_by_time", "workspace", "cluster", "started_at"),
)

log_record = Table(
    "log_record",
    metadata,
    Column("workspace", String, primary_key=True),
    Column("id", String, primary_key=True),  # keyed hash of the content: sent twice is kept once
    Column("cluster", String, nullable=False),
    Column("at", Float, nullable=False),
    Column("severity", BigInteger, nullable=False),  # OpenTelemetry's severity number
    Column("event_name", String, nullable=False),
    Column("body", Sealed, nullable=False),
    Column("attributes", SealedJSON, nullable=False),
    Column("trace_id", String),
    Column("span_id", String),
    Index("log_by_cluster", "workspace", "cluster", "at", "id"),
    Index("log_by_workspace", "workspace", "at", "id"),
)

# --- what goes, and when --------------------------------------------------------------------------

retention = Table(
    "retention",
    metadata,
    Column("workspace", String, primary_key=True),
    Column("kind", String, primary_key=True),
    Column("days", BigInteger),  # None: for ever. Without a row, the default
)

retention_mark = Table(
    "retention_mark",
    metadata,
    Column("workspace", String, primary_key=True),
    Column("kind", String, primary_key=True),
    Column("until", Float, nullable=False),  # what is older has been gone through
)

# Counts removals of series, whose ids processes remember. Without its row, there was none.
series_generation = Table(
    "series_generation",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # 1
    Column("value", BigInteger, nullable=False),
)

# Work that one process at a time does, of all that serve.
lease = Table(
    "lease",
    metadata,
    Column("name", String, primary_key=True),
    Column("holder", String),
    Column("expires_at", Float, nullable=False),
    Column("done_at", Float),
)
