// interpreter_test.cpp: rows against tensors, threads, in-place epilogues, guarded buffers, damaged blobs in
// memory of their exact size. Meant to run under AddressSanitizer and UndefinedBehaviorSanitizer.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "bytecode/blob.h"
#include "bytecode/interpreter.h"

namespace {

using namespace opforge;
using namespace opforge::bytecode;

int failures = 0;
void expect(bool condition, const char* what) {
  if (condition) return;
  std::printf("FAILED: %s\n", what);
  ++failures;
}

// A blob of type T throughout, except for comparisons.
struct Builder {
  int n_inputs;
  std::vector<double> constants;
  struct Row {
    uint16_t opcode, a, b, c;
    uint8_t type;
  };
  std::vector<Row> rows;
  struct Result {
    uint16_t value, sum_to;
  };
  std::vector<Result> results;

  std::vector<uint8_t> bytes() const {
    std::vector<uint8_t> blob(kHeadBytes);
    const auto put16 = [&](size_t at, size_t value) {
      const uint16_t v = static_cast<uint16_t>(value);
      std::memcpy(&blob[at], &v, 2);
    };
    std::memcpy(blob.data(), "OFBC", 4);
    put16(4, 1);
    put16(8, size_t(n_inputs));
    put16(12, constants.size());
    put16(14, rows.size());
    put16(16, results.size());
    put16(18, size_t(n_inputs) + constants.size() + rows.size());
    blob.resize((kHeadBytes + size_t(n_inputs) + constants.size() + 7) / 8 * 8);
    for (const double c : constants) {
      blob.resize(blob.size() + 8);
      std::memcpy(&blob[blob.size() - 8], &c, 8);
    }
    for (const Row& r : rows) {
      blob.resize(blob.size() + 16);
      std::memcpy(&blob[blob.size() - 16], &r, 9);
    }
    for (const Result& r : results) {
      blob.resize(blob.size() + 8);
      std::memcpy(&blob[blob.size() - 8], &r, 4);
    }
    const uint32_t size = static_cast<uint32_t>(blob.size());
    std::memcpy(&blob[20], &size, 4);
    return blob;
  }
};

struct Linked {
  std::unique_ptr<char[]> memory;
  const Program* program = nullptr;
  Linked(const std::vector<uint8_t>& blob, DType dtype, uint32_t wanted = ~0u) {
    char reason[200] = "";
    expect(verify(blob.data(), blob.size(), reason, sizeof reason) == OPFORGE_STATUS_OK, reason);
    const size_t bytes = program_bytes(blob.data());
    memory.reset(new char[bytes + 64]);
    void* at = memory.get() + (64 - reinterpret_cast<uintptr_t>(memory.get()) % 64) % 64;
    expect(link(blob.data(), dtype, nullptr, wanted, at, bytes, &program, reason, sizeof reason) ==
               OPFORGE_STATUS_OK,
           reason);
  }
};

// y = select(x > t, sigmoid(x) * x, (x * s + 0.5) * s), z = max(x, t) / s: cheap pairs, a choice, two
// outputs.
Builder sample(bool two_outputs, bool sums) {
  Builder b{3, {0.5}, {}, {}};
  b.rows = {{op_gt, 0, 1, kNone, 1},  {op_sigmoid, 0, kNone, kNone, 0}, {op_mul, 5, 0, kNone, 0},
            {op_mul, 0, 2, kNone, 0}, {op_add, 7, 3, kNone, 0},         {op_mul, 8, 2, kNone, 0},
            {op_select, 4, 6, 9, 0},  {op_max, 0, 1, kNone, 0},         {op_div, 11, 2, kNone, 0}};
  b.results = {{10, kNone}};
  if (two_outputs) b.results.push_back({12, kNone});
  if (sums) b.results = {{10, 0}, {12, 1}, {6, 2}};
  return b;
}

struct Tensor32 {
  std::vector<float> data;
  std::vector<int64_t> shape, strides;
  opforge_tensor view() {
    return {data.data(),
            {OPFORGE_DEVICE_CPU, 0},
            int32_t(shape.size()),
            {OPFORGE_CODE_FLOAT, 32, 1},
            shape.data(),
            strides.empty() ? nullptr : strides.data(),
            0};
  }
};

std::mt19937 generator(1);
float random_float() { return std::uniform_real_distribution<float>(-4, 4)(generator); }

// An operand of rows x columns in every form, between guards.
struct Guarded {
  std::vector<float> memory;
  Operand operand;
  static constexpr float kGuard = 1e30f;
  Guarded(int64_t rows, int64_t columns, int kind, int64_t pad) {  // 0 scalar, 1 row, 2 column, 3 full
    const int64_t row_stride = kind == 3 ? columns + pad : kind == 2 ? 1 + pad : 0;
    memory.assign(size_t(16 + rows * (columns + pad + 1) + 16), kGuard);
    operand = {memory.data() + 16, row_stride, kind == 1 || kind == 3 ? 1 : 0};
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) at(r, c) = random_float();
    }
  }
  float& at(int64_t r, int64_t c) { return operand.data[r * operand.row_stride + c * operand.column_stride]; }
};

void check_rows() {
  const auto blob = sample(true, false).bytes();
  const Linked linked(blob, DType::kF32);
  expect(rows_ready(linked.program), "a program of floats is ready for rows");
  const int64_t shapes[][2] = {{1, 1},    {1, 17},   {3, 37},    {5, 63},  {7, 64},  {2, 65},
                               {9, 100},  {33, 16},  {40, 32},   {96, 32}, {13, 48}, {3, 500},
                               {2, 1000}, {1, 5001}, {100, 128}, {64, 1},  {6, 255}, {6, 257}};
  for (const auto& shape : shapes) {
    const int64_t rows = shape[0], columns = shape[1];
    for (int combination = 0; combination < 64; ++combination) {
      const int kind[3] = {3, combination % 4, combination / 4 % 4};
      const int64_t pad = combination / 16 % 4;
      const bool in_place = pad == 3, skip_second = pad == 2;
      Guarded x(rows, columns, kind[0], pad), t(rows, columns, kind[1], pad), s(rows, columns, kind[2], 0);
      Guarded y(rows, columns, 3, pad), z(rows, columns, 3, 0);
      // Reference: element by element through run_tensors.
      std::vector<float> want_y, want_z;
      Tensor32 in[3], out[2];
      for (int k = 0; k < 3; ++k) in[k].shape = {rows, columns};
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < columns; ++c) {
          in[0].data.push_back(x.at(r, c));
          in[1].data.push_back(t.at(r, c));
          in[2].data.push_back(s.at(r, c));
        }
      }
      for (Tensor32& o : out) {
        o.shape = {rows, columns};
        o.data.resize(size_t(rows * columns));
      }
      const opforge_tensor inputs[3] = {in[0].view(), in[1].view(), in[2].view()};
      const opforge_tensor outputs[2] = {out[0].view(), out[1].view()};
      char reason[200] = "";
      expect(run_tensors(linked.program, inputs, outputs, nullptr, {}, nullptr, reason, sizeof reason) ==
                 OPFORGE_STATUS_OK,
             reason);
      const Operand operands[3] = {x.operand, t.operand, s.operand};
      const Operand results[2] = {in_place ? x.operand : y.operand,
                                  {skip_second ? nullptr : z.operand.data, columns, 1}};
      run_rows(linked.program, operands, results, rows, columns);
      bool same = true;
      for (int64_t i = 0; i < rows * columns; ++i) {
        Guarded& first = in_place ? x : y;
        same &= std::memcmp(&first.at(i / columns, i % columns), &out[0].data[size_t(i)], 4) == 0;
        if (!skip_second)
          same &= std::memcmp(&z.at(i / columns, i % columns), &out[1].data[size_t(i)], 4) == 0;
      }
      // Between and around the rows nothing may change.
      for (Guarded* g : {&x, &y, &z}) {
        for (size_t i = 0; i < g->memory.size(); ++i) {
          const int64_t at = int64_t(i) - 16, stride = g->operand.row_stride;
          const bool inside = at >= 0 && at < rows * stride && at % stride < columns;
          same &= inside || g->memory[i] == Guarded::kGuard;
        }
      }
      if (!same) std::printf("rows %d x %d, operands %d\n", int(rows), int(columns), combination);
      expect(same, "run_rows gives the bits of run_tensors and touches nothing else");
    }
  }
}

int threads = 1;
void spread(void*, int64_t n, int64_t grain, RangeBody body, void* user) {
  std::vector<std::thread> pool;
  for (int t = 0; t < threads; ++t) {
    pool.emplace_back([=] {
      for (int64_t chunk = t; chunk * grain < n; chunk += threads) {
        const int64_t begin = chunk * grain;
        body(user, begin, begin + grain < n ? begin + grain : n);
      }
    });
  }
  for (std::thread& t : pool) t.join();
}

void check_threads() {
  const Linked linked(sample(false, true).bytes(), DType::kF32);
  const std::vector<int64_t> shapes[][3] = {{{300, 700}, {700}, {300, 1}},
                                            {{50000}, {1}, {}},
                                            {{9000, 30}, {30}, {9000, 30}},
                                            {{4, 60, 500}, {60, 1}, {4, 1, 1}},
                                            {{20000, 3}, {20000, 1}, {3}}};
  for (const auto& shape : shapes) {
    std::vector<std::vector<float>> first;
    Tensor32 in[3];
    for (int k = 0; k < 3; ++k) {
      in[k].shape = shape[k];
      int64_t n = 1;
      for (const int64_t d : shape[k]) n *= d;
      for (int64_t i = 0; i < n; ++i) in[k].data.push_back(random_float());
    }
    for (const int count : {0, 1, 2, 8}) {
      Tensor32 out[3];
      for (int k = 0; k < 3; ++k) {
        out[k].shape = in[k].shape;
        out[k].data.resize(in[k].data.size());
      }
      const opforge_tensor inputs[3] = {in[0].view(), in[1].view(), in[2].view()};
      const opforge_tensor outputs[3] = {out[0].view(), out[1].view(), out[2].view()};
      const int64_t bytes = scratch_bytes(linked.program, inputs, outputs);
      expect(bytes >= 0, "scratch_bytes accepts the shapes");
      std::unique_ptr<char[]> scratch(new char[size_t(bytes) + 64]);
      void* at = scratch.get() + (64 - reinterpret_cast<uintptr_t>(scratch.get()) % 64) % 64;
      threads = count;
      Workers workers;
      if (count) workers.parallel_for = spread;
      char reason[200] = "";
      expect(run_tensors(linked.program, inputs, outputs, nullptr, workers, at, reason, sizeof reason) ==
                 OPFORGE_STATUS_OK,
             reason);
      for (int k = 0; k < 3; ++k) {
        if (count == 0) first.push_back(out[k].data);
        expect(std::memcmp(first[size_t(k)].data(), out[k].data.data(), 4 * first[size_t(k)].size()) == 0,
               "1, 2 and 8 threads give the bits of a serial run");
      }
    }
  }
}

void check_shapes() {
  const Linked linked(sample(false, false).bytes(), DType::kF32);
  Tensor32 a{{1, 2, 3}, {3}, {}}, b{{1, 2}, {2}, {}}, y{{0, 0, 0}, {3}, {}};
  char reason[200] = "";
  const opforge_tensor clash[3] = {a.view(), b.view(), a.view()}, fits[3] = {a.view(), a.view(), a.view()};
  opforge_tensor out = y.view();
  expect(run_tensors(linked.program, clash, &out, nullptr, {}, nullptr, reason, sizeof reason) ==
                 OPFORGE_STATUS_INVALID_ARGUMENT &&
             std::strstr(reason, "input 1 cannot be broadcast: dimension 0 is 2, others have 3"),
         "shapes that clash are named");
  opforge_tensor wrong = b.view();
  expect(run_tensors(linked.program, fits, &wrong, nullptr, {}, nullptr, reason, sizeof reason) ==
                 OPFORGE_STATUS_INVALID_ARGUMENT &&
             std::strstr(reason, "output 0 has a wrong shape"),
         "an output of a wrong shape is named");
  out.dtype.bits = 64;
  expect(run_tensors(linked.program, fits, &out, nullptr, {}, nullptr, reason, sizeof reason) ==
                 OPFORGE_STATUS_TYPE &&
             std::strstr(reason, "output 0 has a wrong dtype"),
         "an output of a wrong dtype is named");
}

void check_damage() {
  const auto good = sample(true, false).bytes();
  int accepted = 0;
  const auto attempt = [&](const std::vector<uint8_t>& bytes) {
    std::unique_ptr<uint8_t[]> exact(
        new uint8_t[bytes.size()]);  // the sanitizer sees the first byte behind it
    if (!bytes.empty()) std::memcpy(exact.get(), bytes.data(), bytes.size());
    char reason[64];  // short on purpose: reasons are cut, never written past
    if (verify(exact.get(), bytes.size(), reason, sizeof reason) != OPFORGE_STATUS_OK) return;
    ++accepted;
    const size_t size = program_bytes(exact.get());
    std::unique_ptr<char[]> memory(new char[size + 64]);
    void* at = memory.get() + (64 - reinterpret_cast<uintptr_t>(memory.get()) % 64) % 64;
    const Program* program;
    if (link(exact.get(), DType::kF32, nullptr, ~0u, at, size, &program, reason, sizeof reason) !=
        OPFORGE_STATUS_OK)
      return;
    const Counts n = counts(exact.get());
    if (!rows_ready(program)) return;
    std::vector<float> data(1000, 0.5f), results(1000 * size_t(n.outputs));
    std::vector<Operand> in(size_t(n.inputs), Operand{data.data(), 100, 1}), out;
    for (int k = 0; k < n.outputs; ++k) out.push_back({results.data() + 1000 * k, 100, 1});
    run_rows(program, in.data(), out.data(), 10, 100);
  };
  for (size_t cut = 0; cut < good.size(); ++cut) attempt({good.begin(), good.begin() + long(cut)});
  expect(accepted == 0, "no cut blob is accepted");
  for (size_t at = 0; at < good.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      auto damaged = good;
      damaged[at] ^= uint8_t(1 << bit);
      attempt(damaged);
    }
  }
  for (int round = 0; round < 2000; ++round) {
    auto damaged = good;
    for (int k = 0; k < 3; ++k)
      damaged[kHeadBytes + generator() % (good.size() - kHeadBytes)] = uint8_t(generator() % 24);
    attempt(damaged);
  }
  expect(accepted > 100, "some damage gives another valid program, and it runs");
}

// Random programs of cheap instructions, which become chains, against the same with every value an output,
// which leaves nothing to join. Over their first input in place, with rows, scalars and all lengths of the
// last group.
void check_chains() {
  const uint16_t opcodes[] = {op_add,  op_sub, op_mul, op_div,        op_min,    op_max,  op_fma, op_fnma,
                              op_clip, op_neg, op_abs, op_reciprocal, op_square, op_relu, op_exp};
  for (int round = 0; round < 400; ++round) {
    Builder b{3, {0.5, -1.25}, {}, {}};
    const int leaves = 5, n = 3 + int(generator() % 12);
    for (int k = 0; k < n; ++k) {
      const uint16_t opcode = opcodes[generator() % 15];
      uint16_t operand[3] = {kNone, kNone, kNone};
      const int count = opcode_info(opcode).operands, link = int(generator() % unsigned(count));
      for (int o = 0; o < count; ++o) {
        const auto any = uint16_t(generator() % unsigned(leaves + k));
        operand[o] = k > 0 && o == link && generator() % 8 != 0 ? uint16_t(leaves + k - 1) : any;
      }
      b.rows.push_back({opcode, operand[0], operand[1], operand[2], 0});
    }
    const auto last = uint16_t(leaves + n - 1);
    b.results = {{last, kNone}};
    Builder apart = b;
    for (int k = 0; k + 1 < n; ++k) apart.results.push_back({uint16_t(leaves + k), kNone});
    const Linked joined(b.bytes(), DType::kF32), single(apart.bytes(), DType::kF32);
    const int64_t rows = 1 + int64_t(generator() % 3), columns = 1 + int64_t(generator() % 700);
    const auto size = size_t(rows * columns);
    std::vector<float> x(size), y(size), z(size), others(size * size_t(n));
    for (size_t i = 0; i < size; ++i) x[i] = random_float(), y[i] = i % 97 ? random_float() : NAN;
    std::vector<float> in_place = x, expected(size);
    const Operand second{y.data(), generator() % 2 ? columns : 0, 1},
        third{z.data(), 0, int64_t(generator() % 2)};
    for (size_t i = 0; i < size; ++i) z[i] = random_float();
    Operand in[3] = {{x.data(), columns, 1}, second, third};
    std::vector<Operand> out = {{expected.data(), columns, 1}};
    for (int k = 0; k + 1 < n; ++k) out.push_back({others.data() + size * size_t(k), columns, 1});
    run_rows(single.program, in, out.data(), rows, columns);
    in[0].data = in_place.data();
    const Operand result{in_place.data(), columns, 1};
    run_rows(joined.program, in, &result, rows, columns);
    bool same = true;  // which NaN comes out of two is the compiler's choice
    for (size_t i = 0; i < size; ++i)
      same &= std::memcmp(&in_place[i], &expected[i], 4) == 0 ||
              (in_place[i] != in_place[i] && expected[i] != expected[i]);
    expect(same, "a chain changes bits");
  }
}

}  // namespace

int main() {
  check_rows();
  check_threads();
  check_shapes();
  check_damage();
  check_chains();
  std::printf(failures ? "%d checks failed\n" : "all checks passed\n", failures);
  return failures != 0;
}
