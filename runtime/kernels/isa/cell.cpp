// cell.cpp: what follows the two products of one step of a recurrent network: gates, cell and hidden state of
// one row, sixteen units at a time. The usual functions stand inline, the others behind one call.
#include "kernels/isa/functions.h"
#include "kernels/isa/lanes.h"

namespace opforge {
namespace OPFORGE_ISA {
namespace {

using V = Vec<kWidth>;

V other(const GateFunction& f, V x) {
  const V zero{}, a = splat<kWidth>(f.alpha), b = splat<kWidth>(f.beta);
  switch (f.kind) {
    case GateKind::kSigmoid:
      return vm::raw::sigmoid(x);
    case GateKind::kTanh:
      return vm::raw::tanh(x);
    case GateKind::kRelu:
      return x < zero ? zero : x;  // NaN stays
    case GateKind::kAffine:
      return vfma<kWidth>(a, x, b);
    case GateKind::kLeakyRelu:
      return x < zero ? a * x : x;
    case GateKind::kThresholdedRelu:
      return x >= a ? x : zero;
    case GateKind::kScaledTanh:
      return a * vm::raw::tanh(V(b * x));
    case GateKind::kHardSigmoid: {
      const V y = vfma<kWidth>(a, x, b), one = splat<kWidth>(1);
      const V z = y < zero ? zero : y;
      return z > one ? one : z;
    }
    case GateKind::kElu:
      return x < zero ? a * vm::raw::expm1(x) : x;
    case GateKind::kSoftsign:
      return x / (splat<kWidth>(1) + (x < zero ? -x : x));
    case GateKind::kSoftplus:
      return vm::raw::softplus(x);
  }
  return x;
}

// A gate function with its clip before it. kUsual: sigmoid for f, tanh for g and h, no clip.
template <bool kUsual>
struct Gates {
  const CellArgs& a;
  V clipped(V x) const {
    const V limit = splat<kWidth>(a.clip);
    const V low = x < -limit ? -limit : x;
    return low > limit ? limit : low;
  }
  OPFORGE_INLINE V f(V x) const {
    if constexpr (kUsual) return vm::raw::sigmoid(x);
    return other(a.f, clipped(x));
  }
  OPFORGE_INLINE V g(V x) const {
    if constexpr (kUsual) return vm::raw::tanh(x);
    return other(a.g, clipped(x));
  }
  OPFORGE_INLINE V h(V x) const {
    if constexpr (kUsual) return vm::raw::tanh(x);
    return other(a.h, clipped(x));
  }
};

// Sum of the two products for gate k of a block; `gates` gates each.
OPFORGE_INLINE V sum(const float* x, const float* r, int64_t k) {
  return load<kWidth>(x + k * 16) + load<kWidth>(r + k * 16);
}

template <bool kUsual>
void lstm(const CellArgs& a, int64_t u, int64_t lane) {
  const Gates<kUsual> gate{a};
  const float *x = a.x + u / 16 * 64 + lane, *r = a.r + u / 16 * 64 + lane;
  const int64_t at = u + lane;
  const V c = load<kWidth>(a.c + at);
  V i = sum(x, r, 0), o = sum(x, r, 1), f = sum(x, r, 2);
  if (a.peepholes != nullptr) {
    i = vfma<kWidth>(load<kWidth>(a.peepholes + at), c, i);
    f = vfma<kWidth>(load<kWidth>(a.peepholes + 2 * a.width + at), c, f);
  }
  i = gate.f(i);
  f = a.input_forget ? splat<kWidth>(1) - i : gate.f(f);
  const V next = vfma<kWidth>(f, c, V(i * gate.g(sum(x, r, 3))));
  if (a.peepholes != nullptr) o = vfma<kWidth>(load<kWidth>(a.peepholes + a.width + at), next, o);
  store<kWidth>(a.c + at, next);
  store<kWidth>(a.h_out + at, V(gate.f(o) * gate.h(next)));
}

// (1 - z) * h + z * H
OPFORGE_INLINE V blend(V z, V h, V before) { return vfma<kWidth>(z, before, V((splat<kWidth>(1) - z) * h)); }

template <bool kUsual>
void gru_linear(const CellArgs& a, int64_t u, int64_t lane) {
  const Gates<kUsual> gate{a};
  const float *x = a.x + u / 16 * 48 + lane, *r = a.r + u / 16 * 48 + lane;
  const int64_t at = u + lane;
  const V z = gate.f(sum(x, r, 0)), reset = gate.f(sum(x, r, 1));
  const V h = gate.g(vfma<kWidth>(reset, load<kWidth>(r + 32), load<kWidth>(x + 32)));
  store<kWidth>(a.h_out + at, blend(z, h, load<kWidth>(a.h_in + at)));
}

// The first half of the form where the reset stands before the product: z replaces its sum, h_out is r * H.
template <bool kUsual>
void gru_reset(const CellArgs& a, int64_t u, int64_t lane) {
  const Gates<kUsual> gate{a};
  float* x = a.x + u / 16 * 48 + lane;
  const float* r = a.r + u / 16 * 32 + lane;
  const int64_t at = u + lane;
  const V z = gate.f(sum(x, r, 0)), reset = gate.f(sum(x, r, 1));
  store<kWidth>(x, z);
  store<kWidth>(a.h_out + at, V(reset * load<kWidth>(a.h_in + at)));
}

template <bool kUsual>
void gru_update(const CellArgs& a, int64_t u, int64_t lane) {
  const Gates<kUsual> gate{a};
  const float *x = a.x + u / 16 * 48 + lane, *r = a.r + u + lane;
  const int64_t at = u + lane;
  const V h = gate.g(load<kWidth>(x + 32) + load<kWidth>(r));
  store<kWidth>(a.h_out + at, blend(load<kWidth>(x), h, load<kWidth>(a.h_in + at)));
}

template <bool kUsual>
void rnn(const CellArgs& a, int64_t u, int64_t lane) {
  const int64_t at = u + lane;
  const V x = load<kWidth>(a.x + at) + load<kWidth>(a.r + at);
  // The one function of this cell is f, whose usual form is that of g.
  store<kWidth>(a.h_out + at, kUsual ? vm::raw::tanh(x) : other(a.f, Gates<false>{a}.clipped(x)));
}

template <void (*kBody)(const CellArgs&, int64_t, int64_t)>
void blocks(const CellArgs& a, int64_t block0, int64_t block1) {
  for (int64_t u = block0 * 16; u < block1 * 16; u += 16)
    for (int64_t lane = 0; lane < 16; lane += kWidth) kBody(a, u, lane);
}

}  // namespace

void cell(const CellArgs& a, int64_t block0, int64_t block1) {
  const bool plain = a.clip == __builtin_inff(),
             tanh = a.g.kind == GateKind::kTanh && a.h.kind == GateKind::kTanh;
  const bool usual = plain && a.f.kind == GateKind::kSigmoid && tanh;
  switch (a.kind) {
    case CellKind::kLstm:
      return usual ? blocks<lstm<true>>(a, block0, block1) : blocks<lstm<false>>(a, block0, block1);
    case CellKind::kGruLinear:
      return usual ? blocks<gru_linear<true>>(a, block0, block1)
                   : blocks<gru_linear<false>>(a, block0, block1);
    case CellKind::kGruReset:
      return usual ? blocks<gru_reset<true>>(a, block0, block1) : blocks<gru_reset<false>>(a, block0, block1);
    case CellKind::kGruUpdate:
      return usual ? blocks<gru_update<true>>(a, block0, block1)
                   : blocks<gru_update<false>>(a, block0, block1);
    case CellKind::kRnn:
      return plain && a.f.kind == GateKind::kTanh ? blocks<rnn<true>>(a, block0, block1)
                                                  : blocks<rnn<false>>(a, block0, block1);
  }
}

}  // namespace OPFORGE_ISA
}  // namespace opforge
