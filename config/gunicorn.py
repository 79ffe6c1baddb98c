"""How gunicorn serves Rethread: ``gunicorn -c config/gunicorn.py config.wsgi``.

Settings: HOST, PORT, WEB_WORKERS, WEB_THREADS, WEB_TIMEOUT_SECONDS, WEB_READ_SECONDS,
FORWARDED_ALLOW_IPS and PROMETHEUS_MULTIPROC_DIR, all optional.
"""

from __future__ import annotations

import os
import shutil
import socket
import struct
import tempfile
from collections.abc import Sequence
from typing import Protocol


class _Worker(Protocol):
    pid: int
    sockets: Sequence[socket.socket]


def _number(name: str, default: int, least: int = 1) -> int:
    """Return a setting of this file; ends gunicorn with a sentence when it is no number."""
    text = os.environ.get(name) or str(default)
    if text.isdecimal() and int(text) >= least:
        return int(text)
    raise SystemExit(
        f"{name} is {text!r}; it must be a whole number, {least} or more. Correct it, or leave it "
        f"out for its default, {default} (.env.example)."
    )


_host = os.environ.get("HOST") or "127.0.0.1"
bind = f"{f'[{_host}]' if ':' in _host else _host}:{_number('PORT', 8000)}"

# Two workers with four threads answer sixteen writers sooner than two with eight: p95 was 36 to
# 53 ms on two cores. A socket for each worker spreads the connections evenly over them.
worker_class = "gthread"
workers = _number("WEB_WORKERS", 2)
threads = _number("WEB_THREADS", 4)
reuse_port = True
backlog = 1024

timeout = _number("WEB_TIMEOUT_SECONDS", 60, least=0)
graceful_timeout = 10
keepalive = 75  # above the 60 s for which proxies commonly keep an idle connection

# How long a client may stay silent in the middle of a request, or of taking its answer. Without it
# a dozen half-sent requests hold every thread. A proxy in front, which reads requests whole, is
# better still.
_silence_seconds = _number("WEB_READ_SECONDS", 10)

limit_request_line = 8190
limit_request_fields = 100
limit_request_field_size = 8190
# Django alone decides which header says that a request came by https (TRUST_FORWARDED_PROTO), and
# nothing that a client sends says where the application is mounted.
secure_scheme_headers: dict[str, str] = {}
forwarder_headers = ""
forwarded_allow_ips = os.environ.get("FORWARDED_ALLOW_IPS") or "127.0.0.1,::1"

accesslog = None  # the application writes one line a request, with its request id
errorlog = "-"
control_socket_disable = True
worker_tmp_dir = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: S108, PTH112

# Metrics of all processes meet in files. Who sets the folder (for web and worker together)
# empties it; otherwise one is made here, before a worker imports the metrics library.
_metrics = None
if not os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
    _metrics = os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp(prefix="rethread-metrics-")


def post_worker_init(worker: _Worker) -> None:
    """Bound what a silent client can hold, and load the tokenizer (0.3 s) before any request."""
    from conversations.tokenizer import warm

    patience = struct.pack("ll", _silence_seconds, 0)
    for listener in worker.sockets:  # what it accepts inherits these
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
    warm()


def child_exit(_server: object, worker: _Worker) -> None:
    """Take the gauges of a worker that has ended out of the metrics."""
    from prometheus_client.multiprocess import mark_process_dead

    mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]


def on_exit(_server: object) -> None:
    """Remove the metrics folder that was made here."""
    if _metrics:
        shutil.rmtree(_metrics, ignore_errors=True)
