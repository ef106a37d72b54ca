// small_inputs.h: runs a session of a stranger's file on small inputs of the declared shapes (symbols are 2),
// within limits of memory and time. What fuzz targets and the malformed set call; the outcome does not
// matter.
#pragma once

#include <cstdint>
#include <vector>

#include "opforge/runtime.h"

namespace opforge::test {

inline void bound(opforge_session_options* options) {
  options->threads = 1;
  options->refuse_native = 1;
  options->no_mmap = 1;
  options->memory_limit = 1 << 24;
  options->loop_limit = 100;
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
    data[k].assign(bytes + 1, 1);
    inputs[k] = {};
    inputs[k].data = data[k].data();
    inputs[k].device = {OPFORGE_DEVICE_CPU, 0};
    inputs[k].ndim = static_cast<int32_t>(shapes[k].size());
    inputs[k].dtype = info->dtype;
    inputs[k].shape = shapes[k].data();
  }
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
