"""Ids and labels that break careless adapters."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from contract_base import EngineTests
from contract_points import DIMENSION, Points, clusters, ids_for, labels_for, points_for

from nearsure.arrays import AnyArray
from nearsure.engines.contract import Engine
from nearsure.errors import InvalidInputError

ODD_TEXT = (
    "'; DROP TABLE x; --",
    '" OR ""=""',
    "it's",
    "50 % of {this} :id $1 \\ %s",
    "\\N",
    "a\tb\nc",
    " ",
    "a",
    "A",
    "a ",
    "é",
    "e\N{COMBINING ACUTE ACCENT}",
    "ß ÿ Ā 中文 \N{GRINNING FACE} \N{FULLWIDTH LATIN SMALL LETTER A}",
    "null",
    "7",
)
# What some engines cannot hold: then they refuse it before anything is changed.
HARD_TEXT = ("a\x00b", "half \ud83d of a pair")


class NamesTests(EngineTests):
    """Large, negative and odd ids and labels come back as they were."""

    def test_large_and_negative_ids(self, engine: Engine) -> None:
        if engine.capabilities.ids != "integer":
            pytest.skip("ids are text")
        large = [2**62, 2**62 + 1, 2**62 - 1, 2**53 + 1, 2**53, 2**31, 0]
        self._round_trip(engine, self._named(engine, np.array(large)))
        negative = self._named(engine, np.array([-1, -2, -(2**62), -(2**31) - 1]), seed=1)
        if self.takes_negative_ids:
            engine.remove(np.array(large))
            self._round_trip(engine, negative)
        else:
            with pytest.raises(InvalidInputError):
                engine.add(negative.vectors, negative.ids, negative.labels)
            assert engine.size() == len(large)

    def test_odd_ids(self, engine: Engine) -> None:
        if engine.capabilities.ids != "text":
            pytest.skip("ids are integers")
        self._round_trip(engine, self._named(engine, self._odd_text()))
        with pytest.raises(InvalidInputError):
            engine.add(np.ones((1, DIMENSION)), np.array([""]), labels_for(engine, [0]))

    def test_odd_labels(self, engine: Engine) -> None:
        if not engine.capabilities.holds_labels:
            pytest.skip("the engine holds no labels")
        odd = np.array([2**62 + 1, -(2**62), -1, 0, 2**53 + 1])
        if engine.capabilities.labels == "text":
            odd = np.append(self._odd_text(), "")
        points = Points(ids_for(engine, range(len(odd))), clusters(len(odd), seed=17)[0], odd)
        self._round_trip(engine, points)
        shifted = Points(points.ids, points.vectors, np.roll(odd, 1))
        engine.relabel(shifted.ids, np.roll(odd, 1))
        self.check_held(engine, shifted)

    @pytest.mark.parametrize("text", HARD_TEXT, ids=["nul", "surrogate"])
    def test_text_is_kept_or_refused(self, engine: Engine, text: str) -> None:
        points = points_for(engine, 2)
        hard = []
        if engine.capabilities.ids == "text":
            hard.append(Points(np.array([text, "b"]), points.vectors, points.labels))
        if engine.capabilities.labels == "text":
            hard.append(Points(points.ids, points.vectors, np.array([text, "b"])))
        if not hard:
            pytest.skip("the engine holds no text")
        for odd in hard:
            try:
                engine.add(odd.vectors, odd.ids, odd.labels)
            except InvalidInputError:
                assert engine.size() == 0
            else:
                self.check_held(engine, odd)
                engine.remove(odd.ids)

    @pytest.mark.parametrize("role", ["ids", "labels"])
    def test_a_zero_byte_at_the_end_is_refused(self, engine: Engine, role: str) -> None:
        """numpy drops it, so that another point or class would be named."""
        if getattr(engine.capabilities, role) != "text":
            pytest.skip("these are no text")
        points = points_for(engine, 2)
        engine.add(points.vectors, points.ids, points.labels)
        listed: Any = [f"{points.ids[0]}\0"]
        change = engine.remove if role == "ids" else partial(engine.relabel, points.ids[:1])
        for name in (listed, np.array(listed, object)):
            with pytest.raises(InvalidInputError):
                change(name)
        self.check_held(engine, points)

    def _odd_text(self) -> AnyArray:
        return np.array([*ODD_TEXT, "x" * self.longest_text])

    def _named(self, engine: Engine, ids: AnyArray, seed: int = 0) -> Points:
        vectors, classes = clusters(len(ids), seed=seed)
        return Points(ids, vectors, labels_for(engine, classes.tolist()))

    def _round_trip(self, engine: Engine, points: Points) -> None:
        engine.add(points.vectors, points.ids, points.labels)
        self.check_held(engine, points)
