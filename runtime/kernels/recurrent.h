// recurrent.h: LSTM, GRU and RNN: what their nodes say, and the sizes of a run.
#pragma once

#include "kernels/product.h"

namespace opforge::kernels {

enum class RecurrentKind : int32_t { kRnn = 0, kGru, kLstm };

// Where a node's inputs stand; -1 = it has none. ONNX's nodes hold both directions in one tensor (w, r, b,
// p); those of the compiler hold four constants per direction from `packed` on.
struct RecurrentInputs {
  int32_t w, r, b, lengths, h, c, p, packed;
};

struct RecurrentState {
  RecurrentKind kind = RecurrentKind::kRnn;
  RecurrentInputs at{};
  int64_t hidden = 0;  // 0 = as R says
  int32_t directions = 1;
  bool reverse = false;  // of direction 0
  bool batch_first = false, input_forget = false, linear_before_reset = false;
  double clip = 0;  // infinity = none
  GateFunction f[2], g[2], h[2];

  int64_t gates() const { return kind == RecurrentKind::kLstm ? 4 : kind == RecurrentKind::kGru ? 3 : 1; }
  // A GRU whose reset stands before the product: the product for its last gate comes after the others.
  bool split() const { return kind == RecurrentKind::kGru && !linear_before_reset; }
  // Gates of the product of the state that stands before the cell.
  int64_t state_gates() const { return split() ? 2 : gates(); }
  bool reversed(int64_t direction) const { return reverse || direction == 1; }
};

struct RecurrentSizes {
  int64_t steps = 0, batch = 0, inputs = 0;
  int64_t x_step = 0, x_row = 0;                   // rows of X from step to step and from sample to sample
  int64_t y_step = 0, y_row = 0, y_direction = 0;  // elements of Y
  int64_t h_row = 0, h_direction = 0;              // elements of states
};

// How many steps of each sample count.
struct Lengths {
  const int32_t* values;
  int64_t steps;
  int64_t of(int64_t sample) const { return values == nullptr ? steps : values[sample]; }
};

Status load_recurrent(LoadContext& context, RecurrentKind kind, const RecurrentInputs& at);
// Everything that can be told from the shapes; sets `state` and `sizes`.
Status infer_recurrent(InferContext& context, RecurrentState* state, RecurrentSizes* sizes);
RecurrentSizes recurrent_sizes(const RecurrentState& state, const Shape& x);
// The state of a run: the hidden size is known.
RecurrentState resolve_recurrent(const void* state, const Tensor* inputs);
Status read_lengths(RunContext& context, const RecurrentState& state, const RecurrentSizes& z,
                    Lengths* lengths);

// f64, one element after the other, with the C library's functions.
int64_t recurrent_double_scratch(const RecurrentState& state, const RecurrentSizes& z);
Status run_recurrent_double(RunContext& context);

}  // namespace opforge::kernels
