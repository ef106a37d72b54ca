// shape.h: the shape function: the schema's rule on shapes of which ranks and dimensions may be unknown.
#pragma once

#include <memory>
#include <vector>

#include "opforge/detail/infer.h"
#include "tensorflow/api.h"
#include "tensorflow/definition.h"

namespace opforge::tensorflow_host {

using OwnShape = std::unique_ptr<ShapeHandle, void (*)(ShapeHandle*)>;

inline OwnShape own(ShapeHandle* handle) { return OwnShape(handle, api().TF_DeleteShapeHandle); }

// Tensors per input parameter, where it follows from how many there are in all.
inline bool input_counts(const Definition& self, int64_t tensors, std::vector<int32_t>* counts) {
  int64_t plain = 0, lists = 0;
  for (const std::string& count : self.input_counts) ++(count.empty() ? plain : lists);
  if (lists > 1 && tensors != static_cast<int64_t>(self.input_counts.size())) return false;
  for (const std::string& count : self.input_counts)
    counts->push_back(count.empty() || lists > 1 ? 1 : static_cast<int32_t>(tensors - plain));
  return true;
}

inline std::vector<int64_t> read_shape(ShapeContext* context, int input, Status* status, int32_t* rank) {
  const OwnShape shape = own(api().TF_NewShapeHandle());
  api().TF_ShapeInferenceContextGetInput(context, input, shape.get(), status);
  std::vector<int64_t> dims;
  *rank = detail::kUnknownRank;
  if (api().TF_ShapeInferenceContextRankKnown(context, shape.get()) == 0) return dims;
  *rank = static_cast<int32_t>(api().TF_ShapeInferenceContextRank(context, shape.get()));
  const std::unique_ptr<DimensionHandle, void (*)(DimensionHandle*)> dim(api().TF_NewDimensionHandle(),
                                                                         api().TF_DeleteDimensionHandle);
  for (int32_t d = 0; d < *rank; ++d) {
    api().TF_ShapeInferenceContextDim(context, shape.get(), d, dim.get());
    const bool known = api().TF_DimensionHandleValueKnown(dim.get()) != 0;
    dims.push_back(known ? api().TF_DimensionHandleValue(dim.get()) : -1);
  }
  return dims;
}

// TensorFlow's C API makes no dimension by itself: a shape is put together from vectors. One of size_t(-1)
// elements has an unknown dimension.
inline void write_shape(ShapeContext* context, int output, const std::vector<int64_t>& dims, Status* status) {
  OwnShape whole = own(api().TF_ShapeInferenceContextScalar(context));
  for (const int64_t dim : dims) {
    const OwnShape part =
        own(api().TF_ShapeInferenceContextVectorFromSize(context, static_cast<size_t>(dim)));
    OwnShape longer = own(api().TF_NewShapeHandle());
    api().TF_ShapeInferenceContextConcatenateShapes(context, whole.get(), part.get(), longer.get(), status);
    whole = std::move(longer);
  }
  api().TF_ShapeInferenceContextSetOutput(context, output, whole.get(), status);
}

inline void infer_shapes(const Definition& self, ShapeContext* context, Status* status) {
  api().TF_ShapeInferenceContextSetUnknownShape(context, status);
  const int64_t tensors = api().TF_ShapeInferenceContextNumInputs(context);
  std::vector<int32_t> counts;
  if (!self.static_shapes || !input_counts(self, tensors, &counts)) return;
  std::vector<std::vector<int64_t>> dims;
  std::vector<detail::ShapeView<int64_t>> shapes;
  dims.reserve(static_cast<size_t>(tensors));
  int input = 0;
  for (size_t k = 0; k < counts.size(); ++k) {
    if (counts[k] == 0 && !self.signature.inputs[k].variadic) shapes.push_back({nullptr, detail::kAbsent});
    for (int32_t c = 0; c < counts[k]; ++c) {
      int32_t rank = detail::kUnknownRank;
      dims.push_back(read_shape(context, input++, status, &rank));
      shapes.push_back({dims.back().data(), rank});
    }
  }
  const std::vector<opforge_dtype> dtypes(shapes.size());
  const std::vector<int64_t> integers(self.signature.attributes.size());
  detail::Binding<int64_t> binding;
  detail::Problem problem;
  if (!detail::bind(self.signature, self.where, shapes, dtypes, integers.data(), &binding, &problem)) {
    return api().TF_SetStatus(status, kInvalidArgument, problem.message().c_str());
  }
  for (size_t k = 0; k < binding.shapes.size(); ++k) {
    if (binding.shapes[k].ranked) write_shape(context, static_cast<int>(k), binding.shapes[k].dims, status);
  }
}

}  // namespace opforge::tensorflow_host
