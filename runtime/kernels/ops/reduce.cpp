// reduce.cpp: ReduceSum, ReduceMean, ReduceMax, ... over any axes, attributes or input 1.
#include <limits>
#include <type_traits>

#include "kernels/fold.h"
#include "kernels/move.h"

namespace opforge {
namespace {

using namespace kernels;

struct ReduceState {
  Reduction kind = Reduction::kSum;
  bool keep = true, noop_when_empty = false;
};

template <Reduction KIND>
Status reduce_load(LoadContext& c) {
  ReduceState* s = new_state<ReduceState>(c);
  if (s == nullptr) return no_memory(c);
  s->kind = KIND;
  s->keep = c.attributes->get_int("keepdims", 1) != 0;
  s->noop_when_empty = c.attributes->get_int("noop_with_empty_axes", 0) != 0;
  return OPFORGE_STATUS_OK;
}

// The reduction with neighbouring axes merged (those of one element are left out): dimensions alternate
// between kept and reduced.
struct Axes {
  bool reduced[kMaxRank] = {};
  int rank = 0;  // of the merged dimensions
  int64_t dims[kMaxRank + 1] = {};
  bool is_reduced[kMaxRank + 1] = {};
  int64_t outputs = 1, width = 1;
};

enum class Found { kGood, kUnknown, kBad };

Found find_axes(const Attributes& attributes, const ReduceState& s, const Tensor* inputs, int32_t n_inputs,
                Axes* a) {
  const Shape& x = inputs[0].shape;
  const int64_t* axes = nullptr;
  int64_t count = 0;
  if (n_inputs > 1 && inputs[1].present()) {
    if (inputs[1].dtype != DType::kI64) return Found::kBad;
    count = inputs[1].shape.elements();
    axes = inputs[1].as<int64_t>();
    if (count > 0 && axes == nullptr) return Found::kUnknown;
  } else {
    attributes.get_ints("axes", &axes, &count);
  }
  for (int64_t i = 0; i < count; ++i) {
    const int k = axis_of(axes[i], x.rank);
    if (k < 0) return Found::kBad;
    a->reduced[k] = true;
  }
  if (count == 0 && !s.noop_when_empty)
    for (int k = 0; k < x.rank; ++k) a->reduced[k] = true;
  for (int k = 0; k < x.rank; ++k) {
    if (x.dims[k] == 1) continue;
    (a->reduced[k] ? a->width : a->outputs) *= x.dims[k];
    if (a->rank > 0 && a->is_reduced[a->rank - 1] == a->reduced[k]) {
      a->dims[a->rank - 1] *= x.dims[k];
    } else {
      a->dims[a->rank] = x.dims[k];
      a->is_reduced[a->rank++] = a->reduced[k];
    }
  }
  return Found::kGood;
}

bool is_rows(const Axes& a) {
  return a.rank == 0 || (a.rank == 1 && a.is_reduced[0]) || (a.rank == 2 && a.is_reduced[1]) || a.width == 1;
}
bool is_middle(const Axes& a) { return (a.rank == 2 && a.is_reduced[0]) || (a.rank == 3 && a.is_reduced[1]); }

Status reduce_infer(InferContext& c) {
  if (Status wrong = check_outputs(c, c.inputs[0].dtype)) return wrong;
  const ReduceState& s = *static_cast<ReduceState*>(c.state);
  const Shape& x = c.inputs[0].shape;
  Axes a;
  const Found found = find_axes(*c.attributes, s, c.inputs, c.n_inputs, &a);
  if (found == Found::kUnknown) return c.need_data(1);
  if (found == Found::kBad)
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "axes are out of range for rank %d", x.rank);
  if (!is_plain(c.inputs[0])) return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "reductions take plain tensors");
  Shape& y = c.outputs[0].shape;
  y.rank = 0;
  for (int k = 0; k < x.rank; ++k)
    if (!a.reduced[k] || s.keep) y.dims[y.rank++] = a.reduced[k] ? 1 : x.dims[k];
  if (is_f32(c.inputs[0]) && !is_rows(a) && !is_middle(a))
    c.scratch_bytes = 4 * scratch_floats(a.width) * c.max_threads;
  return OPFORGE_STATUS_OK;
}

// Walks the reduced elements of one output, whose first is `base`: f(offset, n, stride) for runs of them, in
// row-major order.
struct Runs {
  int64_t dims[kMaxRank + 1], strides[kMaxRank + 1];  // the reduced dimensions
  int64_t kept[kMaxRank + 1], steps[kMaxRank + 1];
  int rank = 0, kept_rank = 0;

  explicit Runs(const Axes& a) {
    int64_t stride = 1;
    for (int k = a.rank - 1; k >= 0; --k) {  // from the innermost on
      if (a.is_reduced[k])
        dims[rank] = a.dims[k], strides[rank++] = stride;
      else
        kept[kept_rank] = a.dims[k], steps[kept_rank++] = stride;
      stride *= a.dims[k];
    }
    if (rank == 0) dims[rank] = 1, strides[rank++] = 1;
  }
  int64_t base(int64_t output) const {
    int64_t at = 0;
    for (int k = 0; k < kept_rank; ++k) {
      at += output % kept[k] * steps[k];
      output /= kept[k];
    }
    return at;
  }
  template <class F>
  void each(int64_t base, F&& f) const {
    int64_t counter[kMaxRank + 1] = {};
    for (int k = 0; k < rank; ++k)
      if (dims[k] == 0) return;
    for (;;) {
      f(base, dims[0], strides[0]);
      int k = 1;
      for (; k < rank; ++k) {
        base += strides[k];
        if (++counter[k] < dims[k]) break;
        base -= dims[k] * strides[k];
        counter[k] = 0;
      }
      if (k >= rank) return;
    }
  }
};

// A real result as a T in the type of the sum; integers are cut and saturated.
template <class T, class A>
A from_real(double x) {
  using Limits = std::numeric_limits<T>;
  if constexpr (Limits::is_iec559) return static_cast<A>(x);
  if (!(x == x)) return 0;
  if (x <= static_cast<double>(Limits::min())) return static_cast<A>(Limits::min());
  return static_cast<A>(x >= static_cast<double>(Limits::max()) ? Limits::max() : static_cast<T>(x));
}

// The number that a sum, or an extremum, becomes.
template <Reduction KIND, class T, class S>
T finished(Reduction kind, S sum, int64_t width) {
  if (kind == Reduction::kMean) {  // by 64 bits: of a byte's, 256 elements would be none
    using Wide = std::conditional_t<std::is_unsigned_v<T>, uint64_t, int64_t>;
    using Count = std::conditional_t<std::is_integral_v<T>, Wide, T>;
    return static_cast<T>(static_cast<T>(sum) / static_cast<Count>(width == 0 ? 1 : width));
  }
  if (kind == Reduction::kL2)
    return static_cast<T>(from_real<T, S>(__builtin_sqrt(static_cast<double>(sum))));
  if (kind == Reduction::kLogSum)
    return static_cast<T>(from_real<T, S>(__builtin_log(static_cast<double>(static_cast<T>(sum)))));
  return static_cast<T>(sum);
}

constexpr int64_t kColumns = 64;  // side by side

template <Reduction KIND, class T, class A>
void fold(RunContext& c, Reduction kind, const Axes& a) {
  using F = Fold<KIND, T, A>;
  using Sum = typename F::Sum;
  const T* x = c.inputs[0].as<T>();
  T* y = c.outputs[0].as<T>();
  const Runs runs(a);
  const int64_t inner = a.rank > 0 && !a.is_reduced[a.rank - 1] ? a.dims[a.rank - 1] : 1;
  const int64_t grain =
      ceil_div(greater<int64_t>(1, 16384 / greater<int64_t>(a.width, 1)), kColumns) * kColumns;
  c.parallel(a.outputs, inner > 1 ? grain : greater<int64_t>(1, grain / kColumns),
             [&](int64_t begin, int64_t end) {
               for (int64_t o = begin; o < end;) {
                 const int64_t n = inner == 1 ? 1 : lesser(kColumns, lesser(end - o, inner - o % inner));
                 Sum sums[kColumns];
                 for (int64_t k = 0; k < kColumns; ++k) sums[k] = F::neutral();
                 runs.each(runs.base(o), [&](int64_t at, int64_t count, int64_t stride) {
                   if (inner == 1) {
                     F::join(sums[0], F::row(x + at, count));
                     return;
                   }
                   for (int64_t i = 0; i < count; ++i) {
                     if (n == kColumns)
                       F::columns(x + at + i * stride, sums, kColumns);
                     else
                       F::columns(x + at + i * stride, sums, n);
                   }
                 });
                 for (int64_t k = 0; k < n; ++k) y[o + k] = finished<KIND, T, Sum>(kind, sums[k], a.width);
                 o += n;
               }
             });
}

// The greatest number is taken out of the exponent.
template <class T>
void log_sum_exp(RunContext& c, const Axes& a) {
  const T* x = c.inputs[0].as<T>();
  T* y = c.outputs[0].as<T>();
  const Runs runs(a);
  c.parallel(a.outputs, greater<int64_t>(1, 4096 / greater<int64_t>(a.width, 1)),
             [&](int64_t begin, int64_t end) {
               for (int64_t o = begin; o < end; ++o) {
                 const auto each = [&](auto&& f) {
                   runs.each(runs.base(o), [&](int64_t at, int64_t n, int64_t stride) {
                     for (int64_t i = 0; i < n; ++i) f(static_cast<double>(x[at + i * stride]));
                   });
                 };
                 double top = -std::numeric_limits<double>::infinity(), total = 0;
                 each([&](double v) { top = v > top || v != v ? v : top; });
                 const double shift = top - top == 0 ? top : 0;
                 each([&](double v) { total += __builtin_exp(v - shift); });
                 y[o] = static_cast<T>(from_real<T, T>(__builtin_log(total) + shift));
               }
             });
}

// Types other than f32; A is the type of the sum.
template <class T, class A>
Status reduce_other(RunContext& c, Reduction kind, const Axes& a) {
  switch (kind) {
    case Reduction::kMax:
      fold<Reduction::kMax, T, A>(c, kind, a);
      break;
    case Reduction::kMin:
      fold<Reduction::kMin, T, A>(c, kind, a);
      break;
    case Reduction::kProd:
      fold<Reduction::kProd, T, A>(c, kind, a);
      break;
    case Reduction::kSumSquare:
    case Reduction::kL2:
      fold<Reduction::kSumSquare, T, A>(c, kind, a);
      break;
    case Reduction::kL1:
      fold<Reduction::kL1, T, A>(c, kind, a);
      break;
    case Reduction::kLogSumExp:
      log_sum_exp<T>(c, a);
      break;
    default:
      fold<Reduction::kSum, T, A>(c, kind, a);
  }
  return OPFORGE_STATUS_OK;
}

Status reduce_run(RunContext& c) {
  const ReduceState& s = *static_cast<ReduceState*>(c.state);
  Axes a;
  find_axes(*c.attributes, s, c.inputs, c.n_inputs, &a);
  switch (c.inputs[0].dtype) {
    case DType::kF32:
      break;
    case DType::kF64:
      return reduce_other<double, double>(c, s.kind, a);
    case DType::kI64:
      return reduce_other<int64_t, uint64_t>(c, s.kind, a);
    case DType::kI32:
      return reduce_other<int32_t, uint32_t>(c, s.kind, a);
    case DType::kU64:
      return reduce_other<uint64_t, uint64_t>(c, s.kind, a);
    case DType::kU32:
      return reduce_other<uint32_t, uint32_t>(c, s.kind, a);
    case DType::kI8:
      return reduce_other<int8_t, uint32_t>(c, s.kind, a);
    case DType::kU8:
      return reduce_other<uint8_t, uint32_t>(c, s.kind, a);
    case DType::kBool:
      return reduce_other<uint8_t, uint32_t>(c, s.kind, a);
    default:
      return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "reductions have no kernel for this dtype");
  }
  const IsaTable& isa = isa_table();
  const float* x = c.inputs[0].as<float>();
  float* y = c.outputs[0].as<float>();
  const int64_t grain = greater<int64_t>(16, ceil_div(16384 / greater<int64_t>(a.width, 1), 16) * 16);
  if (is_rows(a)) {
    const int64_t width = a.width;
    c.parallel(a.outputs, grain, [&](int64_t begin, int64_t end) {
      isa.reduce_rows(s.kind, x + begin * width, y + begin, end - begin, width);
    });
  } else if (is_middle(a)) {
    const int64_t inner = a.dims[a.rank - 1];
    c.parallel(a.outputs, grain, [&](int64_t begin, int64_t end) {
      isa.reduce_middle(s.kind, x, y, a.width, inner, begin, end);
    });
  } else {
    float* scratch = static_cast<float*>(c.scratch);
    const Runs runs(a);
    for_units(c, a.outputs, [&](int64_t slot, int64_t o) {
      float* row = scratch + slot * scratch_floats(a.width);
      float* to = row;
      runs.each(runs.base(o), [&](int64_t at, int64_t n, int64_t stride) {
        if (stride == 1)
          std::memcpy(to, x + at, static_cast<size_t>(n) * sizeof(float));
        else
          for (int64_t i = 0; i < n; ++i) to[i] = x[at + i * stride];
        to += n;
      });
      isa.reduce_rows(s.kind, row, y + o, 1, a.width);
    });
  }
  return OPFORGE_STATUS_OK;
}

#define OPFORGE_ROW(NAME, KIND) \
  {"", NAME, 1, kNewest, reduce_load<Reduction::KIND>, reduce_infer, reduce_run, 0, 1, 2}
const OpKernel kRows[] = {
    OPFORGE_ROW("ReduceSum", kSum),       OPFORGE_ROW("ReduceMean", kMean),
    OPFORGE_ROW("ReduceMax", kMax),       OPFORGE_ROW("ReduceMin", kMin),
    OPFORGE_ROW("ReduceProd", kProd),     OPFORGE_ROW("ReduceSumSquare", kSumSquare),
    OPFORGE_ROW("ReduceL1", kL1),         OPFORGE_ROW("ReduceL2", kL2),
    OPFORGE_ROW("ReduceLogSum", kLogSum), OPFORGE_ROW("ReduceLogSumExp", kLogSumExp),
};
#undef OPFORGE_ROW

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(reduce, opforge::kRows);
