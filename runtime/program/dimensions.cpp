// dimensions.cpp: text and value of dimension expressions. The verifier has bounded their depth.
#include "program/program.h"

namespace opforge {
namespace {

constexpr const char* kSigns[] = {"", "", "", "+", "-", "*", "//"};
constexpr const char* kCalls[] = {"ceildiv", "min", "max"};

struct Out {
  char* text;
  size_t size, used;
  void put(const char* data, size_t n) {
    for (size_t k = 0; k < n; ++k, ++used) {
      if (used + 1 < size) text[used] = data[k];
    }
  }
  void put(const char* data) { put(data, std::strlen(data)); }
};

// How strongly the sign of an expression binds; what binds less gets parentheses.
int strength(const Program& program, uint32_t id) {
  const uint32_t op = program.dimensions[id].op;
  return op == format::kAdd || op == format::kSub ? 1 : op == format::kMul || op == format::kFloorDiv ? 2 : 3;
}

void write(const Program& program, uint32_t id, int outer, Out* out) {
  const format::Dimension& d = program.dimensions[id];
  if (d.op == format::kNumber) {
    char number[24];
    std::snprintf(number, sizeof number, "%lld", static_cast<long long>(d.b));
    out->put(number);
  } else if (d.op == format::kSymbol) {
    const StringView name = program.text(d.a);
    out->put(name.data, static_cast<size_t>(name.size));
  } else if (d.op == format::kRuntime) {
    out->put("?");
  } else if (d.op >= format::kCeilDiv) {
    out->put(kCalls[d.op - format::kCeilDiv]);
    out->put("(");
    write(program, d.a, 0, out);
    out->put(", ");
    write(program, static_cast<uint32_t>(d.b), 0, out);
    out->put(")");
  } else {
    const int own = strength(program, id);
    if (own < outer) out->put("(");
    write(program, d.a, own, out);
    out->put(kSigns[d.op]);
    write(program, static_cast<uint32_t>(d.b), own + 1, out);
    if (own < outer) out->put(")");
  }
}

int64_t apply(uint32_t op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case format::kAdd:
      return __builtin_add_overflow(a, b, &result) ? -1 : result;
    case format::kSub:
      return a - b;  // both are at least 0
    case format::kMul:
      return __builtin_mul_overflow(a, b, &result) ? -1 : result;
    case format::kFloorDiv:
      return b == 0 ? -1 : a / b;
    case format::kCeilDiv:
      return b == 0 ? -1 : a / b + (a % b != 0);
    case format::kMin:
      return a < b ? a : b;
    default:
      return a > b ? a : b;
  }
}

}  // namespace

size_t dimension_text(const Program& program, uint32_t dimension, char* text, size_t size) {
  Out out{text, size, 0};
  write(program, dimension, 0, &out);
  if (size > 0) text[out.used < size ? out.used : size - 1] = '\0';
  return out.used;
}

int64_t evaluate_dimension(const Program& program, uint32_t dimension, const int64_t* symbols) {
  const format::Dimension& d = program.dimensions[dimension];
  if (d.op == format::kNumber) return d.b;
  if (d.op == format::kSymbol) return symbols[d.a];
  if (d.op == format::kRuntime) return -1;
  const int64_t a = evaluate_dimension(program, d.a, symbols);
  const int64_t b = evaluate_dimension(program, static_cast<uint32_t>(d.b), symbols);
  return a < 0 || b < 0 ? -1 : apply(d.op, a, b);
}

}  // namespace opforge
