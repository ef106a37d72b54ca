// executor.cpp: proves that nodes of the executor and their subgraphs fit together.
#include "session/executor.h"

#include "program/attributes.h"

namespace opforge::session {
namespace {

struct Row {
  const char *name, *inputs, *outputs;
};
// In the order of Control, behind kNone and kLeftOut.
constexpr Row kRows[] = {
#define EXECUTOR_OP(name, inputs, outputs) {#name, inputs, outputs},
#include "session/executor_ops.def"
#undef EXECUTOR_OP
};
constexpr int kFirst = 2;

bool plain(const format::Value& v) { return v.layout == 0 && v.packing == 0; }

class Checker {
 public:
  Checker(const Program& program, uint32_t node, Error* error)
      : p_(program), record_(program.nodes[node]), node_(node), error_(error) {}

  Status run(Control control) {
    const Row& row = kRows[static_cast<int>(control) - kFirst];
    if (!list(row.inputs, record_.first_input, record_.inputs, false) ||
        !list(row.outputs, record_.first_output, record_.outputs, true)) {
      return bad("its inputs or outputs are not those of the operator");
    }
    if (control == Control::kIf) return branch("then_branch") || branch("else_branch") ? *error_ : Status{};
    if (control == Control::kLoop) return loop();
    return OPFORGE_STATUS_OK;
  }

 private:
  Error& bad(const char* what) {
    const StringView op = p_.text(record_.op);
    return error_->fail(OPFORGE_STATUS_CORRUPT, "%s", what)
        .at("section 'program', node %u '%.*s'", node_, static_cast<int>(op.size), op.data);
  }

  bool list(const char* pattern, uint32_t first, uint32_t count, bool outputs) {
    uint32_t k = 0;
    for (const char* letter = pattern; *letter != '\0';) {
      const bool may_lack = letter[1] == '?', many = letter[1] == '*';
      do {
        const int32_t id = k < count ? p_.ids[first + k] : -1;
        if (k >= count && !may_lack && !many) return false;
        if (id < 0 && !may_lack && *letter != 'v' && k < count) return false;
        if (id >= 0 && !value(*letter, p_.values[id])) return false;
        ++k;
      } while (many && k < count);
      if (may_lack && k > count) k = count;
      letter += may_lack || many ? 2 : 1;
    }
    return k >= count && (!outputs || count > 0);
  }

  bool value(char letter, const format::Value& v) {
    const auto dtype = static_cast<DType>(v.dtype);
    const bool tensor = v.kind == format::kTensorValue && plain(v);
    switch (letter) {
      case 'v':
        return v.packing == 0;
      case 'i':
        return tensor && dtype == DType::kI64;
      case 'b':
        return tensor && dtype == DType::kBool;
      case 'p':
        return tensor && (dtype == DType::kI64 || dtype == DType::kI32);
      case 'T':
        return tensor && shared(dtype);
      case 'S':
        return v.kind == format::kSequenceValue && shared(dtype);
      default:  // 'X'
        if (holds_ < 0) holds_ = is_sequence(v) ? 1 : 0;
        return plain(v) && holds_ == (is_sequence(v) ? 1 : 0) && shared(dtype);
    }
  }
  bool shared(DType dtype) {
    if (dtype_ == DType::kUndefined) dtype_ = dtype;
    return dtype_ == dtype;
  }

  // A value may become another one: it holds the same. That an optional is not empty shows in the run.
  bool fits(int32_t from, int32_t to) const {
    if (to < 0) return true;
    const format::Value& b = p_.values[to];
    if (from < 0) return is_optional(b);
    const format::Value& a = p_.values[from];
    const Layout x{static_cast<LayoutKind>(a.layout), a.halo[0], a.halo[1], a.halo[2], a.halo[3]};
    const Layout y{static_cast<LayoutKind>(b.layout), b.halo[0], b.halo[1], b.halo[2], b.halo[3]};
    return a.dtype == b.dtype && is_sequence(a) == is_sequence(b) && same_layout(x, y) && a.packing == 0 &&
           b.packing == 0;
  }

  const format::Graph* graph(const char* name) const {
    const int32_t index = NodeAttributes(&p_, &record_).get_graph(name);
    return index < 0 ? nullptr : &p_.graphs[index];
  }
  int32_t input(uint32_t k) const { return p_.ids[record_.first_input + k]; }
  int32_t output(uint32_t k) const { return p_.ids[record_.first_output + k]; }

  Status branch(const char* name) {
    const format::Graph* g = graph(name);
    if (g == nullptr || g->inputs != 0 || g->outputs != record_.outputs)
      return bad("a branch is missing, or its inputs and outputs are not those of the node");
    for (uint32_t k = 0; k < g->outputs; ++k) {
      if (!fits(p_.ids[g->first_output + k], output(k)))
        return bad("a branch gives another type than the node says").found("output %u", k);
    }
    return OPFORGE_STATUS_OK;
  }

  Status loop() {
    const format::Graph* g = graph("body");
    const uint32_t carried = record_.inputs < 2 ? 0 : record_.inputs - 2;
    if (g == nullptr || record_.inputs < 2 || g->inputs != record_.inputs ||
        g->outputs != 1 + record_.outputs || record_.outputs < carried) {
      return bad("the body is missing, or its inputs and outputs are not those of the node");
    }
    const int32_t *ins = p_.ids + g->first_input, *outs = p_.ids + g->first_output;
    bool good =
        value('i', p_.values[ins[0]]) && value('b', p_.values[ins[1]]) && value('b', p_.values[outs[0]]);
    for (uint32_t k = 0; good && k < record_.outputs; ++k) {
      const format::Value& result = p_.values[outs[1 + k]];
      if (k < carried) {
        good =
            fits(input(2 + k), ins[2 + k]) && fits(outs[1 + k], ins[2 + k]) && fits(outs[1 + k], output(k));
      } else {
        good = result.kind == format::kTensorValue && plain(result) && fits(outs[1 + k], output(k)) &&
               (output(k) < 0 || p_.values[output(k)].kind == format::kTensorValue);
      }
      if (!good) return bad("the body takes or gives another type than the node says").found("output %u", k);
    }
    return good ? Status{} : bad("the body's counter or condition has a wrong type");
  }

  const Program& p_;
  const format::Node& record_;
  uint32_t node_;
  Error* error_;
  DType dtype_ = DType::kUndefined;
  int holds_ = -1;
};

}  // namespace

Control executor_op(StringView domain, StringView name) {
  if (domain.size != 0) return Control::kNone;
  for (size_t k = 0; k < sizeof kRows / sizeof kRows[0]; ++k) {
    if (same_text(name, kRows[k].name)) return static_cast<Control>(kFirst + k);
  }
  return Control::kNone;
}

Status check_executor_node(const Program& program, uint32_t node, Control control, Error* error) {
  return Checker(program, node, error).run(control);
}

}  // namespace opforge::session
