"""`Derivation`: what `derive` answers, to print, to typeset, and to calculate with. Read last in this folder."""

from __future__ import annotations

from collections.abc import Sequence

from ..backend import Array
from ..listing import counted
from ..module import check_whole
from . import html, latex, text
from .expressions import Apply, Expr, Number, Symbol, words
from .expressions import text as as_text
from .lines import Block, Line, Term, shown


class Derivation:
    """∂L/∂wrt derived step by step: `print` it, or take `latex()`; a notebook shows it with steps that fold.

    terms: what each step adds, as (step, layer, term), from the last step back; they add up to `total`, which is
    `tape.gradient(loss, wrt)`. blocks: the lines of each step. detail: "step", "gate" or "operation".
    """

    def __init__(
        self,
        wrt: Symbol,
        formula: Expr,
        loss: Array,
        factors: Sequence[float],
        terms: list[Term],
        total: Array,
        blocks: list[Block],
        detail: str,
        leading: list[Line],
    ):
        self.wrt, self.formula, self.value, self.factors = wrt, formula, shown(loss), list(factors)
        self.terms, self.total, self.blocks, self.detail, self.leading = terms, total, blocks, detail, leading
        self.wrt_adjoint = Symbol(wrt.name, wrt.step, wrt.primes, True)

    @property
    def title(self) -> str:
        return as_text(self.wrt_adjoint)

    @property
    def cuts_in_words(self) -> str:
        """'3 cuts, closed', and so on."""
        n, found = len(self.factors), set(self.factors)
        if not n:
            return "no cut on the tape"
        if len(found) > 1:
            how = "each with its own factor"
        else:
            f = found.pop()
            how = "closed" if f == 0 else "mended: full BPTT" if f == 1 else f"at the factor {f:.4g}"
        return f"{counted(n, 'cut')}, {how}"

    @property
    def sum_of_terms(self) -> list[Expr]:
        """The terms as a sum, and the total."""
        numbers = [shown(term.term) for term in self.terms]
        if not numbers:
            return [Number(0), words("the loss does not depend on it")]
        if not all(isinstance(n, Number) for n in numbers) or len(numbers) > 12:
            return [words(f"the sum of {counted(len(numbers), 'term')}"), shown(self.total)]
        total = numbers[0]
        for n in numbers[1:]:
            total = Apply("+", (total, n))
        return [total, shown(self.total)]

    def __str__(self) -> str:
        return text.plain(self)

    def __repr__(self) -> str:
        return f"Derivation({as_text(self.wrt_adjoint)}, {counted(len(self.terms), 'term')}, {self.cuts_in_words})"

    def text(self, most: int = 40) -> str:
        """As `print` shows it. most: steps that are shown; of more, the first and the last ones."""
        check_whole("Derivation.text", most=most)
        if most < 2:
            raise ValueError(f"most must be at least 2, the first and the last step; found {most}")
        return text.plain(self, most)

    def latex(self) -> str:
        """An align* block, for LaTeX with amsmath."""
        return latex.latex(self)

    def _repr_html_(self) -> str:
        return html.fragment(self)

    def html(self) -> str:
        """A page of its own."""
        return html.page(self._repr_html_(), self.title)

    def beside(self, other: Derivation, titles: tuple[str, str] | None = None) -> Beside:
        """This derivation and another one of the same gradient in two columns, such as cut and mended.

        titles: what stands above the columns. ValueError for derivations of different things.
        """
        if not isinstance(other, Derivation):
            raise TypeError(f"beside takes another Derivation, found {type(other).__name__}")
        if (self.wrt, self.detail) != (other.wrt, other.detail) or len(self.blocks) != len(other.blocks):
            raise ValueError(
                f"beside needs two derivations of the same gradient, of the same tape and detail; found {self.title} "
                f"({self.detail}) and {other.title} ({other.detail})"
            )
        if titles is not None and (isinstance(titles, str) or len(titles) != 2):
            raise ValueError(f"titles must be two texts, one for each column; found {titles!r}")
        return Beside(self, other, titles or (self.cuts_in_words, other.cuts_in_words))


class Beside:
    """Two derivations of one gradient in two columns; what they share is said once. Made by `Derivation.beside`."""

    def __init__(self, left: Derivation, right: Derivation, titles: tuple[str, str]):
        self.left, self.right, self.titles = left, right, titles

    def __str__(self) -> str:
        return text.beside(self.left, self.right, self.titles)

    def __repr__(self) -> str:
        return f"Beside({self.left!r}, {self.right!r})"

    def latex(self) -> str:
        """Two align* blocks, one after the other."""
        return f"{self.left.latex()}\n\n{self.right.latex()}"

    def _repr_html_(self) -> str:
        return html.pair(self.left, self.right, self.titles)

    def html(self) -> str:
        """A page of its own."""
        return html.page(self._repr_html_(), self.left.title)
