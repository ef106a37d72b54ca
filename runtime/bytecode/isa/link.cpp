// link.cpp: from a verified blob to steps: dead code dropped, cheap operations fused in pairs, slots assigned
// by last use. All in the caller's memory and a bounded part of the stack.
#include <cstdio>
#include <new>

#include "bytecode/isa/linker.h"

namespace opforge {
namespace OPFORGE_ISA {

namespace {

constexpr size_t kConstantBytes = ew::kSplat * 8;

size_t aligned(size_t n) { return (n + 63) / 64 * 64; }

// Where the parts of a program lie in its memory.
struct Layout {
  size_t types, sum_to, widths, attributes, attribute_splats, constants, steps, chains, total;
  explicit Layout(const Blob& b) {
    types = aligned(sizeof(Linked));
    sum_to = types + aligned(size_t(b.n_inputs + b.n_attributes + b.n_outputs));
    widths = sum_to + aligned(4 * size_t(b.n_outputs));
    attributes = widths + aligned(size_t(b.n_inputs + b.n_outputs));
    attribute_splats = attributes + aligned(8 * size_t(b.n_attributes));
    constants = attribute_splats + kConstantBytes * size_t(b.n_attributes);
    steps = constants + kConstantBytes * size_t(b.n_constants);
    chains = steps + aligned(sizeof(Step) * size_t(b.n_instructions + b.n_outputs));
    total = chains + aligned(sizeof(ChainOp) * 2 * size_t(b.n_instructions));
  }
};

void write_splat(char* to, Element element, double value) {
  switch (element) {
    case Element::kBool:
      return ew::fill_splat<bool>(to, value);
    case Element::kI32:
      return ew::fill_splat<int32_t>(to, value);
    case Element::kI64:
      return ew::fill_splat<int64_t>(to, value);
    case Element::kF32:
      return ew::fill_splat<float>(to, value);
    case Element::kF64:
      return ew::fill_splat<double>(to, value);
    case Element::kU8:
      return ew::fill_splat<uint8_t>(to, value);
    case Element::kI8:
      return ew::fill_splat<int8_t>(to, value);
  }
}

bool storage_of(DType dtype, ew::Storage& storage) {
  switch (dtype) {
    case DType::kF16:
      storage = ew::Storage::kF16;
      return true;
    case DType::kBF16:
      storage = ew::Storage::kBF16;
      return true;
    case DType::kF32:
      storage = ew::Storage::kF32;
      return true;
    case DType::kF64:
      storage = ew::Storage::kF64;
      return true;
    default:
      return false;
  }
}
Status refuse(char* reason, size_t size, Status status, const char* why) {
  if (reason && size) std::snprintf(reason, size, "bytecode: %s", why);
  return status;
}

}  // namespace

size_t program_bytes(const void* data) {
  Blob blob;
  Status status;
  uint32_t size;
  std::memcpy(&size, static_cast<const char*>(data) + 20, 4);
  return blob.parse(data, size, status) ? 0 : Layout(blob).total;
}

Status link(const void* data, DType dtype, const double* attributes, uint32_t wanted, void* memory,
            size_t bytes, const bc::Program** program, char* reason, size_t reason_size) {
  Blob blob;
  Status status;
  uint32_t size;
  std::memcpy(&size, static_cast<const char*>(data) + 20, 4);
  if (const char* why = blob.parse(data, size, status)) return refuse(reason, reason_size, status, why);
  ew::Storage storage;
  if (!storage_of(dtype, storage))
    return refuse(reason, reason_size, OPFORGE_STATUS_TYPE, "T must be f16, bf16, f32 or f64");
  const Layout layout(blob);
  if (bytes < layout.total || reinterpret_cast<uintptr_t>(memory) % 64 != 0) {
    return refuse(reason, reason_size, OPFORGE_STATUS_INTERNAL,
                  "too little or unaligned memory for the program");
  }
  char* const base = static_cast<char*>(memory);
  Linked& p = *new (base) Linked{};
  auto* types = reinterpret_cast<ew::Type*>(base + layout.types);
  auto* sum_to = reinterpret_cast<int32_t*>(base + layout.sum_to);
  auto* widths = reinterpret_cast<uint8_t*>(base + layout.widths);
  auto* values = reinterpret_cast<double*>(base + layout.attributes);
  auto* steps = reinterpret_cast<Step*>(base + layout.steps);
  p.formula = {blob.n_inputs,
               blob.n_attributes,
               blob.n_outputs,
               types,
               types + blob.n_inputs,
               types + blob.n_inputs + blob.n_attributes,
               sum_to,
               storage,
               run_block,
               &p};
  p.n_constants = blob.n_constants;
  p.steps = steps;
  p.input_width = widths;
  p.output_width = widths + blob.n_inputs;
  p.attributes = attributes ? values : nullptr;
  p.attribute_splats = base + layout.attribute_splats;
  p.constants = base + layout.constants;

  Linker linker(blob, storage);
  linker.resolve_types();
  p.rows_ready = dtype == DType::kF32;
  for (int v = 0; v < blob.n_inputs + blob.n_attributes; ++v)
    types[v] = static_cast<ew::Type>(blob.leaf_type(v));
  for (int k = 0; k < blob.n_inputs; ++k) {
    widths[k] = uint8_t(width_of(linker.element(k)));
    p.rows_ready &= linker.element(k) == Element::kF32;
  }
  for (int k = 0; k < blob.n_outputs; ++k) {
    const bc::Output output = blob.output(k);
    types[blob.n_inputs + blob.n_attributes + k] = static_cast<ew::Type>(output.type);
    sum_to[k] = output.sum_to == bc::kNone ? -1 : output.sum_to;
    widths[blob.n_inputs + k] = uint8_t(width_of(linker.element(output.value)));
    p.rows_ready &= linker.element(output.value) == Element::kF32;
  }
  for (int k = 0; k < blob.n_attributes; ++k) {
    values[k] = attributes ? attributes[k] : 0.0;
    write_splat(base + layout.attribute_splats + kConstantBytes * size_t(k),
                linker.element(blob.first_attribute() + k), values[k]);
  }
  for (int k = 0; k < blob.n_constants; ++k) {
    write_splat(base + layout.constants + kConstantBytes * size_t(k),
                linker.element(blob.first_constant() + k), blob.constant(k));
  }
  linker.mark(wanted);
  const int n = linker.plan(wanted, reinterpret_cast<ChainOp*>(base + layout.chains));
  if (!linker.assign(p, steps, n)) {
    return refuse(reason, reason_size, OPFORGE_STATUS_UNSUPPORTED,
                  "too many values live at once for the interpreter");
  }
  *program = reinterpret_cast<const bc::Program*>(&p);
  return OPFORGE_STATUS_OK;
}

}  // namespace OPFORGE_ISA
}  // namespace opforge
