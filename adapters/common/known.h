// known.h: the operators that an adapter was told of, and those that the next registration takes. Engines
// keep pointers into it and may outlive everything, so an adapter never frees its own.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/libraries.h"
#include "common/plan.h"

namespace opforge::adapter {

using Keys = std::vector<std::string>;  // domain::Name:version

// What the next registration of this thread takes; empty = the newest version of every operator.
inline Keys& selection() {
  static thread_local Keys keys;
  return keys;
}

// Definition: a Plan with what the adapter's host needs of an operator.
template <class Definition>
struct Known {
  const char* host;  // as people call it
  const char* name;  // as kernel libraries are told it
  std::mutex lock, searching;
  std::map<std::string, std::unique_ptr<Definition>> definitions;

  Known(const char* host_words, const char* host_name) : host(host_words), name(host_name) {}

  // Enters an operator of a table. Doing it again changes nothing; another library's row of it adds its
  // kernels, such as those for another device; another operator of that name is an error.
  void define(const opforge_operator* table) {
    auto definition = std::make_unique<Definition>(table);
    const std::lock_guard<std::mutex> guard(lock);
    const auto known = definitions.find(definition->key);
    if (known == definitions.end()) {
      std::string key = definition->key;
      definitions.emplace(std::move(key), std::move(definition));
      return;
    }
    merge(*known->second, *definition, definition->key, host);
  }

  bool empty() {
    const std::lock_guard<std::mutex> guard(lock);
    return definitions.empty();
  }

  // Where nobody told of any operator yet, those of OPFORGE_LIBRARY_PATH; raises where there are none either.
  // `otherwise` names the function in Python that tells of some.
  void search(const char* otherwise) {
    const std::lock_guard<std::mutex> alone(searching);  // who comes meanwhile needs what is found
    if (!empty()) return;
    define_libraries(name, [&](const opforge_operator* table) { define(table); });
    if (!empty()) return;
    throw failure(OPFORGE_STATUS_NOT_FOUND, "opforge", "no operator is known",
                  std::string("kernel libraries in the folders of OPFORGE_LIBRARY_PATH, or ") + otherwise +
                      " in Python",
                  "", "opforge build PACKAGE --out FOLDER makes a kernel library");
  }

  // Hosts keep one version of an operator, so of several the newest is taken unless a key names another.
  // Called under the lock.
  std::vector<const Definition*> chosen(const Keys& keys) const {
    std::vector<const Definition*> found;
    for (const std::string& key : keys) {
      const auto one = definitions.find(key);
      if (one == definitions.end()) {
        throw failure(OPFORGE_STATUS_NOT_FOUND, key, "the operator is not defined in this process");
      }
      found.push_back(one->second.get());
    }
    if (!keys.empty()) return found;
    std::map<std::string, const Definition*> newest;
    for (const auto& [key, definition] : definitions) {
      const Definition*& best = newest[definition->where];
      if (best == nullptr || best->table->since_version < definition->table->since_version)
        best = definition.get();
    }
    for (const auto& [where, definition] : newest) found.push_back(definition);
    return found;
  }
};

}  // namespace opforge::adapter
