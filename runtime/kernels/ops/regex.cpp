// regex.cpp: RegexFullMatch.
#include "kernels/regex.h"

namespace opforge {
namespace {

using namespace kernels;

Status regex_load(LoadContext& c) {
  Regex* s = new_state<Regex>(c);
  if (s == nullptr) return no_memory(c);
  const RegexMemory memory{[](void* user, size_t bytes) {
                             auto* context = static_cast<LoadContext*>(user);
                             return context->allocate(context, bytes);
                           },
                           &c};
  const StringView pattern = c.attributes->get_string("pattern", "");
  const char* wrong = compile_regex(pattern, memory, s);
  if (wrong == nullptr) return OPFORGE_STATUS_OK;
  return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "the pattern '%.*s' cannot be used: %s",
                static_cast<int>(lesser<int64_t>(pattern.size, 200)), pattern.data, wrong);
}

Status regex_infer(InferContext& c) {
  if (Status status = check_movable(c, -1)) return status;
  if (!is_string(c.inputs[0]) || c.outputs[0].dtype != DType::kBool)
    return c.fail(&c, OPFORGE_STATUS_INVALID_ARGUMENT, "RegexFullMatch takes strings and gives bool");
  c.outputs[0].shape = c.inputs[0].shape;
  c.scratch_bytes = static_cast<int64_t>(static_cast<Regex*>(c.state)->scratch());
  return OPFORGE_STATUS_OK;
}

Status regex_run(RunContext& c) {
  const Regex& regex = *static_cast<Regex*>(c.state);
  const Tensor& x = c.inputs[0];
  for (int64_t k = 0; k < x.shape.elements(); ++k)
    c.outputs[0].as<uint8_t>()[k] = regex.match(text_at(*c.texts, x, k), c.scratch);
  return OPFORGE_STATUS_OK;
}

constexpr OpKernel kRows[] = {
    {"", "RegexFullMatch", 20, kNewest, regex_load, regex_infer, regex_run, kStrings},
};

}  // namespace
}  // namespace opforge

OPFORGE_KERNELS(regex, opforge::kRows);
