// layer.h: one run of a layer: tensors of ncnn in, our kernel, tensors of ncnn out.
#pragma once

#include <climits>
#include <memory>

#include "common/bind.h"
#include "common/context.h"
#include "ncnn/params.h"

namespace opforge::ncnn_host {

struct Layer {
  explicit Layer(const Plan& which) : plan(which) {}
  const Plan& plan;
  Node node;
};

// A tensor of ncnn as dense memory or by strides: channels of three or four axes begin at multiples of 16
// bytes.
struct Extent {
  int64_t sizes[5] = {};
  int64_t strides[5] = {};
  int32_t rank = 0;
  bool dense = true;

  Extent() = default;
  Extent(ncnn_handle mat, int32_t form) {
    const int dims = ncnn_mat_get_dims(mat);
    if (form == kWithoutFirst) sizes[rank++] = 1;
    if (dims >= 3) sizes[rank++] = ncnn_mat_get_c(mat);
    if (dims == 4) sizes[rank++] = ncnn_mat_get_d(mat);
    if (dims >= 2) sizes[rank++] = ncnn_mat_get_h(mat);
    sizes[rank++] = ncnn_mat_get_w(mat);
    if (form == kNoAxes) rank = 0;
    int64_t step = 1;
    for (int32_t k = rank - 1; k >= 0; --k) {
      const bool channels = dims >= 3 && k == rank - dims;
      if (channels && step != static_cast<int64_t>(ncnn_mat_get_cstep(mat))) {
        dense = sizes[k] <= 1;
        step = static_cast<int64_t>(ncnn_mat_get_cstep(mat));
      }
      strides[k] = step;
      step *= sizes[k];
    }
  }
  int64_t count() const {
    int64_t total = 1;
    for (int32_t k = 0; k < rank; ++k) total *= sizes[k];
    return total;
  }
};

// Elements have 4 bytes. Planes are dense, so that a tensor is `planes` runs that lie `step` elements apart.
inline void copy_planes(char* to, int64_t to_step, const char* from, int64_t from_step, int64_t planes,
                        int64_t size) {
  for (int64_t k = 0; k < planes; ++k) {
    std::memcpy(to + 4 * k * to_step, from + 4 * k * from_step, static_cast<size_t>(4 * size));
  }
}

// How many threads the layer that this thread runs may take, as the option of its net says.
inline int& region_threads() {
  static thread_local int threads = 1;
  return threads;
}

inline void parallel_chunks(int64_t chunks, void (*body)(int64_t, int64_t, void*), void* user) {
#ifdef _OPENMP
  const int threads = region_threads() > 0 ? region_threads() : 1;
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t chunk = 0; chunk < chunks; ++chunk) body(chunk, chunk + 1, user);
#else
  body(0, chunks, user);
#endif
}

class Call {
 public:
  Call(const Layer& layer, const ncnn_handle* bottoms, int n, ncnn_handle* tops, int n2)
      : layer_(layer), plan_(layer.plan), bottoms_(bottoms), tops_(tops) {
    size_t read = 0;
    for (const int32_t form : layer.node.results) read += form != kUnread;
    if (static_cast<size_t>(n) != layer.node.forms.size() || static_cast<size_t>(n2) != read) {
      throw failure(OPFORGE_STATUS_INVALID_ARGUMENT, plan_.where,
                    "the layer has other inputs or outputs than it says",
                    std::to_string(layer.node.forms.size()) + " and " + std::to_string(read),
                    std::to_string(n) + " and " + std::to_string(n2));
    }
  }

  void run();

  // For allocate_late.
  int32_t outputs() const { return bound_.outputs(); }
  void allocate(int32_t flat, const int64_t* shape, int32_t rank);

 private:
  void read_input(size_t index, bool strided);
  void finish();

  const Layer& layer_;
  const Plan& plan_;
  const ncnn_handle* bottoms_;
  ncnn_handle* tops_;
  std::vector<Extent> extents_;
  std::vector<std::unique_ptr<char[]>> dense_, results_;
  Small<opforge_tensor, 8> inputs_, outputs_;
  Bound bound_;
};

inline std::unique_ptr<char[]> memory(int64_t elements) {
  return std::unique_ptr<char[]>(new char[static_cast<size_t>(4 * elements) + 1]);
}

inline void Call::read_input(size_t index, bool strided) {
  ncnn_handle const mat = bottoms_[index];
  if (ncnn_mat_get_dims(mat) < 1 || ncnn_mat_get_elemsize(mat) != 4 || ncnn_mat_get_elempack(mat) != 1) {
    throw failure(OPFORGE_STATUS_TYPE, plan_.where, "a tensor that is not plain",
                  "4 bytes an element, unpacked",
                  std::to_string(ncnn_mat_get_elemsize(mat)) + " bytes, packed by " +
                      std::to_string(ncnn_mat_get_elempack(mat)));
  }
  Extent& extent = extents_[index];
  extent = Extent(mat, layer_.node.forms[index]);
  opforge_tensor view{};
  view.device = {OPFORGE_DEVICE_CPU, 0};
  view.dtype = layer_.node.dtypes[index];
  view.ndim = extent.rank;
  view.shape = extent.sizes;
  view.data = ncnn_mat_get_data(mat);
  if (!extent.dense && strided) {
    view.strides = extent.strides;
  } else if (!extent.dense) {
    const int32_t channel = extent.rank - ncnn_mat_get_dims(mat);
    const int64_t planes = extent.sizes[channel], size = extent.count() / planes;
    dense_.push_back(memory(extent.count()));
    copy_planes(dense_.back().get(), size, static_cast<const char*>(view.data), extent.strides[channel],
                planes, size);
    view.data = dense_.back().get();
  }
  inputs_.push_back(view);
}

// The kernel writes dense memory; finish() brings it to tensors of ncnn.
inline void Call::allocate(int32_t flat, const int64_t* shape, int32_t rank) {
  opforge_tensor view{};
  view.device = {OPFORGE_DEVICE_CPU, 0};
  view.ndim = rank;
  view.dtype = bound_.dtype(flat);
  view.shape = const_cast<int64_t*>(shape);
  if (view.dtype.bits != 32) {
    throw failure(OPFORGE_STATUS_TYPE, plan_.where, "a tensor of ncnn holds float32 or int32", "f32 or i32",
                  detail::dtype_name(view.dtype));
  }
  int64_t count = 1;
  for (int32_t k = 0; k < rank; ++k) count *= shape[k];
  results_[static_cast<size_t>(flat)] = memory(count);
  view.data = results_[static_cast<size_t>(flat)].get();
  outputs_[static_cast<size_t>(flat)] = view;
}

inline void Call::finish() {
  size_t place = 0;
  for (size_t k = 0; k < outputs_.size(); ++k) {
    const int32_t form =
        k < layer_.node.results.size() ? layer_.node.results[k] : static_cast<int32_t>(kUnread);
    if (form == kUnread) continue;
    const opforge_tensor& view = outputs_[k];
    const int32_t skip = form == kWithoutFirst ? 1 : 0, rank = form == kNoAxes ? 1 : view.ndim - skip;
    bool fits =
        rank >= 1 && rank <= 4 && (skip == 0 || view.shape[0] == 1) && (form != kNoAxes || view.ndim == 0);
    int sizes[4] = {1, 1, 1, 1};  // w, h, d, c as far as there are such
    int64_t total = 1;
    for (int32_t d = 0; fits && form != kNoAxes && d < rank; ++d) {
      const int64_t size = view.shape[view.ndim - 1 - d];
      fits = size >= 1 && size <= INT_MAX;
      sizes[d] = static_cast<int>(size);
      total *= size;
    }
    if (!fits) {
      throw failure(OPFORGE_STATUS_UNSUPPORTED, plan_.where, "a result has no form in ncnn",
                    "one to four axes of at least 1, and a batch of 1", std::to_string(view.ndim) + " axes");
    }
    Mat made(rank == 1   ? ncnn_mat_create_1d_elem(sizes[0], 4, 1, nullptr)
             : rank == 2 ? ncnn_mat_create_2d_elem(sizes[0], sizes[1], 4, 1, nullptr)
             : rank == 3 ? ncnn_mat_create_3d_elem(sizes[0], sizes[1], sizes[2], 4, 1, nullptr)
                         : ncnn_mat_create_4d_elem(sizes[0], sizes[1], sizes[2], sizes[3], 4, 1, nullptr));
    void* const data = made.handle == nullptr ? nullptr : ncnn_mat_get_data(made.handle);
    if (data == nullptr)
      throw failure(OPFORGE_STATUS_OUT_OF_MEMORY, plan_.where, "ncnn has no memory for a result");
    const int64_t planes = rank >= 3 ? sizes[rank - 1] : 1, size = total / planes;
    const int64_t step = rank >= 3 ? static_cast<int64_t>(ncnn_mat_get_cstep(made.handle)) : size;
    copy_planes(static_cast<char*>(data), step, static_cast<const char*>(view.data), size, planes, size);
    ncnn_mat_destroy(tops_[place]);  // the empty one that stood there
    tops_[place++] = made.release();
  }
}

inline void Call::run() {
  const Node& node = layer_.node;
  extents_.resize(node.forms.size());
  // The dtypes say which kernel runs; what the shapes say is bound below.
  const detail::Signature& signature = plan_.signature;
  std::vector<opforge_dtype> types(signature.types.size());
  size_t flat = 0;
  for (size_t p = 0; p < signature.inputs.size(); ++p) {
    for (int32_t k = 0; k < node.counts[p]; ++k, ++flat) {
      if (signature.inputs[p].variable >= 0)
        types[static_cast<size_t>(signature.inputs[p].variable)] = node.dtypes[flat];
    }
  }
  const opforge_kernel* const kernel = plan_.kernel(types.data(), OPFORGE_DEVICE_CPU);
  for (size_t k = 0; k < node.forms.size(); ++k) read_input(k, (kernel->flags & OPFORGE_KERNEL_STRIDED) != 0);
  bind(plan_, inputs_.data(), node.counts.data(), node.attributes, &bound_);
  outputs_.resize(static_cast<size_t>(bound_.outputs()));
  results_.resize(static_cast<size_t>(bound_.outputs()));
  for (int32_t k = 0; k < bound_.outputs(); ++k) {
    if (bound_.known(k)) allocate(k, bound_.sizes(k), bound_.rank(k));
  }
  CallContext context(&parallel_chunks, kernel->data);
  context.allocate = &allocate_late<Call>;
  context.call = this;
  const opforge_arguments in{inputs_.data(), node.counts.data(), static_cast<int32_t>(inputs_.size()),
                             static_cast<int32_t>(node.counts.size())};
  const opforge_arguments out{outputs_.data(), bound_.counts.data(), static_cast<int32_t>(outputs_.size()),
                              static_cast<int32_t>(bound_.counts.size())};
  const opforge_status status = run_in(context, *kernel, in, out, node.attributes.data());
  if (status != OPFORGE_STATUS_OK) throw kernel_failure(plan_, status, context.text);
  finish();
}

}  // namespace opforge::ncnn_host
