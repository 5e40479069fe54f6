"""The first schema."""

from __future__ import annotations

import time

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Apply it."""
    op.create_table(
        "workspace",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "token",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("label", sa.String(), nullable=False),
        sa.Column("scopes", sa.String(), nullable=False),
        sa.Column("secret_hash", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float()),
        sa.Column("revoked_at", sa.Float()),
        sa.Column("last_used_at", sa.Float()),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "sign_in_link",
        sa.Column("code_hash", sa.LargeBinary(), nullable=False),
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("code_hash"),
    )
    op.create_table(
        "session",
        sa.Column("id_hash", sa.LargeBinary(), nullable=False),
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id_hash"),
    )
    op.create_table(
        "cluster",
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("stopped_at", sa.Float()),
        sa.Column("interval", sa.Float(), nullable=False),
        sa.Column("environment", sa.JSON(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("first_seen_at", sa.Float(), nullable=False),
        sa.Column("last_seen_at", sa.Float(), nullable=False),
        sa.Column("status_at", sa.Float(), nullable=False),
        sa.Column("workers", sa.BigInteger(), nullable=False),
        sa.Column("threads", sa.BigInteger(), nullable=False),
        sa.Column("memory_used", sa.BigInteger(), nullable=False),
        sa.Column("memory_limit", sa.BigInteger(), nullable=False),
        sa.Column("worker_seconds", sa.JSON(), nullable=False),
        sa.Column("tasks", sa.JSON(), nullable=False),
        sa.Column("clients", sa.BigInteger(), nullable=False),
        sa.Column("idle_seconds", sa.Float()),
        sa.Column("peak_workers", sa.BigInteger(), nullable=False),
        sa.Column("peak_threads", sa.BigInteger(), nullable=False),
        sa.Column("peak_memory_used", sa.BigInteger(), nullable=False),
        sa.Column("drops", sa.JSON(), nullable=False),
        sa.Column("deployment", sa.JSON(), nullable=False),
        sa.Column("prices", sa.JSON(), nullable=False),
        sa.Column("held_by", sa.JSON(), nullable=False),
        sa.Column("scheduler", sa.JSON(), nullable=False),
        sa.Column("gpu", sa.JSON(), nullable=False),
        sa.Column("cost", sa.Float()),
        sa.Column("idle_cost", sa.Float()),
        sa.PrimaryKeyConstraint("workspace", "id"),
    )
    op.create_index("cluster_by_start", "cluster", ["workspace", "started_at", "id"])
    op.create_index("cluster_by_user", "cluster", ["workspace", "user", "started_at", "id"])
    op.create_table(
        "computation",
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("cluster", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("stopped_at", sa.Float()),
        sa.Column("tasks", sa.BigInteger(), nullable=False),
        sa.Column("completed", sa.BigInteger(), nullable=False),
        sa.Column("erred", sa.BigInteger(), nullable=False),
        sa.Column("retried", sa.BigInteger(), nullable=False),
        sa.Column("states", sa.JSON(), nullable=False),
        sa.Column("seconds", sa.JSON(), nullable=False),
        sa.Column("frames", sa.JSON(), nullable=False),
        sa.Column("spans", sa.JSON(), nullable=False),
        sa.Column("trace_id", sa.String()),
        sa.Column("cancelled", sa.BigInteger(), nullable=False),
        sa.Column("annotations", sa.JSON(), nullable=False),
        sa.Column("graph_bytes", sa.BigInteger()),
        sa.PrimaryKeyConstraint("workspace", "cluster", "id"),
    )
    op.create_index(
        "computation_by_cluster", "computation", ["workspace", "cluster", "started_at", "id"]
    )
    op.create_index("computation_by_start", "computation", ["workspace", "started_at", "id"])
    op.create_index("computation_by_user", "computation", ["workspace", "user", "started_at", "id"])
    op.create_table(
        "task_group",
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("cluster", sa.String(), nullable=False),
        sa.Column("computation", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("prefix", sa.String(), nullable=False),
        sa.Column("tasks", sa.BigInteger(), nullable=False),
        sa.Column("completed", sa.BigInteger(), nullable=False),
        sa.Column("erred", sa.BigInteger(), nullable=False),
        sa.Column("states", sa.JSON(), nullable=False),
        sa.Column("seconds", sa.JSON(), nullable=False),
        sa.Column("output_bytes", sa.BigInteger(), nullable=False),
        sa.Column("dependencies", sa.JSON(), nullable=False),
        sa.Column("durations", sa.JSON(), nullable=False),
        sa.Column("shortest", sa.Float()),
        sa.Column("longest", sa.Float()),
        sa.Column("started_at", sa.Float()),
        sa.Column("stopped_at", sa.Float()),
        sa.Column("types", sa.JSON(), nullable=False),
        sa.Column("retried", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "cluster", "computation", "name"),
    )
    op.create_table(
        "failure",
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("cluster", sa.String(), nullable=False),
        sa.Column("computation", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("function", sa.String(), nullable=False),
        sa.Column("message", sa.Text()),
        sa.Column("traceback", sa.Text()),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("first_at", sa.Float(), nullable=False),
        sa.Column("last_at", sa.Float(), nullable=False),
        sa.Column("worker", sa.String()),
        sa.Column("retried", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "cluster", "computation", "fingerprint"),
    )
    op.create_index(
        "failure_by_cluster", "failure", ["workspace", "cluster", "fingerprint", "last_at"]
    )
    op.create_index("failure_by_fingerprint", "failure", ["workspace", "fingerprint", "last_at"])
    op.create_index("failure_by_time", "failure", ["workspace", "last_at", "fingerprint"])
    op.create_table(
        "worker_loss",
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("cluster", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("expected", sa.Boolean(), nullable=False),
        sa.Column("processing", sa.BigInteger(), nullable=False),
        sa.Column("memory_used", sa.BigInteger()),
        sa.Column("lifetime", sa.Float(), nullable=False),
        sa.Column("last_seen_at", sa.Float()),
        sa.Column("memory_limit", sa.BigInteger()),
        sa.Column("nanny_memory", sa.BigInteger()),
        sa.Column("tasks", sa.JSON(), nullable=False),
        sa.Column("log", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "cluster", "id"),
    )
    op.create_table(
        "activity",
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("cluster", sa.String(), nullable=False),
        sa.Column("prefix", sa.String(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "cluster", "prefix"),
    )
    op.create_table(
        "profile",
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("cluster", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("stopped_at", sa.Float(), nullable=False),
        sa.Column("workers", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("lines", sa.JSON(), nullable=False),
        sa.Column("parent", sa.JSON(), nullable=False),
        sa.Column("line", sa.JSON(), nullable=False),
        sa.Column("samples", sa.JSON(), nullable=False),
        sa.Column("cut", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "cluster", "id"),
    )
    op.create_index("profile_by_cluster", "profile", ["workspace", "cluster", "started_at", "id"])
    op.create_index("profile_by_start", "profile", ["workspace", "started_at", "id"])
    op.create_table(
        "shutdown",
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("cluster", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("requested_by", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("closes_at", sa.Float()),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "cluster", "id"),
    )
    op.create_table(
        "event",
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("cluster", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("topic", sa.String(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("cut", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "cluster", "id"),
    )
    op.create_index("event_by_time", "event", ["workspace", "at", "id"])
    op.create_table(
        "code",
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("hash", sa.String(), nullable=False),
        sa.Column("file", sa.String(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("first_line", sa.BigInteger(), nullable=False),
        sa.Column("cut", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "hash"),
    )
    op.create_table(
        "series",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("cluster", sa.String(), nullable=False),
        sa.Column("metric", sa.String(), nullable=False),
        sa.Column("field", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("unit", sa.String(), nullable=False),
        sa.Column("attributes", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("workspace", "cluster", "metric", "field", "attributes"),
    )
    op.create_table(
        "point",
        sa.Column("series", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("time", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("series", "time"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "span",
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("trace_id", sa.String(), nullable=False),
        sa.Column("span_id", sa.String(), nullable=False),
        sa.Column("parent_span_id", sa.String()),
        sa.Column("cluster", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("stopped_at", sa.Float(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("attributes", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "trace_id", "span_id"),
    )
    op.create_index("span_by_time", "span", ["workspace", "cluster", "started_at"])
    op.create_table(
        "log_record",
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("cluster", sa.String(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("severity", sa.BigInteger(), nullable=False),
        sa.Column("event_name", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("attributes", sa.JSON(), nullable=False),
        sa.Column("trace_id", sa.String()),
        sa.Column("span_id", sa.String()),
        sa.PrimaryKeyConstraint("workspace", "id"),
    )
    op.create_index("log_by_time", "log_record", ["workspace", "cluster", "at"])
    # The workspace of those who need no other.
    workspace = sa.table("workspace", sa.column("id", sa.String), sa.column("created_at", sa.Float))
    op.execute(workspace.insert().values(id="default", created_at=time.time()))
