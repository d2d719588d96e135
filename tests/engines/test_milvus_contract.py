"""The contract on files of milvus-lite."""

from pathlib import Path
from types import MappingProxyType

import pytest
from contract import ClassifierContract, EngineContract
from contract_lifetime import LifetimeTests
from contract_names import NamesTests
from contract_searching import SearchingTests
from milvus_contract import InIndex, MilvusEngines


class LiteEngines(MilvusEngines):
    @pytest.fixture(autouse=True)
    def _address(self, tmp_path: Path) -> None:
        self.address = str(tmp_path / "gallery.db")


class TestFlat(LiteEngines, EngineContract):
    pass


class TestClassifier(LiteEngines):
    """What depends on the engine; the rest of the contract would be the same computation again."""

    building = MappingProxyType({"labels": "text"})
    contract = ClassifierContract
    largest_accuracy_difference = contract.largest_accuracy_difference
    largest_calibration_difference = contract.largest_calibration_difference
    filled, check_same = contract.filled, contract.check_same
    test_fitted_on_what_the_engine_holds = contract.test_fitted_on_what_the_engine_holds
    n_histories = 2
    test_every_label_stays_true = contract.test_every_label_stays_true
    test_the_gallery_lives = contract.test_the_gallery_lives
    test_loaded_after_a_restart = contract.test_loaded_after_a_restart
    test_fit_fills_only_an_empty_engine = contract.test_fit_fills_only_an_empty_engine
    test_a_fit_that_cannot_be_loads_nothing = contract.test_a_fit_that_cannot_be_loads_nothing


class TestLists(InIndex, LiteEngines):
    building = MappingProxyType({"index": "ivf", "nlist": 8})
    searching = MappingProxyType({"nprobe": 5})
    test_neighbours = SearchingTests.test_neighbours_are_those_of_naive_search
    test_a_restart = LifetimeTests.test_all_is_there_after_a_restart


class TestTextUnderCosine(InIndex, LiteEngines, NamesTests):
    building = MappingProxyType(
        {"ids": "text", "labels": "text", "metric": "cosine", "index": "hnsw"}
    )
    test_neighbours = SearchingTests.test_neighbours_are_those_of_naive_search
    test_readers_and_writers = LifetimeTests.test_readers_and_writers_at_once
