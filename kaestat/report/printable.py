"""Text from files in printable form, with escapes for characters that a terminal would obey."""

import re

# Control characters but tab and line break (C1 too: some terminals obey 0x9b as they do ESC [), marks that turn the
# direction of what follows, Unicode's own line breaks, and halves of surrogate pairs, which no encoding takes.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """The text, with an escape for each character that a terminal would obey."""
    return _OBEYED.sub(lambda found: ascii(found[0])[1:-1], text)
