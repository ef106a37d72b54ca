// launcher_fuzz.cpp: libFuzzer over what stands behind the launcher of kernels that NVRTC compiled.
//
// A table that is accepted is read through as a host does, and each kernel is called on small tensors: as far
// as a machine without a driver gets, which is behind all checks of the tensors.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memory>
#include <vector>

#include "launcher/table.h"

namespace {

using opforge::launcher::Kernel;
using opforge::launcher::OperatorRow;
using opforge::launcher::Table;

opforge_status told(opforge_context*, opforge_status status, const char* text) {
  return strlen(text) > 0 ? status : OPFORGE_STATUS_INTERNAL;
}

// Sizes [2, 1], [1, 3] in turn, so that operands are broadcast and gradients summed.
void call(const OperatorRow& row, const Kernel& kernel) {
  int64_t sizes[2][2] = {{2, 1}, {1, 3}}, whole[2] = {2, 3}, strides[2] = {3, 1};
  const auto& shape = kernel.formula.shape;
  std::vector<opforge_tensor> tensors;
  char data[256] = {};
  for (int k = 0; k < shape.n_inputs + shape.n_outputs; ++k) {
    opforge_tensor tensor = {};
    const int summed = k < shape.n_inputs ? k : row.sum_to[static_cast<size_t>(k - shape.n_inputs)];
    tensor.data = data;
    tensor.dtype = kernel.operands[static_cast<size_t>(k)];
    tensor.device = {OPFORGE_DEVICE_CUDA, 0};
    tensor.ndim = 2;
    tensor.shape = summed >= 0 ? sizes[summed % 2] : whole;
    tensor.strides = strides;
    tensors.push_back(tensor);
  }
  const std::vector<int32_t> counts(static_cast<size_t>(opforge::cuda::kOperands), 1);
  const std::vector<opforge_attribute> attributes(static_cast<size_t>(shape.n_attributes) + 1);
  opforge_arguments inputs = {}, outputs = {};
  inputs.tensors = tensors.data();
  inputs.n_tensors = inputs.n_parameters = shape.n_inputs;
  outputs.tensors = tensors.data() + shape.n_inputs;
  outputs.n_tensors = outputs.n_parameters = shape.n_outputs;
  inputs.counts = outputs.counts = counts.data();
  opforge_context context = {};
  context.size = sizeof context;
  context.device = {OPFORGE_DEVICE_CUDA, 0};
  context.kernel_data = kernel.row.data;
  context.error = told;
  const opforge_status status = kernel.row.run(&context, &inputs, &outputs, attributes.data());
  if (status == OPFORGE_STATUS_OK && shape.n_outputs > 0) abort();  // there is no driver
}

size_t length(std::initializer_list<const char*> texts) {
  size_t all = 0;
  for (const char* text : texts) all += strlen(text);
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  return setenv("OPFORGE_CUDA_DRIVER", "/nowhere/libcuda.so.1", 1);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::unique_ptr<char[]> bytes(new char[size]);  // its end is guarded
  if (size > 0) memcpy(bytes.get(), data, size);
  Table table;
  if (!table.read(bytes.get(), size).empty()) return 0;
  const opforge_library& library = table.library;
  size_t read =
      length({library.id, library.version, library.content_hash, library.build, library.architectures});
  if (library.n_operators != static_cast<int32_t>(table.operators.size())) abort();
  for (const OperatorRow& one : table.operators) {
    const opforge_operator& row = one.row;
    read +=
        length({row.domain, row.name, row.signature, row.types, row.autocast, row.gradient, row.schema_hash});
    if (row.n_kernels != static_cast<int32_t>(one.kernels.size())) abort();
    for (const Kernel& kernel : one.kernels) {
      for (const char* name : kernel.names) read += strlen(name);
      for (const auto& image : kernel.images) {
        read += opforge::cuda::serves(image.architecture, 90) ? 1 : 0;
        if (strncmp(image.architecture, "sm_", 3) != 0) read += strlen(static_cast<const char*>(image.data));
      }
      call(one, kernel);
    }
  }
  if (read > size) abort();  // more text than there are bytes
  return 0;
}
