// vector64_pow.h: pow and cbrt on raw vectors of doubles.
#pragma once

#include <math.h>

#include "opforge/detail/vector64_log.h"
#include "opforge/detail/vector_pow.h"

namespace opforge::vm {
inline namespace OPFORGE_VECTOR_NAMESPACE {
namespace raw64 {

// 2 / (3 ln 2) and ln 2, in 26 bits and the rest
constexpr double kTwoThirds = 0x1.ec709dc3a03fdp-1;
constexpr double kTwoThirdsHigh = 0x1.ec709d8000000p-1, kTwoThirdsLow = 0x1.0e80ff5d27f05p-27;
constexpr double kLn2 = 0x1.62e42fefa39efp-1;
constexpr double kLn2Head = 0x1.62e42f8000000p-1, kLn2Tail = 0x1.be8e7bcd5e4f2p-27;

// log2(x) = high + low for positive finite x, good to some 68 bits; high has 26 bits. log(1 + f) is 2 (s +
// s^3/3 + s^5 q(s^2)), s = f / (2 + f), and whatever counts is a product of halves of numbers (Dekker; as
// in Sun's pow).
template <class F>
OPFORGE_INLINE F log2_pair(F x, F& low) {
  F k;
  const F f = log_reduce<kRootHalf>(x, k);
  const F d = f + 2.0, inverse = 1.0 / d, s = f * inverse;
  const F dh = head(d), dl = f - (dh - 2.0);
  const F sh = head(s), sl = ((f - sh * dh) - sh * dl) * inverse;
  const F z = s * s, zh = sh * sh;
  const F q = poly(z, 0x1.ec1293dc9eed9p-5, 0x1.de144c26c232fp-5, 0x1.11217b74def3cp-4, 0x1.3b135d8804937p-4,
                   0x1.745d1845e70bap-4, 0x1.c71c71c557420p-4, 0x1.2492492493192p-3, 0x1.9999999999995p-3);
  // log(1 + f) = 2/3 s (3 + zh + r)
  const F r = mad(3.0 * z * z, q, sl * (sh + s));
  const F u = (zh + 3.0) + r, uh = head(u), ul = r - ((uh - 3.0) - zh);
  const F p = sh * uh, rest = mad(sl, uh, ul * s);
  const F ph = head(p + rest), pl = rest - (ph - p);
  const F ch = ph * kTwoThirdsHigh, cl = mad(pl, kTwoThirds, ph * kTwoThirdsLow);
  const F high = head((ch + cl) + k);
  low = cl - ((high - k) - ch);
  return high;
}

template <class F>
OPFORGE_INLINE F pow(F x, F y) {
  const F ax = abs(x), ay = abs(y);
  F low;
  const F high = log2_pair(ax, low);
  const F yh = head(y);
  F product = yh * high;  // exact
  F rest = mad(y - yh, high, y * low);
  // Beyond the largest and smallest results any number does.
  const IntOf<F> above = product > 1080.0, below = product < -1130.0;
  product = select<F>(above, set<F>(1080.0), select<F>(below, set<F>(-1130.0), product));
  rest = select<F>(above | below, F{}, rest);
  const F n = ((product + rest) + kMagicDouble) - kMagicDouble;
  // 2^(product + rest - n) = e^(r + e)
  const F d = product - n, dh = head(d + rest), dl = rest - (dh - d);
  const F exact = dh * kLn2Head, small = mad(dl, kLn2, dh * kLn2Tail);
  const F r = exact + small;
  F result = scale(1.0 + (r + exp_tail(r, (exact - r) + small)), n);

  // |x| = 0 or infinity, y = infinity: the logarithm above was not meant for them.
  const F small_or_large = select<F>((ax > 1.0) == (y > 0.0), set<F>(kInf), F{});
  result = select<F>(ay == kInf, select<F>(ax == 1.0, set<F>(1.0), small_or_large), result);
  const F zero_or_inf = select<F>((ax == 0.0) == (y < 0.0), set<F>(kInf), F{});
  result = select<F>((ax == 0.0) | (ax == kInf), zero_or_inf, result);
  // From 2^53 on all doubles are even integers.
  const F half = 0.5 * ay;
  const IntOf<F> is_integer = round(ay) == ay, is_odd = is_integer & (ay < 0x1p53) & (round(half) != half);
  result = select<F>((bits(x) < 0) & is_odd, neg(result), result);
  result = select<F>((x < 0.0) & (ax < kInf) & (ay < kInf) & ~is_integer, set<F>(kNaN), result);
  result = select<F>((x != x) | (y != y), x + y, result);
  return select<F>((x == 1.0) | (y == 0.0), set<F>(1.0), result);
}

// A guess t of 26 bits, then t + t (x/t^2 - t) / (2t + x/t^2), in which t^2 is exact.
template <class F>
OPFORGE_INLINE F cbrt(F x) {
  const F a = abs(x);
  const IntOf<F> regular = (a > 0.0) & (a < kInf), tiny = a < 0x1p-1000;
  const F scaled = select<F>(regular, select<F>(tiny, a * 0x1p54, a), set<F>(1.0));
  const F guess = exp2_double(log2_double(scaled) * 0x1.5555555555555p-2);
  const F t = head(from_bits<F>(bits(guess) + 0x4000000));
  const F quotient = scaled / (t * t);
  const F root = t + t * ((quotient - t) / ((t + t) + quotient));
  return select<F>(regular, copysign(select<F>(tiny, root * 0x1p-18, root), x), x);
}

// libm's fmod is exact, so its bits are the same everywhere.
template <class F>
OPFORGE_INLINE F fmod(F x, F y) {
  F r;
  for (int i = 0; i < kCount<F>; ++i) r[i] = ::fmod(x[i], y[i]);
  return r;
}
template <class F>
OPFORGE_INLINE F mod(F x, F y) {
  const F r = fmod(x, y);
  const IntOf<F> differ = (bits(r) ^ bits(y)) < 0;
  return select<F>(r == 0.0, copysign(r, y), select<F>(differ & (r == r), r + y, r));
}

}  // namespace raw64
}  // namespace OPFORGE_VECTOR_NAMESPACE
}  // namespace opforge::vm
