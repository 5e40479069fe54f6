"""The dashboards, one module for each question."""

from __future__ import annotations

from grafana.board import Board
from grafana.boards import cluster, computation, cost, exceptions, fleet, pipeline

BOARDS: tuple[Board, ...] = (
    fleet.BOARD,
    cluster.BOARD,
    computation.BOARD,
    exceptions.BOARD,
    cost.BOARD,
    pipeline.BOARD,
)
