// registry.cpp: a hash table over all rows, made on first use in static memory.
#include "program/registry.h"

namespace opforge {

extern const KernelTable* const kernel_tables[];
extern const int kernel_table_count;

namespace {

constexpr uint32_t kSlots = 2048;  // a power of two, at least twice the rows that fit
constexpr uint32_t kMaxRows = kSlots / 2;

uint32_t hash(StringView domain, StringView name) {
  uint32_t h = 2166136261u;
  for (int64_t k = 0; k < domain.size; ++k) h = (h ^ static_cast<uint8_t>(domain.data[k])) * 16777619u;
  h = (h ^ 0xFF) * 16777619u;
  for (int64_t k = 0; k < name.size; ++k) h = (h ^ static_cast<uint8_t>(name.data[k])) * 16777619u;
  return h;
}

StringView view(const char* text) { return {text, static_cast<int64_t>(std::strlen(text))}; }

struct Index {
  const OpKernel* slots[kSlots] = {};
  uint32_t rows = 0;
  bool complete = true;
  Index() {
    for (int t = 0; t < kernel_table_count; ++t) {
      for (int32_t r = 0; r < kernel_tables[t]->count; ++r, ++rows) {
        if (rows == kMaxRows) {
          complete = false;
          return;
        }
        const OpKernel* row = kernel_tables[t]->rows + r;
        uint32_t at = hash(view(row->domain), view(row->name)) % kSlots;
        while (slots[at] != nullptr) at = (at + 1) % kSlots;
        slots[at] = row;
      }
    }
  }
};

const Index& index() {
  static const Index made;
  return made;
}

// Calls visit for each row of the operator until it returns true.
template <class Visit>
const OpKernel* search(StringView domain, StringView name, Visit visit) {
  const auto& slots = index().slots;
  for (uint32_t at = hash(domain, name) % kSlots; slots[at] != nullptr; at = (at + 1) % kSlots) {
    const OpKernel* row = slots[at];
    if (same_text(domain, row->domain) && same_text(name, row->name) && visit(*row)) return row;
  }
  return nullptr;
}

}  // namespace

const OpKernel* find_kernel(StringView domain, StringView name, int32_t since_version) {
  return search(domain, name, [since_version](const OpKernel& row) {
    return row.since_first <= since_version && since_version <= row.since_last;
  });
}

bool registry_complete() { return index().complete; }

bool knows_operator(StringView domain, StringView name) {
  return search(domain, name, [](const OpKernel&) { return true; }) != nullptr;
}

}  // namespace opforge
