"""Pairs of answers that fooled other checkers, by kind: each comes out right, in both directions."""

import pytest

from rangeline.suites.symbolic_worker import compare_texts

SAME = {
    "argument of a command without braces": [
        (r"\frac43", r"\frac{4}{3}"),
        (r"11\sqrt2", r"11\sqrt{2}"),
        (r"\frac\pi2", r"\pi/2"),
    ],
    "functions and constants without backslash": [
        ("exp(16)", "e^{16}"),
        ("pi/2", r"\frac{\pi}{2}"),
        ("2sqrt(3)", r"\sqrt{12}"),
        ("oo", r"\infty"),
    ],
    "root of a quotient": [
        (r"\sqrt{1/n}", r"1/\sqrt{n}"),
        (r"\frac{\sqrt{2}}{2}", r"\frac{1}{\sqrt2}"),
        (r"\frac{1}{1+\sqrt2}", r"\sqrt2-1"),
    ],
    "units, words and delimiters": [
        (r"\frac{270}7\text{ degrees}", r"\frac{270}{7}"),
        (r"\text{13}", "13"),
        ("12 cm^2", "12"),
        (r"\$2.50", "2.5"),
        (r"$90^\circ$", "90"),
        (r"\[ 42 \]", "42"),
    ],
    "spellings of a number": [
        ("6.02e23", r"6.02 \times 10^{23}"),
        (r"1\,000\,000", "1000000"),
        ("1 1/2", "1.5"),
        (r"2\frac12", "5/2"),
        (r"0.\overline{3}", "1/3"),
        ("50%", "0.5"),
        ("50%", "50"),
    ],
    "interval and inequality": [
        (r"2 \le x < 5", "[2,5)"),
        ("x>2", r"(2,\infty)"),
        (r"x<3 \text{ or } x>5", r"(-\infty,3)\cup(5,\infty)"),
        (r"x\ne0", r"\mathbb{R}\setminus\{0\}"),
        (r"x\in[0,1]", r"0\le x\le1"),
        ("5>x>2", "2<x<5"),
    ],
    "names of the empty set": [(r"\varnothing", r"\emptyset"), (r"\{\}", r"\emptyset")],
    "order of a list": [
        ("1331 and 1728", "1728, 1331"),
        (r"\pm3", "-3, 3"),
        ("x=1 or x=2", r"\{2,1\}"),
        (r"1\pm\sqrt2", r"1-\sqrt2,1+\sqrt2"),
    ],
    "multiples of an equation": [
        ("2x+2y=4", "x+y=2"),
        (r"y=-\frac12x+3", "x+2y=6"),
        ("-x<-2", "x>2"),
        ("y=x^2", "x^2=y"),
    ],
    "assignment and value": [
        ("x=5", "5"),
        ("f(x)=x^2+1", "x^2+1"),
        ("6*7=42", "42"),
        (r"\frac{100}{3}\approx33.3", "100/3"),
        ("x=1, y=2", "(1,2)"),
    ],
    "identities": [
        (r"\sin^2x+\cos^2x", "1"),
        ("(n+1)!", "(n+1)n!"),
        (r"\frac{n(n+1)}2", r"\sum_{k=1}^{n}k"),
        (r"\ln(x^2)", r"2\ln x"),
        (r"e^{\pi i}", "-1"),
        (r"\sin30^\circ", "1/2"),
    ],
    "matrices": [(r"\begin{bmatrix}1&2\\3&4\end{bmatrix}", r"\begin{pmatrix}1&2\\3&2^2\end{pmatrix}")],
    "words": [(r"\text{Even}", "even"), ("no solution", r"\text{No solution}"), (r"\text{(B)}", "B")],
}
DIFFERENT = {
    "numbers that underflow": [
        ("1/2006!", "1/2004!"),
        ("10^{-400}", "10^{-401}"),
        ("e^{-1000}", "e^{-1001}"),
        ("1/2004!", "0"),
        ("10^{-30}", "0"),
    ],
    "numbers that agree in many digits": [
        ("100!", "100!+1"),
        ("e^{200}", "e^{200}+1"),
        (r"\pi+10^{-100}", r"\pi"),
        ("x+100!", "x+100!+1"),
    ],
    "head of a product": [(r"4\sqrt(2)", "4"), (r"4\pi", "4"), ("4x", "4"), ("4!", "4"), ("4i", "4"), ("4^2", "4")],
    "equation cut to a side": [
        ("3x+4y+14=0", "3x-y+13=0"),
        ("5x+2=0", "0"),
        ("2x=4", "2"),
        ("x=2", "y=2"),
        ("x+y=2", "x+y=3"),
    ],
    "set against a member": [
        ("1728", "1331 and 1728"),
        ("3", r"\{3,4\}"),
        ("3", r"\pm3"),
        ("1,2", "1,2,3"),
        ("A", "A, C"),
    ],
    "brackets": [
        ("[0,1]", "(0,1)"),
        ("(2,1)", "(1,2)"),
        ("(3,1)", "(5,2)"),
        (r"\{1,2\}", "(1,2)"),
        ("x<2", r"(-\infty,2]"),
    ],
    "rounding": [
        ("33.3", "100/3"),
        ("0.333333", "1/3"),
        ("3.14", r"\pi"),
        (r"\frac{22}7", r"\pi"),
        ("2.718281828", "e"),
    ],
    "sign": [("-3/4", "3/4"), (r"-\infty", r"\infty"), ("x", "|x|"), ("x", r"\sqrt{x^2}"), ("x<y", "x>y")],
    "share and percent": [("5", "50%"), ("0.5", "50")],
    "words": [(r"\text{odd}", "even"), ("Tuesday", "Monday")],
    "two numbers side by side": [("12 5", "60")],
}


def _cases(kinds):
    return [pytest.param(*pair, id=f"{kind}: {' | '.join(pair)}") for kind, pairs in kinds.items() for pair in pairs]


@pytest.mark.parametrize(("one", "other"), _cases(SAME))
def test_same_answers_are_equal(one, other):
    """Two writings of one answer are equal, whichever is the reference."""
    assert (True, True) == (compare_texts(one, other)[0], compare_texts(other, one)[0])


@pytest.mark.parametrize(("one", "other"), _cases(DIFFERENT))
def test_different_answers_are_never_equal(one, other):
    """Two different answers are never equal, whichever is the reference."""
    assert all(verdict is not True for verdict in (compare_texts(one, other)[0], compare_texts(other, one)[0]))


@pytest.mark.parametrize("reference", [r"\foo{", "4 ) (", r"\frac{1}{", r"\sum_{", "12 5"])
def test_unreadable_reference_is_missing_and_never_wrong(reference):
    """What no other writing could ever equal gives no verdict."""
    assert (None, "unreadable reference") == compare_texts("42", reference)


def test_what_cannot_be_written_out_is_undecided():
    """Two towers that agree in all digits at hand are neither equal nor unequal."""
    assert (None, "undecided") == compare_texts("10^{10^{10}}", "10^{10^{10}}+1")
