// meta.h: the fake kernel: the schema's shape rule on PyTorch's symbolic sizes.
#pragma once

#include <ATen/ops/empty.h>
#include <c10/core/SymBool.h>
#include <c10/core/SymInt.h>

#include <optional>
#include <string>

#include "accelerator/kernel.h"

namespace opforge::detail {

// Conditions over symbols become guards of the graph that is being traced.
template <>
struct DimTraits<c10::SymInt> {
  using D = c10::SymInt;
  static std::optional<D> from_host(const D& dim) { return dim; }
  static D unknown() { return D(-1); }
  static D from(int64_t number) { return D(number); }
  static std::optional<int64_t> constant(const D& dim) { return dim.maybe_as_int(); }
  static bool require_equal(const D& a, const D& b) { return a.sym_eq(b).expect_true(__FILE__, __LINE__); }
  static bool require_nonnegative(const D& a) { return a.sym_ge(0).expect_true(__FILE__, __LINE__); }
  static bool require_divisible(const D& a, int64_t b) {
    return (a % D(b)).sym_eq(0).expect_true(__FILE__, __LINE__);
  }
  static bool decide_one(const D& a) { return a.sym_eq(1).guard_or_false(__FILE__, __LINE__); }
  static bool compute(char op, const D& a, const D& b, D* out) {
    if (const auto left = a.maybe_as_int(), right = b.maybe_as_int(); left && right) {
      int64_t number = 0;
      if (!DimTraits<int64_t>::compute(op, *left, *right, &number)) return false;
      *out = D(number);
      return true;
    }
    *out = op == '+' ? a + b : op == '-' ? a - b : op == '*' ? a * b : a / b;
    return true;
  }
  static std::string text(const D& dim) {
    const auto number = dim.maybe_as_int();
    return number ? std::to_string(*number) : c10::str(dim);
  }
};

}  // namespace opforge::detail

namespace opforge::torch_host {

struct MetaKernel final : c10::OperatorKernel {
  explicit MetaKernel(Operator* one) : self(one) {}

  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack* stack) {
    raising([&] { run(stack); });
  }

  void run(torch::jit::Stack* stack) const {
    const Plan& plan = self->plan;
    const detail::Signature& signature = plan.signature;
    const size_t base = stack->size() - signature.inputs.size() - signature.attributes.size();
    Tensors tensors;
    Counts counts;
    collect_inputs(plan, *stack, base, &tensors, &counts);
    std::vector<detail::ShapeView<c10::SymInt>> shapes;
    std::vector<opforge_dtype> dtypes;
    size_t flat = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] == 0 && !signature.inputs[i].variadic) {
        shapes.push_back({nullptr, detail::kAbsent});
        dtypes.push_back(opforge_dtype{});
      }
      for (int32_t k = 0; k < counts[i]; ++k, ++flat) {
        if (tensors[flat].device() != tensors[0].device()) {
          throw failure(OPFORGE_STATUS_INVALID_ARGUMENT, argument(plan, i), "inputs are on different devices",
                        c10::str(tensors[0].device()), c10::str(tensors[flat].device()),
                        "move them to one device");
        }
        const c10::SymIntArrayRef sizes = tensors[flat].sym_sizes();
        shapes.push_back({sizes.data(), static_cast<int32_t>(sizes.size())});
        dtypes.push_back(dtype_of(tensors[flat].scalar_type()));
      }
    }
    Attributes attributes;
    read_attributes(plan, stack->data() + base + signature.inputs.size(), &attributes);
    std::vector<int64_t> integers;
    for (size_t a = 0; a < attributes.size(); ++a) {
      integers.push_back(attributes[a].kind == OPFORGE_ATTRIBUTE_INT ? attributes[a].value.i : 0);
    }
    detail::Binding<c10::SymInt> binding;
    detail::Problem problem;
    if (!detail::bind(signature, plan.where, shapes, dtypes, integers.data(), &binding, &problem)) {
      throw failure_of(problem);
    }
    Tensors outputs;
    Counts output_counts(binding.output_counts.begin(), binding.output_counts.end());
    for (size_t o = 0; o < binding.shapes.size(); ++o) {
      outputs.push_back(at::empty_symint(
          binding.shapes[o].dims, tensors[0].options().dtype(scalar_type_of(binding.dtypes[o], plan.where))));
    }
    stack->resize(base);
    push_outputs(plan, outputs, output_counts, stack);
  }

  Operator* self;
};

}  // namespace opforge::torch_host
