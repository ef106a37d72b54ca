// arithmetic.cpp: elementwise ONNX operators on integers, which formula bytecode does not hold: what models
// compute on shapes and indices. Integers wrap; division truncates; x / 0 and x % 0 give 0.
#include <type_traits>

#include "kernels/move.h"

namespace opforge {
namespace {

using namespace kernels;

enum Op {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMod,
  kMin,
  kMax,
  kPow,
  kEqual,
  kLess,
  kLessOrEqual,
  kNeg,
  kAbs,
  kSign,
  kBitAnd,
  kBitOr,
  kBitXor,
  kBitNot,
  kShift,
};

constexpr bool compares(Op op) { return op >= kEqual && op <= kLessOrEqual; }
constexpr bool is_unary(Op op) { return op == kNeg || op == kAbs || op == kSign || op == kBitNot; }

template <class T>
T power(T base, T exponent) {
  using U = std::make_unsigned_t<T>;
  if (exponent < 0) return base == 1 ? 1 : base == static_cast<T>(-1) ? (exponent & 1 ? base : 1) : 0;
  U result = 1, factor = static_cast<U>(base);
  for (U e = static_cast<U>(exponent); e != 0; e >>= 1) {
    if (e & 1) result = static_cast<U>(result * factor);
    factor = static_cast<U>(factor * factor);
  }
  return static_cast<T>(result);
}

// Wrapping arithmetic runs in uint64, where it is defined, and is cut to T.
template <class T>
T wrap(uint64_t value) {
  return static_cast<T>(value);
}

template <Op op, class T>
auto apply(T a, T b, bool flag) {
  const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  if constexpr (op == kAdd) return wrap<T>(x + y);
  if constexpr (op == kSub) return wrap<T>(x - y);
  if constexpr (op == kMul) return wrap<T>(x * y);
  if constexpr (op == kDiv) {
    if (b == 0) return T{0};
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return wrap<T>(uint64_t{0} - x);
    return static_cast<T>(a / b);
  }
  if constexpr (op == kMod) {
    if (b == 0 || (std::is_signed_v<T> && b == static_cast<T>(-1))) return T{0};
    const T r = static_cast<T>(a % b);
    return flag && r != 0 && (r < 0) != (b < 0) ? static_cast<T>(r + b) : r;
  }
  if constexpr (op == kMin) return a < b ? a : b;
  if constexpr (op == kMax) return a > b ? a : b;
  if constexpr (op == kPow) return power(a, b);
  if constexpr (op == kEqual) return a == b;
  if constexpr (op == kLess) return a < b;
  if constexpr (op == kLessOrEqual) return a <= b;
  if constexpr (op == kNeg) return wrap<T>(uint64_t{0} - x);
  if constexpr (op == kAbs) return a < 0 ? wrap<T>(uint64_t{0} - x) : a;
  if constexpr (op == kSign) return static_cast<T>((a > 0) - (a < 0));
  if constexpr (op == kBitAnd) return static_cast<T>(a & b);
  if constexpr (op == kBitOr) return static_cast<T>(a | b);
  if constexpr (op == kBitXor) return static_cast<T>(a ^ b);
  if constexpr (op == kBitNot) return static_cast<T>(~a);
  if constexpr (op == kShift) {
    // A count that is negative or as large as the width leaves the sign's extension only.
    if (y >= 8 * sizeof(T)) return static_cast<T>(!flag && a < 0 ? -1 : 0);
    return flag ? wrap<T>(x << y) : static_cast<T>(a >> y);
  }
}

// One operand: where element k of the broadcast result comes from.
struct Operand {
  const Tensor* tensor;
  int64_t strides[kMaxRank];
  int64_t at(int64_t k, const Shape& out) const {
    int64_t from = 0;
    for (int d = out.rank - 1; d >= 0; --d) {
      from += k % out.dims[d] * strides[d];
      k /= out.dims[d];
    }
    return from;
  }
};

// Elements [k, k + n) of a row, one after the other: the row itself, or a copy. A repeated one is copied
// once.
template <class T>
const T* side_by_side(const T* row, int64_t step, int64_t k, int64_t n, T* block) {
  if (step == 1) return row + k;
  if (step == 0 && k > 0) return block;
  for (int64_t i = 0; i < n; ++i) block[i] = row[(k + i) * step];
  return block;
}

template <Op op, class T>
void loop(RunContext& c, const Tensor& a, const Tensor& b, bool flag) {
  const Shape& out = c.outputs[0].shape;
  Operand x{&a, {}}, y{&b, {}};
  broadcast_strides(a.shape, out, x.strides);
  broadcast_strides(b.shape, out, y.strides);
  using R = decltype(apply<op>(T{}, T{}, false));
  R* to = c.outputs[0].as<R>();
  const T *p = a.as<T>(), *q = b.as<T>();
  // Operands that lie as the result does are one row.
  const bool straight = same_shape(a.shape, out) && same_shape(b.shape, out);
  const int64_t width = straight        ? lesser<int64_t>(out.elements(), 8192)
                        : out.rank == 0 ? 1
                                        : out.dims[out.rank - 1];
  const int64_t step_x = straight ? 1 : out.rank == 0 ? 0 : x.strides[out.rank - 1];
  const int64_t step_y = straight ? 1 : out.rank == 0 ? 0 : y.strides[out.rank - 1];
  const int64_t rows = width == 0 ? 0 : ceil_div(out.elements(), width);
  // One loop for all: what does not lie side by side is brought together first.
  constexpr int64_t kBlock = 256;
  c.parallel(rows, greater<int64_t>(1, 8192 / greater<int64_t>(width, 1)), [&](int64_t begin, int64_t end) {
    T a_block[kBlock], b_block[kBlock];
    for (int64_t r = begin; r < end; ++r) {
      const T* a_row = p + (straight ? r * width : x.at(r * width, out));
      const T* b_row = q + (straight ? r * width : y.at(r * width, out));
      const int64_t here = lesser(width, out.elements() - r * width);
      for (int64_t k = 0; k < here; k += kBlock) {
        const int64_t n = lesser(kBlock, here - k);
        const T* left = side_by_side(a_row, step_x, k, n, a_block);
        const T* right = side_by_side(b_row, step_y, k, n, b_block);
        R* results = to + r * width + k;
        for (int64_t i = 0; i < n; ++i) results[i] = apply<op>(left[i], right[i], flag);
      }
    }
  });
}

bool integer(DType dtype) {
  switch (dtype) {
    case DType::kU8:
    case DType::kI8:
    case DType::kU16:
    case DType::kI16:
    case DType::kU32:
    case DType::kI32:
    case DType::kU64:
    case DType::kI64:
      return true;
    default:
      return false;
  }
}

// Whether the bits of the result are the same for signed and unsigned integers.
constexpr bool sign_blind(Op op) {
  return op == kAdd || op == kSub || op == kMul || op == kEqual || op == kNeg ||
         (op >= kBitAnd && op <= kBitNot);
}
// The loop over T, where the sign does not matter the one over its unsigned twin.
template <Op op, class T>
void loop_of(RunContext& c, const Tensor& a, const Tensor& b, bool flag) {
  loop<op, std::conditional_t<sign_blind(op), std::make_unsigned_t<T>, T>>(c, a, b, flag);
}

template <Op op>
Status run_pair(RunContext& c, const Tensor& a, const Tensor& b) {
  // ONNX: fmod=1 truncates (sign of the dividend), fmod=0 floors (sign of the divisor). Of a shift: left.
  const bool flag = op == kMod ? c.attributes->get_int("fmod", 0) == 0
                               : op == kShift && equals(c.attributes->get_string("direction", ""), "LEFT");
  switch (a.dtype) {
    case DType::kU8:
      loop_of<op, uint8_t>(c, a, b, flag);
      break;
    case DType::kI8:
      loop_of<op, int8_t>(c, a, b, flag);
      break;
    case DType::kU16:
      loop_of<op, uint16_t>(c, a, b, flag);
      break;
    case DType::kI16:
      loop_of<op, int16_t>(c, a, b, flag);
      break;
    case DType::kU32:
      loop_of<op, uint32_t>(c, a, b, flag);
      break;
    case DType::kI32:
      loop_of<op, int32_t>(c, a, b, flag);
      break;
    case DType::kU64:
      loop_of<op, uint64_t>(c, a, b, flag);
      break;
    default:
      loop_of<op, int64_t>(c, a, b, flag);
  }
  return OPFORGE_STATUS_OK;
}

template <Op op>
Status infer(InferContext& c) {
  if (Status status = check_movable(c, -1)) return status;
  Shape out = c.inputs[0].shape;
  const DType dtype = c.inputs[0].dtype;
  for (int32_t k = 0; k < c.n_inputs; ++k) {
    if (!integer(c.inputs[k].dtype) || c.inputs[k].dtype != dtype) {
      return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "input %d is no integer of the first one's dtype", k);
    }
    if (!broadcast(out, c.inputs[k].shape, &out)) {
      return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "input %d cannot be broadcast", k);
    }
  }
  const bool good = c.n_inputs >= (is_unary(op) ? 1 : 2) || ((op == kMin || op == kMax) && c.n_inputs == 1);
  if (!good || c.outputs[0].dtype != (compares(op) ? DType::kBool : dtype)) {
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the inputs or the result's dtype are not valid");
  }
  c.outputs[0].shape = out;
  return OPFORGE_STATUS_OK;
}

Status shift_infer(InferContext& c) {
  const StringView direction = c.attributes->get_string("direction", "");
  if (!equals(direction, "LEFT") && !equals(direction, "RIGHT"))
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "direction is neither LEFT nor RIGHT");
  return infer<kShift>(c);
}

// a > b is b < a.
template <Op op>
Status run_swapped(RunContext& c) {
  return run_pair<op>(c, c.inputs[1], c.inputs[0]);
}

template <Op op>
Status run(RunContext& c) {
  if (is_unary(op) || c.n_inputs == 1) return run_pair<op>(c, c.inputs[0], c.inputs[0]);
  run_pair<op>(c, c.inputs[0], c.inputs[1]);
  // Min and Max take any number of inputs: the result so far is the left operand of the next.
  if constexpr (op == kMin || op == kMax) {
    for (int32_t k = 2; k < c.n_inputs; ++k) run_pair<op>(c, c.outputs[0], c.inputs[k]);
  }
  return OPFORGE_STATUS_OK;
}

constexpr OpKernel kRows[] = {
    {"", "Add", 7, kNewest, nullptr, infer<kAdd>, run<kAdd>, 0, 2},
    {"", "Sub", 7, kNewest, nullptr, infer<kSub>, run<kSub>, 0, 2},
    {"", "Mul", 7, kNewest, nullptr, infer<kMul>, run<kMul>, 0, 2},
    {"", "Div", 7, kNewest, nullptr, infer<kDiv>, run<kDiv>, 0, 2},
    {"", "Mod", 10, kNewest, nullptr, infer<kMod>, run<kMod>, 0, 2},
    {"", "Min", 8, kNewest, nullptr, infer<kMin>, run<kMin>, kAllInputs},
    {"", "Max", 8, kNewest, nullptr, infer<kMax>, run<kMax>, kAllInputs},
    {"", "Pow", 7, kNewest, nullptr, infer<kPow>, run<kPow>, 0, 2},
    {"", "Equal", 7, kNewest, nullptr, infer<kEqual>, run<kEqual>, 0, 2},
    {"", "Less", 7, kNewest, nullptr, infer<kLess>, run<kLess>, 0, 2},
    {"", "LessOrEqual", 12, kNewest, nullptr, infer<kLessOrEqual>, run<kLessOrEqual>, 0, 2},
    {"", "Greater", 7, kNewest, nullptr, infer<kLess>, run_swapped<kLess>, 0, 2},
    {"", "GreaterOrEqual", 12, kNewest, nullptr, infer<kLessOrEqual>, run_swapped<kLessOrEqual>, 0, 2},
    {"", "Neg", 6, kNewest, nullptr, infer<kNeg>, run<kNeg>},
    {"", "Abs", 6, kNewest, nullptr, infer<kAbs>, run<kAbs>},
    {"", "Sign", 9, kNewest, nullptr, infer<kSign>, run<kSign>},
    {"", "BitwiseAnd", 18, kNewest, nullptr, infer<kBitAnd>, run<kBitAnd>, 0, 2},
    {"", "BitwiseOr", 18, kNewest, nullptr, infer<kBitOr>, run<kBitOr>, 0, 2},
    {"", "BitwiseXor", 18, kNewest, nullptr, infer<kBitXor>, run<kBitXor>, 0, 2},
    {"", "BitwiseNot", 18, kNewest, nullptr, infer<kBitNot>, run<kBitNot>},
    {"", "BitShift", 11, kNewest, nullptr, shift_infer, run<kShift>, 0, 2},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(arithmetic, opforge::kRows);
