// link.cpp: from a verified blob to steps: dead code dropped, cheap operations fused in pairs, slots assigned
// by last use. All in the caller's memory and a bounded part of the stack.
#include <cstdio>
#include <new>

#include "bytecode/isa/program.h"

namespace opforge {
namespace OPFORGE_ISA {

namespace {

using bc::Blob;
using bc::Instruction;
using bc::ValueType;

constexpr size_t kConstantBytes = ew::kSplat * 8;

size_t aligned(size_t n) { return (n + 63) / 64 * 64; }

// Where the parts of a program lie in its memory.
struct Layout {
  size_t types, sum_to, widths, attributes, attribute_splats, constants, steps, total;
  explicit Layout(const Blob& b) {
    types = aligned(sizeof(Linked));
    sum_to = types + aligned(size_t(b.n_inputs + b.n_attributes + b.n_outputs));
    widths = sum_to + aligned(4 * size_t(b.n_outputs));
    attributes = widths + aligned(size_t(b.n_inputs + b.n_outputs));
    attribute_splats = attributes + aligned(8 * size_t(b.n_attributes));
    constants = attribute_splats + kConstantBytes * size_t(b.n_attributes);
    steps = constants + kConstantBytes * size_t(b.n_constants);
    total = steps + aligned(sizeof(Step) * size_t(b.n_instructions + b.n_outputs));
  }
};

Element element_of(ValueType type, bool f64) {
  switch (type) {
    case ValueType::kT:
      return f64 ? Element::kF64 : Element::kF32;
    case ValueType::kBool:
      return Element::kBool;
    case ValueType::kI32:
      return Element::kI32;
    case ValueType::kI64:
      return Element::kI64;
    case ValueType::kF32:
      return Element::kF32;
    case ValueType::kF64:
      return Element::kF64;
    case ValueType::kU8:
      return Element::kU8;
    case ValueType::kI8:
      return Element::kI8;
  }
  return Element::kF32;
}

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

// An instruction that will be executed: up to four operands, after fusion.
struct Planned {
  Handler run;
  uint16_t value;       // what it defines, or the output number of a copy
  uint16_t operand[4];  // values
  uint8_t n_operands;
  bool is_copy;
};

bool cheap(uint16_t opcode) {
  return opcode == bc::op_add || opcode == bc::op_sub || opcode == bc::op_mul || opcode == bc::op_div ||
         opcode == bc::op_min || opcode == bc::op_max || opcode == bc::op_square;
}
bool comparison(uint16_t opcode) { return opcode >= bc::op_lt && opcode <= bc::op_ge; }

class Linker {
 public:
  Linker(const Blob& blob, ew::Storage storage)
      : blob_(blob), storage_(storage), f64_(storage == ew::Storage::kF64) {}

  void resolve_types() {
    for (int v = 0; v < blob_.first_instruction(); ++v) element_[v] = element_of(blob_.leaf_type(v), f64_);
    for (int k = 0; k < blob_.n_instructions; ++k) {
      element_[blob_.first_instruction() + k] = element_of(blob_.instruction(k).type, f64_);
    }
  }

  // Which values the wanted outputs need, and how often each is read.
  void mark(uint32_t wanted) {
    for (int v = 0; v < blob_.n_values(); ++v) uses_[v] = output_of_[v] = 0, needed_[v] = false;
    for (int k = 0; k < blob_.n_outputs; ++k) {
      if (!(wanted >> k & 1)) continue;
      const int v = blob_.output(k).value;
      needed_[v] = true;
      ++uses_[v];
      output_of_[v] |= uint32_t(1) << k;
    }
    for (int k = blob_.n_instructions - 1; k >= 0; --k) {
      if (!needed_[blob_.first_instruction() + k]) continue;
      const Instruction i = blob_.instruction(k);
      for (int o = 0; o < operands_of(i); ++o) {
        needed_[i.operand[o]] = true;
        ++uses_[i.operand[o]];
      }
    }
  }

  // The list of instructions, cheap ones joined with the only reader of their result.
  int plan(uint32_t wanted) {
    const int first = blob_.first_instruction();
    for (int k = 0; k < blob_.n_instructions; ++k) absorbed_[first + k] = pair_[first + k] = false;
    for (int k = 0; k < blob_.n_instructions; ++k) {
      if (needed_[first + k]) find_partner(k);
    }
    int n = 0;
    for (int k = 0; k < blob_.n_instructions; ++k) {
      if (needed_[first + k] && !absorbed_[first + k]) planned_[n++] = make(k);
    }
    // A value that is several outputs, or no instruction's result, is copied.
    for (int k = 0; k < blob_.n_outputs; ++k) {
      if (!(wanted >> k & 1)) continue;
      const int v = blob_.output(k).value;
      if (v >= first && __builtin_ctz(output_of_[v]) == k && writes_in_place(v, n)) continue;
      planned_[n++] = {copy_handler(width_of(element_[v])), uint16_t(k), {uint16_t(v), 0, 0, 0}, 1, true};
    }
    return n;
  }

  // Slots: a temporary is free again after its last reader.
  bool assign(Linked& p, Step* steps, int n) {
    const int first = blob_.first_instruction();
    for (int v = 0; v < first; ++v) slot_[v] = uint16_t(v);
    for (int v = first; v < blob_.n_values(); ++v) last_[v] = 0;
    int width = 4;
    for (int i = 0; i < n; ++i) {
      for (int o = 0; o < planned_[i].n_operands; ++o) last_[planned_[i].operand[o]] = uint16_t(i);
      if (!planned_[i].is_copy && width_of(element_[planned_[i].value]) > 4) width = 8;
    }
    for (int k = 0; k < blob_.n_outputs; ++k) {
      if (p.output_width[k] > 4) width = 8;
    }
    int n_temps = 0, n_free = 0;
    for (int i = 0; i < n; ++i) {
      const Planned& planned = planned_[i];
      Step& step = steps[i];
      step.run = planned.run;
      uint16_t* const to[4] = {&step.a, &step.b, &step.c, &step.d};
      for (int o = 0; o < 4; ++o) *to[o] = o < planned.n_operands ? slot_[planned.operand[o]] : uint16_t(0);
      for (int o = 0; o < planned.n_operands; ++o) {  // dying operands free their slots, each once
        const int v = planned.operand[o];
        bool seen = false;
        for (int e = 0; e < o; ++e) seen |= planned.operand[e] == v;
        if (!seen && v >= first && last_[v] == i && slot_[v] >= p.first_temp()) free_[n_free++] = slot_[v];
      }
      if (planned.is_copy) {
        step.out = uint16_t(p.first_output() + planned.value);
      } else if (direct_[planned.value]) {
        step.out = slot_[planned.value] =
            uint16_t(p.first_output() + __builtin_ctz(output_of_[planned.value]));
      } else {
        // Elements of different width would overtake each other in a shared tile.
        step.out = slot_[planned.value] = take_slot(p, planned, n_free, n_temps);
      }
    }
    p.n_temps = n_temps;
    p.n_steps = n;
    p.temp_width = width;
    p.n_slots = p.first_temp() + n_temps + p.spares();
    const int64_t per_element = int64_t(n_temps + p.spares()) * width;
    p.tile = kTile;
    if (per_element * kTile > int64_t(kTempBytes))
      p.tile = int32_t(int64_t(kTempBytes) / per_element / 16 * 16);
    return p.tile >= 16;
  }

  Element element(int v) const { return element_[v]; }

 private:
  static int operands_of(const Instruction& i) { return bc::opcode_info(i.opcode).operands; }
  bool f32(int v) const { return element_[v] == Element::kF32; }

  void find_partner(int k) {
    const int first = blob_.first_instruction(), self = first + k;
    const Instruction i = blob_.instruction(k);
    const auto fusable = [&](int v) {
      return v >= first && uses_[v] == 1 && !output_of_[v] && !pair_[v] && !absorbed_[v];
    };
    if (i.opcode == bc::op_select && f32(self) && fusable(i.operand[0])) {
      const Instruction c = blob_.instruction(i.operand[0] - first);
      if (comparison(c.opcode) && f32(c.operand[0])) absorb(self, i.operand[0]);
    } else if (cheap(i.opcode) && i.opcode != bc::op_square && f32(self) && i.operand[0] != i.operand[1]) {
      for (int o = 0; o < 2; ++o) {
        const int v = i.operand[o];
        if (!fusable(v) || !cheap(blob_.instruction(v - first).opcode)) continue;
        return absorb(self, v);
      }
    }
  }
  void absorb(int self, int inner) {
    absorbed_[inner] = true;
    pair_[self] = true;
    inner_[self] = uint16_t(inner);
  }

  Planned make(int k) const {
    const int first = blob_.first_instruction(), self = first + k;
    const Instruction i = blob_.instruction(k);
    const auto handler = [&]() -> Handler {
      switch (bc::opcode_info(i.opcode).kind) {
        case bc::Class::kLogic:
          return logic_handler(i.opcode);
        case bc::Class::kSelect:
          return select_handler(element_[self]);
        case bc::Class::kCast:
          return i.opcode == bc::op_cast ? cast_handler(element_[i.operand[0]], element_[self])
                                         : round_handler(storage_);
        default:
          return number_handler(i.opcode, element_[i.operand[0]]);
      }
    };
    if (!pair_[self]) {
      return {handler(),
              uint16_t(self),
              {i.operand[0], i.operand[1], i.operand[2], 0},
              uint8_t(operands_of(i)),
              false};
    }
    Instruction in = blob_.instruction(inner_[self] - first);
    if (i.opcode == bc::op_select) {
      return {choose_handler(in.opcode),
              uint16_t(self),
              {in.operand[0], in.operand[1], i.operand[1], i.operand[2]},
              4,
              false};
    }
    if (in.opcode == bc::op_square) in = {bc::op_mul, {in.operand[0], in.operand[0], 0}, in.type};
    const bool reversed = i.operand[1] == inner_[self];
    return {pair_handler(in.opcode, i.opcode, reversed),
            uint16_t(self),
            {in.operand[0], in.operand[1], i.operand[reversed ? 0 : 1], 0},
            3,
            false};
  }

  // An output may share its memory with an input, so its value goes there directly only when nothing that
  // comes later reads an input; copies of inputs to outputs come last.
  bool writes_in_place(int v, int n) {
    direct_[v] = false;
    int at = 0;
    while (at < n && (planned_[at].is_copy || planned_[at].value != v)) ++at;
    for (int k = 0; k < blob_.n_outputs; ++k) {
      if (blob_.output(k).value < blob_.n_inputs) return false;
    }
    for (int i = at + 1; i < n; ++i) {
      for (int o = 0; o < planned_[i].n_operands; ++o) {
        if (planned_[i].operand[o] < blob_.n_inputs) return false;
      }
    }
    return direct_[v] = true;
  }

  uint16_t take_slot(const Linked& p, const Planned& planned, int& n_free, int& n_temps) const {
    // In place over a dying operand is safe only for equal widths.
    const int width = width_of(element_[planned.value]);
    for (int f = n_free - 1; f >= 0; --f) {
      bool clash = false;
      for (int o = 0; o < planned.n_operands; ++o) {
        const int v = planned.operand[o];
        clash |= slot_[v] == free_[f] && width_of(element_[v]) != width;
      }
      if (clash) continue;
      const uint16_t slot = free_[f];
      free_[f] = free_[--n_free];
      return slot;
    }
    return uint16_t(p.first_temp() + n_temps++);
  }

  const Blob& blob_;
  const ew::Storage storage_;
  const bool f64_;
  Element element_[bc::kMaxBlobValues];
  bool needed_[bc::kMaxBlobValues], absorbed_[bc::kMaxBlobValues], pair_[bc::kMaxBlobValues],
      direct_[bc::kMaxBlobValues] = {};
  uint16_t uses_[bc::kMaxBlobValues], inner_[bc::kMaxBlobValues], last_[bc::kMaxBlobValues],
      slot_[bc::kMaxBlobValues];
  uint32_t output_of_[bc::kMaxBlobValues];
  Planned planned_[bc::kMaxBlobValues + bc::kMaxBlobOutputs];
  mutable uint16_t free_[bc::kMaxBlobValues];
};

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
  const int n = linker.plan(wanted);
  if (!linker.assign(p, steps, n)) {
    return refuse(reason, reason_size, OPFORGE_STATUS_UNSUPPORTED,
                  "too many values live at once for the interpreter");
  }
  *program = reinterpret_cast<const bc::Program*>(&p);
  return OPFORGE_STATUS_OK;
}

}  // namespace OPFORGE_ISA
}  // namespace opforge
