// signature_check.h: what a signature must hold beyond its grammar; the counterpart of schema/check.py, with
// the same checks in the same order and the same words.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "opforge/detail/schema_model.h"

namespace opforge::detail {

inline void number_names(std::vector<Dim>* dims, Signature* signature) {
  for (Dim& dim : *dims) {
    dim.ids.clear();
    for (const std::string& name : dim.names) {
      auto& names = signature->names;
      const auto at = std::find(names.begin(), names.end(), name) - names.begin();
      if (at == static_cast<std::ptrdiff_t>(names.size())) {
        names.push_back(name);
        signature->name_attribute.push_back(-1);
        for (size_t k = 0; k < signature->attributes.size(); ++k)
          if (signature->attributes[k].name == name && signature->attributes[k].kind == OPFORGE_ATTRIBUTE_INT)
            signature->name_attribute.back() = static_cast<int32_t>(k);
      }
      dim.ids.push_back(static_cast<int32_t>(at));
    }
    number_names(&dim.sides, signature);
  }
}

// Gives dimension names and type variables their numbers.
inline void number_names(Signature* signature) {
  for (auto* parameters : {&signature->inputs, &signature->outputs})
    for (Parameter& parameter : *parameters) {
      number_names(&parameter.dims, signature);
      if (!is_type_variable(parameter.type)) continue;
      auto& types = signature->types;
      const auto at = std::find_if(types.begin(), types.end(),
                                   [&](const TypeVariable& v) { return v.name == parameter.type; }) -
                      types.begin();
      if (at == static_cast<std::ptrdiff_t>(types.size())) types.push_back({parameter.type, {}});
      parameter.variable = static_cast<int32_t>(at);
    }
}

class SignatureChecker {
 public:
  SignatureChecker(const Signature& signature, const std::string& where, Problem* problem)
      : signature_(signature), where_(where), problem_(problem) {}

  bool run() {
    return unique_names() && parameters(signature_.inputs, "input") &&
           parameters(signature_.outputs, "output") && name_uses() && known_outputs(true) &&
           known_outputs(false);
  }

 private:
  bool fail(const std::string& what, const std::string& expected, const std::string& got) {
    return problem_->set(Problem::kSchema, what, where_, expected, got);
  }

  bool unique_names() {
    std::vector<std::string> seen;
    for (const Parameter& p : signature_.inputs) seen.push_back(p.name);
    for (const Attribute& a : signature_.attributes) seen.push_back(a.name);
    for (const Parameter& p : signature_.outputs) seen.push_back(p.name);
    for (size_t k = 1; k < seen.size(); ++k)
      for (size_t j = 0; j < k; ++j)
        if (seen[j] == seen[k])
          return fail("a name is declared twice", "a name for each input, attribute and output", seen[k]);
    return !signature_.outputs.empty() || fail("there is no output", "at least one output", "none");
  }

  bool parameters(const std::vector<Parameter>& all, const std::string& kind) {
    for (const Parameter& p : all) {
      if (p.variadic && &p != &all.back())
        return fail("a variadic " + kind + " is not the last", "the variadic " + kind + " at the end",
                    p.name);
      if (p.variadic && p.optional)
        return fail("an " + kind + " is variadic and optional", "one of * and ?", p.name);
      if (p.variadic && !signature_.variadic())
        return fail("a variadic output has no variadic input", "as many inputs as outputs", p.name);
      int runs = 0;
      for (const Dim& dim : p.dims) {
        runs += dim.is_run();
        if (dim.kind == Dim::kBroadcast && kind == "input")
          return fail("bcast belongs in outputs", "names, numbers, _ or *S", to_string(p));
        if (dim.kind == Dim::kInteger && dim.value < 0)
          return fail("a dimension is negative", "a number from 0", to_string(p));
      }
      if (runs > 1)
        return fail("two dimensions stand for any number", "at most one *S or bcast in an argument",
                    to_string(p));
    }
    return true;
  }

  // A name stands for one dimension or for a run of them; an attribute that is used so is an int.
  bool name_uses() {
    std::vector<bool> single(signature_.names.size()), runs(signature_.names.size());
    auto each = [&](auto&& f) {
      for (const auto* all : {&signature_.inputs, &signature_.outputs})
        for (const Parameter& p : *all)
          for (const Dim& dim : p.dims)
            each_name(dim, [&](const std::string&, int32_t id) { f(dim, size_t(id)); });
    };
    each([&](const Dim& dim, size_t id) { (dim.is_run() ? runs : single)[id] = true; });
    std::string both;
    each([&](const Dim&, size_t id) {
      if (both.empty() && single[id] && runs[id]) both = signature_.names[id];
    });
    if (!both.empty()) return fail("a name stands for one dimension and for several", "two names", both);
    for (const Attribute& a : signature_.attributes)
      for (size_t id = 0; id < signature_.names.size(); ++id)
        if (signature_.names[id] == a.name && (runs[id] || a.kind != OPFORGE_ATTRIBUTE_INT))
          return fail("a dimension has the name of an attribute that is not one int", "another name", a.name);
    return true;
  }

  bool known_outputs(bool required_only) {
    std::vector<bool> known(signature_.names.size()), types(signature_.types.size());
    if (!solve(required_only, &known)) return false;
    for (const Parameter& p : signature_.inputs)
      if (p.variable >= 0 && !(required_only && p.optional)) types[static_cast<size_t>(p.variable)] = true;
    for (const Parameter& p : signature_.outputs) {
      if (required_only && p.optional) continue;
      std::string unknown;
      for (const Dim& dim : p.dims)
        each_name(dim, [&](const std::string& name, int32_t id) {
          if (unknown.empty() && !known[static_cast<size_t>(id)]) unknown = name;
        });
      if (!unknown.empty())
        return fail("an output's dimension is not known",
                    "names bound by inputs that are always there, or int attributes",
                    unknown + " in " + to_string(p));
      if (p.variable >= 0 && !types[static_cast<size_t>(p.variable)])
        return fail("an output's type is not known", "a type of an input that is always there", to_string(p));
    }
    return true;
  }

  // Goes through the inputs as a call does and marks the names that are then known.
  bool solve(bool required_only, std::vector<bool>* known) {
    for (size_t id = 0; id < signature_.names.size(); ++id) (*known)[id] = signature_.name_attribute[id] >= 0;
    std::vector<std::pair<const Parameter*, const Dim*>> pending;
    for (const Parameter& p : signature_.inputs) {
      if (required_only && p.optional) continue;
      for (const Dim& dim : p.dims) {
        if (dim.kind == Dim::kName || dim.kind == Dim::kRest)
          (*known)[static_cast<size_t>(dim.ids[0])] = true;
        if (dim.kind == Dim::kBinary) pending.emplace_back(&p, &dim);
      }
    }
    while (!pending.empty()) {
      std::vector<std::pair<const Parameter*, const Dim*>> rest;
      for (const auto& entry : pending) {
        bool complete = true;
        each_name(*entry.second, [&](const std::string&, int32_t id) {
          complete = complete && (*known)[static_cast<size_t>(id)];
        });
        const auto form = linear(*entry.second);
        if (complete) continue;
        if (form)
          (*known)[static_cast<size_t>(form->id)] = true;
        else
          rest.push_back(entry);
      }
      if (rest.size() == pending.size())
        return fail("a dimension cannot be solved",
                    "a*n+b with integers a and b, or names that are known from elsewhere",
                    to_string(*rest[0].second) + " in " + to_string(*rest[0].first));
      pending = std::move(rest);
    }
    return true;
  }

  const Signature& signature_;
  const std::string& where_;
  Problem* problem_;
};

inline bool check_signature(const Signature& signature, const std::string& where, Problem* problem) {
  return SignatureChecker(signature, where, problem).run();
}

}  // namespace opforge::detail
