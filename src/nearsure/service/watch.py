"""Compares recent queries with the gallery, beside the answers."""

import logging
from threading import Lock
from time import monotonic, thread_time, time

from nearsure.arrays import AnyArray
from nearsure.drift import FEWEST
from nearsure.errors import NearsureError
from nearsure.service.answers import Answers, ThresholdInUse
from nearsure.service.batching import WorkThreads
from nearsure.service.errors import ProblemError
from nearsure.service.gallery import ServedGallery
from nearsure.service.promise import choose_promise, keep_promise, leave_promise
from nearsure.service.store import Fit
from nearsure.service.telemetry import Measurements
from nearsure.service.window import QueryWindow

log = logging.getLogger("nearsure.service")
# New queries between two checks.
STEP = 100
# A check costs at most this share of the time, whatever the traffic.
SHARE_OF_TIME = 0.01
# Seconds after a check that has failed.
PAUSE = 10.0


class PromiseWatch:
    """Keeps the window over recent queries, and the promise of the served gallery up to date.

    The window is compared with the gallery in the background, by what was found for its queries.
    A difference is believed when the next check, with new queries, sees one, too: windows are
    looked at again and again, and chance would raise an alarm sooner or later.

    Parameters
    ----------
    gallery : ServedGallery
        Whose promise it is.
    threads : WorkThreads
        Where queries are compared.
    measurements : Measurements
        Where checks are counted.
    """

    def __init__(
        self, gallery: ServedGallery, threads: WorkThreads, measurements: Measurements
    ) -> None:
        # Keys of another start must not name queries of this one.
        self.window = QueryWindow(first_key=int(1e6 * time()))
        self._gallery, self._threads, self._measurements = gallery, threads, measurements
        self._lock, self._is_running = Lock(), False
        self._due_at, self._not_before, self._failed_until = FEWEST, 0.0, 0.0
        # What was checked last.
        self._last: ThresholdInUse | None = None
        # Whether queries differed at the last check.
        self._differed = False

    def see(self, vectors: AnyArray, answers: Answers) -> None:
        """Take queries in that were answered, shape (n, dimension), and start a check if due."""
        if self.window.add(vectors, answers.prediction.neighbors, answers.model):
            self.start_if_due()

    def start_if_due(self) -> None:
        """Start a check if there are enough queries that none has seen."""
        if not self._is_due():
            return
        with self._lock:
            if self._is_running:
                return
            self._is_running = True
        try:
            self._threads.submit(self._check)
        except RuntimeError:
            # The service is stopping.
            self._is_running = False

    def _is_due(self) -> bool:
        if self._is_running or len(self.window) < FEWEST or not self._gallery.is_fitted:
            return False
        now = monotonic()
        # Each fit and each setting has a threshold of its own.
        if self._gallery.fit.threshold is not self._last:
            return now >= self._failed_until
        return self.window.n_seen >= self._due_at and now >= self._not_before

    def _check(self) -> None:
        # Of the processor: a busy machine makes a check longer, but no dearer.
        start = thread_time()
        try:
            self._look()
            self._failed_until = 0.0
        except (NearsureError, ProblemError) as error:
            log.warning("Recent queries could not be compared with the gallery: %s", error)
            self._failed_until = monotonic() + PAUSE
        except Exception:
            self._failed_until = monotonic() + PAUSE
            log.exception("Recent queries could not be compared with the gallery.")
        finally:
            pause = (thread_time() - start) / SHARE_OF_TIME
            self._not_before = max(self._failed_until, monotonic() + pause)
            self._is_running = False
        # A fit or a threshold may have come meanwhile, and no query may follow.
        self.start_if_due()

    def _look(self) -> None:
        fit, n_seen = self._gallery.fit, self.window.n_seen
        classifier = fit.classifier
        found = self.window.neighbors(fit.number, classifier.kneighbors)
        differences = classifier.find_differences(found)
        self._measurements.checks.inc()
        self._due_at = n_seen + STEP
        if differences is None:
            self._gallery.use_promise(leave_promise(classifier), fit)
        elif not differences:
            self._gallery.use_promise(keep_promise(classifier, len(found)), fit)
            self._differed = False
        elif self._differed or self._last not in (None, fit.threshold):
            # A new fit or threshold is not used meanwhile as if nothing were known.
            self._measurements.alarms.inc()
            self._choose(fit)
        else:
            # With a fifth of it new, or two windows would be nearly one.
            self._differed, self._due_at = True, n_seen + max(FEWEST, len(found) // 5)
        self._last = fit.threshold

    def _choose(self, fit: Fit) -> None:
        """Choose what is promised for the queries of the window."""
        queries = self.window.read().vectors
        promise = self._gallery.read_whole(
            lambda classifier, _: choose_promise(classifier, fit.threshold, queries)
        )
        if self._gallery.use_promise(promise, fit) and promise.state != fit.promise.state:
            log.warning("The promise of the threshold: %s. %s", promise.state, promise.sentence)
