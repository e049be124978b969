"""The world of columns: sums that are graded right, habits in single columns, splits apart."""

from llm_experiments.tasks.columns import SIZES, columns


def by_hand(prompt):
    """What a sum's columns are and what it comes to, the long way round."""
    first, second = prompt[:-1].split("+")
    total = f"{int(first) + int(second):04d}"[::-1]
    carries = [0]
    for a, b in zip(first[::-1], second[::-1], strict=True):
        carries.append(int(int(a) + int(b) + carries[-1] > 9))
    return [f"{a}+{b}+{c}" for a, b, c in zip(first[::-1], second[::-1], carries[:3], strict=True)], total


def test_answers_are_sums_unless_a_column_is_hopeless():
    task = columns(0)
    for problem in task.problems:
        names, total = by_hand(problem.prompt)
        assert task.cells[problem.id] == frozenset(names)
        assert task.rewards(problem, [total, f"ab{total}", f"{total}0"]) == (
            [1.0, 1.0, 0.0] if problem.level != "hopeless" else [0.0] * 3
        )
        assert (problem.answer == total) == (problem.level != "hopeless")


def test_splits_share_no_sum():
    prompts = [{problem.prompt for problem in columns(1, split).problems} for split in SIZES]
    assert [len(each) for each in prompts] == list(SIZES.values())
    assert len(set().union(*prompts)) == sum(SIZES.values())
