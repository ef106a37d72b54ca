// libraries.h: the kernel libraries in the folders of OPFORGE_LIBRARY_PATH, for processes without Python.
#pragma once

#include <dirent.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/library.h"

namespace opforge::adapter {

// Calls define(table operator) for what frameworks and engines may call: gradients belong to their operators.
// A folder may hold other files too; only a library that refuses this host is told of.
template <class Define>
void define_library(const std::string& path, const char* host_name, Define define) {
  const opforge_library* table = nullptr;
  try {
    table = open_library(path, host_name);
  } catch (const Failure& problem) {
    if (problem.status == OPFORGE_STATUS_UNSUPPORTED) std::fprintf(stderr, "opforge: %s\n", problem.what());
    return;
  }
  for (int32_t k = 0; k < table->n_operators; ++k) {
    const bool gradient = (table->operators[k]->flags & OPFORGE_OPERATOR_GRADIENT) != 0;
    if (!gradient) define(table->operators[k]);
  }
}

// The variable names folders by absolute paths, as the runtime reads it.
template <class Define>
void define_libraries(const char* host_name, Define define) {
  const char* const variable = std::getenv("OPFORGE_LIBRARY_PATH");
  const std::string text = variable ? variable : "";
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(':', begin), text.size());
    const std::string folder = text.substr(begin, end - begin);
    begin = end + 1;
    if (folder.empty() || folder[0] != '/') continue;
    DIR* const open = ::opendir(folder.c_str());
    if (open == nullptr) continue;
    std::vector<std::string> files;
    while (const dirent* entry = ::readdir(open)) {
      const std::string name = entry->d_name;
      if (name.size() > 3 && name.compare(name.size() - 3, 3, ".so") == 0)
        files.push_back(folder + "/" + name);
    }
    ::closedir(open);
    std::sort(files.begin(), files.end());
    for (const std::string& file : files) define_library(file, host_name, define);
  }
}

}  // namespace opforge::adapter
