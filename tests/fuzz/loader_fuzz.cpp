// loader_fuzz.cpp: libFuzzer over the loader and over programs that pass it.
//
// Checksums would stop nearly every mutation at the door, so they are made right before the file is opened:
// what is fuzzed are the checks behind them, and every program that is accepted is planned and run on small
// inputs.
#include <cstring>
#include <vector>

#include "format/crc32c.h"
#include "format/format.h"
#include "opforge/runtime.h"

namespace {

namespace format = opforge::format;

void sign(std::vector<uint8_t>* bytes) {
  if (bytes->size() < sizeof(format::Header)) return;
  auto* header = reinterpret_cast<format::Header*>(bytes->data());
  std::memcpy(header->magic, format::kMagic, sizeof header->magic);
  header->file_size = bytes->size();
  const uint64_t table = uint64_t{header->sections} * sizeof(format::SectionEntry);
  if (header->sections <= format::kMaxSections && table <= bytes->size() - sizeof(format::Header)) {
    auto* entries = reinterpret_cast<format::SectionEntry*>(bytes->data() + sizeof(format::Header));
    for (uint32_t k = 0; k < header->sections; ++k) {
      format::SectionEntry& entry = entries[k];
      if (entry.size > bytes->size() || entry.offset > bytes->size() - entry.size) continue;
      if (entry.kind != format::kWeights) {
        entry.crc = opforge::crc32c(0, bytes->data() + entry.offset, static_cast<size_t>(entry.size));
      }
    }
    header->table_crc = opforge::crc32c(0, entries, static_cast<size_t>(table));
  }
  header->header_crc = opforge::crc32c(0, header, 60);
}

// A sequence is given as two tensors, an optional as one.
void run_values(opforge_session* session, const std::vector<opforge_tensor>& inputs) {
  std::vector<std::vector<opforge_tensor>> lists(inputs.size());
  std::vector<opforge_value> values(inputs.size());
  for (size_t k = 0; k < inputs.size(); ++k) {
    const int32_t kind = opforge_session_input(session, static_cast<int32_t>(k))->kind;
    const bool list = kind == OPFORGE_VALUE_SEQUENCE || kind == OPFORGE_VALUE_OPTIONAL_SEQUENCE;
    lists[k].assign(list ? 2 : 1, inputs[k]);
    values[k] = {lists[k].data(), static_cast<int32_t>(lists[k].size()), 0};
  }
  opforge_results* results = nullptr;
  if (opforge_session_run_values(session, values.data(), static_cast<int32_t>(values.size()), &results) ==
      OPFORGE_STATUS_OK)
    opforge_results_free(results);
}

// Small inputs of the declared shapes; symbols are 2.
void run(opforge_session* session) {
  const int32_t n_inputs = opforge_session_input_count(session),
                n_outputs = opforge_session_output_count(session);
  std::vector<opforge_tensor> inputs(static_cast<size_t>(n_inputs)), outputs(static_cast<size_t>(n_outputs));
  std::vector<std::vector<int64_t>> shapes(inputs.size());
  std::vector<std::vector<uint8_t>> data(inputs.size());
  for (size_t k = 0; k < inputs.size(); ++k) {
    const opforge_value_info* info = opforge_session_input(session, static_cast<int32_t>(k));
    uint64_t bytes = info->dtype.bits / 8 + 1;
    for (int32_t d = 0; d < info->ndim; ++d) {
      shapes[k].push_back(info->shape[d] < 0 ? 2 : info->shape[d]);
      if (shapes[k].back() > 4096 || (bytes *= static_cast<uint64_t>(shapes[k].back())) > 1 << 20) return;
    }
    data[k].assign(bytes + 1, 1);
    inputs[k] = {};
    inputs[k].data = data[k].data();
    inputs[k].device = {OPFORGE_DEVICE_CPU, 0};
    inputs[k].ndim = static_cast<int32_t>(shapes[k].size());
    inputs[k].dtype = info->dtype;
    inputs[k].shape = shapes[k].data();
  }
  bool tensors = true;
  for (int32_t k = 0; k < n_inputs; ++k)
    tensors = tensors && opforge_session_input(session, k)->kind == OPFORGE_VALUE_TENSOR;
  for (int32_t k = 0; k < n_outputs; ++k)
    tensors = tensors && opforge_session_output(session, k)->kind == OPFORGE_VALUE_TENSOR;
  if (!tensors) return run_values(session, inputs);
  opforge_run run = {};
  run.size = sizeof run;
  run.inputs = inputs.data();
  run.n_inputs = n_inputs;
  run.outputs = outputs.data();
  run.n_outputs = n_outputs;
  if (opforge_session_run(session, &run) != OPFORGE_STATUS_OK) return;
  for (opforge_tensor& output : outputs) opforge_free(output.data);
}

}  // namespace

// An allocation that fails is an error of the run, not of the process.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<uint8_t> bytes(data, data + size);
  sign(&bytes);
  opforge_session_options options = {};
  options.size = sizeof options;
  options.threads = 1;
  options.refuse_native = 1;
  options.no_mmap = 1;
  options.memory_limit = 1 << 24;
  options.loop_limit = 100;
  opforge_session* session = nullptr;
  if (opforge_session_open_memory(bytes.data(), bytes.size(), &options, &session) != OPFORGE_STATUS_OK)
    return 0;
  run(session);
  opforge_session_close(session);
  return 0;
}
