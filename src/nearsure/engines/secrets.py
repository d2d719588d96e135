"""Addresses hold passwords; what is printed, logged or saved must not."""

import re
from urllib.parse import unquote

HIDDEN = "***"
# user:password@ of a URI, and password=... or token=... of a connection string or a query.
_CREDENTIALS = re.compile(r"(?<=//)([^/@\s:]*):([^@\s]*)@")
_FIELDS = re.compile(
    r"(?i)\b(password|passwd|pwd|token|api_key|secret|sslpassword)\s*=\s*('[^']*'|[^\s&]+)"
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
    text = _CREDENTIALS.sub(rf"\1:{HIDDEN}@", text)
    return _FIELDS.sub(rf"\1={HIDDEN}", text)


def without(text: str, *secrets: str | None) -> str:
    """A text without these secrets, also where an engine quotes them in a message of its own."""
    for secret in secrets:
        if secret:
            for form in {secret, unquote(secret)}:
                text = text.replace(form, HIDDEN)
    return redacted(text)
