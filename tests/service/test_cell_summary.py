"""The line after a cell of Jupyter or IPython that computed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from daskscope import cell_summary
from daskscope.cell_summary import Summary
from daskscope.config import settings
from daskscope.latest_computations import SentComputation
from daskscope.observe.tasks.of_clients import MAX_ROWS, OfClients
from tests.patience import stretched
from tests.service.beats import make_computation
from tests.service_process import ServiceProcess

_REGISTER = """
import time
import daskscope
from distributed import Client, LocalCluster
client = Client(LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=":0"))
registered = daskscope.register(
    client, endpoint={url!r}, token={token!r}, interval="1s"{more}
)
"""
_FAILS = "client.submit(lambda: 1 / 0).result()"


def computation(**values: Any) -> SentComputation:
    row = SentComputation(
        id="c1",
        started_at=100.0,
        ended_at=142.0,
        tasks=8100,
        done=8100,
        erred=0,
        blamed=0,
        cancelled=0,
        worker_seconds={"busy": 62.0, "idle": 38.0},
        now=150.0,
    )
    row.update(values)  # type: ignore[typeddict-item]
    return row


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ([computation()], "✓ 42.0 s · 8,100 tasks · threads 38% idle · http://s/c/computations/c1"),
        (
            [computation(tasks=1, done=1, ended_at=100.004)],
            "✓ 0.004 s · 1 task · http://s/c/computations/c1",
        ),
        (
            [computation(erred=2, worker_seconds={})],
            "✗ 42.0 s · 8,100 tasks · 2 failed · http://s/c/computations/c1",
        ),
        (
            [computation(done=300, cancelled=7800, worker_seconds={})],
            "✗ 42.0 s · 8,100 tasks · 7,800 cancelled · http://s/c/computations/c1",
        ),
        (
            [computation(done=0, blamed=8100, worker_seconds={})],
            "✗ 42.0 s · 8,100 tasks · 8,100 could not run · http://s/c/computations/c1",
        ),
        # It is being cancelled.
        (
            [computation(ended_at=None, done=16, cancelled=22, tasks=1000)],
            "… 50.0 s · 16 of 1,000 tasks done so far · http://s/c/computations/c1",
        ),
        (
            [computation(ended_at=None, done=300)],
            "… 50.0 s · 300 of 8,100 tasks done so far · http://s/c/computations/c1",
        ),
        # They ran at the same time.
        (
            [computation(), computation(id="c2", started_at=120.0, ended_at=150.0, tasks=10)],
            "✓ 50.0 s · 2 computations · 8,110 tasks · threads 38% idle · http://s/c",
        ),
    ],
)
def test_the_line_names_time_tasks_failures_and_idle_threads(
    rows: list[SentComputation], line: str
) -> None:
    assert repr(Summary(rows, "http://s/c")) == line


def test_a_cluster_that_sends_otlp_only_has_no_link() -> None:
    summary = Summary([computation()], None)
    assert repr(summary) == "✓ 42.0 s · 8,100 tasks · threads 38% idle"
    assert "<a" not in summary._repr_html_()


def test_a_scheduler_that_does_not_answer_costs_one_cell_the_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, asked = 0.0, 0
    answer: list[SentComputation] | None = None
    lines: list[str] = []

    class Stopped:
        def sync(self, *_: Any, **__: Any) -> list[SentComputation]:
            nonlocal asked
            asked += 1
            if answer is None:
                raise TimeoutError
            return answer

    clock = SimpleNamespace(monotonic=lambda: now, sleep=lambda _: None)
    monkeypatch.setattr(cell_summary, "time", clock)
    monkeypatch.setattr(cell_summary, "_show", lambda line, _: lines.append(repr(line)))
    client: Any = Stopped()
    watched = cell_summary._Watched(settings(), None)
    with pytest.raises(TimeoutError):
        cell_summary._summarize(client, watched)
    now = 5.0
    cell_summary._summarize(client, watched)
    assert (asked, lines) == (1, [])
    now = 5.0 + cell_summary.PAUSE_UNANSWERED
    # One began before the last cell without a line had ended, the other after.
    answer = [computation(started_at=120.0), computation(id="c2", started_at=135.0, tasks=1)]
    cell_summary._summarize(client, watched)
    assert lines == [
        "✓ 22.0 s · began in an earlier cell · 8,100 tasks · threads 38% idle",
        "✓ 7 s · 1 task · threads 38% idle",
    ]
    cell_summary._summarize(client, watched)
    assert (asked, len(lines)) == (3, 2)


def test_what_a_service_says_makes_no_line_long() -> None:
    class Service:
        def __init__(self, cost: float) -> None:
            self.cost = cost

        def answer(self, _method: str, path: str) -> dict[str, Any]:
            if path.startswith("runs/"):
                return {"cost": self.cost, "currency": "USD" * 1_000, "status": "finished"}
            return {"findings": [{"sentence": "x" * 10_000}]}

    for cost in (1.0, 1e300, 10**4_000, float("nan")):
        summary = Summary([computation()], None)
        summary.complete(Service(cost))  # type: ignore[arg-type]
        assert len(repr(summary)) < 300


def test_what_a_finding_says_cannot_break_the_page() -> None:
    class Service:
        def answer(self, _method: str, path: str) -> dict[str, Any]:
            if path.startswith("runs/"):
                return {"cost": 0.031, "currency": "USD", "status": "finished"}
            muted = {"sentence": "what nobody wants to read", "muted": {"by": "ada"}}
            return {"findings": [muted, {"sentence": "<script>alert(1)</script>\nand more"}]}

    summary = Summary([computation()], "http://s/c")
    assert summary.complete(Service())  # type: ignore[arg-type]
    assert "0.03 USD" in repr(summary)
    assert "<script>" not in summary._repr_html_()
    assert "nobody wants" not in repr(summary)
    assert "\n" not in repr(summary)


def test_the_rows_of_a_client_are_stored_until_it_asks_and_bounded() -> None:
    owners = {f"c{n}": "mine" for n in range(MAX_ROWS + 5)} | {"other": "theirs"}
    stored = OfClients(owners.get)
    stored.sent([make_computation("c0")])
    # Nobody had asked before. What runs at this moment is of others, too.
    now = [make_computation("c1"), make_computation("other"), make_computation("unknown")]
    assert [row.id for row in stored.take("mine", now)] == ["c1"]
    stored.sent([make_computation("c2", tasks=1), make_computation("other")])
    stored.sent([make_computation("c2", tasks=2)])
    assert [row.tasks for row in stored.take("mine", [])] == [2]
    assert stored.take("mine", []) == []
    stored.sent([make_computation(one) for one in owners])
    rows = stored.take("mine", [])
    assert [row.id for row in rows] == [f"c{n}" for n in range(5, MAX_ROWS + 5)]
    assert f"{MAX_ROWS}+ computations" in repr(Summary([computation() for _ in rows], None))


@pytest.mark.slow
def test_each_cell_that_computed_has_its_line(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path / "data") as service:
        register = _REGISTER.format(url=service.url, token=service.token(), more="")
        wait = (
            "from threading import enumerate as threads\n"
            "for thread in threads():\n"
            "    if thread.name == 'daskscope-cell':\n"
            f"        thread.join({stretched(60.0)})"
        )
        cells = [
            register,
            "sum(client.gather(client.map(abs, range(20))))",
            "1 + 1",
            "slow = client.map(lambda number: time.sleep(0.5), range(8))",
            "results = client.gather(slow)",
            _FAILS,
            wait,
        ]
        computed, plain, begun, ended, failed = _outputs(cells)[1:6]

    assert re.match(r"✓ [\d.]+ m?s · 20 tasks · < 0.01 USD · .*http://.*/computations/", computed)
    assert plain == ""
    assert re.match(r"… .* of 8 tasks done so far · ", begun), begun
    assert re.match(r"✓ .* · began in an earlier cell · 8 tasks · ", ended), ended
    assert re.match(r"✗ .* · 1 task · 1 failed · .*ZeroDivisionError.* · http", failed), failed


@pytest.mark.slow
def test_a_user_may_do_without_it_and_a_terminal_prints_it_once(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path / "data") as service:
        token = service.token()
        refused = _REGISTER.format(url=service.url, token=token, more=", notebook__summary=False")
        assert _outputs([refused, "client.submit(abs, -1).result()"])[1] == ""

        typed = [
            "import daskscope; from distributed import Client, LocalCluster",
            "client = Client(n_workers=1, threads_per_worker=2, dashboard_address=':0')",
            f"daskscope.register(endpoint={service.url!r}, token={token!r})",
            "client.submit(abs, -21).result()",
            "client.close()",
            "exit",
        ]
        ran = subprocess.run(
            [sys.executable, "-m", "IPython", "--simple-prompt", "--no-banner", "--colors=NoColor"],
            input="\n".join([*typed, ""]),
            env={"IPYTHONDIR": str(tmp_path / "ipython"), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=stretched(120.0),
            check=False,
        )
    assert "Out[4]: 21" in ran.stdout, ran.stdout + ran.stderr
    assert len(re.findall(r"✓ [\d.]+ s · 1 task · http", ran.stdout)) == 1, ran.stdout


def _outputs(cells: list[str]) -> list[str]:
    """Return what daskscope displayed under each of the ``cells`` of a notebook."""
    notebook: Any = nbformat.v4.new_notebook(  # type: ignore[no-untyped-call]
        cells=[nbformat.v4.new_code_cell(one) for one in cells]  # type: ignore[no-untyped-call]
    )
    NotebookClient(notebook, timeout=int(stretched(120.0)), allow_errors=True).execute()
    return [
        "".join(
            output.data["text/plain"]
            for output in cell.outputs
            if output.output_type == "display_data"
        )
        for cell in notebook.cells
    ]
