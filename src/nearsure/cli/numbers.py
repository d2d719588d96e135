"""Options that are a number or a word."""

from nearsure.errors import ConfigError


def number_or(option: str, text: str, words: tuple[str, ...]) -> int | str:
    """A whole number of at least 1, or one of the words.

    Examples
    --------
    >>> number_or("-k", "50", ("auto", "all")), number_or("-k", "auto", ("auto", "all"))
    (50, 'auto')
    """
    if text in words:
        return text
    if text.isascii() and text.isdigit() and int(text) >= 1:
        return int(text)
    raise ConfigError(
        f"{option} must be {', '.join(words)} or a whole number of at least 1. "
        f"Got {text!r} instead."
    )
