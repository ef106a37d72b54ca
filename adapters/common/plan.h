// plan.h: one operator of a kernel library, read once at registration: its signature and the choice of a
// kernel. Nothing here knows a framework.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "common/failure.h"
#include "common/kernels.h"
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

  const opforge_operator* table;  // of the library that came first
  KernelRows kernels;             // of all libraries
  std::string key;                // domain::Name:version
  std::string where;              // domain::Name, for messages
  detail::Signature signature;
  FastRule fast;
  bool data_dependent = false;  // an output has a dimension `_`

  // The kernel for these dtypes (one per type variable); raises with the list of those that exist.
  const opforge_kernel* kernel(const opforge_dtype* bound, int32_t device_type) const;

 private:
  void find_fast_rule();
};

// Takes in the kernels of another library's row of the operator that has a name already; raises where it is
// another operator.
inline void merge(Plan& before, const Plan& now, const std::string& name, const std::string& host) {
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
  before.kernels.add(now.table);
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
      kernels(table_operator),
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
  if (const opforge_kernel* const found = kernels.find(bound, variables, device_type)) return found;
  std::vector<std::string> candidates;
  kernels.each([&](const opforge_kernel& one) {
    std::string row = device_name(one.device_type);
    for (int32_t v = 0; v < one.n_dtypes; ++v) row += " " + detail::dtype_name(one.dtypes[v]);
    candidates.push_back(std::move(row));
  });
  std::string wanted = device_name(device_type);
  for (size_t v = 0; v < variables; ++v) {
    wanted += (v == 0 ? " " : ", ") + signature.types[v].name + " = " + detail::dtype_name(bound[v]);
  }
  throw failure(OPFORGE_STATUS_UNSUPPORTED, where, "no kernel for these dtypes on this device",
                candidates.empty() ? "none is built" : detail::join(candidates, "; "), wanted,
                device_type == OPFORGE_DEVICE_CPU
                    ? "build the operator package again"
                    : "build the operator package for it: opforge build PACKAGE --device " +
                          device_name(device_type) +
                          " --out FOLDER, and name FOLDER in OPFORGE_LIBRARY_PATH");
}

}  // namespace opforge::adapter
