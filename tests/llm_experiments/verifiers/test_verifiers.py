"""Verifiers: right answers are graded right, wrong ones wrong."""

import os
import re
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_experiments.tasks.mathematics import mathematics
from llm_experiments.verifiers import MathVerifier, NumberVerifier, final_number, read_number
from llm_experiments.verifiers.final_answers import last_boxed
from llm_experiments.verifiers.math_worker import prepare
from llm_experiments.verifiers.units import split_unit
from tests.helpers.tiers import slow_after

DATA = Path(os.environ.get("KAESTAT_DATA", ""))
FILES = {
    "math500.jsonl": "math500",
    "aime24.jsonl": "aime24",
    "aime25.jsonl": "aime25",
    "amc23.jsonl": "amc",
    "minerva_math.jsonl": "minerva",
    "olympiadbench.jsonl": "olympiadbench",
}
INLINE = (
    r"\left( 3, \frac{\pi}{2} \right)",
    "p - q",
    r"\frac{14}{3}",
    r"\text{Evelyn}",
    "11\\sqrt2",
    "(3,4]",
    r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}",
    "x \\in [-2,7]",
    "6 - 5i",
    "10,\\!080",
    "52_8",
    r"90^\circ",
    "$\\frac{1}{2 n+2}$",
    "-2, 1",
    "x^2+2x+1",
    r"\frac{1}{3} E_{1}+\frac{2}{3} E_{2}",
)


@pytest.fixture(scope="module")
def verifier():
    with MathVerifier(timeout=20) as verifier:
        yield verifier


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("8", 8),
        ("3 + 5 = 8", 8),
        ("The answer is 3 + 5 = 8, since 5 + 3 = 8 too", 8),
        ("So the answer is 12 apples, not 15.", 12),
        ("**Answer:**\n\n17", 17),
        ("#### 1,002", 1002),
        ("first 5\n#### 7\nas 5 + 2", 7),
        ("answer is 3 but \\boxed{4} stands", 4),
        (r"\boxed{x = -\frac{3}{4}}", Fraction(-3, 4)),
        (r"\boxed{7\frac{1}{2}}", Fraction(15, 2)),
        (r"\boxed{\frac12}", Fraction(1, 2)),
        (r"-7\dfrac 1{20}", Fraction(-141, 20)),
        (r"\tfrac{12}5", Fraction(12, 5)),
        ("Day 1: 12", 12),
        (r"\boxed{18\text{ dollars in 3 days}}", 18),
        (r"$1{,}234.50$", Fraction(2469, 2)),
        ("-$3.50", Fraction(-7, 2)),
        ("−4", -4),
        ("1 1/2 cups", Fraction(3, 2)),
        ("3/4", Fraction(3, 4)),
        ("18%", 18),
        ("1.5e3", 1500),
        (".5", Fraction(1, 2)),
        ("8.", 8),
        ("10-digit number 7", 7),
        ("1,2,3", 3),
        ("1,2345", 2345),
        ("\\boxed{none} 9", 9),
    ],
)
def test_final_numbers_are_read_by_the_documented_rules(text, number):
    assert final_number(text) == number


@pytest.mark.parametrize(
    "text",
    [
        "2\\sqrt{3}",
        "\\sqrt{16}",
        "5\\pi",
        "\\binom{5}{2}",
        r"\frac123",
        r"\frac1{2}\sqrt3",
        "The answer is 10:00",
        "2:1",
        "",
        "eight",
        "0+5",
        "9**9",
        "2^10",
        "2^{10}",
        "5 -3",
        "5 × 3",
        "1/0",
        "1e9999",
        "x5",
        "9" * 500,
        "\\boxed{",
    ],
)
def test_expressions_are_not_evaluated_and_their_operands_are_no_answers(text):
    assert final_number(text) is None


@pytest.mark.parametrize(
    "text",
    [
        r"\boxed{42 \text{ or } 43}",
        r"\boxed{x = 42 \text{ or } x = 43}",
        r"\boxed{42, 43}",
        r"\boxed{42 \text{ and } 43}",
        r"\boxed{42 \pm 1}",
        r"\boxed{42\text{ dollars or }43\text{ dollars}}",
        "#### 42 or 43",
        "#### 42; 43",
        "The answer is 42 or 43.",
        "The answer is either 41, 42 or 43.",
        "The answer is 42 or 40 + 3 = 43.",
        "So it is 43, or maybe 42",
    ],
)
def test_who_leaves_the_choice_has_not_answered(text):
    assert final_number(text) is None
    assert NumberVerifier().rewards("42", [text]) == [0]


@pytest.mark.parametrize(
    "text",
    [
        r"\boxed{42 \text{ or } 42.0}",
        "The answer is 84/2 or 42",
        "The answer is 42 hours or 2520 minutes",
        "The answer is 42 or so",
        "The answer is 42. Or 6 for each of 7",
        "The answer is 42 apples, not 15 or 16",
        "The answer is 42, 3 of which are red",
        "It is 40 or 41 and 1 or 2 more: 42",
        r"\boxed{42\text{ dollars in 3 days}}",
    ],
)
def test_the_same_number_in_other_words_leaves_no_choice(text):
    assert NumberVerifier().rewards("42", [text]) == [1]


UNITS = [
    ("5 m", r"\boxed{5 cm}", 0),
    ("5 cm", r"\boxed{5\text{ m}}", 0),
    ("5 cm", r"\boxed{5\text{ centimeters}}", 1),
    ("5 cm", r"\boxed{5}", 1),
    ("5", r"\boxed{5 \mathrm{cm}}", 1),
    ("5 cm", r"\boxed{5\text{ cm}^2}", 0),
    ("5\\text{ square feet}", r"\boxed{5 \text{ ft}^2}", 1),
    ("60 km/h", r"\boxed{60\text{ kilometers per hour}}", 1),
    ("60 km/h", r"\boxed{60\text{ mph}}", 0),
    ("90^\\circ", r"\boxed{90\text{ degrees}}", 1),
    ("5 cm", "The answer is 5 m.", 0),
    ("5 cm", "The answer is 5 in total.", 1),
]


@pytest.mark.parametrize(("answer", "text", "reward"), UNITS)
def test_another_unit_is_another_answer_and_none_agrees_with_any(verifier, answer, text, reward):
    assert verifier.rewards(answer, [text]) == [reward]
    if "circ" not in answer:
        assert NumberVerifier().rewards(answer, [text]) == [reward]


@pytest.mark.parametrize("text", ["x + m", "2 g h", "5 + m", r"\frac{m}{s}", "5 apples"])
def test_letters_that_are_no_units_are_left_to_mathematics(text):
    assert split_unit(text) == (text, None)


def test_numbers_of_a_batch_are_graded_as_one_by_one():
    texts = ["#### 5", "#### 6", "the answer is 5 cm", "5 or 6"]
    answers = ["5", "5", "5 m", "6"]
    one_by_one = [NumberVerifier().rewards(answer, [text])[0] for answer, text in zip(answers, texts, strict=True)]
    assert NumberVerifier().grade(answers, texts) == one_by_one == [1, 0, 0, 0]


@given(st.fractions(max_denominator=10**6), st.booleans())
def test_any_number_reads_itself_whatever_its_spelling(number, spaced):
    assert read_number(f"{number.numerator} / {number.denominator}" if spaced else str(number)) == number
    assert read_number(f"{number.numerator:,}") == number.numerator
    assert NumberVerifier().rewards(str(number), [f"\\boxed{{{number}}}", f"it is {number + 1}"]) == [1, 0]


@given(st.decimals(-(10**9), 10**9, places=4))
def test_decimals_are_compared_exactly(number):
    assert read_number(str(number)) == Fraction(number)
    assert read_number(f"${number:,}".replace("$-", "-$")) == Fraction(number)


def test_a_ground_truth_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="is not a number"):
        NumberVerifier().rewards("p - q", ["1"])


def test_boxes_are_found():
    assert last_boxed(r"\boxed{1} \boxed{\frac{1}{\{2} }") == r"\frac{1}{\{2} "
    assert last_boxed(r"\boxed{a \boxed{b}}") == r"a \boxed{b}" and last_boxed(r"\boxed{a \boxed{b}") == "b"
    assert last_boxed(r"} \boxed{a") is None


def gsm8k() -> list[str]:
    path = DATA / "gsm8k_test.jsonl"
    if not path.is_file():
        return ["18", "3", "70000", "1,002", "-5", "2.5", "57,500"]
    return [problem.answer for problem in mathematics("gsm8k", path=path).problems]


def ground_truths(name: str) -> list[str]:
    """Distinct answers of a set, every fourth of the two large ones that take long."""
    if name == "inline":
        return list(INLINE)
    answers = [problem.answer for problem in mathematics(FILES[name], path=DATA / name).problems]
    return list(dict.fromkeys(answers if name == "math500.jsonl" else answers[:: 1 + 3 * (len(answers) > 200)]))


def bumped(answer: str) -> str:
    """The answer with its first number made larger by 1; another word where it has none."""
    changed = re.sub(r"[0-9]+", lambda number: str(int(number[0]) + 1), answer, count=1)
    return changed if changed != answer else r"\text{something else}"


def test_every_answer_of_gsm8k_grades_itself_right_and_its_neighbours_wrong():
    grade = NumberVerifier().rewards
    for answer in gsm8k():
        value = read_number(answer)
        wrong = [f"#### {value + 1}", f"\\boxed{{{10 * value + 1}}}", f"{-value - 1}", f"{answer}0.5", f"{answer} + 0"]
        right = [f"#### {answer}", f"\\boxed{{{answer}}}", f"The answer is ${answer}.", f"so 1 + x = {answer} apples."]
        assert grade(answer, right) == [1] * 4, answer
        assert grade(answer, wrong) == [0] * 5, answer


@pytest.mark.parametrize("name", slow_after(1, ["inline", *(name for name in FILES if (DATA / name).is_file())]))
def test_every_ground_truth_of_mathematics_grades_itself_right_and_a_changed_one_wrong(verifier, name):
    answers = ground_truths(name)
    right = verifier.grade(answers, [f"1 and 2, so \\boxed{{{answer}}}." for answer in answers])
    wrong = verifier.grade(answers, [f"\\boxed{{{bumped(answer)}}}" for answer in answers])
    assert [answer for answer, reward in zip(answers, right, strict=True) if reward != 1] == []
    assert [answer for answer, reward in zip(answers, wrong, strict=True) if reward != 0] == []


@pytest.mark.parametrize(
    "name", slow_after(1, ["inline", *(["math500.jsonl"] if (DATA / "math500.jsonl").is_file() else [])])
)
def test_math_verify_alone_grades_ground_truths_right_without_the_comparison_of_texts(name):
    grade = prepare()
    answers = ground_truths(name)[::3]
    assert [answer for answer in answers if not grade([answer, answer])] == []


@pytest.mark.parametrize(
    ("answer", "text", "reward"),
    [
        # a choice is right only where each of it is
        ("5", r"\boxed{5 \text{ (or perhaps } 6)}", 0),
        ("6", r"\boxed{x = 5 \lor x = 6}", 0),
        ("18", r"\boxed{18\text{ dollars or } 19 \text{ dollars}}", 0),
        (r"\frac{1}{2}", r"\boxed{0.5 \text{ or } \frac{1}{2}}", 1),
        ("1, 2", r"\boxed{x = 2 \text{ or } x = 1}", 1),
        ("5", "The answer is 5 or 6.", 0),
        ("5", "The answer is 5 or so.", 1),
        # equal mathematics is right in other words, and unequal is wrong
        (r"\frac{1}{2}", r"\boxed{0.5}", 1),
        (r"\frac{1}{2}", r"\boxed{\dfrac 12}", 1),
        (r"\frac{1}{2}", r"The final answer is $\frac{2}{4}$.", 1),
        (r"\frac{1}{2}", r"\boxed{0.51}", 0),
        (r"\frac{1}{2}", r"first \boxed{\frac{1}{2}}, no: \boxed{2}", 0),
        ("x^2+2x+1", r"\boxed{(x+1)^2}", 1),
        ("x^2+2x+1", r"\boxed{(x-1)^2}", 0),
        ("1, -2", r"\boxed{-2, 1}", 1),
        ("(1, -2)", r"\boxed{(-2, 1)}", 0),
        ("52_8", r"\boxed{52_{8}}", 1),
        ("52_8", r"\boxed{52_9}", 0),
        (r"2 E_{1} + E_{2}", r"\boxed{2 E_{1} + 2 E_{2}}", 0),
        ("27", r"\boxed{}", 0),
        ("27", "", 0),
        ("27", "27", 1),
        ("27", "I gave up after 28 tries", 0),
        ("27", r"\boxed{" + "0" * 2000 + "27}", 0),
    ],
)
def test_mathematics_is_graded_by_what_it_says_and_not_by_its_words(verifier, answer, text, reward):
    assert verifier.rewards(answer, [text]) == [reward]


def test_an_empty_batch_is_graded_and_an_empty_ground_truth_refused(verifier):
    assert verifier.rewards("1", []) == []
    with pytest.raises(ValueError, match="empty"):
        verifier.rewards(" ", ["1"])


@pytest.mark.parametrize("setting", [{"timeout": 0}, {"memory_mib": 0}, {"workers": 0}])
def test_settings_out_of_range_are_refused(setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        MathVerifier(**setting)
