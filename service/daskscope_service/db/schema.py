"""The tables of the service. ``daskscope.protocol`` declares the columns of heartbeats' rows.

Times are seconds since the Unix epoch, UTC. Ids are text. Whole numbers have 64 bits, as on the
wire. Every row of user data has its workspace first in its key, so that no query can reach another
workspace by accident.

Texts of users' programs, which may quote their code, are sealed: encrypted. Names, numbers and
times are not.

A change here needs a revision in ``migrations/versions``: see CONTRIBUTING.md.
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
    Column("scopes", String, nullable=False),  # "admin", "ingest", "read", separated by spaces
    Column("secret_hash", LargeBinary, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float),
    Column("revoked_at", Float),
    Column("last_used_at", Float),
    Column("made_by", String),  # None: created before this was stored
    Column("user", String),  # None: belongs to no user
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
    Column("name", String, nullable=False),  # as it was entered
    Column("name_key", String, nullable=False),  # the normalized name, without case
    Column("display_name", String, nullable=False),
    Column("password_hash", String, nullable=False),  # "": none, signs in by OpenID Connect
    Column("created_at", Float, nullable=False),
    Column("disabled_at", Float),
    # The workspace whose invitation created the account: nobody has verified the name. None: the
    # operator of the service or the provider has.
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
    Column("token", String),  # the id of the token that it began with
    Column("role", String),  # None: the user's role in the workspace
    Column("last_seen_at", Float),
    Column("browser", String),
    # False: a provider let them in, and may not have checked who they are
    Column("proven", Boolean, nullable=False),
    Index("session_by_user", "user"),
)

sign_in_attempt = Table(
    "sign_in_attempt",
    metadata,
    Column("id", String, primary_key=True),  # two rows per attempt: for name and address
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
    Column("name", String, nullable=False),  # of the account that it creates, if it creates one
    Column("role", String, nullable=False),
    Column("made_by", String, nullable=False),
    Column("user", String),  # must still be an owner. None: made with a link or a token of no user
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
    Column("ticket_hash", LargeBinary, nullable=False),  # of the value of the browser's cookie
    Column("nonce", String, nullable=False),
    Column("verifier", String, nullable=False),
    Column("target", String, nullable=False),
    Column("user", String),  # who connects their account; None: a sign-in
    Column("address", String, nullable=False),  # for IPv6, its network
    Column("expires_at", Float, nullable=False),
    Column("again", Boolean, nullable=False),  # the provider must ask who they are
    Index("openid_attempt_by_address", "address", "expires_at"),
    Index("openid_attempt_by_expiry", "expires_at"),
)

device_login = Table(
    "device_login",
    metadata,
    Column("code_hash", LargeBinary, primary_key=True),  # of the code with which the program polls
    Column("user_code", String, nullable=False),  # the user's code, without hyphen
    Column("host", String, nullable=False),
    Column("address", String, nullable=False),  # for IPv6, its network
    Column("scopes", String, nullable=False),  # asked for, separated by spaces
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("interval", Float, nullable=False),  # the minimum number of seconds between two polls
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
    Column("address", String),  # None: not over the network
    Index("audit_entry_by_time", "at"),
    Index("audit_entry_by_workspace", "workspace", "at", "id"),
)

code_key = Table(
    "code_key",
    metadata,
    Column("id", String, primary_key=True),
    Column("made_at", Float, nullable=False),
    Column("retired_at", Float),  # None: in use
    Column("hash_secret", LargeBinary, nullable=False),  # the same in all rows, but encrypted
)

# --- what heartbeats bring ------------------------------------------------------------------------
# ``seq`` is the heartbeat's number: only a row of the same or a later heartbeat replaces a row. The
# fields of ``daskscope.protocol`` follow, whose docstrings explain them.


def _of_a_beat() -> tuple[Column[Any], ...]:
    return (
        Column("workspace", String, primary_key=True),
        Column("cluster", String, primary_key=True),
        Column("seq", BigInteger, nullable=False),
    )


def _operator_cost() -> tuple[Column[Any], ...]:
    # By what the operator of the service knows of prices, for a cluster without prices of its own.
    return (
        Column("operator_cost", Float),
        Column("operator_currency", String),
        Column("operator_source", String),  # "instances", "opencost"; None: there is no such cost
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
    # Sums of ``worker_seconds``, for sorting: reading the JSON of all clusters takes longer.
    Column("thread_seconds", Float, nullable=False),
    Column("thread_idle_seconds", Float, nullable=False),
    # Whether it may end without a report: it is in the process of a client, and without work.
    Column("may_end", Boolean, nullable=False),
    Column("token", String),  # the id of the token that reports it; None: not known
    *_operator_cost(),
    Index("cluster_by_start", "workspace", "started_at", "id"),
    # The name first: otherwise SQLite uses this index for all clusters of a workspace, too.
    Index("cluster_by_name", "name", "workspace", "started_at", "id"),
    Index("cluster_by_user", "workspace", "user", "started_at", "id"),
    # To find a few of many clusters without reading their rows. PostgreSQL would refuse long tags.
    Index("cluster_by_label", "workspace", "started_at", "id", "kind", "tags").ddl_if(
        dialect="sqlite"
    ),
    # Clusters that never reported their end: few of all that there were.
    Index(
        "cluster_open",
        *("workspace", "started_at", "id"),
        sqlite_where=text("stopped_at IS NULL"),
        postgresql_where=text("stopped_at IS NULL"),
    ),
    # All others, with the columns that they can be sorted by. These do not change after the end, so
    # nothing is written to this index while clusters run.
    Index(
        "cluster_closed",
        *("workspace", "started_at", "id", "stopped_at", "status_at", "peak_workers"),
        *("peak_memory_used", "cost", "thread_seconds", "thread_idle_seconds"),
        *("gib_seconds", "gpu_seconds", "operator_cost"),
        sqlite_where=text("stopped_at IS NOT NULL"),
        postgresql_where=text("stopped_at IS NOT NULL"),
    ),
)

# A cluster's totals when it last reported on a day: the differences between days are each day's
# usage. The rows are small and in the order of time, so that months of them can be added up at
# once. While a cluster runs, its row is up to a minute behind: ingest/cluster_rows.py. Once it is
# silent, the row is brought up to the last heartbeat: ingest/last_usage.py.
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
    Column("prices", Text),  # JSON; None: no prices are set
    Column("gib_seconds", Float),
    Column("gpu_seconds", Float),
    *_operator_cost(),
    Index("usage_by_cluster", "workspace", "cluster", "day"),
    sqlite_with_rowid=False,
)

# Sums of ``usage`` by user, over past days and weeks: costs/usage_sums.py.
usage_sum = Table(
    "usage_sum",
    metadata,
    Column("workspace", String, primary_key=True),
    Column("days", BigInteger, primary_key=True),  # how many: 1 or 7
    Column("first_day", BigInteger, primary_key=True),  # of UTC, since the Unix epoch
    Column("sums", JSON, nullable=False),
)

#: The condition for a computation that did not simply finish, as most do. A query must use exactly
#: these words, or the databases do not use the index for them.
NOT_FINISHED = text("computation.status != 'finished'")
_NOT_FINISHED = text("status != 'finished'")

computation = Table(
    "computation",
    metadata,
    *_of_a_beat(),
    *columns_of(protocol.Computation),
    Column("judge_at", Float),  # when its findings are due; None: they are stored
    Column("job", String),  # the job that it is a run of; None: not known yet, or none
    Column("job_due_at", Float),  # when to update its job next; None: never
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
    Index(
        "computation_by_status",
        *("workspace", "status", "started_at", "id"),
        sqlite_where=_NOT_FINISHED,
        postgresql_where=_NOT_FINISHED,
    ),
)

# A job: the same work over time, see ``insight/jobs``. All columns but its id, level and name are
# sums over its runs, which ``jobs/namer.py`` last updated.
job = Table(
    "job",
    metadata,
    Column("workspace", String, primary_key=True),
    Column("id", String, primary_key=True),  # keyed hash of what its runs have in common
    Column("level", String, nullable=False),  # what they share: "name", "code" or "shape"
    Column("name", Text, nullable=False),  # that users gave it; "" for another level
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
    Column("price_source", String),  # "cluster", "workspace" or "list": who has set the prices
    Column("change", JSON(none_as_null=True)),  # the newest one
    Column("change_at", Float),
    Column("saves_most", JSON(none_as_null=True)),  # the costliest cause of the runs of a month
    Column("saves_most_seconds", Float),  # threads' time that it cost; None: without a cause
    Column("due_at", Float),  # when to sum it up again; None: not before its next run
    # Runs that began before this time get their job anew, as a correction has changed; None: none.
    Column("assign_before", Float),
    Index("job_by_last_run", "workspace", "last_at", "id"),
    Index(
        "job_to_assign",
        "workspace",
        sqlite_where=text("assign_before IS NOT NULL"),
        postgresql_where=text("assign_before IS NOT NULL"),
    ),
    Index(
        "job_due",
        *("workspace", "due_at"),
        sqlite_where=text("due_at IS NOT NULL"),
        postgresql_where=text("due_at IS NOT NULL"),
    ),
)

# What people have changed about which runs are one job, and its name: jobs/corrections.py.
job_correction = Table(
    "job_correction",
    metadata,
    Column("workspace", String, primary_key=True),
    Column("id", String, primary_key=True),
    Column("job", String, nullable=False),
    Column("kind", String, nullable=False),  # "merge", "split" or "name"
    # The id of the job that it is merged into, "code" or "shape" that splits it, or its name.
    Column("value", Text, nullable=False),
    Column("changed_at", Float, nullable=False),
    Column("changed_by", String, nullable=False),
    UniqueConstraint("workspace", "job", "kind"),
    Index("job_correction_by_value", "workspace", "value"),
)

#: The condition for a finding that is worth an alarm, and not the effect of another one. A query
#: must use exactly these words, or the databases do not use the index for them.
FINDING_COSTS = text("severity != 'notice' AND suppressed_by IS NULL")

# Findings about a computation or about a cluster: ``insight/findings``.
finding = Table(
    "finding",
    metadata,
    Column("workspace", String, primary_key=True),
    Column("cluster", String, primary_key=True),
    Column("id", String, primary_key=True),
    Column("computation", String, nullable=False),  # "": about the cluster itself
    Column("rule", String, nullable=False),
    Column("version", BigInteger, nullable=False),  # the rule's
    Column("position", BigInteger, nullable=False),  # 0: the main cause
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
    Column("price_source", String),  # "cluster", "workspace" or "list": who has set the prices
    Column("saving", JSON(none_as_null=True)),
    Column("confidence", String, nullable=False),  # "high" or "medium"
    Column("suppressed_by", String),  # the rule that explains it
    Index("finding_by_time", "workspace", "at", "id", "cluster"),
    Index("finding_by_user", "workspace", "user", "at", "id", "cluster"),
    Index("finding_by_computation", "workspace", "cluster", "computation"),
    Index("finding_by_rule", "workspace", "rule", "at", "id", "cluster"),
    # What causes cost together is read from this index alone: it leaves out notices, which are
    # most.
    Index(
        "finding_that_costs",
        *("workspace", "at", "rule", "user", "seconds", "cost", "currency", "price_source"),
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
    Column("cluster", String, nullable=False),  # "": of a job
    Column("computation", String, nullable=False),  # "": of the cluster, and all that run on it
    Column("job", String, nullable=False, server_default=""),  # of all its runs; "": of no job
    Column("reason", String, nullable=False),
    Column("until", Float, nullable=False),
    Column("changed_at", Float, nullable=False),
    Column("changed_by", String, nullable=False),
    Index("mute_by_cluster", "workspace", "cluster"),
    Index("mute_by_job", "workspace", "job"),
)

task_group = Table(
    "task_group",
    metadata,
    *_of_a_beat(),
    *columns_of(protocol.TaskGroup),
)

# Which groups ran to their ends in which computations, and took some time; only those whose name
# stands for their inputs: jobs/repeats.py.
group_run = Table(
    "group_run",
    metadata,
    Column("workspace", String, primary_key=True),
    Column("cluster", String, primary_key=True),
    Column("computation", String, primary_key=True),
    Column("name", String, primary_key=True),
    Column("user", String, nullable=False),  # the computation's
    Column("at", Float, nullable=False),  # when the computation started
    Column("ended_at", Float, nullable=False),
    Column("prefix", String, nullable=False),
    Column("tasks", BigInteger, nullable=False),
    Column("seconds", Float, nullable=False),  # of threads
    Column("cost", Float),
    Column("currency", String),
    Column("output_bytes", BigInteger, nullable=False),
    Column("began", Float, nullable=False),  # when its first task started
    Index("group_run_by_name", "workspace", "name", "at"),
)

# Groups that ran in more than one computation, as sums over at most a month: jobs/repeats.py.
repeat = Table(
    "repeat",
    metadata,
    Column("workspace", String, primary_key=True),
    Column("name", String, primary_key=True),
    Column("prefix", String, nullable=False),
    Column("runs", BigInteger, nullable=False),
    Column("users", JSON, nullable=False),  # some of them, those with most runs first
    Column("people", BigInteger, nullable=False),  # how many users
    Column("clusters", BigInteger, nullable=False),
    Column("seconds_again", Float, nullable=False),  # of threads, without the first run's
    Column("cost_again", Float),
    Column("currency", String),
    Column("first_at", Float, nullable=False),
    Column("last_at", Float, nullable=False),
    Column("last_cluster", String, nullable=False),
    Column("last_computation", String, nullable=False),
    Column("output_bytes", BigInteger, nullable=False),
    Column("instead", String, nullable=False),  # "compute", "persist" or "file"
    Column("together", String, nullable=False),  # equal for groups of the same computations
    Column("step", Float, nullable=False),  # seconds from the newest run's start to the group's
    Index("repeat_by_seconds", "workspace", "seconds_again"),
)

failure = Table(
    "failure",
    metadata,
    *_of_a_beat(),
    *columns_of(protocol.Failure),
    Column("user", String, nullable=False),  # the cluster's
    Index("failure_by_time", "workspace", "last_at", "fingerprint"),
    # Groups are read from this index alone, because rows are large.
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

task_stream = Table(
    "task_stream",
    metadata,
    *_of_a_beat(),
    *columns_of(protocol.TaskStream),
    Index("task_stream_by_cluster", "workspace", "cluster", "started_at", "id"),
)

shutdown = Table(
    "shutdown",
    metadata,
    *_of_a_beat(),
    *columns_of(protocol.Shutdown),
)

# What people and policies request of clusters. A cluster's answer is in ``shutdown``, under the
# same id.
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
    Column("expires_at", Float, nullable=False),  # until then it is sent to the cluster
    Column("delivered_at", Float),  # when it was first sent
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
    Column("users", JSON, nullable=False),  # patterns of names; []: everyone
    Column("tags", JSON, nullable=False),  # patterns by tag, all of which must match
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
    Column("command", String),  # the shutdown that was requested
    Index("decision_by_cluster", "workspace", "cluster", "at"),
)

# What notifications report. The id is derived from the event, so that each is stored once.
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
    # Of a finding: the gravest severity that was reported, and when it last occurred.
    Column("severity", String),
    Column("seen_at", Float),
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
    Column("told_until", Float, nullable=False),  # notices found up to then were sent
    Column("next_at", Float, nullable=False),  # no message before this time
    Column("sent_at", Float),
    Column("failed_at", Float),
    Column("failure", Text),
    UniqueConstraint("workspace", "name"),
)

budget = Table(
    "budget",
    metadata,
    Column("workspace", String, primary_key=True),
    # For the clusters of this user, or with this tag ("name=value"); both "": for all clusters.
    Column("user", String, primary_key=True),
    Column("tag", String, primary_key=True),
    Column("amount", Float, nullable=False),  # for the clusters that start in a month of UTC
    Column("currency", String, nullable=False),
    Column("changed_at", Float, nullable=False),
    Column("changed_by", String, nullable=False),
)

# Prices per hour, for clusters that have sent none. Without a row, list prices apply.
price = Table(
    "price",
    metadata,
    Column("workspace", String, primary_key=True),
    Column("source", String, nullable=False),  # "workspace", "list" or "none"
    Column("findings_due", Boolean, nullable=False),  # stored findings still use earlier prices
    Column("currency", String, nullable=False),
    Column("per_hour", JSON, nullable=False),  # by the thing that has a price
    Column("changed_at", Float, nullable=False),
    Column("changed_by", String, nullable=False),
)

# Thresholds of findings that a workspace has set for itself; all others are the defaults.
threshold = Table(
    "threshold",
    metadata,
    Column("workspace", String, primary_key=True),
    Column("own", JSON, nullable=False),  # values by name
    Column("findings_due", Boolean, nullable=False),  # stored findings still use earlier ones
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
    Column("unused_since", Float),  # None: computations refer to it. Else it is asked for again
)

# --- the embedded store of OTLP data --------------------------------------------------------------

series = Table(
    "series",
    metadata,
    # SQLite numbers the rows itself only if the type is called Integer.
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("workspace", String, nullable=False),
    Column("cluster", String, nullable=False),  # "" if the resource names none
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

# The newest points, before they are moved to ``point``; only on SQLite: db/points.py.
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
    Column("id", String, primary_key=True),  # keyed hash of the content: stored once if sent twice
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
    Column("until", Float, nullable=False),  # older data has been handled
)

# Counts removals of series, whose ids processes cache. Without its row, there was none.
series_generation = Table(
    "series_generation",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # 1
    Column("value", BigInteger, nullable=False),
)

# Work that only one of all serving processes does at a time.
lease = Table(
    "lease",
    metadata,
    Column("name", String, primary_key=True),
    Column("holder", String),
    Column("expires_at", Float, nullable=False),
    Column("done_at", Float),
)
