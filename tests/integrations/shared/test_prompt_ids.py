"""Names of prompts: the same everywhere, and refused where they are not names."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from kaestat.integrations.shared.prompt_ids import (
    RETURNS_BEFORE_REFUSAL,
    IdentityCheck,
    UnstablePromptIds,
    hash_prompt,
    hash_prompts,
)


def test_a_prompt_has_the_same_name_in_another_process():
    code = "from kaestat.integrations.shared.prompt_ids import hash_prompt; print(hash_prompt('2+2='))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert hash_prompt("2+2=") == other and len(other) == 32


@pytest.mark.parametrize("same", [np.array([1, 2, 3]), torch.tensor([1, 2, 3]), (1, 2, 3)])
def test_token_ids_have_one_name_in_every_container(same):
    assert hash_prompt([1, 2, 3]) == hash_prompt(same) != hash_prompt([1, 2])


def test_messages_are_named_by_their_content_not_by_the_order_of_keys():
    message = {"role": "user", "content": "2+2="}
    assert hash_prompt([message]) == hash_prompt([dict(reversed(message.items()))])
    assert hash_prompt([message]) != hash_prompt([message | {"content": "2+3="}])
    assert hash_prompt([message]) != hash_prompt("2+2=")


@pytest.mark.parametrize("prompt", [None, 3, 2.5, object(), [{"image": object()}]])
def test_what_is_no_prompt_is_refused(prompt):
    with pytest.raises(TypeError, match="prompt must be text"):
        hash_prompt(prompt)


def with_image(image):
    return [{"role": "user", "content": [{"type": "image", "image": image}, {"type": "text", "text": "How many?"}]}]


def test_images_tell_messages_of_the_same_words_apart_by_their_pixels():
    def drawn(colour, size=(4, 2), mode="RGB"):
        return with_image(Image.new(mode, size, colour))

    prompts = drawn("red"), drawn("blue"), drawn("red", (2, 4)), drawn(255, mode="L"), drawn(255, mode="P")
    assert len({hash_prompt(prompt) for prompt in prompts}) == 5
    assert hash_prompt(drawn("red")) == hash_prompt(drawn("red"))
    assert hash_prompt(np.array(drawn("red"), dtype=object)) == hash_prompt(
        drawn("red")
    )  # as verl's data sets hold them


def names(*texts):
    return [hash_prompt(text) for text in texts]


@pytest.mark.parametrize("steps", [(0, 0), (0, 1)])
def test_one_id_for_two_prompts_is_refused(steps):
    watch = IdentityCheck()
    watch.check([0], names("a"), steps[0])
    with pytest.raises(UnstablePromptIds, match=r"prompt id 0 names two prompts: give every prompt an id of its own"):
        watch.check([0], names("b"), steps[1])


def epochs(n_epochs, n_prompts, batch_size):
    """Batches of texts, each text once an epoch; the order is another one in every epoch."""
    rng = np.random.default_rng(0)
    order = np.concatenate([rng.permutation(n_prompts) for _ in range(n_epochs)])
    return [[str(k) for k in order[at : at + batch_size]] for at in range(0, len(order), batch_size)]


def one_epoch(texts, batch_size):
    """Batches of the rows of a data set, and of their texts, in a random order."""
    rows = np.random.default_rng(1).permutation(len(texts)).tolist()
    batches = [rows[at : at + batch_size] for at in range(0, len(rows), batch_size)]
    return batches, [[texts[row] for row in batch] for batch in batches]


def refused_at(id_batches, text_batches):
    """First step whose ids are refused as unstable, or None."""
    watch = IdentityCheck()
    for step, (ids, texts) in enumerate(zip(id_batches, text_batches, strict=True)):
        try:
            watch.check(ids, names(*texts), step)
        except UnstablePromptIds as error:
            assert "prompts came back, every one under a new id" in str(error)
            return step
    return None


def counting(batches):
    """Ids that count on."""
    number = itertools.count()
    return [[next(number) for _ in batch] for batch in batches]


@pytest.mark.parametrize(("n_prompts", "batch_size"), [(16, 1), (200, 7), (640, 64)])
def test_ids_that_are_new_at_each_visit_are_refused_once_most_prompts_came_back(n_prompts, batch_size):
    batches = epochs(2, n_prompts, batch_size)
    most = max(RETURNS_BEFORE_REFUSAL, n_prompts // 2 + 1)
    assert refused_at(counting(batches), batches) == (n_prompts + most - 1) // batch_size
    assert refused_at(batches, batches) is None  # the same with ids that stay


TEXTS = [str(k) for k in range(300)]
FEW = [str(k % (RETURNS_BEFORE_REFUSAL - 1)) for k in range(1000)]


@pytest.mark.parametrize(
    ("texts", "refused"),
    [
        (["the same"] * 100 + TEXTS[:200], False),
        (["the same"] * 1000 + TEXTS[:200], False),
        (FEW, False),
        (TEXTS + TEXTS[:140], False),  # less than half of the texts twice
        (TEXTS * 2, True),  # as documented
    ],
    ids=["one text often", "one text very often", "few texts", "some texts twice", "all texts twice"],
)
def test_texts_in_several_rows_are_refused_within_the_first_epoch_only_if_most_are(texts, refused):
    assert (refused_at(*one_epoch(texts, 8)) is not None) == refused


def test_one_id_that_repeats_shows_that_ids_are_names():
    texts = [str(k) for k in range(100)]
    first = [["row 0", *(f"first {text}" for text in texts[1:])], ["row 0"]]
    later = [[(step, text) for text in texts] for step in range(2, 6)]  # further rows of the same texts
    assert refused_at(first + later, [texts, ["0"]] + [texts] * 4) is None
    assert refused_at(first[:1] + later, [texts] * 5) == 1  # without it


def test_a_refused_step_leaves_no_trace():
    watch = IdentityCheck()
    watch.check([0], names("a"), 0)
    with pytest.raises(UnstablePromptIds):
        watch.check([1, 0], names("c", "b"), 1)
    watch.check([1], names("d"), 1)


def test_integration_prompt_ids_many_prompts_are_hashed_as_each_alone():
    def chat(*contents):
        return [{"role": "user", "content": content} for content in contents]

    prompts = ["a", "a", "ab", ["a"], chat("a"), chat("a"), chat("a", "b"), chat("a")]
    prompts += [[{"content": "a", "role": "user"}]]
    prompts += [[1, 0], [True, False], [1.0, 0], chat(1), chat(True), chat(1.0), chat(["a"]), chat(["a"])]
    prompts += [np.array([1, 0]), np.array([1, 0]), chat(np.array([1, 2])), chat(np.array([1, 2])), [], []]
    assert hash_prompts(prompts) == [hash_prompt(prompt) for prompt in prompts]
    assert hash_prompts([]) == []
    with pytest.raises(TypeError, match="prompt must be"):
        hash_prompts(["a", None])
