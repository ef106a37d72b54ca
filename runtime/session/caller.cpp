// caller.cpp: names, shapes and buffers that come from outside, with messages that say what would have been
// right.
#include "session/caller.h"

#include <algorithm>
#include <cstdlib>

#include "session/names.h"

namespace opforge::session {
namespace {

std::vector<std::string> names_of(const std::vector<ValueText>& values) {
  std::vector<std::string> names;
  for (const ValueText& value : values) names.push_back(value.name);
  return names;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "'" : ", '") + name + "'";
  return text.empty() ? "none" : text;
}

int32_t index_of(const std::vector<ValueText>& values, const char* name) {
  for (size_t k = 0; name != nullptr && k < values.size(); ++k) {
    if (values[k].name == name) return static_cast<int32_t>(k);
  }
  return -1;
}

opforge_status unknown_name(const char* what, const char* name, const std::vector<ValueText>& values,
                            Error* error) {
  const std::vector<std::string> names = names_of(values);
  if (name == nullptr) name = "(NULL)";
  const std::string nearest = nearest_name(name, names);
  error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "there is no such %s", what)
      .wanted("%s", joined(names).c_str())
      .found("'%s'", name);
  if (!nearest.empty()) error->advise("did you mean '%s'?", nearest.c_str());
  return error->status;
}

// Shapes that outputs point to until the next run on this thread.
struct Shapes {
  static constexpr size_t kInline = 16;
  int64_t few[kInline][kMaxRank];
  std::vector<std::unique_ptr<int64_t[]>> more;
  int64_t* of(size_t output) {
    if (output < kInline) return few[output];
    while (more.size() <= output - kInline) more.emplace_back(new int64_t[kMaxRank]);
    return more[output - kInline].get();
  }
};
thread_local Shapes output_shapes;

void* aligned(size_t bytes, Error* error) {
  void* data = nullptr;
  if (::posix_memalign(&data, 64, bytes == 0 ? 64 : bytes) == 0) return data;
  error->fail(OPFORGE_STATUS_OUT_OF_MEMORY, "no memory for an output").found("%zu bytes asked for", bytes);
  return nullptr;
}

}  // namespace

Status to_tensor(const opforge_tensor& from, const std::string& name, Tensor* to, Error* error) {
  *to = Tensor();
  if (from.device.type != OPFORGE_DEVICE_CPU && from.device.type != OPFORGE_DEVICE_CUDA_HOST) {
    return error->fail(OPFORGE_STATUS_UNSUPPORTED, "a tensor is not in the CPU's memory")
        .at("'%s'", name.c_str());
  }
  if (from.ndim < 0 || from.ndim > kMaxRank) {
    return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "a tensor has too many dimensions")
        .at("'%s'", name.c_str())
        .wanted("at most %d", kMaxRank)
        .found("%d", from.ndim);
  }
  if (from.shape == nullptr && from.ndim > 0) {
    return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "a tensor has no shape")
        .at("'%s'", name.c_str())
        .wanted("%d numbers", from.ndim);
  }
  to->dtype = from_dlpack(from.dtype);
  to->shape.rank = from.ndim;
  int64_t dense = 1;
  bool is_dense = true, empty = false;
  for (int32_t k = from.ndim - 1; k >= 0; --k) {
    to->shape.dims[k] = from.shape[k];
    if (from.shape[k] < 0)
      return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "a dimension is negative").at("'%s'", name.c_str());
    is_dense = is_dense && (from.strides == nullptr || from.shape[k] == 1 || from.strides[k] == dense);
    empty = empty || from.shape[k] == 0;
    if (__builtin_mul_overflow(dense, from.shape[k], &dense)) dense = 0;
  }
  to->data = from.data == nullptr ? nullptr : static_cast<char*>(from.data) + from.byte_offset;
  if (!is_dense && !empty) {
    return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "a tensor is not dense")
        .at("'%s'", name.c_str())
        .advise("copy it to row-major order first");
  }
  if (to->data == nullptr && !empty) {
    return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "a tensor has no data").at("'%s'", name.c_str());
  }
  return OPFORGE_STATUS_OK;
}

CallerOutputs::~CallerOutputs() {
  for (void* data : spare_) std::free(data);
}

Status CallerOutputs::prepare(Error* error) {
  const size_t n = session_.outputs().size();
  for (size_t k = 0; k < n; ++k) slot_[k] = -1;
  if (run_->output_names == nullptr && run_->n_outputs > static_cast<int32_t>(n)) {
    return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "too many outputs are asked for")
        .wanted("at most %zu", n)
        .found("%d", run_->n_outputs);
  }
  for (int32_t k = 0; k < run_->n_outputs; ++k) {
    const int32_t at =
        run_->output_names == nullptr ? k : index_of(session_.outputs(), run_->output_names[k]);
    if (at < 0) return unknown_name("output", run_->output_names[k], session_.outputs(), error);
    if (slot_[static_cast<size_t>(at)] >= 0) {
      return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "an output is asked for twice")
          .found("'%s'", run_->output_names[k]);
    }
    slot_[static_cast<size_t>(at)] = k;
  }
  return OPFORGE_STATUS_OK;
}

void* CallerOutputs::give(int32_t output, const Tensor& tensor, size_t bytes, Error* error) {
  const int32_t k = slot_[static_cast<size_t>(output)];
  if (k < 0) {
    spare_.push_back(aligned(bytes, error));
    return spare_.back();
  }
  opforge_tensor& to = run_->outputs[k];
  if (to.data != nullptr) return check(output, tensor, to, error);
  int64_t* shape = output_shapes.of(static_cast<size_t>(k));
  std::copy(tensor.shape.dims, tensor.shape.dims + tensor.shape.rank, shape);
  void* data = run_->allocate == nullptr
                   ? aligned(bytes, error)
                   : run_->allocate(run_->allocate_user, k, static_cast<int32_t>(tensor.dtype), shape,
                                    tensor.shape.rank, bytes);
  if (data == nullptr && bytes != 0 && error->status == OPFORGE_STATUS_OK) {
    error->fail(OPFORGE_STATUS_OUT_OF_MEMORY, "no memory for an output").found("%zu bytes asked for", bytes);
  }
  to = {};
  to.data = data;
  to.device = {OPFORGE_DEVICE_CPU, 0};
  to.ndim = tensor.shape.rank;
  to.dtype = to_dlpack(tensor.dtype);
  to.shape = shape;
  if (run_->allocate == nullptr) owned_.push_back(k);
  return data;
}

void CallerOutputs::withdraw() {
  for (int32_t k : owned_) {
    std::free(run_->outputs[k].data);
    run_->outputs[k].data = nullptr;
  }
}

void* CallerOutputs::check(int32_t output, const Tensor& tensor, const opforge_tensor& to,
                           Error* error) const {
  Tensor given;
  const std::string& name = session_.outputs()[static_cast<size_t>(output)].name;
  if (to_tensor(to, name, &given, error)) return nullptr;
  const bool same = given.dtype == tensor.dtype && given.shape.rank == tensor.shape.rank &&
                    std::equal(given.shape.dims, given.shape.dims + given.shape.rank, tensor.shape.dims);
  if (same) return given.data;
  std::string wanted = dtype_name(tensor.dtype), found = dtype_name(given.dtype);
  for (int k = 0; k < tensor.shape.rank; ++k)
    wanted += (k ? "," : "[") + std::to_string(tensor.shape.dims[k]);
  for (int k = 0; k < given.shape.rank; ++k) found += (k ? "," : "[") + std::to_string(given.shape.dims[k]);
  error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "the buffer of an output does not fit")
      .at("output '%s'", name.c_str())
      .wanted("%s]", wanted.c_str())
      .found("%s]", found.c_str());
  return nullptr;
}

Status gather_inputs(const Session& session, const opforge_run& run, Tensor* tensors, Error* error) {
  const std::vector<ValueText>& inputs = session.inputs();
  Few<uint8_t> given(inputs.size());
  for (int32_t k = 0; k < run.n_inputs; ++k) {
    const int32_t at = run.input_names != nullptr                ? index_of(inputs, run.input_names[k])
                       : k < static_cast<int32_t>(inputs.size()) ? k
                                                                 : -1;
    if (at < 0)
      return unknown_name("input", run.input_names != nullptr ? run.input_names[k] : "(one too many)", inputs,
                          error);
    const auto index = static_cast<size_t>(at);
    if (given[index])
      return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "an input is given twice")
          .found("'%s'", inputs[index].name.c_str());
    given[index] = 1;
    if (opforge_status status = to_tensor(run.inputs[k], inputs[index].name, &tensors[index], error))
      return status;
  }
  std::vector<std::string> missing;  // no heap while it is empty
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (!given[k]) missing.push_back(inputs[k].name);
  }
  if (missing.empty()) return OPFORGE_STATUS_OK;
  return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "inputs are missing")
      .wanted("%s", joined(names_of(inputs)).c_str())
      .found("nothing for %s", joined(missing).c_str());
}

}  // namespace opforge::session
