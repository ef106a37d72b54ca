// registry_test.cpp: every row of every kernel table is found under its domain, name and versions, and no two
// rows serve the same one.
#include "program/registry.h"

#include <cstdio>
#include <cstring>

namespace opforge {
extern const KernelTable* const kernel_tables[];
extern const int kernel_table_count;
}  // namespace opforge

namespace {

opforge::StringView view(const char* text) { return {text, static_cast<int64_t>(std::strlen(text))}; }

int check(const opforge::OpKernel& row, int32_t version) {
  if (opforge::find_kernel(view(row.domain), view(row.name), version) == &row) return 0;
  std::fprintf(stderr, "registry_test: %s::%s version %d finds another row or none\n", row.domain, row.name,
               version);
  return 1;
}

}  // namespace

int main() {
  int rows = 0, failures = 0;
  for (int t = 0; t < opforge::kernel_table_count; ++t) {
    for (int32_t r = 0; r < opforge::kernel_tables[t]->count; ++r, ++rows) {
      const opforge::OpKernel& row = opforge::kernel_tables[t]->rows[r];
      failures += check(row, row.since_first) + check(row, row.since_last);
    }
  }
  if (!opforge::registry_complete()) {
    std::fprintf(stderr, "registry_test: %d rows are more than the table holds\n", rows);
    ++failures;
  }
  if (opforge::knows_operator(view("opforge"), view("Nothing")) ||
      opforge::find_kernel(view(""), view("MatMul"), -1) != nullptr) {
    std::fprintf(stderr, "registry_test: finds what is not there\n");
    ++failures;
  }
  if (failures == 0 && rows > 0) std::printf("registry_test: %d rows\n", rows);
  return failures == 0 && rows > 0 ? 0 : 1;
}
