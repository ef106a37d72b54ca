// program.h: a gradient program, pruned to what is asked for and resolved to registered operators.
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

#include "opforge/detail/gradient.h"

namespace opforge::torch_host {

struct Operator;

// Where an attribute of a step comes from: an attribute of the forward call, or a value.
struct AttributeSource {
  int32_t forward = -1;
  c10::IValue value;
};

struct CompiledStep {
  Operator* target = nullptr;
  std::vector<detail::Operand> operands;  // one per input parameter of the target
  std::vector<AttributeSource> attributes;
  std::vector<int32_t> results;  // value number per output parameter
  std::vector<bool> wanted;      // whether anything reads that value
};

struct Program {
  std::vector<CompiledStep> steps;
  std::vector<detail::Operand> results;                               // one per forward input parameter
  std::vector<int32_t> reads_inputs, reads_outputs, reads_gradients;  // parameters, ascending
  int32_t values = 0;                                                 // highest value number + 1
};

inline c10::IValue literal_value(const detail::Literal& literal, int32_t kind) {
  const auto number = [](const detail::Scalar& item) {
    return item.kind == OPFORGE_ATTRIBUTE_FLOAT ? item.f : static_cast<double>(item.i);
  };
  switch (kind) {
    case OPFORGE_ATTRIBUTE_INT:
      return literal.items[0].i;
    case OPFORGE_ATTRIBUTE_BOOL:
      return literal.items[0].i != 0;
    case OPFORGE_ATTRIBUTE_FLOAT:
      return number(literal.items[0]);
    case OPFORGE_ATTRIBUTE_STRING:
      return literal.items[0].s;
    case OPFORGE_ATTRIBUTE_INTS: {
      c10::List<int64_t> list;
      for (const auto& item : literal.items) list.push_back(item.i);
      return list;
    }
    case OPFORGE_ATTRIBUTE_BOOLS: {
      c10::List<bool> list;
      for (const auto& item : literal.items) list.push_back(item.i != 0);
      return list;
    }
    case OPFORGE_ATTRIBUTE_FLOATS: {
      c10::List<double> list;
      for (const auto& item : literal.items) list.push_back(number(item));
      return list;
    }
    default: {
      c10::List<std::string> list;
      for (const auto& item : literal.items) list.push_back(item.s);
      return list;
    }
  }
}

}  // namespace opforge::torch_host
