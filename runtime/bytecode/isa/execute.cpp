// execute.cpp: a linked program over one block of elements and over tensors; the table of this instruction
// set.
#include <cstdio>

#include "bytecode/isa/program.h"

namespace opforge {
namespace OPFORGE_ISA {

void point_fixed_slots(const Linked& p, Slots slots, char* temps) {
  for (int k = 0; k < p.formula.n_attributes; ++k) {
    slots.pointer[p.first_attribute() + k] =
        const_cast<char*>(p.attribute_splats) + size_t(k) * ew::kSplat * 8;
    slots.step[p.first_attribute() + k] = 0;
  }
  for (int k = 0; k < p.n_constants; ++k) {
    slots.pointer[p.first_constant() + k] = const_cast<char*>(p.constants) + size_t(k) * ew::kSplat * 8;
    slots.step[p.first_constant() + k] = 0;
  }
  for (int k = 0; k < p.formula.n_outputs; ++k) slots.step[p.first_output() + k] = 1;
  for (int k = 0; k < p.n_temps + p.spares(); ++k) {
    slots.pointer[p.first_temp() + k] = temps + int64_t(k) * p.tile * p.temp_width;
    slots.step[p.first_temp() + k] = 1;
  }
}

void run_block(const void* self, const ew::Block& block) {
  const Linked& p = *static_cast<const Linked*>(self);
  const int n_in = p.formula.n_inputs, n_out = p.formula.n_outputs, out = p.first_output();
  alignas(64) char temps[kTempBytes];
  char** pointer = static_cast<char**>(__builtin_alloca(sizeof(char*) * size_t(p.n_slots)));
  int32_t* step = static_cast<int32_t*>(__builtin_alloca(sizeof(int32_t) * size_t(p.n_slots)));
  const Slots slots = {pointer, step};
  point_fixed_slots(p, slots, temps);
  for (int k = 0; k < n_in + p.formula.n_attributes; ++k) {
    pointer[k] = static_cast<char*>(const_cast<void*>(block.in[k]));
    step[k] = block.in_step[k];
  }
  char* const spare = temps + int64_t(p.n_temps) * p.tile * p.temp_width;
  for (int k = 0; k < n_out; ++k) {
    pointer[out + k] =
        block.out_step[k] ? static_cast<char*>(block.out[k]) : spare + int64_t(k) * p.tile * p.temp_width;
  }
  const auto advance = [&](int64_t n) {
    for (int k = 0; k < n_in; ++k) pointer[k] += step[k] * n * p.input_width[k];
    for (int k = 0; k < n_out; ++k) pointer[out + k] += block.out_step[k] * n * p.output_width[k];
  };
  constexpr int64_t N = vm::kLanes;
  int64_t left = block.n;
  while (left >= N) {
    const int64_t n = left < p.tile ? left / N * N : p.tile;
    // The output's next lines are fetched while this tile is computed: the hardware does not foresee writes
    // that come in bursts, as those of several steps do. Out of cache this gains up to half of the time of
    // cheap programs; in cache it costs a few percent. One step writes without a pause, and would lose.
    if (p.n_steps > 1 && left >= 2 * n) {
      for (int k = 0; k < n_out; ++k) {
        const int64_t bytes = block.out_step[k] * n * p.output_width[k];
        for (int64_t b = 0; b < bytes; b += 64) __builtin_prefetch(pointer[out + k] + bytes + b, 1);
      }
    }
    run_steps(p, slots, n);
    advance(n);
    left -= n;
  }
  if (!left) return;
  // The last elements, fewer than a vector, go through buffers.
  alignas(64) char in_buffer[ew::kMaxInputs][N * 8], out_buffer[ew::kMaxOutputs][N * 8];
  for (int k = 0; k < n_in; ++k) {
    if (!step[k]) continue;
    std::memset(in_buffer[k], 0, sizeof in_buffer[k]);
    std::memcpy(in_buffer[k], pointer[k], size_t(left) * p.input_width[k]);
    pointer[k] = in_buffer[k];
  }
  for (int k = 0; k < n_out; ++k) {
    pointer[out + k] = out_buffer[k];
  }
  run_steps(p, slots, N);
  for (int k = 0; k < n_out; ++k) {
    if (!block.out_step[k]) continue;
    char* const to = static_cast<char*>(block.out[k]) + (block.n - left) * p.output_width[k];
    std::memcpy(to, out_buffer[k], size_t(left) * p.output_width[k]);
  }
}

namespace {

Status workers_parallel_for(void* host, int64_t n, int64_t grain, opforge_range_fn body, void* user) {
  const auto& workers = *static_cast<const bc::Workers*>(host);
  workers.parallel_for(workers.host, n, grain, body, user);
  return OPFORGE_STATUS_OK;
}

int64_t scratch_bytes(const bc::Program* program, const opforge_tensor* inputs,
                      const opforge_tensor* outputs) {
  const Linked& p = linked(program);
  ew::Call call;
  ew::Reason reason;
  if (ew::bind(call, p.formula, inputs, outputs, reason)) return -1;
  ew::collapse(call);
  return call.total ? ew::scratch_bytes(call) : 0;
}

Status run_tensors(const bc::Program* program, const opforge_tensor* inputs, const opforge_tensor* outputs,
                   const double* attributes, const bc::Workers& workers, void* scratch, char* reason,
                   size_t reason_size) {
  const Linked& p = linked(program);
  ew::Call call;
  ew::Reason why = {};
  if (const Status status = ew::bind(call, p.formula, inputs, outputs, why)) {
    if (reason && reason_size) std::snprintf(reason, reason_size, "%s", why.text);
    return status;
  }
  const double* values = attributes ? attributes : p.attributes;
  if (!values && p.formula.n_attributes) {
    if (reason && reason_size) std::snprintf(reason, reason_size, "attribute values are missing");
    return OPFORGE_STATUS_INVALID_ARGUMENT;
  }
  for (int k = 0; k < p.formula.n_attributes; ++k)
    ew::set_attribute(p.formula, call.attribute[k], k, values[k]);
  ew::collapse(call);
  bc::Workers pool = workers;
  return ew::run(call, {&pool, workers.parallel_for ? workers_parallel_for : nullptr}, scratch);
}

Status run_kernel(const bc::Program* program, opforge_context* context, const opforge_arguments* inputs,
                  const opforge_arguments* outputs, const opforge_attribute* attributes) {
  return ew::run_kernel(linked(program).formula, context, inputs, outputs, attributes);
}

}  // namespace

extern const bc::InterpreterTable interpreter_table;
const bc::InterpreterTable interpreter_table = {
    vm::kFast ? "fast" : "strict",
    program_bytes,
    link,
    rows_ready,
    run_rows,
    scratch_bytes,
    run_tensors,
    run_kernel,
};

}  // namespace OPFORGE_ISA
}  // namespace opforge
