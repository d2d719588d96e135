"""Every label that is stored or read, compared with a plain dictionary, whoever wrote it.

Two classifiers and somebody who writes to the engine directly add, relabel and remove points, with
classes that come, empty and come again; fits and restarts fall in between.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from contract_points import ids_for
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from nearsure import NEDClassifier
from nearsure.arrays import AnyArray
from nearsure.engines.contract import Engine
from nearsure.errors import FitWarning

FEWEST = 4
# Mostly of classes that nobody has seen.
LABELS = st.integers(0, 40)
WRITERS = st.integers(0, 1)
# The points that were changed last: mistakes need several changes of one point.
PICKS = st.integers(0, 3)


class LabelMachine(RuleBasedStateMachine):
    """An engine, its writers, and what it must hold."""

    def __init__(self, make: Callable[[], Engine], discard: Callable[[Engine], None]) -> None:
        super().__init__()
        self.engine, self._discard = make(), discard
        self.truth: dict[Any, Any] = {}
        self.places: dict[Any, AnyArray] = {}
        self.n_made = 0

    def name(self, number: int) -> Any:  # noqa: ANN401
        """A label of the engine's kind; names of different length must not be cut."""
        return 10 * number if self.engine.capabilities.labels == "integer" else "x" * number + "y"

    def new_points(self, number: int, n: int) -> tuple[AnyArray, AnyArray, AnyArray]:
        first = self.n_made
        self.n_made += n
        vectors = np.random.default_rng([3, first, n]).normal(size=(n, self.engine.dimension))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return (
            vectors.astype(np.float32),
            ids_for(self.engine, range(first, first + n)),
            np.array([self.name(number)] * n),
        )

    def note(self, vectors: AnyArray, ids: AnyArray, labels: AnyArray) -> None:
        self.truth.update(zip(ids.tolist(), labels.tolist(), strict=True))
        self.places.update(zip(ids.tolist(), vectors, strict=True))

    def pick(self, number: int) -> AnyArray:
        return ids_for_like(self.engine, [list(self.truth)[-1 - number]])

    def renamed(self, point: AnyArray, label: int) -> None:
        own = point.tolist()[0]
        del self.truth[own]
        self.truth[own] = self.name(label)

    @initialize()
    def begin(self) -> None:
        for number in range(2):
            points = self.new_points(number, 3)
            self.engine.add(*points)
            self.note(*points)
        self.writers = [self.fitted() for _ in range(2)]

    def fitted(self) -> NEDClassifier:
        classifier = NEDClassifier(3, rule="1nn", engine=self.engine, metric=self.engine.metric)
        return classifier.fit_engine()

    def writer(self, number: int) -> NEDClassifier:
        return self.writers[number % len(self.writers)]

    @rule(writer=WRITERS, label=LABELS, n=st.integers(1, 2))
    def add(self, writer: int, label: int, n: int) -> None:
        vectors, ids, labels = self.new_points(label, n)
        self.writer(writer).add(vectors, labels, ids=ids)
        self.note(vectors, ids, labels)

    @rule(writer=WRITERS, label=LABELS, number=PICKS)
    def relabel(self, writer: int, label: int, number: int) -> None:
        point = self.pick(number)
        self.writer(writer).relabel(point, [self.name(label)], allow_empty_class=True)
        self.renamed(point, label)

    @precondition(lambda self: len(self.truth) > FEWEST)
    @rule(writer=WRITERS, number=PICKS)
    def remove(self, writer: int, number: int) -> None:
        point = self.pick(number)
        self.writer(writer).remove(point, allow_empty_class=True)
        del self.truth[point.tolist()[0]]

    @rule(label=LABELS)
    def add_behind(self, label: int) -> None:
        points = self.new_points(label, 1)
        self.engine.add(*points)
        self.note(*points)

    @rule(label=LABELS, number=PICKS)
    def relabel_behind(self, label: int, number: int) -> None:
        point = self.pick(number)
        self.engine.relabel(point, np.array([self.name(label)]))
        self.renamed(point, label)

    @rule(writer=WRITERS)
    def refit(self, writer: int) -> None:
        classifier = self.writers[writer].refit()
        assert sorted(classifier.classes_.tolist()) == sorted(set(self.truth.values()))

    @rule(writer=WRITERS)
    def restart(self, writer: int) -> None:
        kept = self.writers[writer].to_bytes()
        self.writers[writer] = NEDClassifier.from_bytes(kept, self.engine)

    @rule(writer=WRITERS, number=PICKS)
    def read(self, writer: int, number: int) -> None:
        point = self.pick(number)
        classifier = self.writer(writer)
        answer = classifier.predict_with_confidence(self.places[point.tolist()[0]][None])
        found = answer.neighbors
        ids = np.asarray(found.ids)[found.valid].tolist()
        labels = classifier.classes_[found.labels[found.valid]].tolist()
        assert labels == [self.truth[own] for own in ids]
        assert answer.labels[0] == self.truth[ids[0]]

    @invariant()
    def stored_labels_are_true(self) -> None:
        stored: dict[Any, Any] = {}
        for portion in self.engine.scan():
            labels = np.asarray(portion.labels).tolist()
            stored.update(zip(portion.ids.tolist(), labels, strict=True))
        assert stored == self.truth

    # A rule, not an invariant: reading may bring a writer up to date, and hide what was stale.
    @rule(writer=WRITERS)
    def read_all(self, writer: int) -> None:
        ids = ids_for_like(self.engine, sorted(self.truth))
        expected = [self.truth[own] for own in ids.tolist()]
        assert self.writer(writer).support_labels(ids).tolist() == expected

    def teardown(self) -> None:
        if self.truth:
            self.read_all(writer=0)
        self._discard(self.engine)


class OwnLabelMachine(LabelMachine):
    """The same where labels stand beside an engine, or in this process: one classifier writes."""

    # Who else writes to such an engine must fit again.
    add_behind = relabel_behind = None  # type: ignore[assignment]
    stored_labels_are_true = None  # type: ignore[assignment]

    def __init__(
        self,
        make: Callable[[], Engine],
        discard: Callable[[Engine], None],
        fitted: Callable[[AnyArray, AnyArray, AnyArray, Engine], NEDClassifier],
    ) -> None:
        super().__init__(make, discard)
        self._fitted = fitted

    def name(self, number: int) -> Any:  # noqa: ANN401
        return "x" * number + "y"

    @initialize()
    def begin(self) -> None:
        parts = [self.new_points(number, 3) for number in range(2)]
        for part in parts:
            self.note(*part)
        vectors, ids, labels = (np.concatenate(column) for column in zip(*parts, strict=True))
        self.writers = [self._fitted(vectors, ids, labels, self.engine)]

    @rule(writer=WRITERS)
    def refit(self, writer: int) -> None:
        del writer
        classes = self.writers[0].refit().classes_.tolist()
        assert set(classes) >= set(self.truth.values())

    @rule(writer=WRITERS)
    def restart(self, writer: int) -> None:
        del writer
        classifier = self.writers[0]
        kept = classifier.to_bytes()
        is_elsewhere = classifier.engine_ is self.engine
        self.writers = [NEDClassifier.from_bytes(kept, self.engine if is_elsewhere else None)]


def fit_beside(vectors: AnyArray, ids: AnyArray, labels: AnyArray, engine: Engine) -> NEDClassifier:
    """A classifier that keeps the labels which its engine does not hold."""
    engine.add(vectors, ids)
    classifier = NEDClassifier(3, rule="1nn", engine=engine, metric=engine.metric)
    return classifier.fit_engine(labels, ids)


def ids_for_like(engine: Engine, ids: list[Any]) -> AnyArray:
    return np.array(ids, np.int64 if engine.capabilities.ids == "integer" else str)


def run_machine(make: Callable[[], LabelMachine], n_examples: int) -> None:
    """Try so many histories."""
    with warnings.catch_warnings():
        # That fits grow old, or that neighbours are found in another way, is no matter here.
        warnings.simplefilter("ignore", FitWarning)
        run_state_machine_as_test(
            make,  # type: ignore[arg-type]  # anything that makes a machine will do
            settings=settings(
                max_examples=n_examples,
                stateful_step_count=30,
                deadline=None,
                derandomize=True,
                # A shorter history would take minutes to find.
                phases=[Phase.generate],
                database=None,
            ),
        )
