// opforge-run: runs a .bin without Python. Exit status: 0 good, 1 the run failed, 2 wrong use or bad input;
// what crashes ends it by its signal.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <exception>
#include <map>
#include <new>

#include "cli/npy.h"
#include "opforge/runtime.h"

namespace {

using opforge::cli::NpyArray;

constexpr const char* kUsage =
    "usage: opforge-run MODEL.bin [options]\n"
    "  --input NAME=FILE.npy   array for an input; inputs that are not given are random\n"
    "  --shape NAME=1,128      shape of a random input whose dimensions are symbols\n"
    "  --seed N                of random inputs (0)\n"
    "  --output-dir FOLDER     write each output to FOLDER/NAME.npy\n"
    "  --repeat N              run N times and print the times\n"
    "  --profile               print the time of each node\n"
    "  --threads N             threads of a run (all)\n"
    "  --library PATH          kernel library or folder with some; may be repeated\n"
    "  --no-native             refuse models that need a kernel library\n"
    "  --no-mmap               copy the file instead of mapping it\n"
    "  --verify full|lazy      check the weights while opening, or on first touch (lazy)\n"
    "  --info                  print inputs, outputs and metadata, run nothing\n";

struct Arguments {
  std::string model, output_dir;
  std::map<std::string, std::string> files, shapes;
  std::vector<const char*> libraries;
  int64_t repeat = 0, threads = 0, seed = 0;
  bool native = true, mmap = true, full = false, profile = false, info = false;
};

[[noreturn]] void leave(int code, const std::string& text) {
  std::fprintf(stderr, "opforge-run: %s\n", text.c_str());
  std::exit(code);
}

// The last error decides the status: a fault of the run is 1, of what was given 2.
[[noreturn]] void leave_with_error() {
  const opforge_error* error = opforge_last_error();
  const bool ours = error->status == OPFORGE_STATUS_INTERNAL || error->status == OPFORGE_STATUS_OUT_OF_MEMORY;
  leave(ours ? 1 : 2, error->text);
}

int64_t number(const std::string& text, const char* option, int64_t least) {
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || errno != 0 || value < least) {
    leave(2, std::string(option) + " needs a number of at least " + std::to_string(least) + ", got '" + text +
                 "'");
  }
  return value;
}

std::pair<std::string, std::string> pair(const std::string& text, const char* option) {
  const size_t at = text.rfind('=');
  if (at == std::string::npos || at == 0)
    leave(2, std::string(option) + " needs NAME=VALUE, got '" + text + "'");
  return {text.substr(0, at), text.substr(at + 1)};
}

Arguments parse(int argc, char** argv) {
  Arguments a;
  for (int k = 1; k < argc; ++k) {
    const std::string option = argv[k];
    auto value = [&]() -> std::string {
      if (k + 1 >= argc) leave(2, option + " needs a value\n" + kUsage);
      return argv[++k];
    };
    if (option == "--help" || option == "-h") {
      std::fputs(kUsage, stdout);
      std::exit(0);
    } else if (option == "--version") {
      std::printf("opforge-run %s (%s)\n", opforge_runtime_version(), opforge_runtime_isa());
      std::exit(0);
    } else if (option == "--input") {
      a.files.insert(pair(value(), "--input"));
    } else if (option == "--shape") {
      a.shapes.insert(pair(value(), "--shape"));
    } else if (option == "--seed") {
      a.seed = number(value(), "--seed", 0);
    } else if (option == "--output-dir") {
      a.output_dir = value();
    } else if (option == "--repeat") {
      a.repeat = number(value(), "--repeat", 1);
    } else if (option == "--threads") {
      a.threads = number(value(), "--threads", 0);
    } else if (option == "--library") {
      if (k + 1 >= argc) leave(2, "--library needs a value");
      a.libraries.push_back(argv[++k]);
    } else if (option == "--verify") {
      const std::string way = value();
      if (way != "full" && way != "lazy") leave(2, "--verify is full or lazy, got '" + way + "'");
      a.full = way == "full";
    } else if (option == "--profile") {
      a.profile = true;
    } else if (option == "--info") {
      a.info = true;
    } else if (option == "--no-native") {
      a.native = false;
    } else if (option == "--no-mmap") {
      a.mmap = false;
    } else if (option.size() > 1 && option[0] == '-') {
      leave(2, "unknown option " + option + "\n" + kUsage);
    } else if (!a.model.empty()) {
      leave(2, "more than one model: " + a.model + " and " + option);
    } else {
      a.model = option;
    }
  }
  if (a.model.empty()) leave(2, std::string("which model?\n") + kUsage);
  return a;
}

std::string describe(const opforge_value_info& info) {
  constexpr const char* kKinds[] = {"", "sequence of ", "optional ", "optional sequence of "};
  std::string text =
      std::string(info.name) + ": " + kKinds[info.kind] + opforge::cli::npy_descr(info.dtype) + "[";
  if (info.ndim < 0) return text + "...]";
  for (int32_t k = 0; k < info.ndim; ++k) text += (k ? ", " : "") + std::string(info.dimensions[k]);
  return text + "]";
}

void print_info(const opforge_session* session) {
  for (int32_t k = 0; k < opforge_session_input_count(session); ++k) {
    std::printf("input  %s\n", describe(*opforge_session_input(session, k)).c_str());
  }
  for (int32_t k = 0; k < opforge_session_output_count(session); ++k) {
    std::printf("output %s\n", describe(*opforge_session_output(session, k)).c_str());
  }
  for (int32_t k = 0; k < opforge_session_metadata_count(session); ++k) {
    const char *key = nullptr, *value = nullptr;
    if (opforge_session_metadata(session, k, &key, &value) != OPFORGE_STATUS_OK) leave_with_error();
    std::printf("metadata %s = %s\n", key, value);
  }
}

// SplitMix64: the same inputs on every machine.
uint64_t next_random(uint64_t* state) {
  uint64_t z = (*state += 0x9E3779B97F4A7C15ull);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

// Floats in [-1, 1), integers 0 or 1 (valid as indices and masks of any model with two rows or more).
void fill_random(const opforge_value_info& info, uint64_t* state, std::vector<uint8_t>* bytes) {
  const size_t size = info.dtype.bits / 8;
  for (size_t at = 0; size != 0 && at + size <= bytes->size(); at += size) {
    const uint64_t random = next_random(state);
    const double real = static_cast<double>(random >> 11) * 0x1p-52 - 1.0;
    const float single = static_cast<float>(real);
    uint64_t bits = random >> 63;
    if (info.dtype.code == OPFORGE_CODE_FLOAT && size == 4) std::memcpy(&bits, &single, 4);
    if (info.dtype.code == OPFORGE_CODE_FLOAT && size == 8) std::memcpy(&bits, &real, 8);
    if (info.dtype.code == OPFORGE_CODE_FLOAT && size == 2)
      bits = (random >> 48 & 0x83FF) | 0x3800;  // +-0.5 to 1
    if (info.dtype.code == OPFORGE_CODE_BFLOAT) {
      std::memcpy(&bits, &single, 4);
      bits = bits >> 16 & 0xFFFF;
    }
    std::memcpy(bytes->data() + at, &bits, size);
  }
}

void read_input(const Arguments& arguments, const opforge_value_info& info, uint64_t* state,
                NpyArray* array) {
  const std::string name = info.name;
  const auto file = arguments.files.find(name);
  if (file != arguments.files.end()) {
    const std::string problem = opforge::cli::read_npy(file->second, array);
    if (!problem.empty()) leave(2, file->second + ": " + problem);
    if (array->descr != opforge::cli::npy_descr(info.dtype)) {
      leave(2, "input '" + name + "': expected dtype " + opforge::cli::npy_descr(info.dtype) + ", got " +
                   array->descr + " in " + file->second);
    }
    return;
  }
  const auto shape = arguments.shapes.find(name);
  if (shape != arguments.shapes.end()) {
    std::string text = shape->second + ",";
    for (size_t begin = 0, end; (end = text.find(',', begin)) != std::string::npos; begin = end + 1) {
      if (end > begin) array->shape.push_back(number(text.substr(begin, end - begin), "--shape", 0));
    }
  } else {
    for (int32_t k = 0; k < info.ndim; ++k) array->shape.push_back(info.shape[k] < 0 ? 1 : info.shape[k]);
  }
  uint64_t bytes = info.dtype.bits / 8;
  for (int64_t dim : array->shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(dim), &bytes) || bytes > 1ull << 40) {
      leave(2, "input '" + name + "' is too large");
    }
  }
  array->bytes.resize(bytes);
  fill_random(info, state, &array->bytes);
}

void print_times(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  double sum = 0;
  for (double time : times) sum += time;
  const auto n = static_cast<double>(times.size());
  std::printf("%zu runs: median %.5g ms, min %.5g, mean %.5g, max %.5g\n", times.size(),
              times[times.size() / 2], times.front(), sum / n, times.back());
}

void print_profile(const opforge_session* session) {
  std::vector<opforge_node_time> rows;
  opforge_session_statistics statistics = {};
  statistics.size = sizeof statistics;
  if (opforge_session_get_statistics(session, &statistics) != OPFORGE_STATUS_OK) leave_with_error();
  double total = 0;
  for (int32_t k = 0; k < statistics.nodes; ++k) {
    opforge_node_time time = {};
    if (opforge_session_node_time(session, k, &time) != OPFORGE_STATUS_OK) leave_with_error();
    if (time.runs > 0) rows.push_back(time);
    total += static_cast<double>(time.nanoseconds);
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.nanoseconds > b.nanoseconds; });
  std::printf("arena %" PRId64 " bytes (lower bound %" PRId64 "), %" PRId64 " of %" PRId64
              " nodes executed%s\n",
              statistics.arena_bytes, statistics.live_bytes, statistics.executed_nodes, statistics.nodes,
              statistics.dynamic != 0 ? ", dynamic" : "");
  for (const opforge_node_time& row : rows) {
    std::printf("%10.1f us %5.1f %%  %s%s%s -> %s\n",
                static_cast<double>(row.nanoseconds) / 1e3 / static_cast<double>(row.runs),
                100.0 * static_cast<double>(row.nanoseconds) / total, row.domain,
                row.domain[0] != '\0' ? "::" : "", row.op, row.output);
  }
}

// Files hold tensors.
void require_tensors(const opforge_session* session) {
  std::string others;
  const auto look = [&](const opforge_value_info& info) {
    if (info.kind != OPFORGE_VALUE_TENSOR || info.dtype.code == OPFORGE_CODE_STRING)
      others += "\n  " + describe(info);
  };
  for (int32_t k = 0; k < opforge_session_input_count(session); ++k) look(*opforge_session_input(session, k));
  for (int32_t k = 0; k < opforge_session_output_count(session); ++k)
    look(*opforge_session_output(session, k));
  if (!others.empty())
    leave(2, "this program runs models of tensors, and this one has" + others +
                 "\n  hint: use `opforge run`, or the C API");
}

// A value's name may hold what a file name cannot.
std::string file_name(const std::string& name) {
  std::string result = name;
  for (char& c : result) {
    if (c == '/' || c == '\\' || c == ':') c = '_';
  }
  return result;
}

// The files of the outputs, none of them twice.
std::vector<std::string> output_paths(const Arguments& arguments, const opforge_session* session) {
  std::vector<std::string> paths;
  std::map<std::string, std::string> taken;
  for (int32_t k = 0; k < opforge_session_output_count(session) && !arguments.output_dir.empty(); ++k) {
    const std::string name = opforge_session_output(session, k)->name, file = file_name(name) + ".npy";
    const auto added = taken.emplace(file, name);
    if (!added.second) {
      leave(2, "outputs '" + added.first->second + "' and '" + name + "' would both be written to " + file +
                   "\n  hint: rename one of them in the model");
    }
    paths.push_back(arguments.output_dir + "/" + file);
  }
  return paths;
}

// All outputs or none: each goes to a temporary name first, and gets its own when all are written.
void write_outputs(const opforge_session* session, const std::vector<opforge_tensor>& outputs,
                   const std::vector<std::string>& paths) {
  const auto part = [&](size_t k) { return paths[k] + ".part"; };
  const auto give_up = [&](size_t k) {
    const int reason = errno;
    for (size_t j = 0; j < paths.size(); ++j) std::remove(part(j).c_str());
    leave(2, paths[k] + " cannot be written: " + std::strerror(reason));
  };
  for (size_t k = 0; k < paths.size(); ++k) {
    const opforge_value_info& info = *opforge_session_output(session, static_cast<int32_t>(k));
    size_t bytes = info.dtype.bits / 8;
    for (int32_t d = 0; d < outputs[k].ndim; ++d) bytes *= static_cast<size_t>(outputs[k].shape[d]);
    if (!opforge::cli::write_npy(part(k), opforge::cli::npy_descr(info.dtype), outputs[k].shape,
                                 outputs[k].ndim, outputs[k].data, bytes)) {
      give_up(k);
    }
  }
  for (size_t k = 0; k < paths.size(); ++k) {
    if (std::rename(part(k).c_str(), paths[k].c_str()) != 0) give_up(k);
  }
}

int run_model(const Arguments& arguments) {
  opforge_session_options options = {};
  options.size = sizeof options;
  options.threads = static_cast<int32_t>(std::min<int64_t>(arguments.threads, 1024));
  options.verify = arguments.full ? OPFORGE_VERIFY_FULL : OPFORGE_VERIFY_LAZY;
  options.no_mmap = arguments.mmap ? 0 : 1;
  options.refuse_native = arguments.native ? 0 : 1;
  options.libraries = arguments.libraries.data();
  options.n_libraries = static_cast<int32_t>(arguments.libraries.size());
  opforge_session* session = nullptr;
  if (opforge_session_open(arguments.model.c_str(), &options, &session) != OPFORGE_STATUS_OK)
    leave_with_error();
  if (arguments.info) {
    print_info(session);
    opforge_session_close(session);
    return 0;
  }
  require_tensors(session);
  const auto n_inputs = static_cast<size_t>(opforge_session_input_count(session));
  const auto n_outputs = static_cast<size_t>(opforge_session_output_count(session));
  const std::vector<std::string> paths = output_paths(arguments, session);
  for (const auto* given : {&arguments.files, &arguments.shapes}) {
    for (const auto& entry : *given) {
      bool known = false;
      std::string names;
      for (size_t k = 0; k < n_inputs; ++k) {
        const char* name = opforge_session_input(session, static_cast<int32_t>(k))->name;
        known = known || entry.first == name;
        names += (k ? ", " : "") + std::string(name);
      }
      if (!known) leave(2, "there is no input '" + entry.first + "'\n  expected: " + names);
    }
  }
  std::vector<NpyArray> arrays(n_inputs);
  std::vector<opforge_tensor> inputs(n_inputs), outputs(n_outputs);
  auto state = static_cast<uint64_t>(arguments.seed);
  for (size_t k = 0; k < n_inputs; ++k) {
    const opforge_value_info& info = *opforge_session_input(session, static_cast<int32_t>(k));
    read_input(arguments, info, &state, &arrays[k]);
    inputs[k] = {};
    inputs[k].data = arrays[k].bytes.data();
    inputs[k].device = {OPFORGE_DEVICE_CPU, 0};
    inputs[k].ndim = static_cast<int32_t>(arrays[k].shape.size());
    inputs[k].dtype = info.dtype;
    inputs[k].shape = arrays[k].shape.data();
  }
  opforge_run run = {};
  run.size = sizeof run;
  run.inputs = inputs.data();
  run.n_inputs = static_cast<int32_t>(n_inputs);
  run.outputs = outputs.data();
  run.n_outputs = static_cast<int32_t>(n_outputs);
  if (opforge_session_run(session, &run) != OPFORGE_STATUS_OK) leave_with_error();
  std::vector<std::vector<int64_t>> shapes;  // the runtime's own are valid until the next run
  for (opforge_tensor& output : outputs) {
    shapes.emplace_back(output.shape, output.shape + output.ndim);
    output.shape = shapes.back().data();
  }
  if (arguments.profile) opforge_session_profile(session, 1);
  std::vector<double> times;
  for (int64_t k = 0; k < arguments.repeat; ++k) {  // outputs are written into the buffers of the first run
    const auto begin = std::chrono::steady_clock::now();
    if (opforge_session_run(session, &run) != OPFORGE_STATUS_OK) leave_with_error();
    times.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  for (size_t k = 0; k < n_outputs; ++k) {
    const opforge_value_info& info = *opforge_session_output(session, static_cast<int32_t>(k));
    std::string shape;
    for (int32_t d = 0; d < outputs[k].ndim; ++d)
      shape += (d ? ", " : "") + std::to_string(outputs[k].shape[d]);
    std::printf("%s: %s[%s]\n", info.name, opforge::cli::npy_descr(info.dtype).c_str(), shape.c_str());
  }
  write_outputs(session, outputs, paths);
  if (!times.empty()) print_times(times);
  if (arguments.profile) print_profile(session);
  for (opforge_tensor& output : outputs) opforge_free(output.data);
  opforge_session_close(session);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  opforge_report_faults();
  try {
    return run_model(parse(argc, argv));
  } catch (const std::bad_alloc&) {
    leave(1, "out of memory");
  } catch (const std::exception& error) {
    leave(1, error.what());
  }
}
