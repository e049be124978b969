"""Small faults put into Python source: what the tests of a module must notice."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
PAIRS = [("min", "max"), ("any", "all"), ("minimum", "maximum"), ("zeros_like", "ones_like"), ("floor", "ceil")]
COUNTERPARTS = dict(PAIRS) | {right: left for left, right in PAIRS}
NOT_CODE = {"annotation", "returns", "decorator_list"}  # no computation, or evaluated by the interpreter alone


@dataclass(frozen=True)
class Mutation:
    """One fault: the source in which it is, what stands there and what is put there.

    Attributes
    ----------
    line, column : int
        Where the code begins, as the interpreter counts.
    operator : str
        Kind of the fault: comparison, arithmetic, boolean, constant, condition, counterpart, return, keyword or
        statement.
    before, after : str
        The code without the fault and with it.
    path : tuple
        Fields and positions that lead from the module to the node.
    node : ast.AST
        What is put there.
    statement : range
        Lines of the simple statement, or of the part of a compound one, that holds the fault.
    in_function : bool
        Whether it stands in the body of a function, and not in a signature, a class or the module.
    """

    line: int
    column: int
    operator: str
    before: str
    after: str
    path: tuple[tuple[str, int | None], ...]
    node: ast.AST
    statement: range
    in_function: bool

    def apply(self, tree: ast.Module) -> ast.Module:
        """A copy of the module with the fault in it."""
        tree = parent = copy.deepcopy(tree)
        *way, (field, position) = self.path
        for name, index in way:
            parent = getattr(parent, name) if index is None else getattr(parent, name)[index]
        if position is None:
            setattr(parent, field, self.node)
        else:
            getattr(parent, field)[position] = self.node
        return ast.fix_missing_locations(tree)


def mutations(tree: ast.Module) -> list[Mutation]:
    """Every fault that can be put into a module, in the order of the source."""
    found = []
    for path, node, statement, in_function in _code(tree, (), None, False):
        whole = node if statement is None or hasattr(statement, "body") else statement
        last = whole.lineno if hasattr(whole, "body") else whole.end_lineno
        for operator, other in _faults(node):
            before, after = (" ".join(ast.unparse(part).split()) for part in (node, other))
            lines = range(whole.lineno, last + 1)
            found.append(
                Mutation(node.lineno, node.col_offset, operator, before, after, path, other, lines, in_function)
            )
    return sorted(found, key=lambda fault: (fault.line, fault.column, fault.operator, fault.after))


def _code(
    node: ast.AST, path: tuple, statement: ast.stmt | None, in_function: bool
) -> Iterator[tuple[tuple, ast.AST, ast.stmt | None, bool]]:
    for field, value in ast.iter_fields(node):
        if field in NOT_CODE:
            continue
        inside = in_function or (isinstance(node, ast.FunctionDef) and field == "body")
        for position, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.AST):
                where = (*path, (field, position))
                held_by = child if isinstance(child, ast.stmt) else statement
                if hasattr(child, "lineno"):
                    yield where, child, held_by, inside
                if not isinstance(child, ast.Raise | ast.JoinedStr):  # messages are no behaviour
                    yield from _code(child, where, held_by, inside)


def _faults(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
            yield "comparison", _changed(node, ops=[COMPARISONS[type(op)]()])
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in ARITHMETIC:
            yield "arithmetic", _changed(node, op=ARITHMETIC[type(op)]())
        case ast.BoolOp(op=op):
            yield "boolean", _changed(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not()):
            yield "boolean", node.operand
        case ast.UnaryOp(op=ast.USub()):
            yield "arithmetic", node.operand
        case ast.Constant(value=bool(value)):
            yield "constant", ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield "constant", ast.Constant(value + 1)
        case ast.Constant(value=float(value)):
            yield "constant", ast.Constant(2 * value or 1.0)
        case ast.Return(value=ast.AST() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield "return", ast.Return(ast.Constant(None))
        case ast.Expr(value=ast.Call()) | ast.Raise():
            yield "statement", ast.Pass()
        case ast.Attribute(attr=name) if name in COUNTERPARTS:
            yield "counterpart", _changed(node, attr=COUNTERPARTS[name])
        case ast.Name(id=name) if name in COUNTERPARTS:
            yield "counterpart", _changed(node, id=COUNTERPARTS[name])
        case ast.If(test=test) | ast.IfExp(test=test) if not isinstance(test, ast.Compare | ast.UnaryOp):
            yield "condition", _changed(node, test=ast.UnaryOp(ast.Not(), test))
    if isinstance(node, ast.Call):
        for position, keyword in enumerate(node.keywords):
            if keyword.arg is not None:
                rest = node.keywords[:position] + node.keywords[position + 1 :]
                yield "keyword", _changed(node, keywords=rest)


def _changed(node: ast.AST, **fields: object) -> ast.AST:
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other
