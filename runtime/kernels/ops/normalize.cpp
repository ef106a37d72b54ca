// normalize.cpp: Softmax, LogSoftmax, LayerNormalization, RMSNormalization and the normalisations over
// channels, on plain f32 tensors.
#include "kernels/common.h"
#include "kernels/move.h"

namespace opforge {
namespace {

using namespace kernels;

Status need_f32(InferContext& c) {
  for (int i = 0; i < c.n_inputs; ++i)
    if (c.inputs[i].present() && (!is_f32(c.inputs[i]) || !is_plain(c.inputs[i])))
      return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "input %d is not a plain f32 tensor", i);
  return OPFORGE_STATUS_OK;
}

int64_t product(const Shape& s, int begin, int end) {
  int64_t n = 1;
  for (int i = begin; i < end; ++i) n *= s.dims[i];
  return n;
}

// Rows of a chunk: about 16 K floats.
int64_t row_grain(int64_t width) { return greater<int64_t>(1, 16384 / greater<int64_t>(width, 1)); }

// ---- Softmax, LogSoftmax
// ------------------------------------------------------------------------------------
constexpr int64_t kColumns = 16;  // of a softmax along another axis than the last

struct SoftmaxState {
  int64_t axis = -1;
  int32_t log = 0;
};

template <int LOG>
Status softmax_load(LoadContext& c) {
  SoftmaxState* s = new_state<SoftmaxState>(c);
  if (s == nullptr) return no_memory(c);
  s->axis = c.attributes->get_int("axis", -1);
  s->log = LOG;
  return OPFORGE_STATUS_OK;
}

Status softmax_infer(InferContext& c) {
  if (Status wrong = check_outputs(c, DType::kF32)) return wrong;
  const SoftmaxState& s = *static_cast<SoftmaxState*>(c.state);
  const Status status = need_f32(c);
  if (status != OPFORGE_STATUS_OK) return status;
  const Shape& x = c.inputs[0].shape;
  c.outputs[0].shape = x;
  const int axis = axis_of(s.axis, x.rank);
  if (axis < 0 && x.rank > 0)
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "axis %lld is out of range for rank %d",
                  static_cast<long long>(s.axis), x.rank);
  if (axis + 1 == x.rank || product(x, axis + 1, x.rank) == 1)
    c.inplace_input[0] = 0;
  else
    c.scratch_bytes = 4 * kColumns * scratch_floats(x[axis]) * c.max_threads;
  return OPFORGE_STATUS_OK;
}

// to[j][i] = from[i][j] for rows x columns elements.
void turn(const float* from, int64_t from_row, int64_t rows, int64_t columns, float* to, int64_t to_row) {
  constexpr int64_t kBlock = 16;
  for (int64_t i0 = 0; i0 < rows; i0 += kBlock)
    for (int64_t j0 = 0; j0 < columns; j0 += kBlock)
      for (int64_t j = j0; j < lesser(columns, j0 + kBlock); ++j)
        for (int64_t i = i0; i < lesser(rows, i0 + kBlock); ++i) to[j * to_row + i] = from[i * from_row + j];
}

Status softmax_run(RunContext& c) {
  const SoftmaxState& s = *static_cast<SoftmaxState*>(c.state);
  const Shape& shape = c.inputs[0].shape;
  const float* x = c.inputs[0].as<float>();
  float* y = c.outputs[0].as<float>();
  if (shape.elements() == 0) return OPFORGE_STATUS_OK;
  const int axis = shape.rank == 0 ? 0 : axis_of(s.axis, shape.rank);
  const int64_t width = shape.rank == 0 ? 1 : shape[axis], inner = product(shape, axis + 1, shape.rank);
  const int64_t outer = product(shape, 0, axis);
  const IsaTable& isa = isa_table();
  if (inner == 1) {
    c.parallel(outer, row_grain(width), [&](int64_t begin, int64_t end) {
      isa.softmax(x + begin * width, y + begin * width, end - begin, width, s.log);
    });
    return OPFORGE_STATUS_OK;
  }
  // Neighbouring columns are turned into rows together, so that each line of memory is fetched once.
  float* scratch = static_cast<float*>(c.scratch);
  const int64_t strips = ceil_div(inner, kColumns);
  for_units(c, outer * strips, [&](int64_t slot, int64_t unit) {
    float* rows = scratch + slot * kColumns * scratch_floats(width);
    const int64_t column = unit % strips * kColumns, n = lesser(kColumns, inner - column);
    const int64_t first = unit / strips * width * inner + column;
    turn(x + first, inner, width, n, rows, width);
    isa.softmax(rows, rows, n, width, s.log);
    turn(rows, width, n, width, y + first, inner);
  });
  return OPFORGE_STATUS_OK;
}

// ---- LayerNormalization, RMSNormalization
// -------------------------------------------------------------------
struct NormState {
  int64_t axis = -1;
  float epsilon = 1e-5f;
};

Status norm_load(LoadContext& c) {
  NormState* s = new_state<NormState>(c);
  if (s == nullptr) return no_memory(c);
  s->axis = c.attributes->get_int("axis", -1);
  s->epsilon = static_cast<float>(c.attributes->get_float("epsilon", 1e-5));
  return OPFORGE_STATUS_OK;
}

Status layer_norm_infer(InferContext& c) {
  if (Status wrong = check_outputs(c, DType::kF32)) return wrong;
  const NormState& s = *static_cast<NormState*>(c.state);
  const Status status = need_f32(c);
  if (status != OPFORGE_STATUS_OK) return status;
  const Shape& x = c.inputs[0].shape;
  const int axis = axis_of(s.axis, x.rank);
  if (axis < 0) return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "axis is out of range");
  const int64_t width = product(x, axis, x.rank);
  for (int i = 1; i < c.n_inputs && i < 3; ++i)
    if (c.inputs[i].present() && c.inputs[i].shape.elements() != width)
      return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "scale and bias have one value per normalised element");
  c.outputs[0].shape = x;
  c.inplace_input[0] = 0;
  for (int i = 1; i < c.n_outputs; ++i) {
    c.outputs[i].shape = x;
    for (int k = axis; k < x.rank; ++k) c.outputs[i].shape.dims[k] = 1;
  }
  return OPFORGE_STATUS_OK;
}

template <bool RMS>
Status layer_norm_run(RunContext& c) {
  const NormState& s = *static_cast<NormState*>(c.state);
  const Shape& shape = c.inputs[0].shape;
  const int axis = axis_of(s.axis, shape.rank);
  const int64_t width = product(shape, axis, shape.rank), rows = product(shape, 0, axis);
  if (width == 0) return OPFORGE_STATUS_OK;
  const auto optional = [&](int i) {
    return i < c.n_inputs && c.inputs[i].present() ? c.inputs[i].as<float>() : nullptr;
  };
  const auto extra = [&](int i) {
    return i < c.n_outputs && c.outputs[i].present() ? c.outputs[i].as<float>() : nullptr;
  };
  const float *x = c.inputs[0].as<float>(), *scale = optional(1), *bias = optional(2);
  float *y = c.outputs[0].as<float>(), *mean = extra(1), *inverse = extra(2);
  c.parallel(rows, row_grain(width), [&](int64_t begin, int64_t end) {
    const float* from = x + begin * width;
    float* to = y + begin * width;
    if (RMS)
      isa_table().rms_norm(from, scale, to, end - begin, width, s.epsilon);
    else
      isa_table().layer_norm(from, scale, bias, to, mean ? mean + begin : nullptr,
                             inverse ? inverse + begin : nullptr, end - begin, width, s.epsilon);
  });
  return OPFORGE_STATUS_OK;
}

// ---- normalisations over channels: [N, C, ...]
// ---------------------------------------------------------------
Status channel_norm_infer(InferContext& c) {
  if (Status wrong = check_outputs(c, DType::kF32)) return wrong;
  const Status status = need_f32(c);
  if (status != OPFORGE_STATUS_OK) return status;
  const Shape& x = c.inputs[0].shape;
  if (x.rank < 2)
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "X has rank %d, at least 2 is needed", x.rank);
  if (c.attributes->get_int("training_mode", 0) != 0 || c.n_outputs > 1)
    return c.fail(&c, OPFORGE_STATUS_UNSUPPORTED, "normalisation with batch statistics has no kernel");
  const int64_t groups = c.attributes->get_int("num_groups", x[1]);
  if (groups < 1 || x[1] % groups != 0)
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "num_groups does not divide the channels");
  for (int i = 1; i < c.n_inputs; ++i)
    if (c.inputs[i].shape.elements() != x[1])
      return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "input %d does not have one value per channel", i);
  c.outputs[0].shape = x;
  c.inplace_input[0] = 0;
  return OPFORGE_STATUS_OK;
}

Status batch_norm_run(RunContext& c) {
  const NormState& s = *static_cast<NormState*>(c.state);
  const Shape& shape = c.inputs[0].shape;
  const int64_t channels = shape[1], size = product(shape, 2, shape.rank);
  const float *x = c.inputs[0].as<float>(), *scale = c.inputs[1].as<float>(), *bias = c.inputs[2].as<float>();
  const float *mean = c.inputs[3].as<float>(), *variance = c.inputs[4].as<float>();
  float* y = c.outputs[0].as<float>();
  c.parallel(shape[0] * channels, row_grain(size), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t k = i % channels;
      const float factor = scale[k] / __builtin_sqrtf(variance[k] + s.epsilon);
      isa_table().scale_shift(x + i * size, y + i * size, size, factor, bias[k] - mean[k] * factor);
    }
  });
  return OPFORGE_STATUS_OK;
}

// Groups of channels are normalised by their own statistics; InstanceNormalization has one channel per group.
Status group_norm_run(RunContext& c) {
  const NormState& s = *static_cast<NormState*>(c.state);
  const Shape& shape = c.inputs[0].shape;
  const int64_t channels = shape[1], size = product(shape, 2, shape.rank);
  const int64_t groups = c.attributes->get_int("num_groups", channels), members = channels / groups;
  const float *x = c.inputs[0].as<float>(), *scale = c.inputs[1].as<float>(), *bias = c.inputs[2].as<float>();
  float* y = c.outputs[0].as<float>();
  if (size == 0) return OPFORGE_STATUS_OK;
  c.parallel(shape[0] * groups, row_grain(size * members), [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) {
      isa_table().layer_norm(x + g * members * size, nullptr, nullptr, y + g * members * size, nullptr,
                             nullptr, 1, members * size, s.epsilon);
      for (int64_t m = 0; m < members; ++m) {
        const int64_t k = g % groups * members + m;
        float* row = y + (g * members + m) * size;
        isa_table().scale_shift(row, row, size, scale[k], bias[k]);
      }
    }
  });
  return OPFORGE_STATUS_OK;
}

const OpKernel kRows[] = {
    {"", "Softmax", 13, kNewest, softmax_load<0>, softmax_infer, softmax_run},
    {"", "LogSoftmax", 13, kNewest, softmax_load<1>, softmax_infer, softmax_run},
    {"", "LayerNormalization", 17, kNewest, norm_load, layer_norm_infer, layer_norm_run<false>, 0, 2, 3, 3},
    {"", "RMSNormalization", 23, kNewest, norm_load, layer_norm_infer, layer_norm_run<true>, 0, 2},
    {"", "BatchNormalization", 9, kNewest, norm_load, channel_norm_infer, batch_norm_run, 0, 5},
    {"", "InstanceNormalization", 6, kNewest, norm_load, channel_norm_infer, group_norm_run, 0, 3},
    {"", "GroupNormalization", 21, kNewest, norm_load, channel_norm_infer, group_norm_run, 0, 3},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(normalize, opforge::kRows);
