"""Tests that every engine passes: subclass and say how an engine is made.

`EngineContract` is about the engine, `ClassifierContract` about what is fitted through it.
`contract_base.EngineTests` says what a subclass may set.
"""

from classifier_contract import ClassifierContract
from contract_changing import ChangingTests
from contract_lifetime import LifetimeTests
from contract_names import NamesTests
from contract_searching import SearchingTests

__all__ = ["ClassifierContract", "EngineContract"]


class EngineContract(SearchingTests, ChangingTests, NamesTests, LifetimeTests):
    """The contract of `nearsure.engines.contract.Engine` as tests."""
