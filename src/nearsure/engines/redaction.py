"""Addresses hold passwords; what is printed, logged or saved must not."""

import re
from urllib.parse import unquote

HIDDEN = "***"
# Rather too much is hidden than too little: a password may hold spaces, slashes and further @.
_WITH_SCHEME = re.compile(r"(?<=//)([^\s/:@]*):.*@")
_TOKEN = re.compile(r"(?<=//)[^\s/:@]+@")
_WITHOUT_SCHEME = re.compile(r"(?<![\w/])([^\s/:@'\"(]+):(?!//)[^\s@]*\S*@")
# password=..., "token": ..., api_key=... of connection strings, queries and JSON.
_FIELD = re.compile(
    r"(?i)(\w*(?:password|passwd|pwd|token|api_?key|secret)\w*[\"']?\s*[=:]\s*)"
    r"('(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|[^\s&,}]+)"
)


def redacted(text: str) -> str:
    """A text without the passwords and tokens of the addresses in it.

    Examples
    --------
    >>> redacted("postgresql://ann:s3cret@db:5432/shop?application_name=x")
    'postgresql://ann:***@db:5432/shop?application_name=x'
    >>> redacted("host=db user=ann password='s3 cret' dbname=shop")
    'host=db user=ann password=*** dbname=shop'
    """
    text = _WITH_SCHEME.sub(rf"\1:{HIDDEN}@", text)
    text = _TOKEN.sub(f"{HIDDEN}@", text)
    text = _WITHOUT_SCHEME.sub(rf"\1:{HIDDEN}@", text)
    return _FIELD.sub(rf"\1{HIDDEN}", text)


def without(text: str, *secrets: str | None) -> str:
    """A text without these secrets, also where an engine quotes them in a message of its own."""
    for secret in secrets:
        if secret:
            for form in {secret, unquote(secret)}:
                text = text.replace(form, HIDDEN)
    return redacted(text)
