"""Everywhere in the exporter one guard contains errors, and an error costs what it is about."""

from __future__ import annotations

import ast
import logging
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client, Worker, wait
from opentelemetry.sdk.trace import TracerProvider

from daskscope import jupyter_kernel, registration
from daskscope.containment import INTERNAL_ERROR
from daskscope.otlp.logs import Logs
from daskscope.plugin import NAME
from daskscope.scrubbing import Scrubber
from daskscope.shutdown import client as shutdown_client
from daskscope.shutdown.closing import MANAGER_TOPIC
from daskscope.worker_logs import tap
from tests.exporter.conftest import Register, close_plugin, wait_for_worker_logs
from tests.exporter.recorder import Recorder
from tests.patience import wait_until

pytestmark = pytest.mark.contract

ROOT = Path(__file__).parents[2]
EXPORTER = ROOT / "exporter" / "daskscope"
MODULES = {
    str(file.relative_to(EXPORTER)): ast.parse(file.read_text()) for file in EXPORTER.rglob("*.py")
}
GUARD = "containment.py"


def names_in(node: ast.AST | None) -> set[str]:
    return set() if node is None else {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def catches_all(node: ast.AST) -> bool:
    """Return whether that is an ``except`` or a ``suppress`` for whatever is raised."""
    if isinstance(node, ast.ExceptHandler):
        return node.type is None or bool(names_in(node.type) & {"Exception", "BaseException"})
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
        return any(names_in(argument) & {"Exception", "BaseException"} for argument in node.args)
    return False


def asks_the_guard(node: ast.AST) -> bool:
    """Return whether an ``except`` first asks the guard whether the error is ours to contain."""
    first = node.body[0] if isinstance(node, ast.ExceptHandler) else None
    return (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Call)
        and ast.unparse(first.value.func) == "contain"
    )


def test_nothing_but_the_guard_ends_whatever_is_raised() -> None:
    past = [
        f"{module}: {ast.unparse(node)}"
        for module, tree in MODULES.items()
        if module != GUARD
        for node in ast.walk(tree)
        if catches_all(node) and not asks_the_guard(node)
    ]
    assert past == []


def test_one_module_alone_uses_private_parts_of_opentelemetry() -> None:
    private = re.compile(r"opentelemetry[\w.]*\._")
    modules = set()
    for module, tree in MODULES.items():
        of_sdk = module.startswith(("otlp/", "explanation/"))
        for node in ast.walk(tree):
            imported = isinstance(node, ast.ImportFrom) and any(
                private.match(f"{node.module}.{alias.name}") for alias in node.names
            )
            # An attribute of an object that is not of ours: ours have no private ones for others.
            reached = (
                of_sdk
                and isinstance(node, ast.Attribute)
                and node.attr.startswith("_")
                and not node.attr.startswith("__")
                and ast.unparse(node.value) not in ("self", "cls")
            )
            if imported or reached:
                modules.add(module)
    assert modules == {"otlp/sdk_private.py"}


def changes_what_is_not_ours(node: ast.AST) -> bool:
    """Return whether that sets an attribute, a handler, a filter or a setting of other code."""
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        return called in _CHANGES or called.endswith(
            (".filters.insert", ".addFilter", ".addHandler")
        )
    targets = node.targets if isinstance(node, ast.Assign) else []
    return any(
        isinstance(target, ast.Subscript) and ast.unparse(target.value).endswith("handlers")
        for target in targets
    )


_CHANGES = {
    *("setattr", "atexit.register", "os.register_at_fork", "signal.signal"),
    *("dask.config.set", "dask.config.update_defaults", "sys.settrace", "sys.setprofile"),
}


def test_the_architecture_lists_each_module_with_a_guard_or_a_hook_and_no_other() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    section = text.partition("## What runs in other people's threads")[2].partition("\n## ")[0]
    table = "".join(line for line in section.splitlines() if line.startswith("|"))
    listed = set(re.findall(r"`([a-z_/]+\.py)`", table))
    guarded = {
        module
        for module, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "daskscope.containment"
    }
    changing = {
        module
        for module, tree in MODULES.items()
        for node in ast.walk(tree)
        if changes_what_is_not_ours(node)
    }
    # Pytest calls one of its own accord; the other runs pip.
    assert listed == guarded | changing | {"pytest_plugin.py", "installation.py"}


def defined_in(tree: ast.Module) -> set[str]:
    """Return the names that a module defines, without what it imports."""
    targets = [
        target
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    definitions = [n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    return {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)} | {
        n.name for n in definitions
    }


def test_texts_that_are_sent_to_workers_together_define_no_name_twice() -> None:
    """They run in one namespace there, so the later one would change what the earlier one does."""
    sets = [
        [GUARD, *(f"{ast.unparse(argument)}.py" for argument in node.args)]
        for tree in MODULES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "texts_of"
    ]
    assert ["containment.py", "cutting.py", "record_text.py", "worker_logs.py"] in sets
    for modules in sets:
        names = [name for module in modules for name in defined_in(MODULES[module])]
        assert sorted(names) == sorted(set(names))


def raise_text(text: str) -> None:
    raise ValueError(text)


def log_texts(*texts: str) -> None:
    for text in texts:
        logging.getLogger("mine").warning(text)


def lines_of(recorder: Recorder) -> list[str]:
    """Return what of :func:`log_texts` was emitted."""
    bodies = [record.body.string_value for record in recorder.log_records("dask.log")]
    return [body for body in bodies if body.endswith(" line")]


def fails_for(what: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``method`` so that it fails where an argument is a text with ``what`` in it."""

    def failing(self: Any, *args: Any, **kwargs: Any) -> Any:
        if any(isinstance(argument, str) and what in argument for argument in args):
            raise RuntimeError("as it should")
        return method(self, *args, **kwargs)

    return failing


def test_a_text_that_cannot_be_cleared_costs_that_text(
    client: Client, register: Register, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Scrubber, "scrub", fails_for("odd", Scrubber.scrub))
    register(events__allow=["*topic"])
    wait_for_worker_logs(client)
    failed = client.map(raise_text, ["it is odd", "it is even"])
    wait(failed)
    client.submit(log_texts, "odd line", "even line").result()
    client.log_event("odd topic", 1)
    client.log_event("even topic", 2)

    recorder.wait_for(lambda: [e.topic for e in recorder.events()] == ["even topic"], "the event")
    recorder.wait_for(lambda: lines_of(recorder) == ["even line"], "the line")
    recorder.wait_for(
        lambda: [row.status for row in recorder.computations().values()].count("erred") == 1,
        "the end of the computation",
    )
    # Of one group: the text is that of the first.
    (failure,) = recorder.failures()
    assert (failure.type, failure.count) == ("ValueError", 2)
    recorder.wait_for(lambda: recorder.beats[-1].drops.get(INTERNAL_ERROR), "what was counted")
    assert b"it is odd" not in recorder.bytes
    assert b"odd line" not in recorder.bytes


def test_a_row_that_cannot_be_emitted_costs_that_row(
    client: Client, register: Register, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Logs, "emit", fails_for("odd", Logs.emit))
    register()
    wait_for_worker_logs(client)
    client.submit(log_texts, "odd line", "even line").result()

    def finished() -> bool:
        return bool(recorder.log_records("dask.computation.finished"))

    recorder.wait_for(finished, "the end, which is told after the lines")
    assert lines_of(recorder) == ["even line"]
    recorder.wait_for(lambda: recorder.beats[-1].drops.get(INTERNAL_ERROR) == 1, "the one error")


def test_a_task_runs_where_the_context_of_its_caller_cannot_be_activated(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    wait_until(lambda: all(client.run(break_contexts).values()), what="the plugin on the worker")
    with TracerProvider().get_tracer("mine").start_as_current_span("mine"):
        assert client.submit(abs, -1, pure=False).result() == 1
    assert recorder.computation().status == "finished"
    client.run(break_contexts, data={})


def break_contexts(dask_worker: Worker, data: Any = None) -> bool:
    """Have the contexts of tasks be neither read nor written. Return whether there are any yet."""
    plugins: dict[str, Any] = dask_worker.plugins
    found = [plugin for name, plugin in plugins.items() if name.startswith("daskscope-task")]
    for plugin in found:
        plugin._contexts.data = data
    return bool(found)


def test_a_task_runs_where_its_message_cannot_be_read(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    wait_until(lambda: all(client.run(break_messages).values()), what="the plugin on the worker")
    with TracerProvider().get_tracer("mine").start_as_current_span("mine"):
        assert client.submit(abs, -1, pure=False).result() == 1
    assert recorder.computation().status == "finished"
    client.run(mend_messages)


def break_messages(dask_worker: Worker) -> bool:
    """Have messages that bring tasks not be read. Return whether daskscope reads them yet."""
    handler: Any = dask_worker.stream_handlers["compute-task"]
    if not hasattr(handler, "of_daskscope"):
        return False
    whole = handler.__globals__
    whole.setdefault("mended", whole["without_carried"])
    whole["without_carried"] = broken
    return True


def mend_messages(dask_worker: Worker) -> None:
    handler: Any = dask_worker.stream_handlers["compute-task"]
    handler.__globals__["without_carried"] = handler.__globals__.pop("mended")


def test_a_client_goes_on_where_it_cannot_begin_to_close_its_cluster(
    client: Client, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    register()
    before = registration._errors.get(INTERNAL_ERROR, 0)
    with monkeypatch.context() as patch:
        patch.setattr(shutdown_client, "threading", SimpleNamespace(Thread=broken))
        client.log_event(MANAGER_TOPIC, {"reason": "as a test asks"})
        wait_until(
            lambda: registration._errors.get(INTERNAL_ERROR, 0) == before + 1, what="the one error"
        )
    assert client.submit(abs, -1, pure=False).result() == 1


def test_a_kernel_ends_where_what_is_done_before_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    class Kernel:
        def do_shutdown(self, restart: bool) -> str:
            return f"ended, to begin anew: {restart}"

    kernel, drops = Kernel(), dict[str, int]()
    monkeypatch.setattr(jupyter_kernel, "_kernel", lambda: kernel)
    done: list[str] = []
    take_back = [
        jupyter_kernel.before_kernel_ends(call, drops)
        for call in (broken, lambda: done.append("the next"))
    ]
    assert kernel.do_shutdown(restart=True) == "ended, to begin anew: True"
    assert (done, drops) == (["the next"], {INTERNAL_ERROR: 1})
    for one in take_back:
        one()
    assert kernel.do_shutdown(False) == "ended, to begin anew: False"
    assert done == ["the next"]


def test_a_graph_is_noted_where_a_shutdown_cannot_be_called_off(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    client.run_on_scheduler(break_shutdowns)
    assert client.submit(abs, -1, pure=False).result() == 1
    recorder.wait_for(lambda: recorder.computation().status == "finished", "the computation")
    recorder.wait_for(lambda: recorder.beats[-1].drops.get(INTERNAL_ERROR) == 1, "the one error")


def broken(*_: object, **__: object) -> None:
    raise RuntimeError("as it should")


def break_shutdowns(dask_scheduler: Any) -> None:
    dask_scheduler.plugins[NAME].session.shutdowns.work_arrived = broken


def test_it_ends_whatever_fails_at_its_end(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    assert client.cluster is not None
    running = client.cluster.scheduler.plugins[NAME].session
    running.observer.tasks_dropped = running.shutdowns.end = broken
    running._unwatch.insert(0, broken)
    close_plugin(client)
    assert running._done()
    assert recorder.beats[-1].phase == "stop"
    assert recorder.beats[-1].drops[INTERNAL_ERROR] == 3


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """A logger of a user's, with a handler that shows nothing."""
    logger = logging.getLogger("a_users")
    handler = logging.NullHandler()
    logger.addHandler(handler)
    yield logger
    logger.removeHandler(handler)


def time_out(number: int, frame: Any) -> None:
    raise TimeoutError("the user's")


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="this system has no such signal")
def test_whoever_logs_is_interrupted_by_the_own_timeout_and_by_no_error_of_ours(
    logger: logging.Logger,
) -> None:
    untap = tap(broken)
    before = signal.signal(signal.SIGUSR1, time_out)
    try:
        logger.warning("one")
        untap()
        untap = tap(lambda record: signal.raise_signal(signal.SIGUSR1))
        with pytest.raises(TimeoutError, match="the user's"):
            logger.warning("two")
    finally:
        untap()
        signal.signal(signal.SIGUSR1, before)
