"""One fit at a time, in the background."""

import logging
from threading import Lock, Thread

from nearsure.errors import EngineError, NearsureError
from nearsure.service.gallery.served_gallery import SMALLEST_GALLERY, ServedGallery
from nearsure.service.problems import ProblemError, engine_unavailable
from nearsure.service.schemas import RefitState

log = logging.getLogger("nearsure.service")


class Refits:
    """Starts fits of a gallery, and knows how the last one ended.

    Parameters
    ----------
    gallery : ServedGallery
        What is fitted.
    """

    def __init__(self, gallery: ServedGallery) -> None:
        self._gallery = gallery
        self._lock = Lock()
        self._thread: Thread | None = None
        self._failure: str | None = None

    def state(self) -> RefitState:
        """Whether a fit is under way, and how the last one ended."""
        number = self._gallery.version[0]
        if self._thread is not None:
            return RefitState(state="running", model=number)
        if self._failure is not None:
            return RefitState(state="failed", model=number, message=self._failure)
        return RefitState(state="idle", model=number)

    def start(self) -> RefitState:
        """Start a fit, unless one is under way."""
        n_items = self._gallery.engine.size()
        if n_items < SMALLEST_GALLERY:
            raise ProblemError(
                409,
                "too_few_items",
                f"A fit needs {SMALLEST_GALLERY} items. The gallery holds {n_items}: add some with "
                "POST /v1/items.",
            )
        with self._lock:
            if self._thread is None:
                self._failure = None
                # A daemon: a fit that takes long must not keep a service from stopping.
                self._thread = Thread(target=self._run, name="nearsure-refit", daemon=True)
                self._thread.start()
        return self.state()

    def wait(self, timeout: float) -> None:
        """Wait for the fit that is under way."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout)

    def _run(self) -> None:
        failure: str | None = None
        try:
            fit = self._gallery.refit()
            log.info("Fit %d answers from now on.", fit.number)
        except NearsureError as error:
            # Where an engine is, and as whom it is asked, is nobody's business.
            failure = str(engine_unavailable() if isinstance(error, EngineError) else error)
            log.warning("The fit failed: %s", error)
        except Exception:
            failure = "The fit failed for a reason that the log of the service tells."
            log.exception("The fit failed.")
        with self._lock:
            self._failure, self._thread = failure, None
