// shape.h: shape inference, and the check of a node's shapes when its kernel is created. ONNX Runtime drops
// what shape inference complains of (before 1.24), so the second is what refuses a model.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "onnxruntime/attributes.h"
#include "onnxruntime/extent.h"

namespace opforge::onnxruntime_host {

using OwnTensorInfo = std::unique_ptr<TensorInfo, void (*)(TensorInfo*)>;

// The inputs of a node as far as they are known while the model is loaded.
struct KnownInputs {
  std::vector<std::vector<Extent>> dims;
  std::vector<detail::ShapeView<Extent>> shapes;
  std::vector<opforge_dtype> dtypes;

  explicit KnownInputs(size_t count) { dims.reserve(count); }

  void add_absent() {
    shapes.push_back({nullptr, detail::kAbsent});
    dtypes.push_back({});
  }
  void add_unknown() {
    shapes.push_back({nullptr, detail::kUnknownRank});
    dtypes.push_back({});
  }
  void add(const TensorInfo* info, const std::string& where) {
    int32_t type = 0;
    size_t rank = 0;
    check(api().GetTensorElementType(info, &type), where);
    check(api().GetDimensionsCount(info, &rank), where);
    // Before 1.24 a tensor of unknown rank looks like a scalar.
    const bool ranked =
        api().TensorTypeAndShape_HasShape ? api().TensorTypeAndShape_HasShape(info) : rank > 0;
    std::vector<int64_t> numbers(rank);
    std::vector<const char*> names(rank);
    check(api().GetDimensions(info, numbers.data(), rank), where);
    check(api().GetSymbolicDimensions(info, names.data(), rank), where);
    dims.emplace_back();
    for (size_t d = 0; d < rank; ++d) {
      const bool named = names[d] != nullptr && names[d][0] != '\0';
      dims.back().push_back({named ? -1 : numbers[d], named ? names[d] : ""});
    }
    shapes.push_back({dims.back().data(), ranked ? static_cast<int32_t>(rank) : detail::kUnknownRank});
    const opforge_dtype dtype = dtype_of(type);
    dtypes.push_back(detail::is_known(dtype) ? dtype : opforge_dtype{});
  }
};

inline void bind_known(const Plan& plan, const KnownInputs& inputs, const int64_t* integers,
                       detail::Binding<Extent>* binding) {
  doubts() = {};
  detail::Problem problem;
  if (!detail::bind(plan.signature, plan.where, inputs.shapes, inputs.dtypes, integers, binding, &problem))
    throw failure_of(problem);
}

// ---- shape inference

// Values of int attributes, which dimensions may read.
inline std::vector<int64_t> integers_of(const ShapeContext* context, const Plan& plan) {
  std::vector<int64_t> integers;
  for (const detail::Attribute& declared : plan.signature.attributes) {
    const bool integer = declared.kind == OPFORGE_ATTRIBUTE_INT;
    integers.push_back(integer && !declared.required ? declared.default_value.ints[0] : 0);
    const Attribute* attribute = nullptr;
    if (!good(api().ShapeInferContext_GetAttribute(context, declared.name.c_str(), &attribute))) continue;
    if (!integer) continue;
    size_t size = 0;
    int64_t value = 0;
    if (!good(api().ReadOpAttr(attribute, kInt, &value, sizeof value, &size)))
      throw wrong_type(plan, declared, kUndefined);
    integers.back() = value;
  }
  return integers;
}

// A dimension without a name is written as -1 by ONNX Runtime, which then takes it for a number.
inline std::string fresh_name() {
  static std::atomic<uint64_t> count{0};
  return "unk__opforge_" + std::to_string(count.fetch_add(1));
}

inline void set_output(const ShapeContext* context, size_t index, opforge_dtype dtype,
                       const std::vector<Extent>& dims, const std::string& where) {
  TensorInfo* made = nullptr;
  check(api().CreateTensorTypeAndShapeInfo(&made), where);
  const OwnTensorInfo info(made, api().ReleaseTensorTypeAndShapeInfo);
  std::vector<int64_t> numbers;
  std::vector<std::string> names;
  for (const Extent& dim : dims) {
    const bool lost = dim.name.empty() ? dim.number < 0 : doubts().about(dim.name);
    names.push_back(lost ? fresh_name() : dim.name);
    numbers.push_back(names.back().empty() ? dim.number : -1);
  }
  std::vector<const char*> views;
  for (const std::string& name : names) views.push_back(name.c_str());
  check(api().SetTensorElementType(info.get(), element_type(dtype)), where);
  check(api().SetDimensions(info.get(), numbers.data(), numbers.size()), where);
  check(api().SetSymbolicDimensions(info.get(), views.data(), views.size()), where);
  check(api().ShapeInferContext_SetOutputTypeShape(context, index, info.get()), where);
}

inline void infer(const Plan& plan, const ShapeContext* context) {
  size_t count = 0;
  check(api().ShapeInferContext_GetInputCount(context, &count), plan.where);
  const std::vector<int64_t> integers = integers_of(context, plan);
  KnownInputs inputs(count);
  for (size_t k = 0; k < count; ++k) {
    TensorInfo* info = nullptr;
    if (!good(api().ShapeInferContext_GetInputTypeShape(context, k, &info)) || info == nullptr) {
      const bool optional = k < plan.signature.inputs.size() && plan.signature.inputs[k].optional;
      optional ? inputs.add_absent() : inputs.add_unknown();
    } else {
      inputs.add(info, plan.where);
    }
  }
  detail::Binding<Extent> binding;
  bind_known(plan, inputs, integers.data(), &binding);
  // How many outputs the node has is not told, and a shape for one that it lacks ends the process.
  size_t flat = 0;
  for (size_t p = 0; p < plan.signature.outputs.size(); ++p) {
    const detail::Parameter& output = plan.signature.outputs[p];
    if (!output.optional && !output.variadic) {
      const auto& shape = binding.shapes[flat];
      const opforge_dtype dtype = binding.dtypes[flat];
      if (shape.ranked && detail::is_known(dtype)) set_output(context, p, dtype, shape.dims, plan.where);
    }
    flat += static_cast<size_t>(binding.output_counts[p]);
  }
}

// ---- a kernel that is created

inline std::string input_name(const KernelInfo* info, size_t index) {
  size_t size = 0;
  if (!good(api().KernelInfo_GetInputName(info, index, nullptr, &size)) || size == 0) return {};
  std::string name(size, '\0');
  if (!good(api().KernelInfo_GetInputName(info, index, name.data(), &size))) return {};
  name.resize(std::strlen(name.c_str()));
  return name;
}

inline void check_shapes(const Plan& plan, const KernelInfo* info, const Attributes& attributes) {
  size_t count = 0;
  check(api().KernelInfo_GetInputCount(info, &count), plan.where);
  KnownInputs inputs(count);
  for (size_t k = 0; k < count; ++k) {
    if (input_name(info, k).empty()) {
      inputs.add_absent();
      continue;
    }
    TypeInfo* made = nullptr;
    if (!good(api().KernelInfo_GetInputTypeInfo(info, k, &made))) {
      inputs.add_unknown();
      continue;
    }
    const std::unique_ptr<TypeInfo, void (*)(TypeInfo*)> type(made, api().ReleaseTypeInfo);
    const TensorInfo* tensor = nullptr;
    check(api().CastTypeInfoToTensorInfo(type.get(), &tensor), plan.where);
    tensor == nullptr ? inputs.add_unknown() : inputs.add(tensor, plan.where);
  }
  std::vector<int64_t> integers;
  for (size_t a = 0; a < attributes.size(); ++a)
    integers.push_back(attributes[a].kind == OPFORGE_ATTRIBUTE_INT ? attributes[a].value.i : 0);
  detail::Binding<Extent> binding;
  bind_known(plan, inputs, integers.data(), &binding);
}

}  // namespace opforge::onnxruntime_host
