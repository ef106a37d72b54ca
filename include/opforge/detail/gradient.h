// gradient.h: gradient programs, the straight list of operator calls that computes an operator's gradients.
//
//   GradientProgram program;
//   parse_gradient(operator_->gradient, where, &program, &problem);
//   GradientProgram pruned = prune(program, {true, false});   // gradients of input 0 only
//   reads(pruned, 'i')                                        // the forward inputs to save
//
// The counterpart of src/opforge/schema/gradient.py; docs/design/schema.md describes the text.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "opforge/detail/signature.h"

namespace opforge::detail {

struct Operand {
  char kind =
      '-';  // i forward input, o forward output, g gradient of an output, v result of a step, - absent
  int32_t index = 0;  // counts parameters, not tensors

  bool operator==(const Operand& other) const { return kind == other.kind && index == other.index; }
};

inline std::string to_string(const Operand& operand) {
  return operand.kind == '-' ? "-" : operand.kind + std::to_string(operand.index);
}

struct StepAttribute {
  std::string name;
  std::string forward;  // name of the forward attribute whose value it takes; empty = literal
  Literal literal;
};

struct GradientStep {
  std::string domain;
  std::string name;
  int32_t version = 1;
  std::vector<Operand> operands;  // one per input parameter
  std::vector<StepAttribute> attributes;
  std::vector<int32_t> results;  // numbers of the values that it defines, one per output parameter
};

struct GradientProgram {
  std::vector<GradientStep> steps;
  std::vector<Operand> results;  // one per forward input; '-' = no gradient

  template <class F>
  void each_operand(F&& f) const {
    for (const GradientStep& step : steps)
      for (const Operand& operand : step.operands) f(operand);
    for (const Operand& operand : results) f(operand);
  }
};

inline std::string to_string(const GradientProgram& program) {
  std::string text;
  std::vector<std::string> words;
  for (const GradientStep& step : program.steps) {
    words.clear();
    for (const Operand& operand : step.operands) words.push_back(to_string(operand));
    const std::string operands = join(words);
    words.clear();
    for (const StepAttribute& a : step.attributes)
      words.push_back(a.name + " = " + (a.forward.empty() ? format_literal(a.literal) : "@" + a.forward));
    const std::string attributes = join(words);
    words.clear();
    for (const int32_t k : step.results) words.push_back("v" + std::to_string(k));
    text += step.domain + "::" + step.name + ":" + std::to_string(step.version) + "(" + operands +
            (attributes.empty() ? ""
             : operands.empty() ? ";"
                                : "; ") +
            attributes + ") -> " + join(words) + "; ";
  }
  words.clear();
  for (const Operand& operand : program.results) words.push_back(to_string(operand));
  return text + "return " + join(words);
}

class GradientParser {
 public:
  GradientParser(std::string_view text, const std::string& where, Problem* problem)
      : cursor_(text, "gradient", where, problem) {}

  bool run(GradientProgram* out) {
    while (!cursor_.is_name("return")) {
      out->steps.emplace_back();
      if (!step(&out->steps.back()) || !cursor_.expect(";")) return false;
    }
    cursor_.advance();
    return operands(&out->results) && cursor_.end();
  }

 private:
  bool step(GradientStep* out) {
    if (!cursor_.name(&out->domain, "an operator or 'return'")) return false;
    while (cursor_.accept(".")) {
      std::string part;
      if (!cursor_.name(&part)) return false;
      out->domain += "." + part;
    }
    if (!cursor_.expect("::") || !cursor_.name(&out->name) || !cursor_.expect(":")) return false;
    int64_t version = 0;
    if (cursor_.kind() != Cursor::kInt || cursor_.token().size() > 9) return cursor_.fail("a version");
    if (!cursor_.integer(&version) || !cursor_.expect("(")) return false;
    out->version = static_cast<int32_t>(version);
    if (!cursor_.at(";") && !cursor_.at(")") && !operands(&out->operands)) return false;
    if (cursor_.accept(";")) do {
        out->attributes.emplace_back();
        if (!attribute(&out->attributes.back())) return false;
      } while (cursor_.accept(","));
    if (!cursor_.accept(")")) return cursor_.fail(out->attributes.empty() ? "',', ';' or ')'" : "',' or ')'");
    if (!cursor_.expect("->")) return false;
    do {
      const int32_t k = number("v");
      if (k < 0 || is_defined(k)) return cursor_.fail("a new value: v with a number");
      defined_.push_back(k);
      out->results.push_back(k);
      cursor_.advance();
    } while (cursor_.accept(","));
    return true;
  }

  bool attribute(StepAttribute* out) {
    if (!cursor_.name(&out->name) || !cursor_.expect("=")) return false;
    return cursor_.accept("@") ? cursor_.name(&out->forward) : cursor_.literal(&out->literal);
  }

  bool operands(std::vector<Operand>* out) {
    do {
      out->emplace_back();
      if (cursor_.accept("-")) continue;
      const int32_t k = number("iogv");
      if (k < 0) return cursor_.fail("an operand: i, o, g or v with a number, or -");
      if (cursor_.token()[0] == 'v' && !is_defined(k))
        return cursor_.fail("a value that an earlier step defines");
      out->back() = {cursor_.advance()[0], k};
    } while (cursor_.accept(","));
    return true;
  }

  // The number of the operand ahead; -1 where it is no operand of these kinds.
  int32_t number(std::string_view kinds) const {
    const std::string_view token = cursor_.token();
    if (cursor_.kind() != Cursor::kName || kinds.find(token[0]) == std::string_view::npos) return -1;
    if (token.size() < 2 || token.size() > 7 || (token[1] == '0' && token.size() > 2)) return -1;
    int32_t value = 0;
    for (const char c : token.substr(1)) {
      if (c < '0' || c > '9') return -1;
      value = value * 10 + (c - '0');
    }
    return value;
  }
  bool is_defined(int32_t k) const {
    return std::find(defined_.begin(), defined_.end(), k) != defined_.end();
  }

  Cursor cursor_;
  std::vector<int32_t> defined_;
};

inline bool parse_gradient(std::string_view text, const std::string& where, GradientProgram* out,
                           Problem* problem) {
  *out = GradientProgram();
  return GradientParser(text, where, problem).run(out);
}

// Checks operand numbers, results and attributes against the forward operator's signature.
inline bool check_gradient(const GradientProgram& program, const Signature& signature,
                           const std::string& where, Problem* problem) {
  bool good = true;
  program.each_operand([&](const Operand& operand) {
    if (operand.kind == '-' || operand.kind == 'v') return;
    const size_t limit = operand.kind == 'i' ? signature.inputs.size() : signature.outputs.size();
    if (static_cast<size_t>(operand.index) >= limit)
      good = problem->set(Problem::kSchema, "the gradient reads what is not there", where,
                          std::to_string(limit) + (operand.kind == 'i' ? " inputs" : " outputs"),
                          to_string(operand));
  });
  if (!good) return false;
  if (program.results.size() != signature.inputs.size())
    return problem->set(Problem::kSchema, "the gradient has the wrong number of results", where,
                        std::to_string(signature.inputs.size()) + ", one per input",
                        std::to_string(program.results.size()));
  for (const GradientStep& step : program.steps)
    for (const StepAttribute& attribute : step.attributes) {
      std::vector<std::string> names;
      for (const Attribute& declared : signature.attributes) names.push_back(declared.name);
      if (attribute.forward.empty() ||
          std::find(names.begin(), names.end(), attribute.forward) != names.end())
        continue;
      std::sort(names.begin(), names.end());
      return problem->set(Problem::kSchema, "the gradient reads an unknown attribute", where,
                          names.empty() ? "no attributes" : join(names), "@" + attribute.forward);
    }
  return true;
}

// Keeps only the steps that the wanted results need (one entry per forward input); other results become '-',
// numbers of values stay as they are.
inline GradientProgram prune(const GradientProgram& program, const std::vector<bool>& wanted) {
  GradientProgram result;
  std::vector<int32_t> needed;
  for (size_t k = 0; k < program.results.size(); ++k) {
    result.results.push_back(k < wanted.size() && wanted[k] ? program.results[k] : Operand());
    if (result.results.back().kind == 'v') needed.push_back(result.results.back().index);
  }
  for (size_t k = program.steps.size(); k-- > 0;) {
    const GradientStep& step = program.steps[k];
    bool keep = false;
    for (const int32_t v : step.results) keep |= std::find(needed.begin(), needed.end(), v) != needed.end();
    if (!keep) continue;
    result.steps.insert(result.steps.begin(), step);
    for (const Operand& operand : step.operands)
      if (operand.kind == 'v') needed.push_back(operand.index);
  }
  return result;
}

// The numbers of the operands of one kind that a program reads, ascending: 'i' and 'o' are what to save, 'v'
// the step results that are wanted.
inline std::vector<int32_t> reads(const GradientProgram& program, char kind) {
  std::vector<int32_t> found;
  program.each_operand([&](const Operand& operand) {
    if (operand.kind == kind) found.push_back(operand.index);
  });
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

}  // namespace opforge::detail
