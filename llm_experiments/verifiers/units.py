r"""Units of measurement behind a number, so that ``5 m`` is not taken for ``5 cm``.

Only units of the table below are distinguished, whatever their spelling: ``5 \text{ cm}^2``, ``5 square centimeters``.
What an answer counts (``5 apples``) is not a unit, and a number without a unit agrees with any. Nothing is converted:
500 cm is another answer than 5 m.
"""

import re

_NAMES = {
    "mm": "millimeter millimetre",
    "cm": "centimeter centimetre",
    "m": "meter metre",
    "km": "kilometer kilometre",
    "in": "inch inches",
    "ft": "foot feet",
    "yd": "yard",
    "mi": "mile",
    "mg": "milligram",
    "g": "gram",
    "kg": "kilogram",
    "oz": "ounce",
    "lb": "lbs pound",
    "ms": "millisecond",
    "s": "sec secs second",
    "min": "mins minute",
    "h": "hr hrs hour",
    "day": "",
    "week": "",
    "month": "",
    "year": "yr yrs",
    "ml": "milliliter millilitre",
    "l": "L liter litre",
    "gal": "gallon",
    "cent": "",
    "dollar": "",
    "euro": "",
    "degree": "circ deg",
    "radian": "rad",
    "mi/h": "mph",
    "km/h": "kph kmh",
}
_LONGER_THAN_A_SYMBOL = 2  # letters, from which on a plural is formed and capitals mean nothing


_UNITS = {name: unit for unit, others in _NAMES.items() for name in (unit, *others.split())}
_UNITS |= {f"{name}s": unit for name, unit in _UNITS.items() if len(name) > _LONGER_THAN_A_SYMBOL}
_NAME = "|".join(sorted(map(re.escape, _UNITS), key=len, reverse=True))
_POWER = r"(?:\s*(?:\^\s*\{?\s*(?P<power%d>[23])\s*\}?|(?P<word%d>squared|cubed)))?"
_ONE = r"(?:(?P<shape%d>square|sq\.?|cubic)\s+)?\^?\\?(?P<name%d>" + _NAME + r")(?![A-Za-z])" + _POWER
_UNIT = re.compile(
    r"\s*" + _ONE.replace("%d", "1") + r"(?:\s*(?:/|\bper\b)\s*" + _ONE.replace("%d", "2") + r")?", re.IGNORECASE
)
_WRAPPER = re.compile(r"\\(?:text\w*|math(?:rm|bf|it|sf)|mbox|operatorname)\s*\{([^{}]*)\}")
_SPACE = re.compile(r"\$|\{\}")
_BEFORE = re.compile(r"(?:[0-9)}\]%]|\\pi)\s*$")  # what a unit follows
_POWERS = {"2": "^2", "squared": "^2", "square": "^2", "sq": "^2", "sq.": "^2"}
_MAX_UNIT = 60  # characters of the longest spelling, and more
_PREPOSITION = "in"  # a unit at the end of a passage alone


def unit_after(text: str) -> str | None:
    r"""The unit that ``text``, which stands behind a number, begins with; None without one.

    Examples
    --------
    >>> unit_after(r"\text{ meters} long"), unit_after(" sq. ft"), unit_after(" in 3 days"), unit_after(" apples")
    ('m', 'ft^2', None, None)
    """
    return _read(_SPACE.sub(" ", unwrapped(text[: 2 * _MAX_UNIT])), whole=False)


def unit_words(text: str) -> str:
    """The words of the unit that ``text`` begins with; empty without one."""
    return _UNIT.match(text)[0] if _read(text[: 2 * _MAX_UNIT], whole=False) else ""


def split_unit(text: str) -> tuple[str, str | None]:
    r"""A mathematical passage without the unit that it ends in, and that unit; None without one behind a number.

    Examples
    --------
    >>> split_unit(r"\frac{3}{2}\pi\text{ cm}^2"), split_unit(r"90^\circ"), split_unit("g h"), split_unit("x+m")
    (('\\frac{3}{2}\\pi', 'cm^2'), ('90', 'degree'), ('g h', None), ('x+m', None))
    """
    plain = _SPACE.sub(" ", unwrapped(text)).rstrip(" .")
    for start in range(max(0, len(plain) - _MAX_UNIT), len(plain)):
        if _BEFORE.search(plain[max(0, start - _MAX_UNIT) : start]):
            found = _read(plain[start:], whole=True)
            if found is not None:
                return plain[:start].rstrip(), found
    return text, None


def units_differ(one: str | None, other: str | None) -> bool:
    """Whether both are units, and not the same."""
    return one is not None and other is not None and one != other


def unwrapped(text: str) -> str:
    r"""``text`` with what is in ``\text{...}`` and its like as plain words."""
    return _WRAPPER.sub(r" \1 ", text)


def _read(text: str, *, whole: bool) -> str | None:
    match = _UNIT.fullmatch(text) if whole else _UNIT.match(text)
    if match is None or (match["name1"] == _PREPOSITION and text[match.end() :].strip(" .$})")):
        return None
    parts = [_canonical(match, part) for part in "12" if match[f"name{part}"]]
    return None if None in parts else "/".join(map(str, parts))


def _canonical(match: re.Match, part: str) -> str | None:
    name = match[f"name{part}"]
    unit = _UNITS.get(name) or (_UNITS.get(name.lower()) if len(name) > _LONGER_THAN_A_SYMBOL else None)
    if unit is None:
        return None
    power = next((value for kind in ("power", "word", "shape") if (value := match[f"{kind}{part}"])), None)
    return unit + ("" if power is None else _POWERS.get(power.lower(), "^3"))
