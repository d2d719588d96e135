"""Confidence for the hits of a system that keeps its vectors to itself.

What it finds for the gallery's own items, each left out by its id, is all that is needed: ids,
labels and distances. The integrations that see no vectors, deepface and LangChain, build on this.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, get_args

import numpy as np

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.classifier import FittedRule, fit_confidence
from nearsure.classifier.known import (
    UnknownDetector,
    fit_unknown_detector,
    rehearse_answers,
    rehearse_points,
    with_p_known,
)
from nearsure.classifier.parameters import check_among
from nearsure.classifier.rule import SelfSearch
from nearsure.decisions import AcceptThreshold, choose_threshold
from nearsure.errors import InvalidInputError
from nearsure.labels import codes_of
from nearsure.loo import factors_of_sizes, keep_first
from nearsure.neighbors import Neighbors
from nearsure.unknowns import judge

# What the system calls a distance: the name of a constructor of `Neighbors`, without "from_".
Distance = Literal["squared_l2", "l2", "cosine_distance", "cosine_similarity", "inner_product"]
MOST_NEIGHBORS = 50
# Share of the items that find themselves; with fewer, their ids are not those of the hits.
LEAST_SHARE = 0.5


class Hit(NamedTuple):
    """One item that was found: its id, its label, and how far it is from the query."""

    id: str
    label: str
    distance: float


class HitAnswer(NamedTuple):
    """What the hits of one query say together.

    `label` is None, and `confidence` 0, where nothing was found. `probabilities` has all labels
    among the hits. `verdict` is "known", "ambiguous" or "unknown", and None if unknown queries
    are not expected, or cannot be recognised.
    """

    label: str | None
    confidence: float
    probabilities: dict[str, float]
    verdict: str | None


@dataclass(frozen=True, eq=False)
class HitConfidence:
    """From hits to labels with confidence; `fit_hits` makes it.

    Parameters
    ----------
    rule : FittedRule
        From neighbours to p(c | known).
    classes : array of shape (n_classes,) of str
        The labels.
    class_sizes : array of shape (n_classes,)
        Items of each.
    distance : str
        What the system calls a distance.
    n_neighbors : int
        Hits of a query that take part; ask for as many.
    detector : UnknownDetector or None
        p(known), if unknown queries are expected.
    accept : AcceptThreshold or None
        From where answers may be accepted, if a precision was asked for.
    """

    rule: FittedRule
    classes: AnyArray
    class_sizes: IntArray
    distance: Distance
    n_neighbors: int
    detector: UnknownDetector | None
    accept: AcceptThreshold | None

    def answer(self, hits: Sequence[Sequence[Hit]]) -> list[HitAnswer]:
        """Answers to queries, of which each has a list of hits, in any order."""
        answers = [HitAnswer(None, 0.0, {}, None if self.detector is None else "unknown")] * len(
            hits
        )
        rows = [row for row, own in enumerate(hits) if len(own)]
        if not rows:
            return answers
        found = _to_neighbors([hits[row] for row in rows], self.classes, self.distance)
        found = found.first(min(self.n_neighbors, found.k))
        posterior = self.rule.posterior(
            found, n_classes=len(self.classes), class_sizes=self.class_sizes
        )
        verdicts: AnyArray | None = None
        if self.detector is not None:
            p_known = self.detector.p_known(found, posterior)
            if self.detector.recognizes:
                verdicts = judge(p_known, posterior).names
            posterior = with_p_known(posterior, p_known)
        for place, row in enumerate(rows):
            entries = slice(posterior.indptr[place], posterior.indptr[place + 1])
            labels = self.classes[posterior.codes[entries]].tolist()
            shares = dict(zip(labels, posterior.probabilities[entries].tolist(), strict=True))
            best = max(shares, key=shares.__getitem__)
            verdict = None if verdicts is None else str(verdicts[place])
            answers[row] = HitAnswer(best, shares[best], shares, verdict)
        return answers


def fit_hits(
    hits: Sequence[Sequence[Hit]],
    ids: Sequence[str],
    labels: Sequence[str],
    *,
    distance: Distance,
    unknown_share: float | None = None,
    precision: float | None = None,
    class_counts: Mapping[str, int] | None = None,
) -> HitConfidence:
    """Learn how sure to be from what a system finds for the gallery's own items.

    Parameters
    ----------
    hits : sequence of n lists of Hit
        What it found for each item, the item itself among it.
    ids, labels : sequence of n str
        Of the items: all of the gallery, or a random sample.
    distance : {"squared_l2", "l2", "cosine_distance", "cosine_similarity", "inner_product"}
        What the system calls a distance.
    unknown_share : float, optional
        Share of the queries that are of no label. Lists of hits must then reach beyond the items
        of an item's own label.
    precision : float, optional
        Choose a threshold above which at least this share of the answers is right.
    class_counts : mapping of str to int, optional
        Items of each label; by default they are counted in `labels`.
    """
    check_among("distance", distance, get_args(Distance))
    own_ids, own_labels = np.array(ids, str), np.array(labels, str)
    if not len(hits) == len(own_ids) == len(own_labels) == len(np.unique(own_ids)) > 1:
        raise InvalidInputError(
            "hits, ids and labels must be of the same items, two or more, with distinct ids. Got "
            f"{len(hits)} lists of hits, {len(own_ids)} ids ({len(np.unique(own_ids))} distinct) "
            f"and {len(own_labels)} labels."
        )
    order = np.argsort(own_ids)
    own_ids, own_labels = own_ids[order], own_labels[order]
    counts = class_counts or dict(zip(*np.unique(own_labels, return_counts=True), strict=True))
    classes, sizes = (
        np.array(sorted(counts), str),
        np.array([counts[name] for name in sorted(counts)]),
    )
    found = _to_neighbors([hits[row] for row in order], classes, distance)
    codes, itself = codes_of(own_labels, classes), (found.ids == own_ids[:, None]) & found.valid
    if itself.any(axis=1).mean() < LEAST_SHARE:
        raise InvalidInputError(
            "ids must be those of the hits, and items must be among their own hits. Only "
            f"{int(itself.any(axis=1).sum()):,} of {len(own_ids):,} were: they would count as "
            "their own neighbours under another name."
        )
    k = min(MOST_NEIGHBORS, int(sizes.sum()) - 1, found.k - 1)
    neighbors = keep_first(found, found.valid & ~itself, k)
    rule = fit_confidence(neighbors, codes, class_counts=sizes)
    to_posterior = partial(rule.posterior, n_classes=len(classes), class_sizes=sizes)
    within = to_posterior(neighbors)
    confidence: FloatArray = within.confidence
    correct: BoolArray = within.labels == codes
    detector, unknowns = None, None
    if unknown_share is not None:
        left = sizes[codes] - 1
        own = SelfSearch(own_ids, neighbors, codes, factors_of_sizes(sizes[codes], left), 0, left)
        strangers = keep_first(found, found.valid & (found.labels != codes[:, None]), k)
        rehearsal = rehearse_points(own, strangers, rule, to_posterior, sizes)
        detector = fit_unknown_detector(own, rehearsal, unknown_share, sizes)
        confidence, unknowns = rehearse_answers(detector, own, rehearsal, confidence)
    accept = None
    if precision is not None:
        accept = choose_threshold(confidence, correct, precision=precision, unknowns=unknowns)
    return HitConfidence(rule, classes, sizes, distance, k, detector, accept)


def _to_neighbors(hits: Sequence[Sequence[Hit]], classes: AnyArray, distance: str) -> Neighbors:
    """Lists of hits as arrays, nearest first."""
    counts = np.array([len(own) for own in hits])
    shape = len(hits), max(int(counts.max()), 1)
    valid = np.arange(shape[1]) < counts[:, None]
    ids, labels = np.zeros(shape, f"<U{_longest(hits)}"), np.zeros(shape, np.int64)
    values = np.zeros(shape)
    every = [hit for own in hits for hit in own]
    named = codes_of(np.array([hit.label for hit in every], str), classes)
    if (named == len(classes)).any():
        strange = every[int(np.argmax(named == len(classes)))].label
        raise InvalidInputError(
            f"Labels of hits must be among the {len(classes)} of the fit. Got {strange!r}, too: "
            "fit again on the current gallery."
        )
    ids[valid], labels[valid] = [hit.id for hit in every], named
    values[valid] = [hit.distance for hit in every]
    convert = getattr(Neighbors, f"from_{distance}")
    neighbors: Neighbors = convert(values, labels, ids=ids, counts=counts)
    return neighbors


def _longest(hits: Sequence[Sequence[Hit]]) -> int:
    return max((len(hit.id) for own in hits for hit in own), default=1) or 1
