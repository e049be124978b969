"""No operand is taken for the answer, whatever the operator and its spelling; a number is read in every spelling."""

import re
from fractions import Fraction
from itertools import product

import pytest

from llm_experiments.verifiers import MathVerifier, NumberVerifier, final_number, read_number


def apart(text):
    """What stands two spaces or a line apart."""
    return re.split(r"\s{2,}", text.strip())


def pairs_of(text):
    """Pairs of a line's first expression with each of the others."""
    lines = [apart(line) for line in text.strip().splitlines()]
    return [(first, other) for first, *others in lines for other in others]


SIGNS = apart(r"""
    +  -  *  /  ^  **  ×  ÷  ·  −  ±  ∓  ∗  ∩  ⊕  <  >  ≤  ≠  >=  _
""")
COMMANDS = apart(r"""
    times  cdot  div  pm  mp  ast  bmod  le  geq  neq  over  cup  oplus  circ  mid  sim  choose  to  setminus  anything
""")
UNARY = apart(r"""
    √%s  \sqrt%s  \sqrt{%s}  \sqrt[3]{%s}  sqrt(%s)  \pm%s  \pm %s  ±%s  \log %s  \sin%s  %s!!  f(%s)  f\left(%s\right)
    x^%s  x^{%s}  x_%s  x_{%s}  %sx  %s x  %sab  x%s  %s\pi  %sπ  %s\sqrt2  %s\sqrt{2}  %si  %s^2  %s^{2}  %s²  %s^{-1}
    %s_3  %s_{6}  %s₆  %s(x+1)  (x+1)%s  x>%s  x < %s  x≥%s  x\neq%s  %s<x  0.\overline{%s}  \binom{9}{%s}  \frac{x}{%s}
    \frac{%s}{x}  \frac%sx  \log_2 %s  \log_%s 2  2^%s  \sum_{k=1}^{%s}k  \{%s,x\}  (%s,9)  [%s,9]  (%s,\infty)
    \gcd(%s,9)  -%s  %s:9  9:%s  9 : %s  x+%s  x - %s  %s + x  %s..9  %s\text{ cm}+9\text{ cm}  \mathbb{Z}_{%s}  %s % 4
    %s x 4  4x%s  %s mod 4  %s choose 2  2%s!!
""")
EXPRESSIONS = [
    *(f"7{left}{sign}{right}5" for sign, left, right in product(SIGNS, ("", " "), ("", " "))),
    *(f"7{left}\\{name}{right}5" for name, left, right in product(COMMANDS, ("", " "), ("", " "))),
    *(f"{{7}}{sign}{{5}}" for sign in (*SIGNS, *(f"\\{name}" for name in COMMANDS))),
    *(form.replace("%s", "7") for form in UNARY),
]
IN_DOLLARS = "The answer is $%s$."
ROUTES = [r"\boxed{%s}", "#### %s", "The answer is %s.", IN_DOLLARS, r"So we get \(%s\).", "So we get %s"]
NUMBERS = {  # spellings of each
    300_000_000: apart(r"""
        3\times10^{8}  3\times 10^8  3\cdot10^{8}  3 \cdot 10^8  3×10^8  3·10⁸  3 × 10⁸  3e8  3.0E+8  3*10^8  3*10**8
        3 x 10^8  300{,}000{,}000  300\,000\,000  300,000,000  300 000 000  3 \times {10}^{8}  30\times10^{7}
        3\ast10^{+8}
    """),
    Fraction("6.02e23"): apart(r"""
        6.02e23  6.02\times 10^{23}  6.02×10²³  6.02\cdot10^{23}\text{ mol}^{-1}
    """),
    Fraction("1.5e-7"): apart(r"""
        1.5e-7  1.5\times10^{-7}  1.5·10⁻⁷  0.00000015  15\times10^{-8}
    """),
    Fraction(7, 2): apart(r"""
        3 1/2  3\frac{1}{2}  3\frac12  3 \tfrac12  3½  3 ½  \dfrac72  7/2  3.50  ３．５  7 / 2  \left(\frac{7}{2}\right)
        \text{3.5}  \mathbf{3.5}  \frac{ 14 }{ 4 }  +3.5  \tfrac{7}2
    """),
    Fraction(1, 2): apart(r"""
        ½  .5  \frac 1 2  \cfrac{1}{2}
    """),
    -4: apart(r"""
        −4  -4.0  –4  －4  - 4  (-4)  -$4  -\frac{8}{2}  \frac{-8}{2}  \text{-4}
    """),
    25: apart(r"""
        ２５  \$25  $25  25$  25\%  25 percent  25 dollars  25^{\circ}  25°  25\,\text{cm}  25cm  x = 25  25 cm²
        \displaystyle 25  25\text{ people}  25 people  {25}  25.  €25  **25**
    """),
}
RIGHT = pairs_of(r"""
    \frac{1}{2^{99}}  2^{-99}
    \frac{1}{2004!}  \frac{2005}{2005!}
    720  6!
    1024  2^{10}
    \sqrt{2}\sqrt{3}  \sqrt{6}
    \frac{1}{3}  0.333333
    \frac{100}{3}  33.33333333
    50  50\%
    \pi  3.14159265
    \frac{\pi}{2}  π/2
    \sqrt{17}  √17  4.123105625617661
    \frac{1}{2^{20}}  9.5367431640625e-7
    \sqrt{2}\times10^{8}  141421356.237
    0.3  0.30000000000000004
    [1,2]  1\le x\le 2  x∈[1,2]
    (1,2)  1<x<2  \left(1,2\right)
    (2,\infty)  x>2
    (-\infty,3]  x \leq 3
    0.5  50\%
    x\le 2  x≤2
    [1,\infty)  x≥1
    x\in[-2,7]  -2\le x\le 7
    1\le x\le 2  [1,2]
    (-\infty,1)\cup(2,\infty)  x<1 \text{ or } x>2
    1,2  2,1
    42  52_8
    \{1,2\}  \{2, 1\}
    3\pm\sqrt{2}  3±√2
    \{-3,3\}  \pm3
    x^2+1  x²+1
    52_8  52₈
    1000000  10⁶
    0.5x  \frac{x}{2}
    \infty  ∞
    9^{9^9}  9^{9^9}
""")
WRONG = pairs_of(r"""
    \frac{1}{2^{99}}  \frac{1}{2^{98}}
    \frac{1}{2004!}  \frac{1}{2006!}
    \frac{1}{2^{20}}  .000001
    \frac{2^{2005}+1}{3\cdot2^{2006}}  \frac{1}{3\cdot2^{2006}}
    \frac{x}{2^{99}}  \frac{x}{2^{98}}
    \{\frac{1}{2^{99}}\}  \{\frac{1}{2^{98}}\}
    (0.000001,1)  (\frac{1}{2^{20}},1)
    0  10^{-30}
    10^{-30}  0
    \pi  3.14  \frac{22}{7}
    \frac13  0.333
    1234567.1  1234567.2
    10^{12}  10^{12}+1
    2^{400}  2^{400}+1
    100!  99!
    \sqrt{2}  \frac{99}{70}
    1e-7  2e-7
    6.626\times10^{-34}  6.627\times10^{-34}
    6.02\times10^{23}  6.02
    3  3\times10^{8}  3½  3!
    [1,2]  1<x\le 2  (1,2)
    (2,\infty)  x\ge 2
    1,2  1,3
    (1,2)  (2,1)
    4  −4
    7/2  3 1/3
    31/2  3 1/2
    25  ２６
    1234  1,235
    12  1 2
    52  52_8
    9^{9^9}  9^{9^8}
    81  9^{9^{9}}  100000!
""")


@pytest.fixture(scope="module")
def verifier():
    with MathVerifier(timeout=20) as verifier:
        yield verifier


def test_no_operand_is_the_number_that_is_read():
    for expression in EXPRESSIONS:
        assert read_number(expression) not in (7, 5), expression
        for route in ROUTES:
            assert final_number(route.replace("%s", expression)) not in (7, 5), (route, expression)


def test_no_operand_is_rewarded_by_mathematics(verifier):
    asked = [(gold, route.replace("%s", each)) for each in EXPRESSIONS for route in ROUTES for gold in "75"]
    rewards = verifier.grade(*zip(*asked, strict=True), patient=True)
    assert [pair for pair, reward in zip(asked, rewards, strict=True) if reward] == []


@pytest.mark.parametrize("number", NUMBERS, ids=float)
def test_a_number_is_read_in_every_spelling_by_both_verifiers_and_as_a_ground_truth(verifier, number):
    spellings, gold, other = NUMBERS[number], str(Fraction(number)), str(Fraction(number) + 1)
    texts = [route % each for each in spellings for route in ROUTES[:5] if "$" not in each or route is not IN_DOLLARS]
    assert [each for each in spellings if read_number(each) != number] == []
    for rewards in (NumberVerifier().rewards, verifier.rewards):
        assert [text for text, reward in zip(texts, rewards(gold, texts), strict=True) if not reward] == []
        assert [text for text, reward in zip(texts, rewards(other, texts), strict=True) if reward] == []
        assert [each for each in spellings if rewards(each, [f"\\boxed{{{gold}}}"]) != [1]] == []


@pytest.mark.parametrize("route", [ROUTES[0], IN_DOLLARS])
@pytest.mark.parametrize(("pairs", "reward"), [(RIGHT, 1), (WRONG, 0)], ids=["right", "wrong"])
def test_mathematics_is_exact_where_both_sides_are_and_relative_where_one_is_a_decimal(verifier, pairs, reward, route):
    answers, found = zip(*pairs, strict=True)
    rewards = verifier.grade(answers, [route % each for each in found], patient=True)
    assert [pair for pair, got in zip(pairs, rewards, strict=True) if got != reward] == []


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (r"\boxed{7}. The final answer is \boxed{} as asked.", True),
        (r"\fbox{7}", True),
        ("The answer is −7.", False),
        ("The answer is $x = 7$, since 3 + 4 = 7.", True),
        ("So the answer is **7** (seven).", True),
        ("The answer is 7!", True),
        ("It costs $3 plus $4, so $7 in all.", True),
        ("3 + 4 = <<3+4=7>>7", True),
        ("<answer>7</answer>", True),
        ("#### 7\nThat is all, 3 of 10.", True),
        ("It is 3 or 7", False),
    ],
)
def test_where_an_answer_stands(verifier, text, right):
    assert verifier.rewards("7", [text]) == NumberVerifier().rewards("7", [text]) == [right]
