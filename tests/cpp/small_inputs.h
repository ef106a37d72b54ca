// small_inputs.h: runs a session of a stranger's file on small inputs of the declared shapes (symbols are 2),
// within limits of memory and time. What fuzz targets and the malformed set call; the outcome does not
// matter.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "opforge/runtime.h"

namespace opforge::test {

inline void bound(opforge_session_options* options) {
  options->threads = 1;
  options->refuse_native = 1;
  options->no_mmap = 1;
  options->memory_limit = 1 << 22;
  options->loop_limit = 100;
}

// Integers from -1 to 2, truth values, floats with all that is special, short texts.
inline void fill(opforge_dtype dtype, int salt, std::vector<uint8_t>* data) {
  static constexpr float kFloats[] = {
      1.0f, -0.5f, 3.0f, 0.0f, -0.0f, 1e-42f, __builtin_inff(), __builtin_nanf("")};
  static constexpr opforge_string kTexts[] = {{"a", 1}, {"", 0}, {"1.5", 3}, {"\xC3\xA9 b", 4}};
  const size_t size = dtype.bits / 8;
  for (size_t at = 0, e = static_cast<size_t>(salt); size != 0 && at + size <= data->size();
       at += size, ++e) {
    if (dtype.code == OPFORGE_CODE_STRING) {
      std::memcpy(data->data() + at, &kTexts[e % 4], sizeof kTexts[0]);
      continue;
    }
    uint64_t bits = static_cast<uint64_t>(static_cast<int64_t>(e * 7 % 4) - 1);
    if (dtype.code == OPFORGE_CODE_BOOL || dtype.code == OPFORGE_CODE_UINT) bits = e * 5 % 3 % 2;
    if (dtype.code == OPFORGE_CODE_FLOAT && size == 4) std::memcpy(&bits, &kFloats[e % 8], 4);
    if (dtype.code == OPFORGE_CODE_FLOAT && size == 8) {
      const double wide = kFloats[e % 8];
      std::memcpy(&bits, &wide, 8);
    }
    if (dtype.bits == 16 && dtype.code != OPFORGE_CODE_INT) bits = e * 12345 & 0xFFFF;
    std::memcpy(data->data() + at, &bits, size < 8 ? size : 8);
  }
}

// A sequence is given as two tensors, an optional as one.
inline void run_values(opforge_session* session, const std::vector<opforge_tensor>& inputs) {
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

inline void run_small(opforge_session* session) {
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
    data[k].assign(bytes + 8, 0);
    fill(info->dtype, static_cast<int>(k), &data[k]);
    inputs[k] = {};
    inputs[k].data = data[k].data();
    inputs[k].device = {OPFORGE_DEVICE_CPU, 0};
    inputs[k].ndim = static_cast<int32_t>(shapes[k].size());
    inputs[k].dtype = info->dtype;
    inputs[k].shape = shapes[k].data();
  }
  bool tensors = true;
  const auto look = [&](const opforge_value_info* info) {
    tensors = tensors && info->kind == OPFORGE_VALUE_TENSOR && info->dtype.code != OPFORGE_CODE_STRING;
  };
  for (int32_t k = 0; k < n_inputs; ++k) look(opforge_session_input(session, k));
  for (int32_t k = 0; k < n_outputs; ++k) look(opforge_session_output(session, k));
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

}  // namespace opforge::test
