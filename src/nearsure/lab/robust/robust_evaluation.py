"""Clean and changed queries against the same clean gallery, by methods that saw neither change."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from nearsure.arrays import IntArray
from nearsure.errors import InvalidInputError
from nearsure.lab.protocols import ProtocolName
from nearsure.lab.robust.joint_bootstrap import N_BINS, JointBootstrap, Measures, mean_of
from nearsure.lab.robust.methods import FrozenMethods, Scores
from nearsure.lab.robust.outcomes import Outcome, outcome_of
from nearsure.lab.robust.variants import Variant
from nearsure.metrics import calibration_floor
from nearsure.neighbors import Neighbors
from nearsure.temperature import TemperatureFit

# The floor of one variant is then known to about 2% of itself, and their mean far better.
FLOOR_SIMULATIONS = 100
# Squared distance of an image to itself when two forms of one network embed it.
SAME = 1e-10


@dataclass(frozen=True)
class VariantOutcome:
    """How all methods did on the queries after one change.

    Parameters
    ----------
    variant : Variant
        The change.
    outcome : Outcome
        What came of it.
    """

    variant: Variant
    outcome: Outcome


@dataclass(frozen=True)
class RobustEvaluation:
    """How all methods did on the same queries, clean and changed; `evaluate_variants` makes it.

    Parameters
    ----------
    model : str
        What embedded the images.
    protocol : {"all_against_others", "gallery_and_queries", "given_gallery"}
        Who was asked: a changed query never meets its own clean image.
    n_gallery, n_queries, n_classes : int
        Clean points in the gallery, queries, and classes in the gallery.
    n_unknown_queries : int
        Queries of a class that the gallery lacks; each counts as wrong.
    k : int
        Neighbours of every rule.
    seed, n_resamples : int
        Of the intervals and the ECE floors.
    temperature_fit : TemperatureFit
        T, fitted on the clean gallery.
    clean : Outcome
        The same queries, unchanged.
    variants : tuple of VariantOutcome
        Every change.
    mean : Outcome or None
        Mean over all corruptions and severities; None where there is no corruption.
    by_corruption : mapping of str to Outcome
        Mean over the severities of each.
    by_severity : mapping of int to Outcome
        Mean over the corruptions at each.
    notes : tuple of str
        What a reader must know.
    """

    model: str
    protocol: ProtocolName
    n_gallery: int
    n_queries: int
    n_unknown_queries: int
    n_classes: int
    k: int
    seed: int
    n_resamples: int
    temperature_fit: TemperatureFit
    clean: Outcome
    variants: tuple[VariantOutcome, ...]
    mean: Outcome | None
    by_corruption: Mapping[str, Outcome]
    by_severity: Mapping[int, Outcome]
    notes: tuple[str, ...] = ()

    @property
    def corruptions(self) -> tuple[VariantOutcome, ...]:
        """The corrupted variants."""
        return tuple(found for found in self.variants if found.variant.family == "corruption")

    @property
    def attacks(self) -> tuple[VariantOutcome, ...]:
        """The attacked variants."""
        return tuple(found for found in self.variants if found.variant.family == "attack")

    def to_dict(self) -> dict[str, Any]:
        """In JSON's types; what is NaN becomes None."""
        return {
            **{name: getattr(self, name) for name in self.__dataclass_fields__},
            "temperature_fit": self.temperature_fit.to_dict(),
            "clean": self.clean.to_dict(),
            "variants": [
                {"variant": asdict(found.variant), **found.outcome.to_dict()}
                for found in self.variants
            ],
            "mean": None if self.mean is None else self.mean.to_dict(),
            "by_corruption": {name: found.to_dict() for name, found in self.by_corruption.items()},
            # JSON's keys are text.
            "by_severity": {str(name): found.to_dict() for name, found in self.by_severity.items()},
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        try:
            return cls(
                **{
                    **fields,
                    "temperature_fit": TemperatureFit.from_dict(fields["temperature_fit"]),
                    "clean": Outcome.from_dict(fields["clean"]),
                    "variants": tuple(
                        VariantOutcome(Variant(**found["variant"]), Outcome.from_dict(found))
                        for found in fields["variants"]
                    ),
                    "mean": None if fields["mean"] is None else Outcome.from_dict(fields["mean"]),
                    "by_corruption": {
                        name: Outcome.from_dict(found)
                        for name, found in fields["by_corruption"].items()
                    },
                    "by_severity": {
                        int(name): Outcome.from_dict(found)
                        for name, found in fields["by_severity"].items()
                    },
                    "notes": tuple(fields["notes"]),
                }
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise InvalidInputError(
                f"The fields of a robust evaluation must be those that to_dict gives. {error!r}: "
                "was this written by another version, or is it something else?"
            ) from error


def evaluate_variants(
    model: str,
    protocol: ProtocolName,
    frozen: FrozenMethods,
    *,
    clean: tuple[Neighbors, IntArray],
    variants: Iterable[tuple[Variant, Neighbors, IntArray]],
    seed: int = 0,
    n_resamples: int = 1000,
) -> RobustEvaluation:
    """Score the same queries, clean and changed in several ways.

    Intervals are joint: a resample draws the same queries in every variant, so those of means
    over variants and of differences between methods are right, too.

    Parameters
    ----------
    model : str
        What embedded the images.
    protocol : {"all_against_others", "gallery_and_queries", "given_gallery"}
        Who was asked.
    frozen : FrozenMethods
        Fitted on the clean gallery. Nothing here changes it.
    clean : tuple of Neighbors and array of shape (n,)
        Neighbours of the clean queries in the gallery, and their class codes.
    variants : iterable of (Variant, Neighbors, array of shape (n,))
        The same queries after each change, in the same order; taken one at a time, so a generator
        needs no more memory than one of them.
    seed : int
        Of the resamples and floors.
    n_resamples : int
        Resamples of every interval.

    Returns
    -------
    RobustEvaluation
    """
    neighbors, codes = clean
    draws = JointBootstrap(len(neighbors), seed=seed, n_resamples=n_resamples)
    base = _Measured.of(draws, frozen.scores(neighbors, codes), seed)
    measured: dict[Variant, _Measured] = {}
    for variant, changed, changed_codes in variants:
        _check_variant(variant, measured, codes, changed_codes)
        measured[variant] = _Measured.of(draws, frozen.scores(changed, changed_codes), seed)
    corruptions = {v: found for v, found in measured.items() if v.severity is not None}
    names = dict.fromkeys(variant.name for variant in corruptions)
    severities = sorted({v.severity for v in corruptions if v.severity is not None})
    return RobustEvaluation(
        model=model,
        protocol=protocol,
        n_gallery=frozen.n_gallery,
        n_queries=len(neighbors),
        n_unknown_queries=int((~np.isin(codes, frozen.gallery_codes)).sum()),
        n_classes=len(np.unique(frozen.gallery_codes)),
        k=frozen.k,
        seed=seed,
        n_resamples=n_resamples,
        temperature_fit=frozen.temperature_fit,
        clean=base.outcome(),
        variants=tuple(VariantOutcome(v, found.outcome()) for v, found in measured.items()),
        mean=_mean(list(corruptions.values())) if corruptions else None,
        by_corruption={
            name: _mean([found for v, found in corruptions.items() if v.name == name])
            for name in names
        },
        by_severity={
            severity: _mean([found for v, found in corruptions.items() if v.severity == severity])
            for severity in severities
        },
        notes=frozen.notes + _notes(protocol, neighbors, corruptions, len(names) * len(severities)),
    )


@dataclass(frozen=True, eq=False)
class _Measured:
    """Measures of one variant on all resamples, and the floors."""

    measures: Measures
    floors: list[float]

    @classmethod
    def of(cls, draws: JointBootstrap, scores: Scores, seed: int) -> Self:
        floors = [
            calibration_floor(row, seed=seed, n_bins=N_BINS, n_simulations=FLOOR_SIMULATIONS)
            for row in scores.confidence
        ]
        return cls(draws.measure(scores), floors)

    def outcome(self) -> Outcome:
        return outcome_of(self.measures, self.floors)


def _mean(measured: list[_Measured]) -> Outcome:
    floors = np.mean([found.floors for found in measured], axis=0).tolist()
    return outcome_of(
        mean_of([found.measures for found in measured]), floors, n_variants=len(measured)
    )


def _check_variant(
    variant: Variant, before: Mapping[Variant, _Measured], codes: IntArray, changed_codes: IntArray
) -> None:
    if variant.family == "clean":
        raise InvalidInputError("Clean queries must come as 'clean'. Got them among 'variants'.")
    if str(variant) in map(str, before):
        raise InvalidInputError(f"Every variant must come once. Got '{variant}' twice.")
    if not np.array_equal(codes, changed_codes):
        raise InvalidInputError(
            f"The queries of '{variant}' must be the clean ones, changed, in the same order. Got "
            "other class codes: evaluate other queries by themselves, with their own clean ones."
        )


def _notes(
    protocol: ProtocolName, clean: Neighbors, corruptions: Mapping[Variant, _Measured], n_full: int
) -> tuple[str, ...]:
    notes = []
    if protocol == "all_against_others":
        notes.append(
            "T and the calibrators were fitted on the clean images of all points, among them "
            "those that ask. Clean figures are a little too good, those of isotonic regression, "
            "which has many parameters, most of all."
        )
    copies = int((clean.sq_distances[:, 0] <= SAME).sum())
    if copies:
        notes.append(
            f"{copies} of {len(clean)} clean queries equal a gallery point but for rounding. If "
            "these are the same items, the figures are too good."
        )
    if len(corruptions) != n_full:
        notes.append(
            "Not every corruption has every severity, so means over severities or corruptions "
            f"are not of the same things: {len(corruptions)} variants in place of {n_full}."
        )
    return tuple(notes)
