"""What is recorded about requests and answers: figures for Prometheus, and the access log."""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from threading import Lock
from time import perf_counter
from typing import Final

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nearsure.arrays import AnyArray

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
BATCH_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONFIDENCES: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
PROMISE_STATES: Final = ("holds", "adjusted", "withdrawn", "none")
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# Paths and methods that a client makes up must not become series of their own.
OTHER: Final = "other"
ACCESS_LOG = logging.getLogger("nearsure.access")
LONGEST_PATH = 200
# Requested every few seconds: they would hide the rest.
QUIET = frozenset({"/healthz", "/readyz", "/metrics"})


class Measurements:
    """Counters, gauges and histograms of one app, in a registry of its own.

    Attributes
    ----------
    batches : Histogram
        How many single queries go into one search.
    queue, size, model, window : Gauge
        Length of the queue, size of the gallery, number of its fit and recent queries; set by
        functions.
    checks, alarms : Counter
        How often recent queries were compared with the gallery, and differed.

    Examples
    --------
    >>> measurements = Measurements()
    >>> measurements.count_answers(np.array([0.93, 0.41]), np.array([True, False]), n_unknown=0)
    >>> b'nearsure_answers_total{accepted="yes"} 1.0' in measurements.text()
    True
    """

    content_type: Final = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "nearsure_requests",
            "Requests that were answered.",
            ["route", "method", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "nearsure_request_seconds",
            "Time from the head of a request to the end of its answer.",
            ["route", "method"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.batches = Histogram(
            "nearsure_batch_size",
            "Single queries that were answered together.",
            buckets=BATCH_SIZES,
            registry=self.registry,
        )
        self.queue = Gauge(
            "nearsure_queue_length", "Single queries that wait.", registry=self.registry
        )
        self._answers = Counter(
            "nearsure_answers",
            "Answers, by whether their confidence reached the threshold in use.",
            ["accepted"],
            registry=self.registry,
        )
        self._unknown = Counter(
            "nearsure_unknown_answers",
            "Answers with the verdict that the query is of no known class.",
            registry=self.registry,
        )
        self.size = Gauge("nearsure_gallery_items", "Items.", registry=self.registry)
        self.model = Gauge(
            "nearsure_model_number",
            "Number of the fit that answers; it grows with each refit.",
            registry=self.registry,
        )
        self._promise = Gauge(
            "nearsure_promise",
            "1 for the state of the promise of the threshold in use, 0 for the others.",
            ["state"],
            registry=self.registry,
        )
        self.window = Gauge(
            "nearsure_window_queries",
            "Recent queries that are compared with the gallery.",
            registry=self.registry,
        )
        self.checks = Counter(
            "nearsure_promise_checks",
            "How often recent queries were compared with the gallery.",
            registry=self.registry,
        )
        self.alarms = Counter(
            "nearsure_promise_alarms",
            "How often they were not like it.",
            registry=self.registry,
        )
        # Those of each kind of request, which are looked up with locks and checks otherwise.
        self._of_requests: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._confidences = _ConfidenceHistogram()
        self.registry.register(self._confidences)

    def count_answers(
        self, confidence: AnyArray, accepted: AnyArray | None, n_unknown: int = 0
    ) -> None:
        """Note the answers to some queries.

        Parameters
        ----------
        confidence : array of shape (n,)
        accepted : array of bool, shape (n,), optional
            None where no threshold is in use.
        n_unknown : int
            How many have the verdict "unknown".
        """
        self._confidences.add(confidence)
        if accepted is None:
            self._answers.labels("undecided").inc(len(confidence))
        else:
            n_accepted = int(np.count_nonzero(accepted))
            self._answers.labels("yes").inc(n_accepted)
            self._answers.labels("no").inc(len(accepted) - n_accepted)
        if n_unknown:
            self._unknown.inc(n_unknown)

    def set_promise(self, state: Callable[[], str | None]) -> None:
        """Have the state of the promise read when the figures are asked for."""
        for name in PROMISE_STATES:
            self._promise.labels(name).set_function(partial(_is_state, state, name))

    def request(self, route: str, method: str, status: int, duration: float) -> None:
        """Note a request that was answered."""
        kind = route, method if method in METHODS else OTHER, status
        own = self._of_requests.get(kind)
        if own is None:
            counter = self._requests.labels(*kind[:2], str(status))
            own = self._of_requests[kind] = counter, self._seconds.labels(*kind[:2])
        own[0].inc()
        own[1].observe(duration)

    def text(self) -> bytes:
        """All figures, as Prometheus reads them; `content_type` goes with it."""
        return generate_latest(self.registry)


def _is_state(state: Callable[[], str | None], name: str) -> float:
    return float((state() or "none") == name)


class RequestRecorder:
    """ASGI middleware that counts each request and logs who asked what and how it ended.

    Query strings, bodies and headers are not logged, and so no vectors, texts or tokens.
    """

    def __init__(self, app: ASGIApp, measurements: Measurements) -> None:
        self.app = app
        self.measurements = measurements

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and take its time."""
        start = perf_counter()
        status = 500  # What a server answers for an app that raises.

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, note_status)
        finally:
            duration = perf_counter() - start
            # The router has left in the scope which route it took.
            route = getattr(scope.get("route"), "path", OTHER)
            self.measurements.request(route, scope["method"], status, duration)
            is_shown = scope["path"] not in QUIET or status >= 400  # noqa: PLR2004 - first error
            if is_shown and ACCESS_LOG.isEnabledFor(logging.INFO):
                client = (scope.get("client") or "-")[0]
                what = _escape(scope["method"]), _escape(scope["path"])
                ACCESS_LOG.info("%s %s %s %d %.1f ms", client, *what, status, 1e3 * duration)


def _escape(text: str) -> str:
    r"""Text of a client in one line of printable ASCII, so that no client forges a line of the log.

    Examples
    --------
    >>> _escape("/v1/items/a\n127.0.0.1 GET / 200")
    '/v1/items/a\\x0a127.0.0.1\\x20GET\\x20/\\x20200'
    """
    if len(text) > LONGEST_PATH:
        text = text[:LONGEST_PATH] + "..."
    if text.isascii() and text.isprintable() and " " not in text and "\\" not in text:
        return text
    return "".join(
        chr(byte) if 33 <= byte <= 126 and byte != 92 else f"\\x{byte:02x}"  # noqa: PLR2004
        for byte in text.encode(errors="surrogateescape")
    )


class _ConfidenceHistogram(Collector):
    """A histogram to which many values are added at once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts = np.zeros(len(CONFIDENCES), np.int64)
        self._sum = 0.0

    def add(self, confidence: AnyArray) -> None:
        # The first bound that is not below a value: Prometheus' buckets include their bound.
        places = np.minimum(np.searchsorted(CONFIDENCES, confidence), len(CONFIDENCES) - 1)
        counts = np.bincount(places, minlength=len(CONFIDENCES))
        with self._lock:
            self._counts += counts
            self._sum += float(np.sum(confidence))

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            cumulated, total = np.cumsum(self._counts).tolist(), self._sum
        buckets = [(str(bound), count) for bound, count in zip(CONFIDENCES, cumulated, strict=True)]
        family = HistogramMetricFamily("nearsure_confidence", "Confidence of answers.")
        family.add_metric([], [*buckets, ("+Inf", cumulated[-1])], sum_value=total)
        yield family
