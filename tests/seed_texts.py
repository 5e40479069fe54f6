# ruff: noqa: E501 (tracebacks are as wide as they are)
"""Code and tracebacks as real users have them, for :mod:`tests.seed`."""

from __future__ import annotations

FEATURES = '''\
def build(day: str, client: Client) -> dd.DataFrame:
    """Join a day's events with the catalogue and aggregate them per user."""
    events = dd.read_parquet(
        f"s3://events/{day}/*.parquet",
        columns=["user_id", "item_id", "kind", "distance", "at"],
    )
    catalogue = dd.read_csv("s3://catalogue/items-*.csv", dtype={"item_id": "int64"})
    sizes = catalogue.groupby("category").size().compute()
    log.info("catalogue has %d categories", len(sizes))

    events = events.map_partitions(parse_events, meta=EVENTS_META)
    joined = events.merge(catalogue, on="item_id", how="left", shuffle_method="p2p")

    # One row per user and category; small enough to stay on the cluster for the next step.
    per_user = joined.groupby(["user_id", "category"]).agg(
        {"distance": ["mean", "max"], "at": "count"}
    )
    per_user = per_user.persist()
    progress(per_user)

    if not day_is_complete(day):
        raise Incomplete(day)

    per_user.to_parquet(f"s3://features/{day}/", overwrite=True, compute_kwargs={"retries": 2})
    return per_user
'''

TRAIN = """\
    folds = KFold(n_splits=5, shuffle=True, random_state=SEED)
    futures = []
    for number, (fit, held_out) in enumerate(folds.split(index)):
        for depth, rate in itertools.product((4, 6, 8), (0.02, 0.05, 0.1)):
            futures.append(
                client.submit(
                    fit_one, X, y, fit, held_out, depth=depth, rate=rate, pure=False
                )
            )
            log.debug("fold %d: depth %d, rate %g", number, depth, rate)

    scores = {}
    for future, score in as_completed(futures, with_results=True):
        scores[future.key] = score
    best = max(scores, key=scores.__getitem__)
    log.info("best of %d: %s at %.4f", len(scores), best, scores[best])
"""

VALUE_TRACEBACK = """\
Traceback (most recent call last):
  File "/opt/conda/envs/features-2026.11/lib/python3.12/site-packages/dask/dataframe/dask_expr/_expr.py", line 3871, in _execute_internal_graph
    return dask.get(internal_tasks, outkey)
  File "/home/maria/pipelines/features/parsing.py", line 31, in parse_events
    frame["distance"] = frame["distance"].map(to_metres)
                        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/opt/conda/envs/features-2026.11/lib/python3.12/site-packages/pandas/core/series.py", line 4710, in map
    new_values = self._map_values(arg, na_action=na_action)
  File "/home/maria/pipelines/features/parsing.py", line 18, in to_metres
    return float(text.removesuffix(" m"))
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
ValueError: could not convert string to float: '12,4 km'
"""

PARSE_TRACEBACK = """\
Traceback (most recent call last):
  File "/home/maria/pipelines/features/lineage.py", line 77, in parse_module
    tree = ast.parse(path.read_text(), filename=path.name)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/usr/lib/python3.12/ast.py", line 52, in parse
    return compile(source, filename, mode, flags,
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "legacy_etl.py", line 214
    print "rows:", len(rows)
    ^^^^^^^^^^^^^^^^^^^^^^^^
SyntaxError: Missing parentheses in call to 'print'. Did you mean print(...)?
"""

KILLED_TRACEBACK = (
    "Attempted to run task ('read-parquet-2f9c0b4f1d7a4e0e', 118) on 4 different workers, but all "
    "those workers died while running it. The last worker that attempt to run the task was "
    "tcp://10.4.12.7:41023."
)
