"""Names of prompts, as trainers hand prompts out: any object has a name that stays, or is refused."""

import copy
from collections.abc import Hashable
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kaestat.integrations.shared.prompt_ids import IdentityCheck, UnstablePromptIds, hash_prompt
from tests.helpers.contract import JUNK, REFUSED, attempt, mostly

TEXT = st.text(max_size=5)
TOKENS = st.lists(st.integers(0, 9), max_size=4)
MESSAGES = st.lists(st.fixed_dictionaries({"role": st.just("user"), "content": TEXT | st.lists(TEXT)}), max_size=2)
KEYS = TEXT | st.sampled_from([0, 1.5, None, True, ("a", 1), b"a", 2**70, float("nan")])
NESTED = st.recursive(JUNK, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3))
PROMPTS = mostly(TEXT | TOKENS | TOKENS.map(np.array) | MESSAGES, NESTED)


@given(prompt=PROMPTS)
def test_any_prompt_has_a_name_that_stays_or_is_refused(prompt):
    name = attempt(lambda: hash_prompt(prompt), ["prompt must be"])
    if name is not REFUSED:
        assert len(name) == 32 and set(name) <= set("0123456789abcdef")
        assert hash_prompt(copy.deepcopy(prompt)) == name


@given(steps=st.lists(st.lists(st.tuples(mostly(st.integers(0, 3) | TEXT, KEYS), st.sampled_from("abc")), max_size=4)))
def test_any_ids_name_their_prompts_or_are_refused_and_nothing_is_learnt(steps: list[list[tuple[Hashable, str]]]):
    watch = IdentityCheck()
    for step, pairs in enumerate(steps):
        before: dict[str, Any] = copy.deepcopy(vars(watch))
        try:
            watch.check([key for key, _ in pairs], [name for _, name in pairs], step)
        except UnstablePromptIds as error:
            assert "give every prompt an id of its own" in str(error)
            assert vars(watch) == before
        else:
            names: dict[Hashable, str] = {}
            assert all(names.setdefault(key, name) == name for key, name in pairs)
