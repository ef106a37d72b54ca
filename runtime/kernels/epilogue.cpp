// epilogue.cpp: links a node's epilogue and runs it over blocks of the output.
#include "kernels/epilogue.h"

namespace opforge::kernels {

Status load_epilogue(LoadContext& context, int32_t first, Epilogue* epilogue) {
  const BytecodeView blob = context.attributes->get_bytecode("epilogue");
  if (blob.data == nullptr) return OPFORGE_STATUS_OK;
  char reason[256];
  Status status = bytecode::verify(blob.data, blob.size, reason, sizeof(reason));
  if (status != OPFORGE_STATUS_OK) return context.fail(&context, status, "epilogue: %s", reason);
  const bytecode::Counts counts = bytecode::counts(blob.data);
  if (counts.inputs < 1 || counts.inputs - 1 > kMaxOperands || counts.outputs != 1 || counts.attributes != 0)
    return context.fail(
        &context, OPFORGE_STATUS_UNSUPPORTED,
        "an epilogue has 1 to %d inputs, no attributes and 1 output; this one has %d, %d and %d",
        kMaxOperands + 1, counts.inputs, counts.attributes, counts.outputs);
  if (counts.inputs - 1 > context.n_inputs - first && counts.inputs > 1)
    return context.fail(&context, OPFORGE_STATUS_CORRUPT,
                        "the epilogue reads %d inputs, the node has %d for it", counts.inputs - 1,
                        context.n_inputs > first ? context.n_inputs - first : 0);
  const size_t bytes = bytecode::program_bytes(blob.data);
  void* memory = context.allocate(&context, bytes);
  if (memory == nullptr) return no_memory(context);
  status = bytecode::link(blob.data, DType::kF32, nullptr, 1, memory, bytes, &epilogue->program, reason,
                          sizeof(reason));
  if (status != OPFORGE_STATUS_OK) return context.fail(&context, status, "epilogue: %s", reason);
  if (!bytecode::rows_ready(epilogue->program))
    return context.fail(&context, OPFORGE_STATUS_UNSUPPORTED,
                        "an epilogue has float inputs and one float output");
  epilogue->first = first;
  epilogue->inputs = counts.inputs;
  return OPFORGE_STATUS_OK;
}

Status sizes_differ(RunContext& context, int index, const Tensor& t, const Tensor& output) {
  const auto size = [](const Tensor& of, int axis) {
    return static_cast<long long>(of.shape.rank >= axis ? of.shape[-axis] : 1);
  };
  return context.fail(
      &context, OPFORGE_STATUS_INVALID_ARGUMENT,
      "operand %d is an image of %lld x %lld, the result one of %lld x %lld: sizes that differ "
      "in how they are rounded are taken as equal, which they are not for this input",
      index, size(t, 2), size(t, 1), size(output, 2), size(output, 1));
}

Status EpilogueRun::prepare(RunContext& context, const Epilogue& epilogue, const Tensor& output) {
  program_ = epilogue.program;
  if (program_ == nullptr) return OPFORGE_STATUS_OK;
  count_ = epilogue.inputs - 1;
  c16_ = is_c16(output);
  shape_ = output.shape;
  base_ = output.as<float>();
  if (c16_) {
    batch_ = image_of(output).batch;
    channels_ = output.shape[1];
  }
  for (int i = 0; i < count_; ++i) {
    const Status status =
        prepare_item(context, i + 1, context.inputs[epilogue.first + i], output, &items_[i]);
    if (status != OPFORGE_STATUS_OK) return status;
  }
  return OPFORGE_STATUS_OK;
}

Status EpilogueRun::prepare_formula(RunContext& context, const bytecode::Program* program) {
  const Tensor& output = context.outputs[0];
  program_ = program;
  own_ = false, c16_ = true;
  shape_ = output.shape;
  base_ = output.as<float>();
  image_ = image_of(output);
  batch_ = image_.batch;
  channels_ = shape_[1];
  count_ = context.n_inputs;
  outputs_count_ = context.n_outputs;
  for (int i = 0; i < context.n_outputs; ++i) outputs_[i] = context.outputs[i].as<float>();
  for (int i = 0; i < count_; ++i) {
    const Status status = prepare_item(context, i, context.inputs[i], output, &items_[i]);
    if (status != OPFORGE_STATUS_OK) return status;
  }
  return OPFORGE_STATUS_OK;
}

void EpilogueRun::run_formula(int64_t image, int64_t block, int64_t y0, int64_t y1) {
  const int64_t lanes = channels_ - block * 16 <= 8 ? 8 : 16;
  float* plane = base_ + image * image_.batch + block * image_.plane * 16;
  const bool dense = image_.row == image_.width;
  for (int64_t r = y0; r < y1; r += dense ? y1 - y0 : 1) {
    const int64_t first = (image_.top + r) * image_.row + image_.left;
    c16_block(this, plane + first * lanes, dense ? (y1 - y0) * image_.row : image_.width, lanes, first,
              block * 16, lanes);
  }
}

Status EpilogueRun::prepare_item(RunContext& context, int index, const Tensor& t, const Tensor& output,
                                 Item* item) {
  if (!is_f32(t))
    return context.fail(&context, OPFORGE_STATUS_TYPE, "operand %d of the formula is not f32", index);
  *item = Item();
  item->data = t.as<float>();
  if (t.shape.elements() == 1 && (is_plain(t) || is_c16(t))) {
    if (is_c16(t)) {
      const Image x = image_of(t);
      item->data += (x.top * x.row + x.left) * 8;
    }
    item->kind = Kind::kScalar;
    item->regular = true;
    return OPFORGE_STATUS_OK;
  }
  if (c16_ && same_shape(t.shape, output.shape) && same_layout(t.layout, output.layout)) {
    item->kind = Kind::kSame;
    return OPFORGE_STATUS_OK;
  }
  const Status status = c16_ ? prepare_c16(context, index, t, output, item) : prepare_plain(context, t, item);
  regular_ = regular_ && (item->kind != Kind::kRows || item->regular);
  return status;
}

// [C, 1, 1], [1, C, 1, 1] or [N, C, 1, 1], plain or c16 (with one pixel both hold the channels in a row).
Status EpilogueRun::prepare_c16(RunContext& context, int index, const Tensor& t, const Tensor& output,
                                Item* item) {
  const int rank = t.shape.rank;
  const bool ones = rank >= 3 && t.shape[-1] == 1 && t.shape[-2] == 1 && t.shape[-3] == channels_;
  const bool halo = t.layout.top + t.layout.left + t.layout.bottom + t.layout.right != 0;
  const int64_t images = rank == 4 ? t.shape[0] : 1;
  if (is_c16(t) && rank == 4 && shape_.rank == 4 && t.shape[1] == channels_ &&
      !same_shape(t.shape, output.shape) && !(ones && !halo))
    return sizes_differ(context, index, t, output);
  if (!ones || rank > 4 || halo || (images != 1 && images != shape_[0]))
    return context.fail(
        &context, OPFORGE_STATUS_UNSUPPORTED,
        "an epilogue on c16 takes scalars, [C, 1, 1] vectors and tensors of the output's own layout");
  item->kind = Kind::kChannel;
  item->channel_batch = images == 1 ? 0 : is_c16(t) ? padded8(channels_) : channels_;
  return OPFORGE_STATUS_OK;
}

Status EpilogueRun::prepare_plain(RunContext& context, const Tensor& t, Item* item) {
  const int rank = shape_.rank;
  if (!is_plain(t) || t.shape.rank > rank)
    return context.fail(&context, OPFORGE_STATUS_UNSUPPORTED,
                        "an epilogue operand does not broadcast to the output");
  int64_t stride = 1;
  int64_t strides[kMaxRank] = {};
  for (int i = 1; i <= rank; ++i) {
    const int64_t d = i <= t.shape.rank ? t.shape[-i] : 1;
    if (d != 1 && d != shape_[-i])
      return context.fail(&context, OPFORGE_STATUS_INVALID_ARGUMENT,
                          "an epilogue operand has %lld where the output has %lld", static_cast<long long>(d),
                          static_cast<long long>(shape_[-i]));
    strides[rank - i] = d == 1 ? 0 : stride;
    stride *= d;
  }
  item->kind = Kind::kRows;
  item->column_stride = rank > 0 ? strides[rank - 1] : 0;
  for (int i = 0; i < rank; ++i) item->strides[i] = strides[i];
  // Rows are regular when the leading dimensions collapse into one stride.
  item->regular = true;
  item->row_step = rank > 1 ? strides[rank - 2] : 0;
  int64_t step = item->row_step, size = rank > 1 ? shape_[rank - 2] : 1;
  for (int i = rank - 3; i >= 0; --i) {
    if (shape_[i] != 1 && strides[i] != step * size) item->regular = false;
    size *= shape_[i];
  }
  return OPFORGE_STATUS_OK;
}

int64_t EpilogueRun::row_offset(const Item& item, int64_t row) const {
  if (item.kind == Kind::kScalar) return 0;
  if (item.regular) return row * item.row_step;
  int64_t offset = 0;
  for (int i = shape_.rank - 2; i >= 0; --i) {
    offset += row % shape_[i] * item.strides[i];
    row /= shape_[i];
  }
  return offset;
}

BlockEpilogue EpilogueRun::function() const {
  return program_ == nullptr ? nullptr : c16_ ? c16_block : plain_block;
}

void EpilogueRun::plain_block(void* user, float* block, int64_t rows, int64_t columns, int64_t row0,
                              int64_t column0, int64_t row_stride) {
  const EpilogueRun& run = *static_cast<const EpilogueRun*>(user);
  bytecode::Operand in[kMaxOperands + 1];
  const int64_t at_once = run.regular_ ? rows : 1;
  for (int64_t r = 0; r < rows; r += at_once) {
    const bytecode::Operand out{block + r * row_stride, row_stride, 1};
    in[0] = out;
    for (int i = 0; i < run.count_; ++i) {
      const Item& item = run.items_[i];
      in[i + 1] = {item.data + run.row_offset(item, row0 + r) + column0 * item.column_stride, item.row_step,
                   item.column_stride};
    }
    bytecode::run_rows(run.program_, in, &out, at_once, columns);
  }
}

// Pixels of a block lie next to each other, so the block is taken as rows of 64 floats; channel vectors are
// repeated to that length.
void EpilogueRun::c16_block(void* user, float* block, int64_t rows, int64_t columns, int64_t row0,
                            int64_t column0, int64_t row_stride) {
  (void)row0, (void)row_stride;
  constexpr int64_t kPeriod = 64;
  const EpilogueRun& run = *static_cast<const EpilogueRun*>(user);
  const int64_t offset = block - run.base_, total = rows * columns;
  alignas(64) float repeated[kMaxOperands][kPeriod];
  bytecode::Operand in[kMaxOperands + 1], out[bytecode::kMaxOutputs];
  const int shift = run.own_ ? 1 : 0;
  const auto call = [&](int64_t begin, int64_t n_rows, int64_t n_columns) {
    if (run.own_) in[0] = out[0] = {block + begin, kPeriod, 1};
    for (int i = 0; !run.own_ && i < run.outputs_count_; ++i)
      out[i] = {run.outputs_[i] == nullptr ? nullptr : run.outputs_[i] + offset + begin, kPeriod, 1};
    for (int i = 0; i < run.count_; ++i) {
      const Item& item = run.items_[i];
      if (item.kind == Kind::kScalar)
        in[i + shift] = {item.data, 0, 0};
      else if (item.kind == Kind::kChannel)
        in[i + shift] = {repeated[i], 0, 1};
      else
        in[i + shift] = {item.data + offset + begin, kPeriod, 1};
    }
    bytecode::run_rows(run.program_, in, out, n_rows, n_columns);
  };
  bool vectors = false;
  for (int i = 0; i < run.count_; ++i) {
    const Item& item = run.items_[i];
    if (item.kind != Kind::kChannel) continue;
    vectors = true;
    const float* from = item.data + offset / run.batch_ * item.channel_batch + column0;
    const int64_t real = lesser(columns, run.channels_ - column0);
    for (int64_t c = 0; c < columns; ++c) repeated[i][c] = c < real ? from[c] : 0.0f;
    for (int64_t c = columns; c < kPeriod; c += columns)
      std::memcpy(repeated[i] + c, repeated[i], sizeof(float) * columns);
  }
  if (!vectors) {
    call(0, 1, total);
    return;
  }
  if (total >= kPeriod) call(0, total / kPeriod, kPeriod);
  if (total % kPeriod != 0) call(total / kPeriod * kPeriod, 1, total % kPeriod);
}

}  // namespace opforge::kernels
