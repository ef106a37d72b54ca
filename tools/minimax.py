"""Derives the polynomials of the f64 functions (include/opforge/detail/vector64_*.h): minimax fits by Remez's exchange.

`python tools/minimax.py [NAME ...]` prints coefficients, highest power first, as the headers have them, and the largest
weighted error in bits. The arithmetic is mpmath's; the lowest coefficients are rounded to double first and the others
fitted anew, so that roundings do not add up.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import mpmath
from mpmath import mpf

mpmath.mp.dps = 70
Function = Callable[[mpf], mpf]


@dataclass(frozen=True)
class Fit:
    """A polynomial p(x) for low <= x <= high that makes weight(x) (f(x) - p(x)) small.

    Attributes:
        weight: what an error of p means for the function's result, in units of that result.
        split: the lowest coefficient is the sum of two doubles, which are printed last.
    """

    f: Function
    low: float
    high: float
    degree: int
    weight: Function
    split: bool = False


def _remez(fit: Fit, known: list[mpf]) -> tuple[list[mpf], mpf]:
    """Return the coefficients from the lowest power on, of which `known` are given, and the largest error."""
    first, count = len(known), fit.degree + 1 - len(known)

    def rest(x: mpf) -> mpf:
        return fit.f(x) - mpmath.polyval(known[::-1], x) if known else fit.f(x)

    middle, half = mpf(fit.low + fit.high) / 2, mpf(fit.high - fit.low) / 2
    grid = [middle - half * mpmath.cos(mpmath.pi * (k + mpf(1) / 2) / 600) for k in range(600)]
    values = [(x, rest(x), fit.weight(x)) for x in grid]
    points = [values[round((k + 0.5) * 600 / (count + 1)) - 1] for k in range(count + 1)]
    for _ in range(12):
        system = mpmath.matrix(count + 1, count + 1)
        right = mpmath.matrix(count + 1, 1)
        for i, (x, y, w) in enumerate(points):
            for k in range(count):
                system[i, k] = w * x ** (first + k)
            system[i, count] = (-1) ** i
            right[i] = w * y
        solution = mpmath.lu_solve(system, right)
        found, level = list(solution[:count]), abs(solution[count])
        errors = [w * (y - x**first * mpmath.polyval(found[::-1], x)) for x, y, w in values]
        # The largest error of each stretch of one sign; of too many the smallest at the ends go.
        peaks: list[int] = []
        for i, e in enumerate(errors):
            if peaks and (e > 0) == (errors[peaks[-1]] > 0):
                peaks[-1] = i if abs(e) > abs(errors[peaks[-1]]) else peaks[-1]
            else:
                peaks.append(i)
        while len(peaks) > count + 1:
            del peaks[0 if abs(errors[peaks[0]]) < abs(errors[peaks[-1]]) else -1]
        worst = max(abs(e) for e in errors)
        if len(peaks) < count + 1 or worst < level * mpf("1.001"):
            break
        points = [values[i] for i in peaks]
    return known + found, worst


def _parts(value: mpf, split: bool) -> list[float]:
    """A number as one double or as the sum of two, the smaller one first."""
    return [float(value - mpf(float(value))), float(value)] if split else [float(value)]


def derive(fit: Fit) -> tuple[list[float], float]:
    """Return coefficients as doubles, highest power first, and the largest weighted error in bits."""
    known: list[mpf] = []
    for k in range(4 if fit.low == 0 else 1):
        coefficients, _worst = _remez(fit, known)
        known = [*known, sum(map(mpf, _parts(coefficients[k], fit.split and k == 0)))]
    known += [mpf(float(c)) for c in coefficients[len(known) :]]
    high, low = mpf(fit.high), mpf(fit.low)
    steps = [low + (high - low) * k / 2000 for k in range(2001)]
    worst = max(abs(fit.weight(x) * (fit.f(x) - mpmath.polyval(known[::-1], x))) for x in steps if x != 0)
    return [float(c) for c in known[:0:-1]] + _parts(known[0], fit.split), float(mpmath.log(worst, 2))


def _far(s: mpf, near: Function, series: Function) -> mpf:
    """`near`, but its Taylor series where the difference that it takes would lose all digits."""
    return series(s) if abs(s) < mpf("1e-14") else near(s)


def _odd(function: Function, third: mpf) -> Function:
    """(f(t) - t) / t^3 as a function of s = t^2."""
    return lambda s: _far(
        s, lambda s: (function(mpmath.sqrt(s)) - mpmath.sqrt(s)) / mpmath.sqrt(s) ** 3, lambda _: third
    )


def _log_tail(z: mpf) -> mpf:
    """(2 atanh(s) / s - 2) / s^2 for z = s^2."""
    root = mpmath.sqrt(z)
    return _far(z, lambda z: (2 * mpmath.atanh(root) / root - 2) / z, lambda _: mpf(2) / 3)


def _log_far_tail(z: mpf) -> mpf:
    """(atanh(s) / s - 1 - s^2 / 3) / s^4 for z = s^2."""
    root = mpmath.sqrt(z)
    return _far(z, lambda z: (mpmath.atanh(root) / root - 1 - z / 3) / z**2, lambda _: mpf(1) / 5)


def _scaled_erfc(v: mpf) -> mpf:
    """(1 + 2x) exp(x^2) erfc(x), which is almost level, for v = (x - 4) / (x + 4) (after Shepherd and Laframboise)."""
    x = 4 * (1 + v) / (1 - v)
    return (1 + 2 * x) * mpmath.exp(x * x) * mpmath.erfc(x)


_HALF_LN2 = 0.34661
FITS: dict[str, Fit] = {
    "exp_tail": Fit(
        lambda r: _far(r, lambda r: (mpmath.expm1(r) - r) / r**2, lambda r: mpf(1) / 2 + r / 6),
        *(-_HALF_LN2, _HALF_LN2, 10, lambda r: abs(r) + mpf(1) / 64),
    ),
    "log_tail": Fit(_log_tail, 0, 0.0401, 7, lambda z: z),
    "log_far_tail": Fit(_log_far_tail, 0, 0.0295, 7, lambda z: z * z),
    "sin_tail": Fit(_odd(mpmath.sin, -mpf(1) / 6), 0, 0.6169, 5, lambda s: s),
    "cos_tail": Fit(
        lambda s: _far(s, lambda s: (mpmath.cos(mpmath.sqrt(s)) - 1 + s / 2) / s**2, lambda _: mpf(1) / 24),
        *(0, 0.6169, 5, lambda s: s * s),
    ),
    "asin_tail": Fit(_odd(mpmath.asin, mpf(1) / 6), 0, 0.2501, 12, lambda s: s),
    "atan_tail": Fit(_odd(mpmath.atan, -mpf(1) / 3), 0, 0.2501, 12, lambda s: s),
    "erf_tail": Fit(
        lambda s: mpmath.erf(mpmath.sqrt(s)) / mpmath.sqrt(s) - 1 if s > 0 else 2 / mpmath.sqrt(mpmath.pi) - 1,
        *(0, 1.0, 12, lambda s: mpf(1)),
    ),
    "erf_exponent": Fit(
        lambda t: -mpmath.log(mpmath.erfc(t)) / t - 1, 1.0, 6.0, 18, lambda t: t * mpmath.erfc(t) / mpmath.erf(t)
    ),
    "erfc_scaled": Fit(_scaled_erfc, -3.54 / 4.46, 23.3 / 31.3, 22, lambda v: 1 / _scaled_erfc(v), split=True),
}


def main() -> int:
    """Print what is asked for, or all."""
    for name in sys.argv[1:] or FITS:
        coefficients, bits = derive(FITS[name])
        print(f"{name}: 2^{bits:.1f}")
        print("  " + ", ".join(c.hex() for c in coefficients))
    return 0


if __name__ == "__main__":
    sys.exit(main())
