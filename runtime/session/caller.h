// caller.h: what a caller of the C API hands over: its inputs as tensors, its buffers or allocator for
// outputs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "session/session.h"

namespace opforge::session {

// An array that needs no heap for the usual numbers of inputs and outputs.
template <class T>
class Few {
 public:
  explicit Few(size_t n) : many_(n > kInline ? n : 0), data_(n > kInline ? many_.data() : few_) {}
  Few(const Few&) = delete;
  Few& operator=(const Few&) = delete;
  T* data() { return data_; }
  T& operator[](size_t k) { return data_[k]; }
  const T& operator[](size_t k) const { return data_[k]; }

 private:
  static constexpr size_t kInline = 16;
  T few_[kInline] = {};
  std::vector<T> many_;
  T* data_;
};

// Checks that a tensor is dense and on the CPU; its dtype and shape are judged by the session.
Status to_tensor(const opforge_tensor& from, const std::string& name, Tensor* to, Error* error);

// Fills one tensor per input of the session, in its order.
Status gather_inputs(const Session& session, const opforge_run& run, Tensor* tensors, Error* error);

// Serves the caller's buffers, the caller's allocator, or malloc; outputs that are not wanted get memory of
// their own.
class CallerOutputs final : public Outputs {
 public:
  CallerOutputs(const Session& session, opforge_run* run)
      : session_(session), run_(run), slot_(session.outputs().size()) {}
  ~CallerOutputs();

  Status prepare(Error* error);
  void* give(int32_t output, const Tensor& tensor, size_t bytes, Error* error) override;
  // A failed run leaves nothing to release.
  void withdraw();

 private:
  void* check(int32_t output, const Tensor& tensor, const opforge_tensor& to, Error* error) const;

  const Session& session_;
  opforge_run* run_;
  Few<int32_t> slot_;  // output of the model -> output of the run, -1 = not wanted
  std::vector<int32_t> owned_;
  std::vector<void*> spare_;
};

}  // namespace opforge::session
