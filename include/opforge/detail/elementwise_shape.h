// elementwise_shape.h: from tensors to a call: checks, NumPy broadcasting, as few dimensions as possible.
#pragma once

#include "opforge/detail/elementwise_types.h"

namespace opforge::vm {
inline namespace OPFORGE_VECTOR_NAMESPACE {
namespace elementwise {

struct Operand {
  char* data;  // NULL: an output that nobody wants
  Kind kind;
  int64_t stride[kMaxRank];  // bytes, per dimension of the call; 0 where the operand is broadcast or summed
};

struct Call {
  const Formula* formula;
  int rank;
  int64_t size[kMaxRank];
  int64_t total;
  Operand operand[kMaxOperands];  // inputs, then outputs
  uint16_t summed[kMaxRank];      // bit k: output k is summed over this dimension
  alignas(64) char attribute[kMaxAttributes][kSplat * 8];

  Operand& output(int k) { return operand[formula->n_inputs + k]; }
  const Operand& output(int k) const { return operand[formula->n_inputs + k]; }
};

inline bool is_absent(const opforge_tensor& t) { return t.ndim < 0; }

// Marks an output that nobody wants.
inline opforge_tensor absent_tensor() {
  opforge_tensor t = {};
  t.ndim = -1;
  return t;
}

inline Status refuse(Reason& reason, Status status, const char* what, int index, const char* rest) {
  snprintf(reason.text, sizeof reason.text, "%s %d %s", what, index, rest);
  return status;
}

// The shape of all inputs together, aligned at the last dimension.
OPFORGE_NOINLINE inline Status broadcast(Call& call, const opforge_tensor* inputs, Reason& reason) {
  const Formula& f = *call.formula;
  call.rank = 0;
  for (int k = 0; k < f.n_inputs; ++k) {
    if (inputs[k].ndim < 0 || inputs[k].ndim > kMaxRank) {
      return refuse(reason, OPFORGE_STATUS_UNSUPPORTED, "input", k, "has more than 32 dimensions");
    }
    if (inputs[k].ndim > call.rank) call.rank = inputs[k].ndim;
  }
  for (int d = 0; d < call.rank; ++d) call.size[d] = 1;
  for (int k = 0; k < f.n_inputs; ++k) {
    const int shift = call.rank - inputs[k].ndim;
    for (int d = 0; d < inputs[k].ndim; ++d) {
      const int64_t n = inputs[k].shape[d];
      int64_t& size = call.size[d + shift];
      if (n < 0)
        return refuse(reason, OPFORGE_STATUS_INVALID_ARGUMENT, "input", k, "has a negative dimension");
      if (n == size || n == 1) continue;
      if (size != 1) {
        snprintf(reason.text, sizeof reason.text,
                 "input %d cannot be broadcast: dimension %d is %lld, others have %lld", k, d,
                 static_cast<long long>(n), static_cast<long long>(size));
        return OPFORGE_STATUS_INVALID_ARGUMENT;
      }
      size = n;
    }
  }
  call.total = 1;
  for (int d = 0; d < call.rank; ++d) {
    if (__builtin_mul_overflow(call.total, call.size[d], &call.total)) {
      return refuse(reason, OPFORGE_STATUS_INVALID_ARGUMENT, "dimension", d, "makes the result too large");
    }
  }
  return OPFORGE_STATUS_OK;
}

// Byte strides of a tensor in the call's dimensions. A stride of 0 stands wherever its own dimension is 1.
inline void set_strides(const Call& call, const opforge_tensor& t, Operand& o) {
  const int shift = call.rank - t.ndim;
  for (int d = 0; d < shift; ++d) o.stride[d] = 0;
  int64_t dense = 1;
  for (int d = t.ndim - 1; d >= 0; --d) {
    o.stride[d + shift] = t.shape[d] == 1 ? 0 : (t.strides ? t.strides[d] : dense) * o.kind.width;
    dense *= t.shape[d];
  }
  o.data = static_cast<char*>(t.data) + (t.data ? t.byte_offset : 0);
}

inline bool same_dtype(opforge_dtype a, opforge_dtype b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

OPFORGE_NOINLINE inline Status bind(Call& call, const Formula& f, const opforge_tensor* inputs,
                                    const opforge_tensor* outputs, Reason& reason) {
  call.formula = &f;
  const Status status = broadcast(call, inputs, reason);
  if (status) return status;
  for (int d = 0; d < call.rank; ++d) call.summed[d] = 0;
  for (int k = 0; k < f.n_inputs; ++k) {
    Operand& o = call.operand[k];
    o.kind = kind_of(f.input_types[k], f.storage);
    if (!same_dtype(inputs[k].dtype, o.kind.dtype))
      return refuse(reason, OPFORGE_STATUS_TYPE, "input", k, "has a wrong dtype");
    set_strides(call, inputs[k], o);
  }
  for (int k = 0; k < f.n_outputs; ++k) {
    Operand& o = call.output(k);
    o.kind = kind_of(f.output_types[k], f.storage);
    o.data = nullptr;
    if (is_absent(outputs[k])) continue;
    const opforge_tensor& t = outputs[k];
    if (!same_dtype(t.dtype, o.kind.dtype))
      return refuse(reason, OPFORGE_STATUS_TYPE, "output", k, "has a wrong dtype");
    const int target = f.sum_to[k];
    const int rank = target < 0 ? call.rank : inputs[target].ndim;
    bool fits = t.ndim == rank;
    for (int d = 0; fits && d < rank; ++d)
      fits = t.shape[d] == (target < 0 ? call.size[d] : inputs[target].shape[d]);
    if (!fits) return refuse(reason, OPFORGE_STATUS_INVALID_ARGUMENT, "output", k, "has a wrong shape");
    set_strides(call, t, o);
    const int shift = call.rank - rank;
    for (int d = 0; target >= 0 && d < call.rank; ++d) {
      if (call.size[d] != 1 && (d < shift || t.shape[d - shift] == 1))
        call.summed[d] |= static_cast<uint16_t>(1u << k);
    }
    if (!o.data)
      o.data = reinterpret_cast<char*>(uintptr_t(kSplat));  // zero elements: present, never touched
  }
  return OPFORGE_STATUS_OK;
}

// Drops dimensions of one element and joins neighbours that every operand runs through evenly.
OPFORGE_NOINLINE inline void collapse(Call& call) {
  const int n = call.formula->n_inputs + call.formula->n_outputs;
  int rank = 0;
  for (int d = 0; d < call.rank; ++d) {
    if (call.size[d] == 1) continue;
    bool joins = rank > 0 && call.summed[rank - 1] == call.summed[d];
    for (int k = 0; joins && k < n; ++k) {
      const Operand& o = call.operand[k];
      joins = !o.data || o.stride[rank - 1] == o.stride[d] * call.size[d];
    }
    if (!joins) ++rank;
    for (int k = 0; k < n; ++k) call.operand[k].stride[rank - 1] = call.operand[k].stride[d];
    call.size[rank - 1] = joins ? call.size[rank - 1] * call.size[d] : call.size[d];
    call.summed[rank - 1] = call.summed[d];
  }
  if (rank == 0) {
    rank = 1;
    call.size[0] = 1;
    call.summed[0] = 0;
    for (int k = 0; k < n; ++k) call.operand[k].stride[0] = 0;
  }
  call.rank = rank;
}

// Without sums the order of dimensions is free: the first output's smallest stride goes innermost, so that
// transposed tensors are read and written in the order of their memory.
OPFORGE_NOINLINE inline void sort_dimensions(Call& call) {
  const int n = call.formula->n_inputs + call.formula->n_outputs;
  const Operand* lead = nullptr;
  for (int k = 0; k < call.formula->n_outputs && !lead; ++k)
    lead = call.output(k).data ? &call.output(k) : nullptr;
  if (!lead) return;
  const auto magnitude = [&](int d) { return lead->stride[d] < 0 ? -lead->stride[d] : lead->stride[d]; };
  for (int i = 1; i < call.rank; ++i) {
    for (int d = i; d > 0 && magnitude(d - 1) < magnitude(d); --d) {
      for (int k = 0; k < n; ++k) {
        int64_t* s = call.operand[k].stride;
        const int64_t keep = s[d];
        s[d] = s[d - 1];
        s[d - 1] = keep;
      }
      const int64_t keep = call.size[d];
      call.size[d] = call.size[d - 1];
      call.size[d - 1] = keep;
    }
  }
}

}  // namespace elementwise
}  // namespace OPFORGE_VECTOR_NAMESPACE
}  // namespace opforge::vm
