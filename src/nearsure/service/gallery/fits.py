"""A fit: made, made again while the old one goes on answering, and made of what was kept."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from nearsure.arrays import AnyArray, IntArray
from nearsure.classifier import NEDClassifier
from nearsure.engines.contract import Engine
from nearsure.errors import FitWarning
from nearsure.model_file import read_model_bytes
from nearsure.service.gallery.thresholds import ThresholdInUse


@dataclass(frozen=True, eq=False)
class Fit:
    """What answers; it is replaced as a whole, so that nobody sees half of one.

    Parameters
    ----------
    classifier : NEDClassifier
        Fitted on the gallery in the engine.
    number : int
        Grows with each fit.
    threshold : ThresholdInUse
        From which confidence its answers are accepted.
    n_unseen : int
        At least so many points changed since the fit while nobody counted.
    last_change : int or None
        Number of the last change that the fit has seen, in an engine that writes changes down.
    """

    classifier: NEDClassifier
    number: int
    threshold: ThresholdInUse
    n_unseen: int = 0
    last_change: int | None = None

    @property
    def rule(self) -> str:
        """Name of the rule that answers."""
        return self.classifier._rule.name  # noqa: SLF001

    @property
    def class_counts(self) -> IntArray:
        """Members of each class now."""
        return self.classifier._support.class_counts  # noqa: SLF001

    @property
    def share_changed(self) -> float:
        """Share of the gallery that changed since the fit, in [0, 1]."""
        support = self.classifier._support  # noqa: SLF001
        counted = support.share_changed(self.classifier._fit_mark)  # noqa: SLF001
        return min(1.0, counted + self.n_unseen / max(1, len(support)))


def ignore_fit_warnings() -> None:
    """Let no warning about a fit become an error or a line in the log: `share_changed` says it."""
    warnings.simplefilter("ignore", FitWarning)


def fitted_from_nothing(engine: Engine) -> NEDClassifier:
    """The first fit on what an engine holds."""
    ignore_fit_warnings()
    return NEDClassifier(engine=engine, metric=engine.metric).fit_engine()


def fitted_again(model: bytes, engine: Engine) -> NEDClassifier:
    """A new classifier with the parameters of a kept one, fitted on what an engine holds."""
    ignore_fit_warnings()
    return NEDClassifier.from_bytes(model, engine).refit()


def counted_anew(model: bytes, engine: Engine) -> NEDClassifier:
    """A kept classifier, with classes of the sizes that they have in an engine."""
    ignore_fit_warnings()
    classifier = NEDClassifier.from_bytes(model, engine)
    classifier._support.recount()  # type: ignore[union-attr]  # noqa: SLF001 - it is in an engine
    return classifier


def with_changes(classifier: NEDClassifier, written: Iterable[AnyArray]) -> None:
    """Count points that were changed while it was being fitted, or while nobody looked."""
    changed = [ids for ids in written if len(ids)]
    if not changed:
        return
    support = classifier._support  # noqa: SLF001
    support.recount()  # type: ignore[union-attr]
    support.mark_changed(np.unique(np.concatenate(changed)))  # type: ignore[union-attr]


def least_changes(classifier: NEDClassifier, model: bytes) -> int:
    """How many points must have changed for its classes to have other sizes than were kept.

    Parameters
    ----------
    classifier : NEDClassifier
        With classes counted anew.
    model : bytes
        What was kept of it.
    """
    known = read_model_bytes(model)[1].get("class_counts")
    if known is None:
        return 0
    now = classifier._support.class_counts  # noqa: SLF001
    gained = np.zeros(max(len(now), len(known)), np.int64)
    gained[: len(now)] = now
    gained[: len(known)] -= known
    # A point that was given another label is missed in one class and found in another.
    return int(max(gained[gained > 0].sum(), -gained[gained < 0].sum()))
