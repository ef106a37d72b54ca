// plan.h: one operator of a kernel library, read once at registration: its signature and the choice of a
// kernel. Nothing here knows a framework.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "common/failure.h"
#include "opforge/abi.h"
#include "opforge/detail/infer.h"
#include "opforge/detail/signature.h"

namespace opforge::adapter {

// Shapes by broadcasting alone, for signatures in which every input is one *S: what formula operators have.
// It gives what detail::Binder gives, without touching the heap; whatever it does not take, the binder does,
// or explains.
struct FastRule {
  bool usable = false;
  std::vector<int32_t> first_with_run;           // per input: the first input that has the same *S
  std::vector<std::vector<int32_t>> broadcasts;  // per output: the inputs whose shapes are broadcast
};

struct Plan {
  explicit Plan(const opforge_operator* table_operator);

  const opforge_operator* table;
  std::string key;    // domain::Name:version
  std::string where;  // domain::Name, for messages
  detail::Signature signature;
  FastRule fast;
  bool data_dependent = false;  // an output has a dimension `_`

  // The kernel for these dtypes (one per type variable); raises with the list of those that exist.
  const opforge_kernel* kernel(const opforge_dtype* bound, int32_t device_type) const;

 private:
  void find_fast_rule();
};

// Passes where the operator that has a name already is this very one; raises where it is another one.
inline void check_same(const Plan& before, const Plan& now, const std::string& name,
                       const std::string& host) {
  if (before.key != now.key) {
    throw failure(OPFORGE_STATUS_INVALID_ARGUMENT, name, "the name is taken by another operator",
                  before.key + " " + before.table->signature, now.key + " " + now.table->signature,
                  "give one of them another host_name");
  }
  if (std::strcmp(before.table->schema_hash, now.table->schema_hash) != 0) {
    throw failure(OPFORGE_STATUS_INVALID_ARGUMENT, now.key,
                  "another operator of this name is registered with " + host, before.table->signature,
                  now.table->signature, "raise since= for a changed operator, or restart the process");
  }
}

inline std::string argument(const Plan& plan, size_t input) {
  return plan.where + ", argument " + plan.signature.inputs[input].name;
}

// A dtype that the ABI has no name for, in the words of the signature.
inline Failure foreign_dtype(const Plan& plan, size_t input, const std::string& got) {
  const detail::Parameter& parameter = plan.signature.inputs[input];
  std::string expected = parameter.type;
  if (parameter.variable >= 0) {
    std::vector<std::string> names;
    for (const opforge_dtype& one : plan.signature.types[static_cast<size_t>(parameter.variable)].dtypes) {
      names.push_back(detail::dtype_name(one));
    }
    expected += ": " + detail::join(names);
  }
  return failure(OPFORGE_STATUS_TYPE, argument(plan, input), "wrong dtype", expected, got);
}

inline Failure failure_of(const detail::Problem& problem) {
  return Failure(problem.status(), problem.message());
}

inline Failure kernel_failure(const Plan& plan, opforge_status status, const std::string& text) {
  return failure(status, plan.where,
                 text.empty() ? "the kernel failed with status " + std::to_string(status) : text);
}

inline Plan::Plan(const opforge_operator* table_operator)
    : table(table_operator),
      key(std::string(table->domain) + "::" + table->name + ":" + std::to_string(table->since_version)),
      where(std::string(table->domain) + "::" + table->name) {
  if (table->abi != OPFORGE_ABI || table->size < sizeof(opforge_operator)) {
    throw failure(OPFORGE_STATUS_UNSUPPORTED, key, "the library was built for another ABI",
                  "ABI " + std::to_string(OPFORGE_ABI), "ABI " + std::to_string(table->abi),
                  "build the operator package again with this version of opforge");
  }
  detail::Problem problem;
  if (!detail::parse_signature(table->signature, table->types, where, &signature, &problem))
    throw failure_of(problem);
  if (signature.inputs.empty()) {
    throw failure(OPFORGE_STATUS_UNSUPPORTED, key, "a framework chooses a kernel by an input tensor",
                  "at least one input", "none");
  }
  for (const detail::Parameter& output : signature.outputs) {
    for (const detail::Dim& dim : output.dims)
      data_dependent = data_dependent || dim.kind == detail::Dim::kAny;
  }
  find_fast_rule();
}

inline void Plan::find_fast_rule() {
  std::vector<int32_t> run_of;  // per input: the number of its *S
  for (const detail::Parameter& input : signature.inputs) {
    if (input.optional || input.variadic || input.dims.size() != 1 ||
        input.dims[0].kind != detail::Dim::kRest)
      return;
    run_of.push_back(input.dims[0].ids[0]);
  }
  const auto first_with = [&](int32_t id) {
    for (size_t i = 0; i < run_of.size(); ++i) {
      if (run_of[i] == id) return static_cast<int32_t>(i);
    }
    return -1;
  };
  FastRule rule;
  for (const int32_t id : run_of) rule.first_with_run.push_back(first_with(id));
  for (const detail::Parameter& output : signature.outputs) {
    if (output.optional || output.variadic || output.dims.size() != 1 || !output.dims[0].is_run()) return;
    rule.broadcasts.emplace_back();
    for (const int32_t id : output.dims[0].ids) {
      rule.broadcasts.back().push_back(first_with(id));
      if (rule.broadcasts.back().back() < 0) return;
    }
  }
  rule.usable = true;
  fast = std::move(rule);
}

inline const opforge_kernel* Plan::kernel(const opforge_dtype* bound, int32_t device_type) const {
  const size_t variables = signature.types.size();
  for (int32_t k = 0; k < table->n_kernels; ++k) {
    const opforge_kernel* candidate = table->kernels[k];
    if (candidate->device_type != device_type || candidate->n_dtypes != static_cast<int32_t>(variables))
      continue;
    bool fits = true;
    for (size_t v = 0; fits && v < variables; ++v) fits = detail::same(candidate->dtypes[v], bound[v]);
    if (fits) return candidate;
  }
  std::vector<std::string> candidates, wanted;
  for (int32_t k = 0; k < table->n_kernels; ++k) {
    std::string row = "device " + std::to_string(table->kernels[k]->device_type);
    for (int32_t v = 0; v < table->kernels[k]->n_dtypes; ++v) {
      row += " " + detail::dtype_name(table->kernels[k]->dtypes[v]);
    }
    candidates.push_back(std::move(row));
  }
  for (size_t v = 0; v < variables; ++v) {
    wanted.push_back(signature.types[v].name + " = " + detail::dtype_name(bound[v]));
  }
  throw failure(OPFORGE_STATUS_UNSUPPORTED, where, "no kernel for these dtypes",
                candidates.empty() ? "none is built" : detail::join(candidates, "; "), detail::join(wanted),
                "build the operator package again");
}

}  // namespace opforge::adapter
