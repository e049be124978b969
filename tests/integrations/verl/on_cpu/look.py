"""The tool of the loop, which gives a reward by chance; verl reads this file (``multi_turn.function_tool_path``)."""

import random

from verl.tools.function_tool import function_tool


@function_tool
def look():
    """Look around."""
    return "a wall", round(random.random(), 2)
