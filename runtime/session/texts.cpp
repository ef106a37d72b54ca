// texts.cpp: texts of a run, kept in chunks that are given back when it ends.
#include "session/texts.h"

#include <new>

namespace opforge::session {

bool RunTexts::refer(const char* data, int64_t size, uint32_t* number) {
  if (size == 0) {
    *number = 0;
    return true;
  }
  constexpr auto kView = static_cast<int64_t>(sizeof(StringView));
  if (views_.size() >= UINT32_MAX - first_ || !affordable(kView)) return false;
  const auto next = static_cast<uint32_t>(first_ + views_.size());
  try {
    views_.push_back({data, size});
  } catch (const std::bad_alloc&) {  // no exception passes through a kernel
    return false;
  }
  charge(kView);
  *number = next;
  return true;
}

char* RunTexts::make(int64_t size, uint32_t* number) {
  if (size < 0) return nullptr;
  if (size > left_ || free_ == nullptr) {
    const int64_t bytes = size > kChunk ? size : kChunk;
    if (!affordable(bytes)) return nullptr;
    std::unique_ptr<char[]> chunk(new (std::nothrow) char[static_cast<size_t>(bytes)]);
    if (chunk == nullptr) return nullptr;
    char* begin = chunk.get();
    try {
      chunks_.push_back(std::move(chunk));
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
    free_ = begin;
    left_ = bytes;
    charge(bytes);
  }
  char* made = free_;
  if (!refer(made, size, number)) return nullptr;
  free_ += size;
  left_ -= size;
  return made;
}

void RunTexts::clear() {
  views_ = {};
  chunks_.clear();
  free_ = nullptr;
  left_ = 0;
  pool_.charge(-charged_);
  charged_ = 0;
}

}  // namespace opforge::session
