// interpreter.h: formula bytecode (docs/design/bytecode.md) for the runtime: verify, link, run.
//
//   verify        is this blob well formed?                     once, before anything else touches it
//   link          blob + dtype -> Program in the caller's memory    once per (blob, dtype)
//   run_rows      over f32 rows, as an epilogue does            many times, from any thread
//   run_tensors   over tensors: broadcasting, strides, sum_to   many times, from any thread
//
// A linked Program is immutable and may be shared by threads. Nothing here uses the heap; running takes up to
// kStackBytes of stack. Bits do not depend on threads, on how the caller cuts rows, or on the vector width.
#pragma once

#include <cstddef>
#include <cstdint>

#include "opforge/abi.h"
#include "program/kernel_api.h"

namespace opforge::bytecode {

constexpr size_t kStackBytes = 256 * 1024;
constexpr int kMaxInputs = 64, kMaxOutputs = 16, kMaxValues = 4096;

// Checks everything that linking and running rely on. On failure the result is OPFORGE_STATUS_CORRUPT (or
// _UNSUPPORTED: a newer numerics_version, reserved opcodes) and reason, if given, says what is wrong and
// where.
Status verify(const void* blob, size_t size, char* reason, size_t reason_size);

// The head of a verified blob.
struct Counts {
  int32_t inputs, attributes, constants, instructions, outputs;
};
Counts counts(const void* blob);
// What a verified blob's output k is summed to: the number of an input, or -1 for the broadcast shape.
int32_t output_sum_to(const void* blob, int32_t output);
// The dtype of input or output k when the formula's T is `storage`.
DType input_dtype(const void* blob, int32_t input, DType storage);
DType output_dtype(const void* blob, int32_t output, DType storage);

struct Program;  // linked

// Bytes that link() needs for this verified blob (an upper bound over dtypes); align them to 64.
size_t program_bytes(const void* blob);

// storage: kF16, kBF16, kF32 or kF64. attributes: n_attributes values (rounded once to their type here), or
// NULL when each run gives them. wanted: bit k set = output k is computed; instructions that no wanted output
// needs are dropped. The blob may go after linking.
Status link(const void* blob, DType storage, const double* attributes, uint32_t wanted, void* memory,
            size_t bytes, const Program** program, char* reason, size_t reason_size);

// ---- epilogues: float rows
// ---------------------------------------------------------------------------------- One operand over a block
// of rows x columns: element (r, c) lies at data[r * row_stride + c * column_stride]. column_stride is 0 or 1
// (outputs: 1). A scalar has both 0, a row vector row_stride 0, a column column_stride 0. An output may be
// the same memory as an input of equal strides (in place).
struct Operand {
  float* data;
  int64_t row_stride;
  int64_t column_stride;
};

// For programs linked with kF32 whose inputs and outputs all are float and where no output is summed (see
// rows_ready). inputs: one per blob input, outputs: one per blob output (data NULL = not wanted).
// A block of 2,000 to 16,000 elements is the best size: the interpreter works in tiles of 512 within it, and
// rows of 16 to 255 columns are taken several at a time.
bool rows_ready(const Program* program);
void run_rows(const Program* program, const Operand* inputs, const Operand* outputs, int64_t rows,
              int64_t columns);

// ---- tensors
// ------------------------------------------------------------------------------------------------ Calls body
// over [0, n) in chunks whose boundaries are multiples of grain. parallel_for NULL = serial.
struct Workers {
  void* host = nullptr;
  void (*parallel_for)(void* host, int64_t n, int64_t grain, RangeBody body, void* user) = nullptr;
};

// Scratch bytes of run_tensors for these shapes (partial sums of long reductions; 0 when nothing is summed).
// Only ndim and shape of the tensors are read. -1 when the shapes do not fit the program.
int64_t scratch_bytes(const Program* program, const opforge_tensor* inputs, const opforge_tensor* outputs);

// inputs and outputs as the blob has them; any strides, any rank up to 32, NumPy broadcasting, zero sizes. An
// output with data NULL and ndim -1 is not wanted. attributes: NULL = those given to link(). scratch: 64-byte
// aligned.
Status run_tensors(const Program* program, const opforge_tensor* inputs, const opforge_tensor* outputs,
                   const double* attributes, const Workers& workers, void* scratch, char* reason,
                   size_t reason_size);

}  // namespace opforge::bytecode
