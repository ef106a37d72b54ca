// size.h: the schema's shape rule on TensorRT's dimension expressions.
#pragma once

#include <optional>
#include <string>

#include <NvInfer.h>

#include "opforge/detail/infer.h"

namespace opforge::tensorrt_host {

struct Size {
  int64_t number = 0;  // where expression is NULL
  const nvinfer1::IDimensionExpr* expression = nullptr;
  nvinfer1::IExprBuilder* builder = nullptr;
};

inline Size size_of(const nvinfer1::IDimensionExpr* given, nvinfer1::IExprBuilder& builder) {
  return given->isConstant() ? Size{given->getConstantValue(), nullptr, nullptr} : Size{0, given, &builder};
}

inline const nvinfer1::IDimensionExpr* expression_of(const Size& size, nvinfer1::IExprBuilder& builder) {
  return size.expression != nullptr ? size.expression : builder.constant(size.number);
}

inline Size operation(nvinfer1::DimensionOperation kind, const Size& a, const Size& b) {
  nvinfer1::IExprBuilder& builder = *(a.builder != nullptr ? a.builder : b.builder);
  return size_of(builder.operation(kind, *expression_of(a, builder), *expression_of(b, builder)), builder);
}

}  // namespace opforge::tensorrt_host

namespace opforge::detail {

template <>
struct DimTraits<tensorrt_host::Size> {
  using D = tensorrt_host::Size;
  using Kind = nvinfer1::DimensionOperation;

  static std::optional<D> from_host(const D& dim) { return dim; }
  static D unknown() { return {-1, nullptr, nullptr}; }
  static D from(int64_t number) { return {number, nullptr, nullptr}; }
  static std::optional<int64_t> constant(const D& dim) {
    return dim.expression == nullptr ? std::optional<int64_t>(dim.number) : std::nullopt;
  }
  // What holds of sizes that are not known is seen when the engine runs.
  static bool require_equal(const D& a, const D& b) {
    return a.expression != nullptr || b.expression != nullptr || a.number == b.number;
  }
  static bool require_nonnegative(const D& a) { return a.expression != nullptr || a.number >= 0; }
  static bool require_divisible(const D& a, int64_t b) {
    return a.expression != nullptr || a.number % b == 0;
  }
  static bool decide_one(const D& a) { return a.expression == nullptr && a.number == 1; }
  static bool compute(char op, const D& a, const D& b, D* out) {
    if (a.expression == nullptr && b.expression == nullptr) {
      *out = {};
      return DimTraits<int64_t>::compute(op, a.number, b.number, &out->number);
    }
    const Kind kind = op == '+'   ? Kind::kSUM
                      : op == '-' ? Kind::kSUB
                      : op == '*' ? Kind::kPROD
                                  : Kind::kFLOOR_DIV;
    const bool neutral = b.expression == nullptr && b.number == (op == '+' || op == '-' ? 0 : 1);
    *out = neutral ? a : tensorrt_host::operation(kind, a, b);
    return true;
  }
  // b where a is 1, else a. The maximum would not do: 1 and 0 broadcast to 0.
  static D broadcast(const D& a, const D& b) {
    if (a.expression == nullptr) return a.number == 1 ? b : a;
    if (b.expression == nullptr) return b.number == 1 ? a : b;
    const D one = tensorrt_host::operation(Kind::kEQUAL, a, from(1));
    const D more = tensorrt_host::operation(Kind::kSUB, b, from(1));
    return tensorrt_host::operation(Kind::kSUM, a, tensorrt_host::operation(Kind::kPROD, one, more));
  }
  static std::string text(const D& dim) {
    return dim.expression == nullptr ? std::to_string(dim.number) : "?";
  }
};

}  // namespace opforge::detail
