"""No password and no token is left in what is printed."""

import pytest

from nearsure import open_engine
from nearsure.engines.registry import redacted, without
from nearsure.errors import InvalidInputError

SECRET = "s3cret"  # noqa: S105
TEXTS = (
    "postgresql://ann:s3cret@db:5432/shop",
    "cannot reach 'postgresql://ann:s3cret@db' (timeout)",
    "ann:s3cret@db:5432/shop",
    "http://ann:p@s3cret@db",
    "http://ann:s3/s3cret@db:1",
    "http://ann:a s3cret@db:1",
    "https://s3cret@host:19530",
    "host=db password=s3cret user=ann",
    "host=db password='it\\'s s3cret' user=ann",
    "http://db?access_token=s3cret&x=1",
    "http://db?apikey=s3cret",
    '{"password": "s3cret", "user": "ann"}',
    "API_KEY=s3cret",
)


@pytest.mark.parametrize("text", TEXTS)
def test_secrets_are_hidden(text: str) -> None:
    assert SECRET not in redacted(text)
    assert "***" in redacted(text)


@pytest.mark.parametrize(
    "text", ["postgresql://db/shop", "a table of 3: nothing else", "http://db:19530", "at 10:30"]
)
def test_what_holds_no_secret_stays(text: str) -> None:
    assert redacted(text) == text


def test_known_secrets_are_hidden_wherever_they_are_quoted() -> None:
    assert without("server says: p%40ss or p@ss?", "p%40ss") == "server says: *** or ***?"
    assert without("nothing", None, "") == "nothing"
    assert without("no such key: longsecretkey", "secretk") == "no such key: long***ey"


def test_a_short_secret_eats_no_ordinary_letters() -> None:
    text = "connection to server at port 5432 failed: password authentication failed for user pat"
    assert without(text, "p", "a", "54") == text
    assert without("the password is p.", "p") == "the password is ***."


@pytest.mark.parametrize(
    "address", ["redis://ann:s3cret@db", "ann:s3cret@db", "mysql://a:b s3cret@d"]
)
def test_an_unknown_address_is_not_repeated(address: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        open_engine(address)
    assert SECRET not in str(caught.value)
