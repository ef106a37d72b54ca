// elementwise_run.h: runs a Formula over tensors: in one pass when nothing is summed, otherwise one pass for
// each set of dimensions that outputs are summed over.
#pragma once

#include "opforge/detail/elementwise_sum.h"

namespace opforge::vm {
inline namespace OPFORGE_VECTOR_NAMESPACE {
namespace elementwise {

constexpr int64_t kGrain = 16384;  // elements per chunk

inline Status parallel(const Workers& workers, int64_t n, int64_t grain, opforge_range_fn body, void* user) {
  if (n <= grain || !workers.parallel_for) {
    if (n > 0) body(user, 0, n);
    return OPFORGE_STATUS_OK;
  }
  return workers.parallel_for(workers.host, n, grain, body, user);
}

struct Pass {
  const Call* call;
  Space space;
};
inline void run_range(void* user, int64_t begin, int64_t end) {
  const Pass& pass = *static_cast<const Pass*>(user);
  static constexpr int64_t kNoOffset[kMaxOperands] = {};
  Frame frame;
  prepare(frame, *pass.call, pass.space);
  walk(frame, kNoOffset, begin, end, nullptr, nullptr);
}

// Which outputs are wanted, and which of them are summed over something.
inline void classify(const Call& call, uint32_t& wanted, uint32_t& summed) {
  wanted = summed = 0;
  for (int k = 0; k < call.formula->n_outputs; ++k) {
    if (!call.output(k).data) continue;
    wanted |= 1u << k;
    for (int d = 0; d < call.rank; ++d) {
      if (call.summed[d] >> k & 1) summed |= 1u << k;
    }
  }
}
// Takes the next pattern out of `left` (outputs still to be summed); `rest` = outputs that are not summed.
inline void next_reduction(Reduction& r, const Call& call, uint32_t& left, uint32_t& rest) {
  const int first = __builtin_ctz(left);
  uint32_t pattern = 0, summed = 0;
  const auto pattern_of = [&](int k) {
    uint32_t p = 0;
    for (int d = 0; d < call.rank; ++d) p |= uint32_t(call.summed[d] >> k & 1) << d;
    return p;
  };
  pattern = pattern_of(first);
  for (int k = first; k < call.formula->n_outputs; ++k) {
    if ((left >> k & 1) && pattern_of(k) == pattern) summed |= 1u << k;
  }
  make_reduction(r, call, pattern, summed | rest, summed);
  left &= ~summed;
  rest = 0;
}

template <class C>
inline Status run_reduction(Reduction& r, const Workers& workers) {
  using S = Summing<C>;
  const int64_t length = r.reduced.total < kSumBlock ? r.reduced.total : kSumBlock;
  const int64_t items = (r.across ? ceil_div(r.kept.total, r.tile) : r.kept.total) * r.blocks;
  const int64_t work = length * (r.across ? r.tile : 1);
  const int64_t grain = work < kGrain ? ceil_div(kGrain, work) : 1;
  Status status = parallel(workers, items, grain, r.across ? S::run_across : S::run_along, &r);
  if (!status && r.blocks > 1)
    status = parallel(workers, r.kept.total, ceil_div(kGrain, r.blocks), S::join_blocks, &r);
  return status;
}

inline void zero_outputs(const Call& call) {
  Space all;
  for (int k = 0; k < call.formula->n_outputs; ++k) {
    const Operand& o = call.output(k);
    if (!o.data) continue;
    uint32_t kept = 0;
    for (int d = 0; d < call.rank; ++d) kept |= uint32_t(!(call.summed[d] >> k & 1)) << d;
    make_space(all, call, ~0u, 0, kept);
    char zero[kSplat * 8] = {};
    for (int64_t i = 0; i < all.total; ++i) {
      store_elements(o.kind, o.data + offset_of(all, o, place_of(all, i)), 0, zero, 1);
    }
  }
}

// Scratch bytes that run() needs for a bound call (64-byte aligned).
inline int64_t scratch_bytes(const Call& bound) {
  int64_t most = 0;
  uint32_t wanted, summed;
  classify(bound, wanted, summed);
  Reduction r;
  for (uint32_t left = summed, rest = 0; left;) {
    next_reduction(r, bound, left, rest);
    const int64_t bytes = partial_bytes(r);
    most = bytes > most ? bytes : most;
  }
  return most;
}

// For a call that bind() has filled in and collapse() has simplified, with its attributes set.
inline Status run(Call& call, const Workers& workers, void* scratch) {
  uint32_t wanted, summed;
  classify(call, wanted, summed);
  if (!wanted) return OPFORGE_STATUS_OK;
  if (call.total == 0) {
    zero_outputs(call);
    return OPFORGE_STATUS_OK;
  }
  if (!summed) {
    sort_dimensions(call);
    collapse(call);
    Pass pass;
    pass.call = &call;
    make_space(pass.space, call, wanted, 0, ~0u);
    return parallel(workers, call.total, kGrain, run_range, &pass);
  }
  uint32_t rest = wanted & ~summed;
  while (summed) {
    Reduction r;
    next_reduction(r, call, summed, rest);
    r.partial = static_cast<char*>(scratch);
    const Status status = call.formula->storage == Storage::kF64 ? run_reduction<double>(r, workers)
                                                                 : run_reduction<float>(r, workers);
    if (status) return status;
  }
  return OPFORGE_STATUS_OK;
}

// A scalar attribute, rounded once to its type.
template <class E>
inline void fill_splat(char* to, double value) {
  const E x = cast_scalar<E, double>(value);
  for (int i = 0; i < kSplat; ++i) memcpy(to + i * sizeof(E), &x, sizeof(E));
}
inline void set_attribute(const Formula& formula, char* to, int k, double value) {
  switch (formula.attribute_types[k]) {
    case Type::kBool:
      return fill_splat<bool>(to, value);
    case Type::kI32:
      return fill_splat<int32_t>(to, value);
    case Type::kI64:
      return fill_splat<int64_t>(to, value);
    case Type::kF32:
      return fill_splat<float>(to, value);
    case Type::kF64:
      return fill_splat<double>(to, value);
    case Type::kU8:
      return fill_splat<uint8_t>(to, value);
    case Type::kI8:
      return fill_splat<int8_t>(to, value);
    case Type::kT:
      break;
  }
  formula.storage == Storage::kF64 ? fill_splat<double>(to, value) : fill_splat<float>(to, value);
}
inline double attribute_value(const opforge_attribute& a) {
  return a.kind == OPFORGE_ATTRIBUTE_FLOAT ? a.value.f : static_cast<double>(a.value.i);
}

// ---- the commonest call: dense tensors of one shape and of types that need no conversion ----
struct Dense {
  const Formula* formula;
  int64_t total;
  char* data[kMaxOperands];
  uint8_t width[kMaxOperands];
  char attribute_space[kMaxAttributes * kSplat * 8 + 64];
  const char* attributes;
};
inline bool is_dense(const opforge_tensor& t, const opforge_tensor& shape) {
  if (t.ndim != shape.ndim) return false;
  int64_t expected = 1;
  for (int d = t.ndim - 1; d >= 0; --d) {
    if (t.shape[d] != shape.shape[d] || (t.strides && t.shape[d] != 1 && t.strides[d] != expected))
      return false;
    expected *= t.shape[d];
  }
  return true;
}
inline bool bind_dense(Dense& dense, const Formula& f, const opforge_tensor* inputs,
                       const opforge_tensor* outputs) {
  dense.formula = &f;
  const opforge_tensor& first = inputs[0];
  dense.total = 1;
  for (int d = 0; d < first.ndim; ++d) dense.total *= first.shape[d];
  for (int k = 0; k < f.n_inputs + f.n_outputs; ++k) {
    const bool is_input = k < f.n_inputs;
    const opforge_tensor& t = is_input ? inputs[k] : outputs[k - f.n_inputs];
    const Kind kind = kind_of(is_input ? f.input_types[k] : f.output_types[k - f.n_inputs], f.storage);
    if (kind.half || !same_dtype(t.dtype, kind.dtype) || !t.data || !is_dense(t, first)) return false;
    dense.data[k] = static_cast<char*>(t.data) + t.byte_offset;
    dense.width[k] = kind.width;
  }
  return first.ndim <= kMaxRank && dense.total > 0;
}
inline void run_dense(void* user, int64_t begin, int64_t end) {
  const Dense& dense = *static_cast<const Dense*>(user);
  const Formula& f = *dense.formula;
  const void* in[kMaxInputs + kMaxAttributes];
  void* out[kMaxOutputs];
  int32_t in_step[kMaxInputs + kMaxAttributes], out_step[kMaxOutputs];
  for (int k = 0; k < f.n_inputs; ++k) {
    in[k] = dense.data[k] + begin * dense.width[k];
    in_step[k] = 1;
  }
  for (int k = 0; k < f.n_attributes; ++k) {
    in[f.n_inputs + k] = dense.attributes + k * kSplat * 8;
    in_step[f.n_inputs + k] = 0;
  }
  for (int k = 0; k < f.n_outputs; ++k) {
    out[k] = dense.data[f.n_inputs + k] + begin * dense.width[f.n_inputs + k];
    out_step[k] = 1;
  }
  f.block(f.self, {in, in_step, out, out_step, end - begin});
}

// ---- the kernel ABI ----
inline Status context_parallel_for(void* host, int64_t n, int64_t grain, opforge_range_fn body, void* user) {
  auto* context = static_cast<opforge_context*>(host);
  return context->parallel_for(context, n, grain, body, user);
}
inline Status fail(opforge_context* context, Status status, const char* text) {
  return context->error ? context->error(context, status, text) : status;
}

OPFORGE_NOINLINE inline Status run_any(const Formula& formula, opforge_context* context,
                                       const opforge_tensor* inputs, const opforge_tensor* outputs,
                                       const opforge_attribute* attributes, const Workers& workers) {
  Call call;
  Reason reason;
  const Status status = bind(call, formula, inputs, outputs, reason);
  if (status) return fail(context, status, reason.text);
  for (int k = 0; k < formula.n_attributes; ++k) {
    set_attribute(formula, call.attribute[k], k, attribute_value(attributes[k]));
  }
  collapse(call);
  void* scratch = nullptr;
  const int64_t bytes = call.total ? scratch_bytes(call) : 0;
  if (bytes) {
    scratch = context->scratch ? context->scratch(context, static_cast<size_t>(bytes), 64) : nullptr;
    if (!scratch) return fail(context, OPFORGE_STATUS_OUT_OF_MEMORY, "no memory for the partial sums");
  }
  return run(call, workers, scratch);
}
// What opforge_kernel.run does for a formula.
OPFORGE_NOINLINE inline Status run_kernel(const Formula& formula, opforge_context* context,
                                          const opforge_arguments* inputs, const opforge_arguments* outputs,
                                          const opforge_attribute* attributes) {
  if (inputs->n_parameters != formula.n_inputs || outputs->n_parameters != formula.n_outputs ||
      inputs->n_tensors != formula.n_inputs) {
    return fail(context, OPFORGE_STATUS_INVALID_ARGUMENT, "a formula operator takes each of its inputs once");
  }
  opforge_tensor out[kMaxOutputs];
  for (int k = 0, next = 0; k < formula.n_outputs; ++k) {
    out[k] = outputs->counts[k] ? outputs->tensors[next++] : absent_tensor();
  }
  const Workers workers = {context, context->parallel_for ? context_parallel_for : nullptr};
  Dense dense;
  if (bind_dense(dense, formula, inputs->tensors, out)) {
    char* const splats =
        dense.attribute_space + (64 - reinterpret_cast<uintptr_t>(dense.attribute_space) % 64) % 64;
    dense.attributes = splats;
    for (int k = 0; k < formula.n_attributes; ++k) {
      set_attribute(formula, splats + k * kSplat * 8, k, attribute_value(attributes[k]));
    }
    return parallel(workers, dense.total, kGrain, run_dense, &dense);
  }
  return run_any(formula, context, inputs->tensors, out, attributes, workers);
}

}  // namespace elementwise
}  // namespace OPFORGE_VECTOR_NAMESPACE
}  // namespace opforge::vm
