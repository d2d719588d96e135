"""A fit for whoever reads the whole gallery: it sees one moment of it."""

from dataclasses import dataclass, field, replace

from nearsure.classifier import NEDClassifier
from nearsure.service.gallery.thresholds import DEFAULT_CERTAINTY, ThresholdInUse, chosen_for

# Thresholds that are remembered; whoever moves a slider asks for the same ones again.
MOST_THRESHOLDS = 256


@dataclass(frozen=True, eq=False)
class SteadyCopy:
    """A classifier on a `SteadyView`, and what was worked out with it.

    Parameters
    ----------
    classifier : NEDClassifier
        Which nobody changes.
    number : int
        Of its fit.
    """

    classifier: NEDClassifier
    number: int
    _chosen: dict[tuple[float, float], ThresholdInUse] = field(default_factory=dict)

    def threshold_for(
        self, precision: float, certainty: float = DEFAULT_CERTAINTY
    ) -> ThresholdInUse:
        """The threshold that a precision needs; worked out once, however many ask."""
        known = self._chosen.get((precision, certainty))
        if known is None:
            known = chosen_for(self.classifier, precision, self.number, certainty=certainty)
            if len(self._chosen) >= MOST_THRESHOLDS:
                self._chosen.clear()
            self._chosen[precision, certainty] = known
        return known

    def threshold_like(self, in_use: ThresholdInUse) -> ThresholdInUse:
        """The threshold of this fit: set by hand it stays, for a precision it is chosen anew."""
        if in_use.precision is None:
            return replace(in_use, model=self.number)
        return replace(self.threshold_for(in_use.precision), is_set=in_use.is_set)
