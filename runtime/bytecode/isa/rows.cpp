// rows.cpp: a linked f32 program over a block of rows, as a matmul's or convolution's epilogue runs it.
#include "bytecode/isa/program.h"

namespace opforge {
namespace OPFORGE_ISA {

namespace {

constexpr int64_t N = vm::kLanes;

// An operand of the block: a scalar of the whole block, of each row, or an array.
enum class Shape : uint8_t { kScalar, kColumn, kRow, kFull };
Shape shape_of(const bc::Operand& o) {
  if (o.column_stride == 0) return o.row_stride == 0 ? Shape::kScalar : Shape::kColumn;
  return o.row_stride == 0 ? Shape::kRow : Shape::kFull;
}

struct Run {
  Run(const Linked& program, Slots s, const bc::Operand* inputs, const bc::Operand* outputs)
      : p(program),
        slots(s),
        in(inputs),
        out(outputs),
        n_in(program.formula.n_inputs),
        n_out(program.formula.n_outputs),
        first_out(program.first_output()) {}

  const Linked& p;
  Slots slots;
  const bc::Operand* in;
  const bc::Operand* out;
  int n_in, n_out, first_out;
  Shape shape[ew::kMaxInputs];
  alignas(64) float splat[ew::kMaxInputs][ew::kSplat];

  void set_splat(int k, const float* from) {
    for (float& x : splat[k]) x = *from;
  }
  // n elements at the pointers of the slots: whole vectors in place, the rest through buffers.
  void elements(int64_t n) {
    while (n >= N) {
      const int64_t m = n < p.tile ? n / N * N : p.tile;
      run_steps(p, slots, m);
      for (int k = 0; k < n_in; ++k) slots.pointer[k] += slots.step[k] * m * 4;
      for (int k = 0; k < n_out; ++k) {
        if (out[k].data) slots.pointer[first_out + k] += m * 4;
      }
      n -= m;
    }
    if (n) tail(n);
  }
  void tail(int64_t n) {
    alignas(64) float in_buffer[ew::kMaxInputs][N], out_buffer[ew::kMaxOutputs][N];
    char* to[ew::kMaxOutputs];
    for (int k = 0; k < n_in; ++k) {
      if (!slots.step[k]) continue;
      for (int64_t i = 0; i < N; ++i) in_buffer[k][i] = 0.0f;
      std::memcpy(in_buffer[k], slots.pointer[k], size_t(n) * 4);
      slots.pointer[k] = reinterpret_cast<char*>(in_buffer[k]);
    }
    for (int k = 0; k < n_out; ++k) {
      to[k] = slots.pointer[first_out + k];
      slots.pointer[first_out + k] = reinterpret_cast<char*>(out_buffer[k]);
    }
    run_steps(p, slots, N);
    for (int k = 0; k < n_out; ++k) {
      if (out[k].data) std::memcpy(to[k], out_buffer[k], size_t(n) * 4);
      slots.pointer[first_out + k] = to[k];
    }
  }

  void one_row(int64_t row, int64_t columns) {
    for (int k = 0; k < n_in; ++k) {
      const float* from = in[k].data + row * in[k].row_stride;
      if (shape[k] == Shape::kColumn) set_splat(k, from);
      slots.step[k] = shape[k] == Shape::kRow || shape[k] == Shape::kFull;
      slots.pointer[k] = slots.step[k] ? reinterpret_cast<char*>(const_cast<float*>(from))
                                       : reinterpret_cast<char*>(splat[k]);
    }
    for (int k = 0; k < n_out; ++k) {
      if (out[k].data)
        slots.pointer[first_out + k] = reinterpret_cast<char*>(out[k].data + row * out[k].row_stride);
    }
    elements(columns);
  }

  // Narrow rows: as many as fit one tile are gathered, unless they follow each other in memory already. Row
  // vectors are repeated once for the whole block.
  void packed(int64_t rows, int64_t columns, float* staging) {
    const int64_t per_tile = p.tile / columns;
    const auto stage = [&](int k) { return staging + int64_t(k) * p.tile; };
    for (int k = 0; k < n_in; ++k) {
      slots.step[k] = shape[k] != Shape::kScalar;
      slots.pointer[k] = reinterpret_cast<char*>(shape[k] == Shape::kScalar ? splat[k] : stage(k));
      for (int64_t r = 0; shape[k] == Shape::kRow && r < per_tile && r < rows; ++r) {
        std::memcpy(stage(k) + r * columns, in[k].data, size_t(columns) * 4);
      }
    }
    for (int64_t r0 = 0; r0 < rows; r0 += per_tile) {
      const int64_t count = rows - r0 < per_tile ? rows - r0 : per_tile, n = count * columns;
      for (int k = 0; k < n_in; ++k) {
        const float* from = in[k].data + r0 * in[k].row_stride;
        if (shape[k] == Shape::kFull && in[k].row_stride == columns) {
          slots.pointer[k] = reinterpret_cast<char*>(const_cast<float*>(from));
        } else if (shape[k] == Shape::kFull) {
          for (int64_t r = 0; r < count; ++r)
            std::memcpy(stage(k) + r * columns, from + r * in[k].row_stride, size_t(columns) * 4);
          slots.pointer[k] = reinterpret_cast<char*>(stage(k));
        } else if (shape[k] == Shape::kColumn) {
          for (int64_t r = 0; r < count; ++r) {
            for (int64_t c = 0; c < columns; ++c) stage(k)[r * columns + c] = from[r * in[k].row_stride];
          }
          slots.pointer[k] = reinterpret_cast<char*>(stage(k));
        } else if (shape[k] == Shape::kRow) {
          slots.pointer[k] = reinterpret_cast<char*>(stage(k));
        }
      }
      for (int k = 0; k < n_out; ++k) {
        if (!out[k].data) continue;
        float* to = out[k].row_stride == columns ? out[k].data + r0 * columns : stage(n_in + k);
        slots.pointer[first_out + k] = reinterpret_cast<char*>(to);
      }
      elements(n);
      for (int k = 0; k < n_out; ++k) {
        if (!out[k].data || out[k].row_stride == columns) continue;
        for (int64_t r = 0; r < count; ++r) {
          std::memcpy(out[k].data + (r0 + r) * out[k].row_stride, stage(n_in + k) + r * columns,
                      size_t(columns) * 4);
        }
      }
    }
  }
};

}  // namespace

bool rows_ready(const bc::Program* program) {
  const Linked& p = linked(program);
  bool ready = p.rows_ready && (p.attributes || !p.formula.n_attributes);
  for (int k = 0; k < p.formula.n_outputs; ++k) ready &= p.formula.sum_to[k] < 0;
  return ready;
}

void run_rows(const bc::Program* program, const bc::Operand* inputs, const bc::Operand* outputs, int64_t rows,
              int64_t columns) {
  const Linked& p = linked(program);
  if (rows <= 0 || columns <= 0) return;
  alignas(64) char temps[kTempBytes];
  char** pointer = static_cast<char**>(__builtin_alloca(sizeof(char*) * size_t(p.n_slots)));
  int32_t* step = static_cast<int32_t*>(__builtin_alloca(sizeof(int32_t) * size_t(p.n_slots)));
  Run run(p, {pointer, step}, inputs, outputs);
  point_fixed_slots(p, run.slots, temps);
  char* const spare = temps + int64_t(p.n_temps) * p.tile * p.temp_width;
  bool flat = true;
  for (int k = 0; k < run.n_in; ++k) {
    run.shape[k] = shape_of(inputs[k]);
    if (run.shape[k] == Shape::kScalar) run.set_splat(k, inputs[k].data);
    flat &=
        run.shape[k] == Shape::kScalar || (run.shape[k] == Shape::kFull && inputs[k].row_stride == columns);
  }
  for (int k = 0; k < run.n_out; ++k) {
    flat &= !outputs[k].data || outputs[k].row_stride == columns;
    pointer[run.first_out + k] = spare + (outputs[k].data ? 0 : int64_t(k) * p.tile * p.temp_width);
  }
  if (flat) return run.one_row(0, rows * columns);
  alignas(64) float staging[ew::kStagingBytes / 4];
  if (rows > 1 && columns * 2 <= p.tile &&
      size_t(run.n_in + run.n_out) * size_t(p.tile) * 4 <= sizeof staging) {
    return run.packed(rows, columns, staging);
  }
  for (int64_t r = 0; r < rows; ++r) run.one_row(r, columns);
}

}  // namespace OPFORGE_ISA
}  // namespace opforge
