"""Metrics of a server in Prometheus' format."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from keras_addnorm.serving.errors import ServingError

_log = logging.getLogger(__name__)

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclasses.dataclass
class Observed:
    """One request in progress.

    Args:
        signature: The name of the signature, set once the signature is found. A name from a client
            is not used as it is: each one would become a time series.
    """

    signature: str = ""


class Metrics:
    """The metrics of one server.

    Attributes:
        requests: Requests by protocol, signature and canonical status code.
        seconds: Durations of requests by protocol and signature.
        batch_rows: Rows of a batch by signature.
        queue_length: Requests that wait for a worker.
        held_bytes: What large requests and their answers take.
        version: The served version; 0 for none.
    """

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        prefix = "keras_addnorm_"
        self.requests = Counter(
            f"{prefix}requests",
            "Requests answered",
            ("protocol", "signature", "code"),
            registry=self._registry,
        )
        self.seconds = Histogram(
            f"{prefix}request_seconds",
            "Time to answer a request",
            ("protocol", "signature"),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.batch_rows = Histogram(
            f"{prefix}batch_rows",
            "Rows computed together",
            ("signature",),
            buckets=_ROWS,
            registry=self._registry,
        )
        self.queue_length = Gauge(
            f"{prefix}queue_length", "Requests waiting for a worker", registry=self._registry
        )
        self.held_bytes = Gauge(
            f"{prefix}held_bytes",
            "Bytes of large requests and their answers",
            registry=self._registry,
        )
        self.version = Gauge(
            f"{prefix}model_version", "Version that is served", registry=self._registry
        )

    def text(self) -> bytes:
        """Returns all metrics as text."""
        return generate_latest(self._registry)

    @contextlib.contextmanager
    def observe(self, protocol: str) -> Iterator[Observed]:
        """Counts and times a request, and converts every exception into a `ServingError`.

        An unexpected one becomes `INTERNAL`; its text goes to the log and not to the client.
        """
        request, begin, code = Observed(), time.perf_counter(), "CANCELLED"
        try:
            yield request
            code = "OK"
        except ServingError as error:
            code = error.code
            raise
        except Exception as error:
            code = "INTERNAL"
            _log.exception("A request failed.")
            message = "The server failed to answer; its log says why."
            raise ServingError(code, message) from error
        finally:
            self.requests.labels(protocol, request.signature, code).inc()
            seconds = time.perf_counter() - begin
            self.seconds.labels(protocol, request.signature).observe(seconds)
