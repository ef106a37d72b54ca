// dynamic_strings.cpp: tensors of strings between callers, who have opforge_string elements, and a run, which
// has numbers of texts.
#include <cstdlib>
#include <cstring>

#include "session/dynamic.h"
#include "session/session.h"

namespace opforge::session {

Status DynamicRun::take_strings(const Tensor& given, const std::string& name, Item* item, Error* error) {
  error_ = error;
  item->tensor = given;
  const int64_t n = given.shape.elements();
  if (allocate_bytes(n * static_cast<int64_t>(sizeof(uint32_t)), &item->memory)) return *error;
  item->tensor.data = item->memory.data();
  const auto* from = given.as<opforge_string>();
  for (int64_t k = 0; k < n; ++k) {
    const opforge_string& text = from[k];
    if (text.size < 0 || (text.data == nullptr && text.size > 0) ||
        !valid_utf8(text.data, static_cast<size_t>(text.size))) {
      return error->fail(OPFORGE_STATUS_INVALID_ARGUMENT, "an element of an input is no valid text")
          .at("input '%s', element %lld", name.c_str(), static_cast<long long>(k))
          .wanted("UTF-8 and its size in bytes");
    }
    if (!texts_.refer(text.data, text.size, item->tensor.as<uint32_t>() + k)) {
      return error->fail(OPFORGE_STATUS_OUT_OF_MEMORY, "the texts of an input take more memory than there is")
          .at("input '%s'", name.c_str())
          .advise("raise memory_limit where one is set");
    }
  }
  return OPFORGE_STATUS_OK;
}

Status give_strings(const Tensor& from, const Texts& texts, Result* result, Error* error) {
  const int64_t n = from.shape.elements();
  int64_t bytes = n * static_cast<int64_t>(sizeof(opforge_string));
  for (int64_t k = 0; k < n; ++k) {
    if (__builtin_add_overflow(bytes, texts.text(from.as<uint32_t>()[k]).size + 1, &bytes))
      return error->fail(OPFORGE_STATUS_OUT_OF_MEMORY, "an output of strings has an impossible size");
  }
  void* data = std::malloc(bytes == 0 ? 1 : static_cast<size_t>(bytes));
  if (data == nullptr) {
    return error->fail(OPFORGE_STATUS_OUT_OF_MEMORY, "no memory for an output")
        .found("%lld bytes asked for", static_cast<long long>(bytes));
  }
  result->memory.emplace_back(data, std::free);
  result->tensors.push_back(from);
  result->tensors.back().data = data;
  auto* strings = static_cast<opforge_string*>(data);
  char* to = reinterpret_cast<char*>(strings + n);
  for (int64_t k = 0; k < n; ++k) {
    const StringView text = texts.text(from.as<uint32_t>()[k]);
    if (text.size > 0) std::memcpy(to, text.data, static_cast<size_t>(text.size));
    to[text.size] = '\0';
    strings[k] = {to, text.size};
    to += text.size + 1;
  }
  return OPFORGE_STATUS_OK;
}

}  // namespace opforge::session
