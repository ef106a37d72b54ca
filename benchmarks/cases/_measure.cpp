// _measure.cpp: a model's run without Python, in turn with a yardstick of the machine in the same process.
// usage: measure MODEL.bin THREADS YARDSTICK AMOUNT DIM...   (one f32 input [DIM...], one f32 output)
// YARDSTICK: flops (AMOUNT operations, two per multiply-add), copy (AMOUNT bytes), none. Prints the medians of
// both in seconds, and a number without meaning that keeps the yardstick from being optimised away.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "opforge/runtime.h"

namespace {

#if defined(__AVX512F__)
constexpr int kBytes = 64, kChains = 24;
#elif defined(__AVX__)
constexpr int kBytes = 32, kChains = 12;
#else
constexpr int kBytes = 16, kChains = 12;
#endif
using Vector = float __attribute__((vector_size(kBytes)));

// Independent chains of multiply-adds, as many as the registers hold.
double multiply_adds(double flops) {
  Vector sum[kChains];
#pragma GCC unroll 32
  for (int k = 0; k < kChains; ++k) sum[k] = Vector{} + static_cast<float>(k);  // equal ones would be one
  Vector a = Vector{} + 0.999f, b = Vector{} + 0.001f;
  const auto rounds = static_cast<long>(flops / (2.0 * kChains * (kBytes / 4)));
  for (long i = 0; i < rounds; ++i) {
    asm volatile("" : "+x"(a), "+x"(b));
#pragma GCC unroll 32
    for (int k = 0; k < kChains; ++k) sum[k] = sum[k] * a + b;
  }
  double total = 0;
#pragma GCC unroll 32
  for (int k = 0; k < kChains; ++k) total += sum[k][0];
  return total;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void check(opforge_status status) {
  if (status == OPFORGE_STATUS_OK) return;
  std::fprintf(stderr, "%s\n", opforge_last_error()->text);
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) return 2;
  opforge_session_options options = {};
  options.size = sizeof options;
  options.threads = std::atoi(argv[2]);
  opforge_session* session = nullptr;
  check(opforge_session_open(argv[1], &options, &session));
  const char* yardstick = argv[3];
  const double amount = std::atof(argv[4]);
  std::vector<int64_t> shape;
  size_t elements = 1;
  for (int k = 5; k < argc; ++k) {
    shape.push_back(std::atol(argv[k]));
    elements *= static_cast<size_t>(shape.back());
  }
  std::vector<float> x(elements);
  for (size_t i = 0; i < elements; ++i) x[i] = static_cast<float>(i % 1009) / 1009 - 0.5f;
  opforge_tensor input = {}, output = {};
  input.data = x.data();
  input.device = {OPFORGE_DEVICE_CPU, 0};
  input.ndim = static_cast<int32_t>(shape.size());
  input.shape = shape.data();
  input.dtype = opforge_session_input(session, 0)->dtype;
  opforge_run run = {};
  run.size = sizeof run;
  run.inputs = &input;
  run.n_inputs = 1;
  run.outputs = &output;
  run.n_outputs = 1;
  check(opforge_session_run(session, &run));  // allocates the output, which later runs write again
  std::vector<int64_t> out_shape(output.shape, output.shape + output.ndim);
  output.shape = out_shape.data();
  std::vector<char> from, to;
  const bool copy = std::strcmp(yardstick, "copy") == 0, flops = std::strcmp(yardstick, "flops") == 0;
  if (copy) from.assign(static_cast<size_t>(amount), 1), to.assign(static_cast<size_t>(amount), 2);

  double begin = now();
  check(opforge_session_run(session, &run));
  const int inner = std::max(1, static_cast<int>(0.002 / std::max(now() - begin, 1e-8)));
  std::vector<double> ours, theirs;
  double sink = 0;
  for (int round = 0; round < 101; ++round) {
    begin = now();
    for (int k = 0; k < inner; ++k) check(opforge_session_run(session, &run));
    ours.push_back((now() - begin) / inner);
    begin = now();
    if (copy) {
      std::memcpy(to.data(), from.data(), to.size());
      sink += to[static_cast<size_t>(round)];
    }
    if (flops) sink += multiply_adds(amount);
    theirs.push_back(now() - begin);
  }
  std::printf("%.9g %.9g %g\n", median(ours), median(theirs), sink);
  opforge_free(output.data);
  opforge_session_close(session);
  return 0;
}
