// definition.h: an operator of a kernel library as a type of OpenVINO's operations.
#pragma once

#include <string>

#include <openvino/core/type.hpp>
#include <openvino/op/op.hpp>
#include <openvino/op/util/binary_elementwise_arithmetic.hpp>
#include <openvino/op/util/unary_elementwise_arithmetic.hpp>

#include "common/known.h"
#include "common/plan.h"

namespace opforge::openvino_host {

using namespace adapter;  // NOLINT: what every adapter shares

// What OpenVINO may know of an operator beyond that it is one. It asks elementwise operations of one or two
// inputs for no shapes while a model runs: it has the rule itself, where others are cloned for every run.
enum class Family { kPlain, kUnary, kBinary };

inline Family family_of(const Plan& plan) {
  const auto& outputs = plan.signature.outputs;
  if ((plan.table->flags & OPFORGE_OPERATOR_FORMULA) == 0 || !plan.fast.usable || outputs.size() != 1)
    return Family::kPlain;
  const size_t inputs = plan.signature.inputs.size();
  const auto& reads = plan.fast.broadcasts[0];
  for (const detail::Parameter& input : plan.signature.inputs) {
    if (input.variable < 0 || input.variable != outputs[0].variable) return Family::kPlain;
  }
  if (inputs == 1 && reads.size() == 1) return Family::kUnary;
  if (inputs == 2 && reads.size() == 2 && reads[0] != reads[1]) return Family::kBinary;
  return Family::kPlain;
}

struct Definition : Plan {
  Family family;
  std::string version;  // what an IR calls the layer's version
  // What tells operations apart. The domain is part of the name, since the CPU's plugin looks for operations
  // of its own by their name alone.
  ov::DiscreteTypeInfo type;

  explicit Definition(const opforge_operator* table_operator)
      : Plan(table_operator),
        family(family_of(*this)),
        version("opforge:" + std::to_string(table->since_version)),
        type(where.c_str(), version.c_str(), parent(family)) {
    type.hash();
  }
  Definition(const Definition&) = delete;
  Definition& operator=(const Definition&) = delete;

 private:
  static const ov::DiscreteTypeInfo* parent(Family family) {
    return family == Family::kUnary    ? &ov::op::util::UnaryElementwiseArithmetic::get_type_info_static()
           : family == Family::kBinary ? &ov::op::util::BinaryElementwiseArithmetic::get_type_info_static()
                                       : &ov::op::Op::get_type_info_static();
  }
};

using Operators = Known<Definition>;

inline Operators& operators() {
  static Operators* const all = new Operators("OpenVINO", "openvino");
  return *all;
}

}  // namespace opforge::openvino_host
