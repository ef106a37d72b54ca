// run_list.cpp: runs a list of models with stored inputs and compares the outputs bit by bit with stored
// ones.
//
// One process runs hundreds of models, so that it can be built with sanitizers or for another processor and
// be run by an emulator. tests/corpus writes the lists. Each line: name, model, number of inputs, input .npy
// files, output .npy files (separated by tabs). A line without files is a model that need not be valid: it is
// opened and, where that succeeds, run on small inputs; what counts is that nothing crashes.
//
// Usage: run_list LIST [--write] [--threads N] [--callers N] [--repeat N] [--rtol64 X] [--suffix S]
//   --write     write the outputs instead of comparing them
//   --callers   that many threads run each model at once on one session
//   --rtol64    relative difference of f64 outputs (some come from libm, which differs between systems)
//   --suffix    what the names of output files end with, so that two profiles are kept apart
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "cli/npy.h"
#include "opforge/runtime.h"
#include "small_inputs.h"

namespace {

using opforge::cli::NpyArray;

struct Line {
  std::string name, model;
  std::vector<std::string> inputs, outputs;
};

struct Options {
  std::string list, suffix;
  bool write = false;
  int32_t threads = 1, callers = 1, repeat = 1;
  double rtol64 = 0;
};

[[noreturn]] void leave(const std::string& text) {
  std::fprintf(stderr, "run_list: %s\n", text.c_str());
  std::exit(2);
}

std::vector<Line> read_list(const std::string& path) {
  std::ifstream file(path);
  if (!file) leave(path + " cannot be opened");
  std::vector<Line> lines;
  for (std::string text; std::getline(file, text);) {
    std::istringstream stream(text);
    std::vector<std::string> parts;
    for (std::string part; std::getline(stream, part, '\t');) parts.push_back(part);
    if (parts.size() < 2) leave("a line without a model: " + text);
    Line line{parts[0], parts[1], {}, {}};
    const size_t inputs = parts.size() > 2 ? std::strtoul(parts[2].c_str(), nullptr, 10) : 0;
    for (size_t k = 3; k < parts.size(); ++k)
      (k - 3 < inputs ? line.inputs : line.outputs).push_back(parts[k]);
    lines.push_back(std::move(line));
  }
  return lines;
}

// Any NaN equals any NaN; all else is compared bit by bit. Floats of `size` bytes with `mantissa` bits.
template <class Word>
bool same_floats(const uint8_t* a, const uint8_t* b, size_t count, int mantissa) {
  const Word magnitude = static_cast<Word>(~Word{0}) >> 1;
  const Word infinity = magnitude >> mantissa << mantissa;
  for (size_t k = 0; k < count; ++k) {
    Word x, y;
    std::memcpy(&x, a + k * sizeof(Word), sizeof(Word));
    std::memcpy(&y, b + k * sizeof(Word), sizeof(Word));
    const bool nan = (x & magnitude) > infinity && (y & magnitude) > infinity;
    if (x != y && !nan) return false;
  }
  return true;
}

bool close_doubles(const uint8_t* a, const uint8_t* b, size_t count, double rtol) {
  for (size_t k = 0; k < count; ++k) {
    double x, y;
    std::memcpy(&x, a + k * 8, 8);
    std::memcpy(&y, b + k * 8, 8);
    const bool same = x == y || (std::isnan(x) && std::isnan(y));
    if (!same && !(std::fabs(x - y) <= rtol * std::max(std::fabs(x), std::fabs(y)))) return false;
  }
  return true;
}

bool same(const opforge_dtype& dtype, const uint8_t* a, const uint8_t* b, size_t bytes, double rtol64) {
  if (dtype.code == OPFORGE_CODE_BFLOAT) return same_floats<uint16_t>(a, b, bytes / 2, 7);
  if (dtype.code == OPFORGE_CODE_FLOAT) {
    if (dtype.bits == 16) return same_floats<uint16_t>(a, b, bytes / 2, 10);
    if (dtype.bits == 32) return same_floats<uint32_t>(a, b, bytes / 4, 23);
    return close_doubles(a, b, bytes / 8, rtol64);
  }
  return bytes == 0 || std::memcmp(a, b, bytes) == 0;
}

struct Tensors {
  std::vector<NpyArray> arrays;
  std::vector<opforge_tensor> tensors;
};

std::string read_inputs(const Line& line, const opforge_session* session, Tensors* inputs) {
  inputs->arrays.resize(line.inputs.size());
  inputs->tensors.resize(line.inputs.size());
  for (size_t k = 0; k < line.inputs.size(); ++k) {
    NpyArray& array = inputs->arrays[k];
    const std::string problem = opforge::cli::read_npy(line.inputs[k], &array);
    if (!problem.empty()) return line.inputs[k] + ": " + problem;
    const opforge_value_info* info = opforge_session_input(session, static_cast<int32_t>(k));
    if (info == nullptr || array.descr != opforge::cli::npy_descr(info->dtype))
      return line.inputs[k] + ": wrong dtype";
    opforge_tensor& tensor = inputs->tensors[k];
    tensor = {};
    tensor.data = array.bytes.data();
    tensor.device = {OPFORGE_DEVICE_CPU, 0};
    tensor.ndim = static_cast<int32_t>(array.shape.size());
    tensor.dtype = info->dtype;
    tensor.shape = array.shape.data();
  }
  return "";
}

// One run, its outputs compared or written. Empty = good.
std::string run(const Options& options, const Line& line, opforge_session* session, const Tensors& inputs,
                const std::vector<NpyArray>& expected) {
  std::vector<opforge_tensor> outputs(line.outputs.size());
  opforge_run run = {};
  run.size = sizeof run;
  run.inputs = inputs.tensors.data();
  run.n_inputs = static_cast<int32_t>(inputs.tensors.size());
  run.outputs = outputs.data();
  run.n_outputs = static_cast<int32_t>(outputs.size());
  if (opforge_session_run(session, &run) != OPFORGE_STATUS_OK) return opforge_last_error()->text;
  std::string problem;
  for (size_t k = 0; k < outputs.size(); ++k) {
    const opforge_tensor& output = outputs[k];
    size_t bytes = output.dtype.bits / 8;
    for (int32_t d = 0; d < output.ndim; ++d) bytes *= static_cast<size_t>(output.shape[d]);
    const std::string where = "output " + std::to_string(k);
    if (options.write) {
      if (!opforge::cli::write_npy(line.outputs[k], opforge::cli::npy_descr(output.dtype), output.shape,
                                   output.ndim, output.data, bytes)) {
        problem = line.outputs[k] + " cannot be written";
      }
    } else if (expected[k].descr != opforge::cli::npy_descr(output.dtype) ||
               expected[k].shape != std::vector<int64_t>(output.shape, output.shape + output.ndim)) {
      problem = where + " has another dtype or shape";
    } else if (!same(output.dtype, static_cast<const uint8_t*>(output.data), expected[k].bytes.data(), bytes,
                     options.rtol64)) {
      problem = where + " differs in bits";
    }
    opforge_free(output.data);
  }
  return problem;
}

std::string check(const Options& options, const Line& line) {
  opforge_session_options session_options = {};
  session_options.size = sizeof session_options;
  session_options.threads = options.threads;
  const bool hostile = line.outputs.empty();
  if (hostile) opforge::test::bound(&session_options);
  opforge_session* opened = nullptr;
  if (opforge_session_open(line.model.c_str(), &session_options, &opened) != OPFORGE_STATUS_OK)
    return hostile ? "" : opforge_last_error()->text;
  const std::unique_ptr<opforge_session, void (*)(opforge_session*)> session(opened, &opforge_session_close);
  if (hostile) {
    opforge::test::run_small(opened);
    return "";
  }
  Tensors inputs;
  std::string problem = read_inputs(line, opened, &inputs);
  if (!problem.empty()) return problem;
  std::vector<NpyArray> expected(line.outputs.size());
  for (size_t k = 0; k < expected.size() && !options.write; ++k) {
    problem = opforge::cli::read_npy(line.outputs[k], &expected[k]);
    if (!problem.empty()) return line.outputs[k] + ": " + problem;
  }
  std::vector<std::string> problems(static_cast<size_t>(options.callers));
  const auto call = [&](size_t caller) {
    for (int32_t k = 0; k < options.repeat && problems[caller].empty(); ++k)
      problems[caller] = run(options, line, opened, inputs, expected);
  };
  std::vector<std::thread> callers;
  for (size_t k = 1; k < problems.size(); ++k) callers.emplace_back(call, k);
  call(0);
  for (std::thread& caller : callers) caller.join();
  for (const std::string& one : problems) {
    if (!one.empty()) return one;
  }
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int k = 1; k < argc; ++k) {
    const std::string option = argv[k];
    const auto number = [&] { return k + 1 < argc ? std::atof(argv[++k]) : 0.0; };
    if (option == "--write") {
      options.write = true;
    } else if (option == "--threads") {
      options.threads = static_cast<int32_t>(number());
    } else if (option == "--callers") {
      options.callers = std::max(1, static_cast<int32_t>(number()));
    } else if (option == "--repeat") {
      options.repeat = std::max(1, static_cast<int32_t>(number()));
    } else if (option == "--rtol64") {
      options.rtol64 = number();
    } else if (option == "--suffix" && k + 1 < argc) {
      options.suffix = argv[++k];
    } else {
      options.list = option;
    }
  }
  std::vector<Line> lines = read_list(options.list);
  for (Line& line : lines) {
    for (std::string& output : line.outputs) output += options.suffix;
  }
  int failed = 0;
  for (const Line& line : lines) {
    const std::string problem = check(options, line);
    if (problem.empty()) continue;
    ++failed;
    std::printf("FAILED %s: %s\n", line.name.c_str(), problem.c_str());
    std::fflush(stdout);
  }
  std::printf("run_list: %zu models, %d failed (%s)\n", lines.size(), failed, opforge_runtime_isa());
  return failed == 0 ? 0 : 1;
}
