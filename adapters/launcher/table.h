// table.h: the table of a kernel library, read from the bytes that stand behind the launcher.
#pragma once

#include <stddef.h>

#include <deque>
#include <string>
#include <vector>

#include "launcher/kernels.h"

namespace opforge::launcher {

struct OperatorRow {
  opforge_operator row = {};
  std::vector<int> sum_to;
  std::deque<Kernel> kernels;
  std::vector<const opforge_kernel*> pointers;
};

struct Table {
  opforge_library library = {};
  std::deque<OperatorRow> operators;
  std::vector<const opforge_operator*> pointers;

  // Reads it, once; "", or why it cannot be. The bytes are not copied.
  std::string read(const char* bytes, size_t size);
};

}  // namespace opforge::launcher
