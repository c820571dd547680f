"""The log of a command: events with key-values on stderr, since stdout carries results only."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog


class ForeignLogs(logging.Handler):
    """Passes what libraries log on as events, so that nothing stands beside the log in another form."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log one record: its message, never the values of a traceback."""
        structlog.get_logger().log(record.levelno, "library_log", logger=record.name, message=record.getMessage())


def configure_logging(level: int = logging.INFO) -> None:
    """Log events with key-values to stderr: readable on a terminal, JSON elsewhere."""
    terminal = sys.stderr.isatty()
    plain = structlog.dev.plain_traceback  # others show the values of variables, credentials among them
    renderer: Any = (
        structlog.dev.ConsoleRenderer(exception_formatter=plain) if terminal else structlog.processors.JSONRenderer()
    )
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if not terminal:
        shared.append(structlog.processors.format_exc_info)
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),  # a line at a time, whoever else writes
    )
    logging.basicConfig(level=logging.WARNING, handlers=[ForeignLogs()], force=True)
