// shared_test.cpp: one session, 8 callers at once, 1, 2 and 8 threads a run: equal bits every time. Built
// with the thread sanitizer (OPFORGE_SANITIZE=thread) it is the race check of sessions, with address and
// undefined that of memory. Arguments: a folder of .bin files (tests/data/bins), runs of each
// caller (40).
#include <dirent.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "opforge/runtime.h"

namespace {

using Bytes = std::vector<uint8_t>;

[[noreturn]] void stop(const std::string& what) {
  std::fprintf(stderr, "shared_test: %s\n  %s\n", what.c_str(), opforge_last_error()->text);
  std::exit(1);
}

opforge_session* open(const std::string& path, int32_t threads) {
  opforge_session_options options = {};
  options.size = sizeof options;
  options.threads = threads;
  opforge_session* session = nullptr;
  if (opforge_session_open(path.c_str(), &options, &session) != OPFORGE_STATUS_OK) stop(path);
  return session;
}

// The bytes of all outputs for inputs that depend on `seed`; symbols become 1 + seed % 3.
Bytes run(opforge_session* session, int seed) {
  const auto n_inputs = static_cast<size_t>(opforge_session_input_count(session));
  std::vector<opforge_tensor> inputs(n_inputs),
      outputs(static_cast<size_t>(opforge_session_output_count(session)));
  std::vector<std::vector<int64_t>> shapes(n_inputs);
  std::vector<Bytes> data(n_inputs);
  for (size_t k = 0; k < n_inputs; ++k) {
    const opforge_value_info* info = opforge_session_input(session, static_cast<int32_t>(k));
    size_t elements = 1;
    for (int32_t d = 0; d < info->ndim; ++d) {
      const bool doubled = std::strcmp(info->dimensions[d], "2*N") == 0;
      shapes[k].push_back(info->shape[d] >= 0 ? info->shape[d] : (1 + seed % 3) * (doubled ? 2 : 1));
      elements *= static_cast<size_t>(shapes[k].back());
    }
    data[k].assign(elements * info->dtype.bits / 8 + 8, 1);
    for (size_t e = 0; info->dtype.code == OPFORGE_CODE_FLOAT && e < elements; ++e) {
      const float value = static_cast<float>((static_cast<int>(e) * 7 + seed) % 11) - 3.0f;
      std::memcpy(data[k].data() + 4 * e, &value, 4);
    }
    inputs[k] = {};
    inputs[k].data = data[k].data();
    inputs[k].device = {OPFORGE_DEVICE_CPU, 0};
    inputs[k].ndim = static_cast<int32_t>(shapes[k].size());
    inputs[k].dtype = info->dtype;
    inputs[k].shape = shapes[k].data();
  }
  opforge_run call = {};
  call.size = sizeof call;
  call.inputs = inputs.data();
  call.n_inputs = static_cast<int32_t>(n_inputs);
  call.outputs = outputs.data();
  call.n_outputs = static_cast<int32_t>(outputs.size());
  if (opforge_session_run(session, &call) != OPFORGE_STATUS_OK) stop("run");
  Bytes result;
  for (opforge_tensor& output : outputs) {
    size_t bytes = output.dtype.bits / 8;
    for (int32_t d = 0; d < output.ndim; ++d) bytes *= static_cast<size_t>(output.shape[d]);
    const auto* from = static_cast<const uint8_t*>(output.data);
    result.insert(result.end(), from, from + bytes);
    opforge_free(output.data);
  }
  return result;
}

bool is_numbers(const opforge_value_info* info) {
  return info->kind == OPFORGE_VALUE_TENSOR && info->dtype.code != OPFORGE_CODE_STRING;
}

// Sequences, optionals and strings go through another call of the C API, which tests/unit holds.
bool has_tensors_only(const opforge_session* session) {
  for (int32_t k = 0; k < opforge_session_input_count(session); ++k)
    if (!is_numbers(opforge_session_input(session, k))) return false;
  for (int32_t k = 0; k < opforge_session_output_count(session); ++k)
    if (!is_numbers(opforge_session_output(session, k))) return false;
  return true;
}

bool check(const std::string& path, int runs) {
  constexpr int kSeeds = 6, kCallers = 8;
  opforge_session* serial = open(path, 1);
  if (!has_tensors_only(serial)) {
    opforge_session_close(serial);
    return false;
  }
  std::vector<Bytes> expected;
  for (int seed = 0; seed < kSeeds; ++seed) expected.push_back(run(serial, seed));
  opforge_session_close(serial);
  for (int32_t threads : {1, 2, 8}) {
    opforge_session* shared = open(path, threads);
    std::vector<std::thread> callers;
    for (int caller = 0; caller < kCallers; ++caller) {
      callers.emplace_back([&, caller] {
        for (int k = 0; k < runs; ++k) {
          const int seed = (caller + k) % kSeeds;
          if (run(shared, seed) != expected[static_cast<size_t>(seed)])
            stop(path + ": results differ between callers");
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
    opforge_session_close(shared);
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const int runs = argc > 2 ? std::atoi(argv[2]) : 40;
  setenv("OPFORGE_NUM_THREADS", "8", 1);
  DIR* folder = opendir(argv[1]);
  if (folder == nullptr) stop(argv[1]);
  std::vector<std::string> paths;
  while (const dirent* entry = readdir(folder)) {
    const std::string name = entry->d_name;
    if (name.size() > 4 && name.substr(name.size() - 4) == ".bin")
      paths.push_back(std::string(argv[1]) + "/" + name);
  }
  closedir(folder);
  std::sort(paths.begin(), paths.end());
  if (paths.empty()) stop("no .bin files");
  int checked = 0;
  for (const std::string& path : paths) checked += check(path, runs) ? 1 : 0;
  if (checked == 0) stop("no models of tensors");
  std::printf("shared_test: %d of %zu models\n", checked, paths.size());
  return 0;
}
