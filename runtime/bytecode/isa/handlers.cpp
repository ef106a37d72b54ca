// handlers.cpp: one loop over a tile for every instruction and element type, made from opcodes.def.
#include "bytecode/isa/program.h"

namespace opforge {
namespace OPFORGE_ISA {

namespace {

using vm::load;
using vm::store;
using vm::Vec;

// n is a multiple of kLanes, which every width below divides.
template <class E>
constexpr int kWidth = std::is_same_v<E, double> ? (vm::kLanes > 4 ? vm::kLanes / 2 : 4) : vm::kLanes;
template <class V>
constexpr int64_t kBytes = V::kSize * int64_t(sizeof(typename V::Element));

template <class V>
struct Reader {
  const char* p;
  int64_t advance;
  Reader(char* const* slots, const int32_t* steps, int slot)
      : p(slots[slot]), advance(steps[slot] * kBytes<V>) {}
  OPFORGE_INLINE V next() {
    const V v = load<V>(p);
    p += advance;
    return v;
  }
};
template <class V>
struct Writer {
  char* p;
  Writer(char* const* slots, int slot) : p(slots[slot]) {}
  OPFORGE_INLINE void next(V v) {
    store(p, v);
    p += kBytes<V>;
  }
};

#define OPCODE(name, number, operands, class_) \
  struct Do_##name {                           \
    template <class... V>                      \
    static OPFORGE_INLINE auto of(V... v) {    \
      return vm::name(v...);                   \
    }                                          \
  };
#include "bytecode/opcodes.def"
#undef OPCODE

template <class Do, class V>
using Result = decltype(Do::of(V{}, V{}));
// Functions that are long themselves gain nothing from four copies in a loop, and truth values are rare.
template <class Do, class V>
constexpr bool kLong = vm::kIsBool<V> || std::is_same_v<Do, Do_pow> || std::is_same_v<Do, Do_mod> ||
                       std::is_same_v<Do, Do_fmod> || std::is_same_v<Do, Do_atan2>;

template <class Do, class V>
void unary(const Step& s, char* const* slots, const int32_t* steps, int64_t n) {
  Reader<V> a(slots, steps, s.a);
  Writer<decltype(Do::of(V{}))> out(slots, s.out);
  for (int64_t i = 0; i < n; i += V::kSize) out.next(Do::of(a.next()));
}
template <class Do, class V>
void binary(const Step& s, char* const* slots, const int32_t* steps, int64_t n) {
  Reader<V> a(slots, steps, s.a), b(slots, steps, s.b);
  Writer<Result<Do, V>> out(slots, s.out);
  if constexpr (kLong<Do, V>) {
    for (int64_t i = 0; i < n; i += V::kSize) out.next(Do::of(a.next(), b.next()));
  } else {
#pragma GCC unroll 4
    for (int64_t i = 0; i < n; i += V::kSize) out.next(Do::of(a.next(), b.next()));
  }
}
template <class Do, class V>
void ternary(const Step& s, char* const* slots, const int32_t* steps, int64_t n) {
  Reader<V> a(slots, steps, s.a), b(slots, steps, s.b), c(slots, steps, s.c);
  Writer<V> out(slots, s.out);
#pragma GCC unroll 4
  for (int64_t i = 0; i < n; i += V::kSize) out.next(Do::of(a.next(), b.next(), c.next()));
}
template <class V>
void choose_by_truth(const Step& s, char* const* slots, const int32_t* steps, int64_t n) {
  Reader<vm::Truth<V>> a(slots, steps, s.a);
  Reader<V> b(slots, steps, s.b), c(slots, steps, s.c);
  Writer<V> out(slots, s.out);
  for (int64_t i = 0; i < n; i += V::kSize) out.next(vm::select(a.next(), b.next(), c.next()));
}
template <class From, class To>
void cast_elements(const Step& s, char* const* slots, const int32_t* steps, int64_t n) {
  constexpr int N = kWidth<From> < kWidth<To> ? kWidth<From> : kWidth<To>;
  Reader<Vec<From, N>> a(slots, steps, s.a);
  Writer<Vec<To, N>> out(slots, s.out);
  for (int64_t i = 0; i < n; i += N) out.next(vm::cast<To>(a.next()));
}
template <class S>
void round_to_storage(const Step& s, char* const* slots, const int32_t* steps, int64_t n) {
  using V = Vec<float, kWidth<float>>;
  Reader<V> a(slots, steps, s.a);
  Writer<V> out(slots, s.out);
  for (int64_t i = 0; i < n; i += V::kSize) out.next(vm::round_half<S>(a.next()));
}
template <class E>
void copy(const Step& s, char* const* slots, const int32_t* steps, int64_t n) {
  using V = Vec<E, kWidth<E>>;
  Reader<V> a(slots, steps, s.a);
  Writer<V> out(slots, s.out);
  for (int64_t i = 0; i < n; i += V::kSize) out.next(a.next());
}
template <class Inner, class Outer, bool kReversed>
void pair(const Step& s, char* const* slots, const int32_t* steps, int64_t n) {
  using V = Vec<float, kWidth<float>>;
  Reader<V> a(slots, steps, s.a), b(slots, steps, s.b), c(slots, steps, s.c);
  Writer<V> out(slots, s.out);
#pragma GCC unroll 4
  for (int64_t i = 0; i < n; i += V::kSize) {
    const V inner = Inner::of(a.next(), b.next());
    out.next(kReversed ? Outer::of(c.next(), inner) : Outer::of(inner, c.next()));
  }
}
template <class Compare>
void choose(const Step& s, char* const* slots, const int32_t* steps, int64_t n) {
  using V = Vec<float, kWidth<float>>;
  Reader<V> a(slots, steps, s.a), b(slots, steps, s.b), c(slots, steps, s.c), d(slots, steps, s.d);
  Writer<V> out(slots, s.out);
#pragma GCC unroll 4
  for (int64_t i = 0; i < n; i += V::kSize)
    out.next(vm::select(Compare::of(a.next(), b.next()), c.next(), d.next()));
}

// Logic works on the bytes that truth values are in memory; any other byte than 0 is true.
enum class Logic { kAnd, kOr, kXor, kNot };
template <Logic OP>
void truths(const Step& s, char* const* slots, const int32_t* steps, int64_t n) {
  using V = Vec<int8_t, vm::kLanes>;
  Reader<V> a(slots, steps, s.a), b(slots, steps, OP == Logic::kNot ? s.a : s.b);
  Writer<V> out(slots, s.out);
  for (int64_t i = 0; i < n; i += V::kSize) {
    const auto x = a.next().v != 0, y = b.next().v != 0;
    const auto r = OP == Logic::kAnd ? x & y : OP == Logic::kOr ? x | y : OP == Logic::kXor ? x ^ y : ~x;
    out.next({(typename V::Raw)(r & 1)});
  }
}

template <class V>
Handler float_handler(uint16_t opcode) {
#define HANDLER_ARITH_2(name) binary<Do_##name, V>
#define HANDLER_FUSED_3(name) ternary<Do_##name, V>
#define HANDLER_UNARY_1(name) unary<Do_##name, V>
#define HANDLER_COMPARE_2(name) binary<Do_##name, V>
#define HANDLER_COMPARE_1(name) unary<Do_##name, V>
#define HANDLER_LOGIC_2(name) nullptr
#define HANDLER_LOGIC_1(name) nullptr
#define HANDLER_SELECT_3(name) nullptr
#define HANDLER_CAST_1(name) nullptr
  switch (opcode) {
#define OPCODE(name, number, operands, class_) \
  case number:                                 \
    return HANDLER_##class_##_##operands(name);
#include "bytecode/opcodes.def"
#undef OPCODE
    default:
      return nullptr;
  }
}
template <class V>
Handler comparison_handler(uint16_t opcode) {
  switch (opcode) {
    case bc::op_lt:
      return binary<Do_lt, V>;
    case bc::op_le:
      return binary<Do_le, V>;
    case bc::op_eq:
      return binary<Do_eq, V>;
    case bc::op_ne:
      return binary<Do_ne, V>;
    case bc::op_gt:
      return binary<Do_gt, V>;
    case bc::op_ge:
      return binary<Do_ge, V>;
    default:
      return nullptr;
  }
}

template <class From>
Handler cast_from(Element to) {
  switch (to) {
    case Element::kBool:
      return cast_elements<From, bool>;
    case Element::kI32:
      return cast_elements<From, int32_t>;
    case Element::kI64:
      return cast_elements<From, int64_t>;
    case Element::kF32:
      return cast_elements<From, float>;
    case Element::kF64:
      return cast_elements<From, double>;
    case Element::kU8:
      return cast_elements<From, uint8_t>;
    case Element::kI8:
      return cast_elements<From, int8_t>;
  }
  return nullptr;
}

template <class Inner, class Outer>
Handler pair_of(bool reversed) {
  return reversed ? pair<Inner, Outer, true> : pair<Inner, Outer, false>;
}
template <class Inner>
Handler pair_with(uint16_t outer, bool reversed) {
  switch (outer) {
    case bc::op_add:
      return pair_of<Inner, Do_add>(reversed);
    case bc::op_sub:
      return pair_of<Inner, Do_sub>(reversed);
    case bc::op_mul:
      return pair_of<Inner, Do_mul>(reversed);
    case bc::op_div:
      return pair_of<Inner, Do_div>(reversed);
    case bc::op_min:
      return pair_of<Inner, Do_min>(reversed);
    case bc::op_max:
      return pair_of<Inner, Do_max>(reversed);
    default:
      return nullptr;
  }
}

}  // namespace

Handler number_handler(uint16_t opcode, Element operand) {
  switch (operand) {
    case Element::kF32:
      return float_handler<Vec<float, kWidth<float>>>(opcode);
    case Element::kF64:
      return float_handler<Vec<double, kWidth<double>>>(opcode);
    case Element::kI32:
      return comparison_handler<Vec<int32_t, kWidth<int32_t>>>(opcode);
    case Element::kI64:
      return comparison_handler<Vec<int64_t, 4>>(opcode);
    case Element::kBool:
      return comparison_handler<Vec<bool, kWidth<bool>>>(opcode);
    case Element::kU8:
      return comparison_handler<Vec<uint8_t, kWidth<uint8_t>>>(opcode);
    case Element::kI8:
      return comparison_handler<Vec<int8_t, kWidth<int8_t>>>(opcode);
  }
  return nullptr;
}
Handler logic_handler(uint16_t opcode) {
  switch (opcode) {
    case bc::op_logical_and:
      return truths<Logic::kAnd>;
    case bc::op_logical_or:
      return truths<Logic::kOr>;
    case bc::op_logical_xor:
      return truths<Logic::kXor>;
    case bc::op_logical_not:
      return truths<Logic::kNot>;
    default:
      return nullptr;
  }
}
Handler select_handler(Element type) {
  switch (type) {
    case Element::kBool:
      return choose_by_truth<Vec<bool, kWidth<bool>>>;
    case Element::kI32:
      return choose_by_truth<Vec<int32_t, kWidth<int32_t>>>;
    case Element::kI64:
      return choose_by_truth<Vec<int64_t, 4>>;
    case Element::kF32:
      return choose_by_truth<Vec<float, kWidth<float>>>;
    case Element::kF64:
      return choose_by_truth<Vec<double, kWidth<double>>>;
    case Element::kU8:
      return choose_by_truth<Vec<uint8_t, kWidth<uint8_t>>>;
    case Element::kI8:
      return choose_by_truth<Vec<int8_t, kWidth<int8_t>>>;
  }
  return nullptr;
}
Handler cast_handler(Element from, Element to) {
  switch (from) {
    case Element::kBool:
      return cast_from<bool>(to);
    case Element::kI32:
      return cast_from<int32_t>(to);
    case Element::kI64:
      return cast_from<int64_t>(to);
    case Element::kF32:
      return cast_from<float>(to);
    case Element::kF64:
      return cast_from<double>(to);
    case Element::kU8:
      return cast_from<uint8_t>(to);
    case Element::kI8:
      return cast_from<int8_t>(to);
  }
  return nullptr;
}
Handler round_handler(uint16_t opcode, Element type) {
  if (type == Element::kF64) return copy<double>;
  if (opcode == bc::op_round_f16) return round_to_storage<f16>;
  return opcode == bc::op_round_bf16 ? round_to_storage<bf16> : copy<float>;
}
Handler copy_handler(int width) {
  return width == 8 ? copy<double> : width == 4 ? copy<float> : copy<uint8_t>;
}
Handler pair_handler(uint16_t inner, uint16_t outer, bool reversed) {
  switch (inner) {
    case bc::op_add:
      return pair_with<Do_add>(outer, reversed);
    case bc::op_sub:
      return pair_with<Do_sub>(outer, reversed);
    case bc::op_mul:
      return pair_with<Do_mul>(outer, reversed);
    case bc::op_div:
      return pair_with<Do_div>(outer, reversed);
    case bc::op_min:
      return pair_with<Do_min>(outer, reversed);
    case bc::op_max:
      return pair_with<Do_max>(outer, reversed);
    default:
      return nullptr;
  }
}
Handler choose_handler(uint16_t comparison) {
  switch (comparison) {
    case bc::op_lt:
      return choose<Do_lt>;
    case bc::op_le:
      return choose<Do_le>;
    case bc::op_eq:
      return choose<Do_eq>;
    case bc::op_ne:
      return choose<Do_ne>;
    case bc::op_gt:
      return choose<Do_gt>;
    case bc::op_ge:
      return choose<Do_ge>;
    default:
      return nullptr;
  }
}

}  // namespace OPFORGE_ISA
}  // namespace opforge
