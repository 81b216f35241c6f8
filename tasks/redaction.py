"""What a tracking store may be told: nested settings as short texts, secrets and passwords left out."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

REDACTED = "[redacted]"
_MAX_VALUE = 250
_SECRET_KEY = re.compile(r"(^|[_.\-])(token|passwd|credentials?|api_?key|access_?key)$|password|secret", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"(?<=://)([^/\s:@]*):[^/\s@]*@")


def flatten(value: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield dotted names and texts of a nested mapping; a text stays as it is, all else is JSON."""
    if isinstance(value, Mapping) and (value or not prefix):
        for key, item in value.items():
            yield from flatten(item, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, value if isinstance(value, str) else json.dumps(value, default=str)


def redact(value: Any, key: str = "") -> Any:
    """Return a nested value without texts under keys that sound like secrets, and without passwords in addresses."""
    if isinstance(value, Mapping):
        return {str(k): redact(v, str(k)) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [redact(item, key) for item in value]
    # A number under such a key is a count (`bits_per_token`), never a secret.
    if isinstance(value, str) and value:
        return REDACTED if _SECRET_KEY.search(key) else hide_password(value)
    return value


def hide_password(text: str) -> str:
    """Return a text whose addresses have their passwords hidden."""
    return _URL_PASSWORD.sub(rf"\1:{REDACTED}@", text)


def shorten(value: str) -> str:
    """Return a value that the store accepts: one that is too long is cut and closed with its digest."""
    if len(value) <= _MAX_VALUE:
        return value
    end = f"... md5 {hashlib.md5(value.encode(), usedforsecurity=False).hexdigest()}"
    return value[: _MAX_VALUE - len(end)] + end


def tag_key(key: str) -> str:
    """Return a key with the letters that the store accepts."""
    return re.sub(r"[^\w\-. /:]", "_", key)[:_MAX_VALUE]
