// linker.h: the part of linking that thinks: which instructions are needed, which cheap ones join their
// reader, which slot each value lives in.
#pragma once

#include "bytecode/isa/chain.h"

namespace opforge {
namespace OPFORGE_ISA {

using bc::Blob;
using bc::Instruction;
using bc::ValueType;

inline Element element_of(ValueType type, bool f64) {
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

// An instruction that will be executed: up to four operands, after fusion, or a chain of instructions.
struct Planned {
  Handler run;
  uint16_t value;       // what it defines, or the output number of a copy
  uint16_t operand[4];  // values
  uint8_t n_operands;
  bool is_copy;
  uint16_t links = 0;
  ChainOp* chain = nullptr;  // a and b are values until slots are assigned

  template <class F>
  void each_operand(F&& f) const {
    for (int o = 0; o < n_operands; ++o) f(operand[o]);
    for (int k = 0; k < links; ++k) {
      if (chain[k].a != bc::kNone) f(chain[k].a);
      if (chain[k].b != bc::kNone) f(chain[k].b);
    }
  }
};

inline bool cheap(uint16_t opcode) {
  return opcode == bc::op_add || opcode == bc::op_sub || opcode == bc::op_mul || opcode == bc::op_div ||
         opcode == bc::op_min || opcode == bc::op_max || opcode == bc::op_square;
}
inline bool comparison(uint16_t opcode) { return opcode >= bc::op_lt && opcode <= bc::op_ge; }

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

  // The list of instructions, cheap ones joined with the only reader of their result. chains: room for twice
  // as many links as there are instructions.
  int plan(uint32_t wanted, ChainOp* chains) {
    const int first = blob_.first_instruction();
    for (int k = 0; k < blob_.n_instructions; ++k) absorbed_[first + k] = pair_[first + k] = false;
    find_chains();
    for (int k = 0; k < blob_.n_instructions; ++k) {
      if (needed_[first + k]) find_partner(k);
    }
    int n = 0;
    for (int k = 0; k < blob_.n_instructions; ++k) {
      if (!needed_[first + k] || absorbed_[first + k]) continue;
      planned_[n] = length_[first + k] ? make_chain(k, chains) : make(k);
      chains += planned_[n++].links;
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
    for (int v = first; v < blob_.n_values(); ++v) last_[v] = 0, freed_[v] = false;
    int width = 4;
    for (int i = 0; i < n; ++i) {
      planned_[i].each_operand([&](int v) { last_[v] = uint16_t(i); });
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
      step.links = planned.links;
      step.chain = planned.chain;
      uint16_t* const to[4] = {&step.a, &step.b, &step.c, &step.d};
      for (int o = 0; o < 4; ++o) *to[o] = o < planned.n_operands ? slot_[planned.operand[o]] : uint16_t(0);
      planned.each_operand([&](int v) {  // dying operands free their slots, each once
        if (v < first || last_[v] != i || slot_[v] < p.first_temp() || freed_[v]) return;
        freed_[v] = true;
        free_[n_free++] = slot_[v];
      });
      if (planned.is_copy) {
        step.out = uint16_t(p.first_output() + planned.value);
      } else if (direct_[planned.value]) {
        step.out = slot_[planned.value] =
            uint16_t(p.first_output() + __builtin_ctz(output_of_[planned.value]));
      } else {
        // Elements of different width would overtake each other in a shared tile.
        step.out = slot_[planned.value] = take_slot(p, planned, n_free, n_temps);
      }
      for (int k = 0; k < planned.links; ++k) {
        ChainOp& op = planned.chain[k];
        if (op.a != bc::kNone) op.a = slot_[op.a];
        if (op.b != bc::kNone) op.b = slot_[op.b];
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
  // Instruction k; once the storage is known, to round to it is to round to that type.
  Instruction instruction(int k) const {
    Instruction i = blob_.instruction(k);
    if (i.opcode == bc::op_round_half && storage_ == ew::Storage::kF16) i.opcode = bc::op_round_f16;
    if (i.opcode == bc::op_round_half && storage_ == ew::Storage::kBF16) i.opcode = bc::op_round_bf16;
    return i;
  }

  void find_partner(int k) {
    const int first = blob_.first_instruction(), self = first + k;
    const Instruction i = instruction(k);
    const auto fusable = [&](int v) {
      return v >= first && uses_[v] == 1 && !output_of_[v] && !pair_[v] && !absorbed_[v];
    };
    if (length_[self]) return;
    if (i.opcode == bc::op_select && f32(self) && fusable(i.operand[0])) {
      const Instruction c = instruction(i.operand[0] - first);
      if (comparison(c.opcode) && f32(c.operand[0])) absorb(self, i.operand[0]);
    } else if (cheap(i.opcode) && i.opcode != bc::op_square && f32(self) && i.operand[0] != i.operand[1]) {
      for (int o = 0; o < 2; ++o) {
        const int v = i.operand[o];
        if (!fusable(v) || !cheap(instruction(v - first).opcode)) continue;
        return absorb(self, v);
      }
    }
  }
  // Chains of three instructions and more: of each, all but the last are absorbed, and length_ is kept for
  // the last. A longer way back is preferred where an instruction has two.
  void find_chains() {
    const int first = blob_.first_instruction();
    const auto links_to = [&](int self, const Instruction& i, int v) {
      int reads = 0;
      for (int o = 0; o < operands_of(i); ++o) reads += i.operand[o] == v;
      return v >= first && reads == 1 && uses_[v] == 1 && !output_of_[v] && length_[v] > 0 &&
             length_[v] < kMaxChain && needed_[self];
    };
    for (int k = 0; k < blob_.n_instructions; ++k) {
      const int self = first + k;
      const Instruction i = instruction(k);
      bool all = needed_[self] && f32(self) && chained(i.opcode);
      for (int o = 0; o < operands_of(i); ++o) all &= f32(i.operand[o]);
      length_[self] = all;
      for (int o = 0; all && o < operands_of(i); ++o) {
        const int v = i.operand[o];
        if (!links_to(self, i, v) || length_[v] < length_[self]) continue;
        length_[self] = uint8_t(length_[v] + 1);
        from_[self] = uint16_t(v);
      }
    }
    for (int self = blob_.n_values() - 1; self >= first; --self) {
      if (absorbed_[self]) continue;
      if (length_[self] < 3) {
        length_[self] = 0;
        continue;
      }
      pair_[self] = true;  // nobody absorbs it
      for (int v = self, left = length_[self]; --left > 0;) absorbed_[v = from_[v]] = true;
    }
  }
  Planned make_chain(int k, ChainOp* to) const {
    const int first = blob_.first_instruction(), self = first + k, n = length_[self];
    int order[kMaxChain];
    for (int v = self, at = n; at-- > 0; v = from_[v]) order[at] = v;
    int links = 0;
    for (int j = 0; j < n; ++j) {
      const Instruction i = instruction(order[j] - first);
      int at = 0;
      if (j == 0) {
        to[links] = chain_begin();
        to[links++].a = i.operand[0];
      } else {
        while (i.operand[at] != order[j - 1]) ++at;
      }
      ChainOp& op = to[links++] = chain_op(i.opcode, at);
      for (int o = 0; o < operands_of(i); ++o) {
        if (o != at) (op.a == bc::kNone ? op.a : op.b) = i.operand[o];
      }
    }
    Planned planned = {run_chain, uint16_t(self), {}, 0, false};
    planned.links = uint16_t(links);
    planned.chain = to;
    return planned;
  }
  void absorb(int self, int inner) {
    absorbed_[inner] = true;
    pair_[self] = true;
    inner_[self] = uint16_t(inner);
  }

  Planned make(int k) const {
    const int first = blob_.first_instruction(), self = first + k;
    const Instruction i = instruction(k);
    const auto handler = [&]() -> Handler {
      switch (bc::opcode_info(i.opcode).kind) {
        case bc::Class::kLogic:
          return logic_handler(i.opcode);
        case bc::Class::kSelect:
          return select_handler(element_[self]);
        case bc::Class::kCast:
          return i.opcode == bc::op_cast ? cast_handler(element_[i.operand[0]], element_[self])
                                         : round_handler(i.opcode, element_[self]);
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
    Instruction in = instruction(inner_[self] - first);
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
    bool later = false;
    for (int i = at + 1; i < n; ++i) planned_[i].each_operand([&](int o) { later |= o < blob_.n_inputs; });
    return direct_[v] = !later;
  }

  uint16_t take_slot(const Linked& p, const Planned& planned, int& n_free, int& n_temps) const {
    // In place over a dying operand is safe only for equal widths.
    const int width = width_of(element_[planned.value]);
    for (int f = n_free - 1; f >= 0; --f) {
      bool clash = false;
      planned.each_operand([&](int v) { clash |= slot_[v] == free_[f] && width_of(element_[v]) != width; });
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
      direct_[bc::kMaxBlobValues] = {}, freed_[bc::kMaxBlobValues];
  uint8_t length_[bc::kMaxBlobValues];  // of the chain that ends here, in instructions
  uint16_t from_[bc::kMaxBlobValues];   // the link before
  uint16_t uses_[bc::kMaxBlobValues], inner_[bc::kMaxBlobValues], last_[bc::kMaxBlobValues],
      slot_[bc::kMaxBlobValues];
  uint32_t output_of_[bc::kMaxBlobValues];
  Planned planned_[bc::kMaxBlobValues + bc::kMaxBlobOutputs];
  mutable uint16_t free_[bc::kMaxBlobValues];
};

}  // namespace OPFORGE_ISA
}  // namespace opforge
