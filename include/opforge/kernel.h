// kernel.h: what the author of a kernel writes against (C++17).
//
//   template <class T, class I>
//   opforge::Status sparse_matmul(opforge::Context& context, opforge::View<const T, 1> values,
//                                 opforge::View<const I, 1> indices, opforge::View<const I, 1> indptr,
//                                 opforge::View<const T, 2> dense, opforge::View<T, 2> out);
//
// The function is named as the operator is in snake_case (or as host_name= says). It is called once for every
// choice of dtypes; template parameters are deduced from the views. Its arguments are the inputs, then the
// attributes, then the outputs, in the signature's order:
//
// clang-format off: a table
//   x: T[m, n]    View<const T, 2>         attribute  int     int64_t           ints     List<int64_t>
//   x: T[*S]      View<const T, kAnyRank>             float   double            floats   List<double>
//   x?: T[n]      View, test with present()           string  std::string_view  strings  List<opforge_string>
//   *x: T[n]      Views<const T, 1>                   bool    bool              bools    List<int64_t>
//   (out: T[m])   View<T, 1>; with a `_` dimension: call context.allocate(out, {...}) first
// clang-format on
//
// The caller has checked rank, shape and dtype; the kernel checks values. It must be reentrant: no mutable
// globals. Exceptions are caught at the boundary and become the operator's error text.
#pragma once

#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <initializer_list>
#include <string_view>
#include <type_traits>

#include "opforge/abi.h"
#include "opforge/half.h"

namespace opforge {

using Status = opforge_status;
inline constexpr Status kOk = OPFORGE_STATUS_OK;
inline constexpr int kAnyRank = -1;

// A tensor of N dimensions (kAnyRank: as many as ndim() says). Strides are in elements. Copies are cheap and
// refer to the same memory.
template <class T, int N = kAnyRank>
class View {
 public:
  View() = default;
  explicit View(const opforge_tensor& tensor)
      : data_(reinterpret_cast<T*>(static_cast<char*>(tensor.data) + (tensor.data ? tensor.byte_offset : 0))),
        tensor_(&tensor) {}

  bool present() const { return tensor_ != nullptr; }
  T* data() const { return data_; }
  int ndim() const { return tensor_->ndim; }
  int64_t shape(int axis) const { return tensor_->shape[axis < 0 ? axis + ndim() : axis]; }
  int64_t size() const {
    int64_t n = 1;
    for (int axis = 0; axis < ndim(); ++axis) n *= tensor_->shape[axis];
    return n;
  }
  int64_t stride(int axis) const {
    if (axis < 0) axis += ndim();
    if (tensor_->strides) return tensor_->strides[axis];
    int64_t stride = 1;
    for (int inner = ndim() - 1; inner > axis; --inner) stride *= tensor_->shape[inner];
    return stride;
  }
  bool is_dense() const {
    if (!tensor_->strides) return true;
    int64_t expected = 1;
    for (int axis = ndim() - 1; axis >= 0; --axis) {
      if (tensor_->shape[axis] != 1 && tensor_->strides[axis] != expected) return false;
      expected *= tensor_->shape[axis];
    }
    return true;
  }
  // Element access: one index per dimension. Without the STRIDED flag tensors are dense and (i, j) costs a
  // multiplication and an addition; in hot loops keep a row pointer instead.
  template <class... Index>
  T& operator()(Index... index) const {
    static_assert(N == kAnyRank || sizeof...(Index) == N, "one index per dimension");
    const int64_t indices[] = {static_cast<int64_t>(index)...};
    int64_t offset = 0;
    for (size_t axis = 0; axis < sizeof...(Index); ++axis) {
      offset = tensor_->strides ? offset + indices[axis] * tensor_->strides[axis]
                                : offset * tensor_->shape[axis] + indices[axis];
    }
    return data_[offset];
  }
  T& operator[](int64_t i) const { return data_[i]; }  // dense tensors: the i-th element in row-major order
  T* begin() const { return data_; }                   // dense tensors
  T* end() const { return data_ + size(); }
  const opforge_tensor& tensor() const { return *tensor_; }

 private:
  T* data_ = nullptr;
  const opforge_tensor* tensor_ = nullptr;
};

// The tensors of a variadic parameter.
template <class T, int N = kAnyRank>
class Views {
 public:
  Views(opforge_tensor* tensors, int count) : tensors_(tensors), count_(count) {}
  int size() const { return count_; }
  View<T, N> operator[](int k) const { return View<T, N>(tensors_[k]); }

 private:
  opforge_tensor* tensors_;
  int count_;
};

// A list attribute.
template <class T>
class List {
 public:
  List(const T* data, int64_t size) : data_(data), size_(size) {}
  const T* data() const { return data_; }
  int64_t size() const { return size_; }
  const T& operator[](int64_t i) const { return data_[i]; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }

 private:
  const T* data_;
  int64_t size_;
};

// What the host offers to a running kernel.
class Context {
 public:
  explicit Context(opforge_context* context, const opforge_arguments* outputs = nullptr)
      : context_(context), outputs_(outputs) {}

  // Calls body(begin, end) over [0, n) in chunks of about `grain`, on the host's threads. Chunks do not
  // depend on the number of threads. An exception of body is carried over to the caller.
  template <class Body>
  void parallel_for(int64_t n, int64_t grain, Body&& body) {
    if (n <= 0) return;
    if (!context_->parallel_for || n <= grain) return body(int64_t{0}, n);
    struct Call {
      std::remove_reference_t<Body>* body;
      std::exception_ptr thrown;
      int32_t failed;  // a byte would need libatomic on riscv64
    } call{&body, nullptr, 0};
    const opforge_status status = context_->parallel_for(
        context_, n, grain,
        [](void* user, int64_t begin, int64_t end) {
          Call* shared = static_cast<Call*>(user);
          try {
            (*shared->body)(begin, end);
          } catch (...) {  // nothing may unwind through the host; the first exception is kept
            if (!__atomic_exchange_n(&shared->failed, 1, __ATOMIC_ACQ_REL)) {
              shared->thrown = std::current_exception();
            }
          }
        },
        &call);
    if (call.thrown) std::rethrow_exception(call.thrown);
    if (status != kOk) throw HostFailure{status, "the host's parallel_for failed"};
  }

  // Uninitialised memory for `count` values that lives until the kernel returns; throws where there is none.
  // Not callable inside parallel_for.
  template <class T>
  T* scratch(int64_t count) {
    const size_t bytes = static_cast<size_t>(count > 0 ? count : 1) * sizeof(T);
    void* memory = context_->scratch ? context_->scratch(context_, bytes, 64) : nullptr;
    if (!memory) throw HostFailure{OPFORGE_STATUS_OUT_OF_MEMORY, "out of memory for scratch"};
    return static_cast<T*>(memory);
  }

  // Gives an output whose shape depends on data (`_` in the signature) its shape and memory; `output` then
  // refers to it. Throws where there is no memory.
  template <class T, int N>
  void allocate(View<T, N>& output, std::initializer_list<int64_t> shape) {
    const auto index = static_cast<int32_t>(&output.tensor() - outputs_->tensors);
    const Status status =
        context_->allocate_output
            ? context_->allocate_output(context_, index, shape.begin(), static_cast<int32_t>(shape.size()))
            : OPFORGE_STATUS_UNSUPPORTED;
    if (status != kOk)
      throw HostFailure{status, "the host did not allocate an output whose shape depends on data"};
    output = View<T, N>(outputs_->tensors[index]);
  }

  // `return context.fail("indices[%lld] is %lld, expected 0 <= index < %lld", ...)`: the user's values are
  // wrong.
  __attribute__((format(printf, 2, 3))) Status fail(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const Status status = report(OPFORGE_STATUS_INVALID_ARGUMENT, format, arguments);
    va_end(arguments);
    return status;
  }
  __attribute__((format(printf, 3, 4))) Status fail(Status code, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const Status status = report(code, format, arguments);
    va_end(arguments);
    return status;
  }
  __attribute__((format(printf, 3, 4))) void log(int32_t level, const char* format, ...) {
    if (!context_->log) return;
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    context_->log(context_, level, text);
  }

  uint64_t seed() const { return context_->seed; }
  uint64_t offset() const { return context_->offset; }
  void* stream() const { return context_->stream; }
  opforge_device device() const { return context_->device; }
  opforge_context* raw() const { return context_; }

  // Thrown where the host could not give memory or run a loop; the boundary turns it into its status.
  struct HostFailure {
    Status status;
    const char* text;
  };

 private:
  Status report(Status code, const char* format, va_list arguments) {
    char text[1024];
    std::vsnprintf(text, sizeof text, format, arguments);
    return context_->error ? context_->error(context_, code, text) : code;
  }

  opforge_context* context_;
  const opforge_arguments* outputs_;
};

}  // namespace opforge
