// epilogue.h: formula bytecode applied to blocks of a node's output while they are in cache.
#pragma once

#include "bytecode/interpreter.h"
#include "kernels/common.h"

namespace opforge::kernels {

constexpr int kMaxOperands = 16;

// The linked formula of a node, made at load. Input 0 of the blob is the node's own result, input k >= 1 the
// node's input first + k - 1.
struct Epilogue {
  const bytecode::Program* program = nullptr;  // null = none
  int32_t first = 0;
  int32_t inputs = 0;
};

// Links attribute `epilogue` when there is one.
Status load_epilogue(LoadContext& context, int32_t first, Epilogue* epilogue);
// Refuses an image whose size the compiler presumed to be that of the result.
Status sizes_differ(RunContext& context, int index, const Tensor& t, const Tensor& output);

// The operands of one run, prepared before the loops start.
class EpilogueRun {
 public:
  // Fails when an operand does not broadcast to the output in one of the supported ways.
  Status prepare(RunContext& context, const Epilogue& epilogue, const Tensor& output);
  // A formula node on c16 values: its inputs are all operands, its outputs are written where block() points.
  Status prepare_formula(RunContext& context, const bytecode::Program* program);
  // Rows [y0, y1) of one channel block of one image of such a node.
  void run_formula(int64_t image, int64_t block, int64_t y0, int64_t y1);

  BlockEpilogue function() const;  // null when there is no epilogue
  void* user() { return this; }

 private:
  enum class Kind : uint8_t { kScalar, kChannel, kSame, kRows };
  struct Item {
    float* data;
    Kind kind;
    int64_t channel_batch;  // kChannel: floats from image to image, 0 = one vector for all
    int64_t column_stride;  // kRows: 0 or 1
    int64_t row_step;       // kRows with regular rows: floats from row to row
    bool regular;
    int64_t strides[kMaxRank];  // kRows: of the leading dimensions
  };
  static void plain_block(void* user, float* block, int64_t rows, int64_t columns, int64_t row0,
                          int64_t column0, int64_t row_stride);
  static void c16_block(void* user, float* block, int64_t rows, int64_t columns, int64_t row0,
                        int64_t column0, int64_t row_stride);
  Status prepare_item(RunContext& context, int index, const Tensor& t, const Tensor& output, Item* item);
  Status prepare_plain(RunContext& context, const Tensor& t, Item* item);
  Status prepare_c16(RunContext& context, int index, const Tensor& t, const Tensor& output, Item* item);
  int64_t row_offset(const Item& item, int64_t row) const;

  const bytecode::Program* program_ = nullptr;
  int32_t count_ = 0;  // operands beyond the node's own result
  bool regular_ = true;
  bool c16_ = false;
  Shape shape_;
  float* base_ = nullptr;
  int64_t batch_ = 0;  // floats per image
  int64_t channels_ = 0;
  Item items_[kMaxOperands];
  bool own_ = true;  // input 0 of the blob is the block itself, and so is the output
  Image image_{};
  int32_t outputs_count_ = 1;
  float* outputs_[bytecode::kMaxOutputs];
};

}  // namespace opforge::kernels
