// table.cpp: reads a table. A string is its size in 32 bits, its bytes and a zero, a list its length in 32
// bits and its items; the order of all fields is that of the writer, src/opforge/build/cuda/payload.py.
//
// What is damaged is refused: no field is read beyond the end, lists are no longer than the bytes that are
// left have room for, and nothing more is made once a field did not fit.
#include "launcher/table.h"

#include <string.h>

#include "launcher/payload.h"

namespace opforge::launcher {
namespace {

constexpr size_t kImageAlignment = 16;
// Bytes that an item takes at least.
constexpr size_t kLeastOfOperator = 60, kLeastOfKernel = 20, kLeastOfName = 5, kLeastOfImage = 13;

opforge_dtype dtype(Payload* in) {
  const auto code = in->number<uint8_t>(), bits = in->number<uint8_t>();
  return {code, bits, in->number<uint16_t>()};
}

void read_kernel(Payload* in, const cuda::FormulaShape& shape, uint32_t flags, const char* architectures,
                 Kernel* made) {
  const uint32_t variables = in->count(4);
  for (uint32_t k = 0; k < variables; ++k) made->dtypes.push_back(dtype(in));
  for (int k = 0; k < shape.n_inputs + shape.n_outputs; ++k) made->operands.push_back(dtype(in));
  made->formula.shape = shape;
  made->formula.shape.input_dtypes = made->operands.data();
  made->formula.shape.output_dtypes = made->operands.data() + shape.n_inputs;
  made->formula.widest = static_cast<int>(in->count(0, 16));
  made->formula.sum_bytes = in->count(0, 16);
  in->require(made->formula.widest > 0);
  bool sums = false;
  for (int k = 0; k < shape.n_outputs; ++k) sums = sums || shape.sum_to[k] >= 0;
  const uint32_t names = in->count(kLeastOfName, cuda::kFormulaKernels);
  in->require(names == static_cast<uint32_t>(sums ? cuda::kFormulaKernels : cuda::kPartial32));
  for (uint32_t k = 0; k < names; ++k) made->names.push_back(in->text());
  const uint32_t images = in->count(kLeastOfImage);
  for (uint32_t k = 0; k < images && in->ok(); ++k) {
    const char* architecture = in->text();
    const auto length = in->number<uint64_t>();
    in->align(kImageAlignment);
    const char* data = in->take(length);
    // The driver reads PTX to its end as a string.
    const bool ends = in->ok() && length > 0 && data[length - 1] == 0;
    in->require(ends || strncmp(architecture, "sm_", 3) == 0);
    made->images.push_back({architecture, data});
  }
  made->architectures = architectures;
  opforge_kernel& row = made->row;
  row.size = sizeof row;
  row.abi = OPFORGE_ABI;
  row.device_type = OPFORGE_DEVICE_CUDA;
  row.flags = flags;
  row.dtypes = made->dtypes.data();
  row.n_dtypes = static_cast<int32_t>(variables);
  row.run = &run;
  row.data = static_cast<const opforge_tuning*>(made);
}

void read_operator(Payload* in, const char* architectures, OperatorRow* made) {
  opforge_operator& row = made->row;
  row.size = sizeof row;
  row.abi = OPFORGE_ABI;
  row.domain = in->text();
  row.name = in->text();
  row.since_version = in->number<int32_t>();
  row.flags = in->number<uint32_t>();
  for (const char** text : {&row.signature, &row.types, &row.autocast, &row.gradient, &row.schema_hash})
    *text = in->text();
  const auto flags = in->number<uint32_t>();
  cuda::FormulaShape shape = {};
  shape.n_inputs = static_cast<int>(in->count(0, cuda::kOperands));
  shape.n_attributes = static_cast<int>(in->count(0, cuda::kAttributes));
  shape.n_outputs = static_cast<int>(in->count(4, cuda::kOperands));
  for (int k = 0; k < shape.n_outputs; ++k) {
    made->sum_to.push_back(in->number<int32_t>());
    in->require(made->sum_to.back() < shape.n_inputs);
  }
  shape.sum_to = made->sum_to.data();
  const uint32_t count = in->count(kLeastOfKernel);
  for (uint32_t k = 0; k < count && in->ok(); ++k)
    read_kernel(in, shape, flags, architectures, &made->kernels.emplace_back());
  for (const Kernel& one : made->kernels) made->pointers.push_back(&one.row);
  row.kernels = made->pointers.data();
  row.n_kernels = static_cast<int32_t>(made->pointers.size());
}

}  // namespace

std::string Table::read(const char* bytes, size_t size) {
  Payload in(bytes, size);
  library.size = sizeof library;
  library.abi = in.number<uint32_t>();
  if (library.abi != OPFORGE_ABI)
    return "it is built for ABI " + std::to_string(library.abi) + "; build it again";
  for (const char** text :
       {&library.id, &library.version, &library.content_hash, &library.build, &library.architectures})
    *text = in.text();
  const uint32_t count = in.count(kLeastOfOperator);
  for (uint32_t k = 0; k < count && in.ok(); ++k)
    read_operator(&in, library.architectures, &operators.emplace_back());
  for (const OperatorRow& one : operators) pointers.push_back(&one.row);
  library.operators = pointers.data();
  library.n_operators = static_cast<int32_t>(pointers.size());
  return in.ok() && in.left() == 0 ? "" : "what it holds is not as this launcher reads it; build it again";
}

}  // namespace opforge::launcher
