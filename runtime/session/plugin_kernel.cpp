// plugin_kernel.cpp: prepares a node's kernel once, when the session is opened.
#include "session/plugin_kernel.h"

namespace opforge::session {
namespace {

Status put(const detail::Problem& problem, Error* error) {
  return error->fail(problem.status(), "%s", problem.what.c_str())
      .at("%s", problem.where.c_str())
      .wanted("%s", problem.expected.c_str())
      .found("%s", problem.got.c_str());
}

// An attribute of the file as the literal that the declaration coerces. The file knows no booleans.
detail::Literal literal_of(const Program& program, const format::Attribute& a, int32_t declared) {
  detail::Literal literal;
  const bool boolean = declared == OPFORGE_ATTRIBUTE_BOOL || declared == OPFORGE_ATTRIBUTE_BOOLS;
  const int32_t integer = boolean ? OPFORGE_ATTRIBUTE_BOOL : OPFORGE_ATTRIBUTE_INT;
  auto text = [&](uint32_t id) {
    const StringView view = program.text(id);
    return std::string(view.data, static_cast<size_t>(view.size));
  };
  double number = 0;
  switch (a.kind) {
    case format::kInt:
      literal.items.push_back({integer, static_cast<int64_t>(a.payload), 0, {}});
      break;
    case format::kFloat:
      std::memcpy(&number, &a.payload, sizeof number);
      literal.items.push_back({OPFORGE_ATTRIBUTE_FLOAT, 0, number, {}});
      break;
    case format::kText:
      literal.items.push_back({OPFORGE_ATTRIBUTE_STRING, 0, 0, text(static_cast<uint32_t>(a.payload))});
      break;
    default:
      literal.list = true;
      for (uint32_t k = 0; k < a.count; ++k) {
        if (a.kind == format::kInts)
          literal.items.push_back({integer, program.integers[a.payload + k], 0, {}});
        if (a.kind == format::kFloats)
          literal.items.push_back({OPFORGE_ATTRIBUTE_FLOAT, 0, program.floats[a.payload + k], {}});
        if (a.kind == format::kTexts)
          literal.items.push_back(
              {OPFORGE_ATTRIBUTE_STRING, 0, 0, text(static_cast<uint32_t>(program.ids[a.payload + k]))});
      }
  }
  return literal;
}

}  // namespace

Status PluginKernel::prepare(const Program& program, const opforge_operator& op, const NodeInfo& node,
                             Error* error) {
  row = &op;
  name = std::string(op.domain) + "::" + op.name;
  detail::Problem problem;
  if (!detail::parse_signature(op.signature, op.types, name, &signature, &problem))
    return put(problem, error);
  for (const detail::Parameter& output : signature.outputs) {
    for (const detail::Dim& dim : output.dims)
      decides_shapes = decides_shapes || dim.kind == detail::Dim::kAny;
  }
  if (read_attributes(program, node, error) || choose(program, node, error)) return *error;
  std::string output;
  for (uint32_t k = 0; k < node.record->outputs && output.empty(); ++k) {
    if (node.outputs[k] < 0) continue;
    const StringView view = program.text(program.values[node.outputs[k]].name);
    output.assign(view.data, static_cast<size_t>(view.size));
  }
  names = lasting_names(op.domain, op.name, output, reinterpret_cast<const void*>(kernel->run));
  return OPFORGE_STATUS_OK;
}

Status PluginKernel::read_attributes(const Program& program, const NodeInfo& node, Error* error) {
  std::vector<detail::NamedLiteral> given;
  for (uint32_t k = 0; k < node.record->attributes; ++k) {
    const format::Attribute& a = program.attributes[node.record->first_attribute + k];
    const StringView view = program.text(a.name);
    const std::string attribute(view.data, static_cast<size_t>(view.size));
    int32_t declared = 0;
    for (const detail::Attribute& d : signature.attributes)
      declared = d.name == attribute ? d.kind : declared;
    given.push_back({attribute, literal_of(program, a, declared)});
  }
  detail::Problem problem;
  if (!detail::coerce_all(signature.attributes, given, name, &values, &problem)) return put(problem, error);
  attributes = std::make_unique<detail::PackedAttributes>(values);
  integers = detail::integers_of(values);
  return OPFORGE_STATUS_OK;
}

int32_t PluginKernel::bound_output(const detail::Binding<int64_t>& binding, uint32_t output) const {
  int32_t flat = 0;
  for (size_t p = 0; p < signature.outputs.size(); ++p) {
    const int32_t count = binding.output_counts[p];
    const bool last = signature.outputs[p].variadic;
    if (output == p || last) {
      const auto number = static_cast<int32_t>(output) - static_cast<int32_t>(p);
      return number < count ? flat + number : -1;
    }
    flat += count;
  }
  return -1;
}

Status PluginKernel::check_tensors(const Program& program, const NodeInfo& node,
                                   const detail::Binding<int64_t>& binding, Error* error) const {
  auto plain = [&](int32_t id) {
    const format::Value& value = program.values[id];
    return value.layout == 0 && program.text(value.packing).size == 0;
  };
  for (uint32_t k = 0; k < node.record->inputs; ++k) {
    if (node.inputs[k] >= 0 && !plain(node.inputs[k])) {
      return error->fail(OPFORGE_STATUS_CORRUPT, "input %u of a kernel operator is not a plain tensor", k)
          .at("%s", name.c_str());
    }
  }
  for (uint32_t k = 0; k < node.record->outputs; ++k) {
    if (node.outputs[k] < 0) continue;
    const int32_t flat = bound_output(binding, k);
    if (flat < 0 || !plain(node.outputs[k])) {
      return error->fail(OPFORGE_STATUS_CORRUPT, "output %u of a kernel operator is none that it has", k)
          .at("%s", name.c_str());
    }
    const auto stored = static_cast<DType>(program.values[node.outputs[k]].dtype);
    const opforge_dtype& made = binding.dtypes[static_cast<size_t>(flat)];
    if (detail::same(to_dlpack(stored), made)) continue;
    return error->fail(OPFORGE_STATUS_CORRUPT, "output %u of a kernel operator has another dtype", k)
        .at("%s", name.c_str())
        .wanted("%s", detail::dtype_name(made).c_str())
        .found("%s", dtype_name(stored));
  }
  return OPFORGE_STATUS_OK;
}

// Picks the CPU instance whose dtypes are those of the node.
Status PluginKernel::choose(const Program& program, const NodeInfo& node, Error* error) {
  std::vector<detail::ShapeView<int64_t>> shapes(node.record->inputs);
  std::vector<opforge_dtype> dtypes(node.record->inputs);
  for (uint32_t k = 0; k < node.record->inputs; ++k) {
    if (node.inputs[k] < 0) continue;
    shapes[k].rank = detail::kUnknownRank;
    dtypes[k] = to_dlpack(static_cast<DType>(program.values[node.inputs[k]].dtype));
  }
  detail::Problem problem;
  detail::Binding<int64_t> binding;
  if (!detail::bind<int64_t>(signature, name, shapes, dtypes, integers.data(), &binding, &problem))
    return put(problem, error);
  if (check_tensors(program, node, binding, error)) return *error;
  std::string offered;
  for (int32_t k = 0; k < row->n_kernels; ++k) {
    const opforge_kernel* candidate = row->kernels[k];
    if (candidate->device_type != OPFORGE_DEVICE_CPU) continue;
    bool same = candidate->n_dtypes == static_cast<int32_t>(binding.types.size());
    std::string label;
    for (int32_t t = 0; t < candidate->n_dtypes; ++t) {
      same = same && detail::same(candidate->dtypes[t], binding.types[static_cast<size_t>(t)]);
      label += (label.empty() ? "" : ",") + detail::dtype_name(candidate->dtypes[t]);
    }
    offered += (offered.empty() ? "" : " | ") + label;
    if (!same) continue;
    kernel = candidate;
    return OPFORGE_STATUS_OK;
  }
  std::string wanted;
  for (const opforge_dtype& type : binding.types)
    wanted += (wanted.empty() ? "" : ",") + detail::dtype_name(type);
  return error->fail(OPFORGE_STATUS_UNSUPPORTED, "the library has no CPU kernel for these dtypes")
      .at("%s", name.c_str())
      .wanted("%s", offered.c_str())
      .found("%s", wanted.c_str());
}

}  // namespace opforge::session
