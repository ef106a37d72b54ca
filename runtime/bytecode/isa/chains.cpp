// chains.cpp: f32 instructions each of which reads the one before, with their values in registers: a group of
// kChainVectors vectors goes through all links, one call into the next, before the following group. A tile
// that every instruction reads and writes costs more than cheap arithmetic does. Longer functions are no
// links: they need many vectors in flight, and lose more between groups than a tile costs.
#include "bytecode/isa/chain.h"

namespace opforge {
namespace OPFORGE_ISA {

namespace {

using V = vm::Vec<float, vm::kLanes>;
using R = typename V::Raw;
constexpr int64_t kBytes = vm::kLanes * 4, kGroup = kChainVectors * kBytes;

struct Link;
using Run = void (*)(const Link* link, int64_t offset, R v0, R v1, R v2, R v3, R v4, R v5, R v6, R v7);
struct Source {
  char* at;
  bool scalar;
};
struct Link {
  Run run;
  Source a, b;
};

// Vector `index` of an operand's group.
template <bool kScalar>
struct Operand {
  const char* p;
  V once;
  Operand(const Source& s, int64_t offset) : p(s.at + (kScalar ? 0 : offset)), once(vm::load<V>(p)) {}
  OPFORGE_INLINE V at(int index) const { return kScalar ? once : vm::load<V>(p + index * kBytes); }
};

#define CHAIN_PARAMETERS const Link *link, int64_t offset, R v0, R v1, R v2, R v3, R v4, R v5, R v6, R v7
#define CHAIN_EACH(f)                                                                                      \
  v0 = f(v0, 0), v1 = f(v1, 1), v2 = f(v2, 2), v3 = f(v3, 3), v4 = f(v4, 4), v5 = f(v5, 5), v6 = f(v6, 6), \
  v7 = f(v7, 7)
#define CHAIN_NEXT link[1].run(link + 1, offset, v0, v1, v2, v3, v4, v5, v6, v7)

template <bool kScalar>
void begin(CHAIN_PARAMETERS) {
  const Operand<kScalar> a(link->a, offset);
  const auto one = [&](R, int k) { return a.at(k).v; };
  CHAIN_EACH(one);
  CHAIN_NEXT;
}
void finish(CHAIN_PARAMETERS) {
  char* p = link->a.at + offset;
  const auto one = [&](R v, int k) {
    vm::store(p + k * kBytes, V{v});
    return v;
  };
  CHAIN_EACH(one);
}
template <class Do>
void unary(CHAIN_PARAMETERS) {
  const auto one = [](R v, int) { return Do::of(V{v}).v; };
  CHAIN_EACH(one);
  CHAIN_NEXT;
}
// kAt: which operand comes from the link before.
template <class Do, int kAt, bool kScalar>
void binary(CHAIN_PARAMETERS) {
  const Operand<kScalar> a(link->a, offset);
  const auto one = [&](R v, int k) { return (kAt == 0 ? Do::of(V{v}, a.at(k)) : Do::of(a.at(k), V{v})).v; };
  CHAIN_EACH(one);
  CHAIN_NEXT;
}
template <class Do, int kAt, bool kScalarA, bool kScalarB>
void ternary(CHAIN_PARAMETERS) {
  const Operand<kScalarA> a(link->a, offset);
  const Operand<kScalarB> b(link->b, offset);
  const auto one = [&](R v, int k) {
    const V x = a.at(k), y = b.at(k);
    return (kAt == 0 ? Do::of(V{v}, x, y) : kAt == 1 ? Do::of(x, V{v}, y) : Do::of(x, y, V{v})).v;
  };
  CHAIN_EACH(one);
  CHAIN_NEXT;
}
// The function of a link for each kind of its operands: bit 0 = a is a scalar, bit 1 = b is one.
struct Runs {
  Run of[4];
};
template <class Do>
Runs unary_runs() {
  return {{unary<Do>, unary<Do>, unary<Do>, unary<Do>}};
}
template <class Do, int kAt>
Runs binary_runs() {
  return {{binary<Do, kAt, false>, binary<Do, kAt, true>, binary<Do, kAt, false>, binary<Do, kAt, true>}};
}
template <class Do, int kAt>
Runs ternary_runs() {
  return {{ternary<Do, kAt, false, false>, ternary<Do, kAt, true, false>, ternary<Do, kAt, false, true>,
           ternary<Do, kAt, true, true>}};
}

#define CHAINS_OF_1(name, at) unary_runs<Do_##name>()
#define CHAINS_OF_2(name, at) at == 0 ? binary_runs<Do_##name, 0>() : binary_runs<Do_##name, 1>()
#define CHAINS_OF_3(name, at)              \
  at == 0   ? ternary_runs<Do_##name, 0>() \
  : at == 1 ? ternary_runs<Do_##name, 1>() \
            : ternary_runs<Do_##name, 2>()
#define CHAIN(name, operands)            \
  struct Do_##name {                     \
    template <class... T>                \
    static OPFORGE_INLINE V of(T... v) { \
      return vm::name(v...);             \
    }                                    \
  };
#include "bytecode/isa/chains.def"
#undef CHAIN

Runs runs_of(uint16_t opcode, int at) {
  switch (opcode) {
#define CHAIN(name, operands) \
  case bc::op_##name:         \
    return CHAINS_OF_##operands(name, at);
#include "bytecode/isa/chains.def"
#undef CHAIN
    default:
      return {{}};
  }
}

ChainOp with(const Runs& runs) {
  ChainOp op = {{}, bc::kNone, bc::kNone};
  for (int k = 0; k < 4; ++k) op.run[k] = reinterpret_cast<void (*)()>(runs.of[k]);
  return op;
}

}  // namespace

ChainOp chain_op(uint16_t opcode, int at) { return with(runs_of(opcode, at)); }
ChainOp chain_begin() { return with({{begin<false>, begin<true>, begin<false>, begin<true>}}); }

bool chained(uint16_t opcode) { return runs_of(opcode, 0).of[0] != nullptr; }

void run_chain(const Step& step, char* const* slots, const int32_t* steps, int64_t n) {
  Link links[kMaxChain + 2];  // the beginning, the instructions, the end
  const int count = step.links;
  for (int i = 0; i < count; ++i) {
    const ChainOp& op = step.chain[i];
    const auto source = [&](uint16_t slot) {
      return slot == bc::kNone ? Source{nullptr, true} : Source{slots[slot], steps[slot] == 0};
    };
    const Source a = source(op.a), b = source(op.b);
    links[i] = {reinterpret_cast<Run>(op.run[int(a.scalar) | int(b.scalar) << 1]), a, b};
  }
  char* const out = slots[step.out];
  links[count] = {finish, {out, false}, {nullptr, true}};
  const R none = {};
  int64_t offset = 0;
  for (; offset + kGroup <= n * 4; offset += kGroup)
    links[0].run(links, offset, none, none, none, none, none, none, none, none);
  const auto rest = size_t(n * 4 - offset);
  if (rest == 0) return;
  // The last vectors, fewer than a group, go through buffers.
  alignas(64) char buffer[2 * kMaxChain + 2][kGroup];  // two of an instruction, the first value, the result
  int used = 0;
  const auto move = [&](Source& s) {
    if (s.scalar) return;
    std::memset(buffer[used], 0, kGroup);
    std::memcpy(buffer[used], s.at + offset, rest);
    s.at = buffer[used++];
  };
  for (int i = 0; i < count; ++i) {
    move(links[i].a);
    move(links[i].b);
  }
  links[count].a.at = buffer[used];
  links[0].run(links, 0, none, none, none, none, none, none, none, none);
  std::memcpy(out + offset, buffer[used], rest);
}

}  // namespace OPFORGE_ISA
}  // namespace opforge
