// kernel.cuh: what the author of a CUDA kernel writes against, with nvcc and in the emulator.
//
//   template <class T>
//   __global__ void scaled(opforge::cuda::View<const T, 2> x, opforge::cuda::View<T, 2> y, float factor) { ... }
//
//   template <class T>
//   opforge::Status scale(opforge::cuda::Context& context, opforge::cuda::View<const T, 2> x, double factor,
//                         opforge::cuda::View<T, 2> y) {
//     auto launch = context.launch(y.size());
//     if (!launch) return launch.status();
//     scaled<T><<<opforge::cuda::blocks_for(y.size()), opforge::cuda::kThreads, 0, launch.stream()>>>(x, y, factor);
//     return launch.finish();
//   }
//
// The launcher is named and called as a kernel of the CPU is (opforge/kernel.h): once per choice of dtypes, with
// inputs, attributes, outputs. T is __half or __nv_bfloat16 for halves. Views hold their sizes and strides, so that
// kernels take them by value. It runs on the host and sees no values: data of the device is looked at by kernels alone,
// and nothing waits for them. Memory comes from context.scratch. Empty tensors launch nothing.
#pragma once

#include <cuda_runtime.h>

#include "opforge/cuda/element.cuh"
#include "opforge/cuda/launch.h"
#include "opforge/cuda/space.h"
#include "opforge/cuda/tuning.h"
#include "opforge/kernel.h"

namespace opforge {
namespace cuda {

// A tensor of N dimensions on the device (kAnyRank: as many as ndim() says, 12 at most). Sizes and strides are 64 bits
// wide and count elements. Copies are cheap and refer to the same memory.
template <class T, int N = kAnyRank>
class View {
 public:
  View() = default;
  // Throws where the tensor has more dimensions than a view can have.
  explicit View(const opforge::View<T, N>& host) {
    if (!host.present()) return;
    if (host.ndim() > kStored)
      throw opforge::Context::HostFailure{OPFORGE_STATUS_UNSUPPORTED, "a tensor has more than 12 dimensions"};
    data_ = host.data();
    ndim_ = host.ndim();
    for (int axis = 0; axis < ndim_; ++axis) {
      shape_[axis] = host.shape(axis);
      stride_[axis] = host.stride(axis);
    }
  }

  __host__ __device__ bool present() const { return ndim_ >= 0; }
  __host__ __device__ T* data() const { return data_; }
  __host__ __device__ int ndim() const { return N == kAnyRank ? ndim_ : N; }
  __host__ __device__ int64_t shape(int axis) const { return shape_[axis < 0 ? axis + ndim() : axis]; }
  __host__ __device__ int64_t stride(int axis) const { return stride_[axis < 0 ? axis + ndim() : axis]; }
  __host__ __device__ int64_t size() const {
    int64_t n = 1;
    for (int axis = 0; axis < ndim(); ++axis) n *= shape_[axis];
    return n;
  }
  __host__ __device__ bool is_dense() const {
    int64_t expected = 1;
    for (int axis = ndim() - 1; axis >= 0; --axis) {
      if (shape_[axis] != 1 && stride_[axis] != expected) return false;
      expected *= shape_[axis];
    }
    return true;
  }
  // Whether packs of W elements can be loaded from the start of every row of a dense tensor.
  template <int W>
  __host__ __device__ bool takes_packs() const {
    const bool whole = ndim() == 0 || shape(-1) % W == 0;
    return whole && reinterpret_cast<uintptr_t>(data_) % (sizeof(T) * W) == 0;
  }
  // Element access: one index per dimension.
  template <class... Index>
  __host__ __device__ T& operator()(Index... index) const {
    static_assert(N == kAnyRank || sizeof...(Index) == N, "one index per dimension");
    const int64_t indices[] = {static_cast<int64_t>(index)..., 0};
    int64_t offset = 0;
    for (int axis = 0; axis < static_cast<int>(sizeof...(Index)); ++axis) offset += indices[axis] * stride_[axis];
    return data_[offset];
  }
  __host__ __device__ T& operator[](int64_t i) const { return data_[i]; }  // dense tensors, in row-major order

 private:
  static constexpr int kStored = N == kAnyRank ? kRank : N;

  T* data_ = nullptr;
  int64_t shape_[kStored == 0 ? 1 : kStored] = {}, stride_[kStored == 0 ? 1 : kStored] = {};
  int ndim_ = -1;  // absent
};

// The tensors of a variadic parameter, on the host.
template <class T, int N = kAnyRank>
class Views {
 public:
  explicit Views(const opforge::Views<T, N>& host) : host_(host) {}
  int size() const { return host_.size(); }
  View<T, N> operator[](int k) const { return View<T, N>(host_[k]); }

 private:
  opforge::Views<T, N> host_;
};

// What the host offers to a launcher: opforge::Context, and the stream. Scratch is memory of the device that lives
// until the launched kernels have run.
class Context : public opforge::Context {
 public:
  using opforge::Context::Context;

  cudaStream_t stream() const { return static_cast<cudaStream_t>(opforge::Context::stream()); }
  // Makes the context's device current until the result goes. `elements` says how many the kernels compute: where there
  // are none, nothing of CUDA is called, and the result says to return.
  Launch launch(int64_t elements) { return Launch(raw(), elements); }
  // What `opforge tune` found fastest for calls of this size; zeros where nothing was tuned. Takes the views of all
  // tensors of the call, inputs and outputs.
  template <class... Each>
  opforge_choice tuned(const Each&... views) const {
    return opforge::cuda::tuned(raw(), (static_cast<int64_t>(views.size()) + ...));
  }
};

}  // namespace cuda
}  // namespace opforge
