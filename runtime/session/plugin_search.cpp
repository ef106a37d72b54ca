// plugin_search.cpp: finds the library of a kernel operator. Only folders that the caller, the environment or
// installed packages name are searched; never the model's folder or the working directory.
#include <dlfcn.h>
#include <sys/stat.h>

#include <cstdlib>
#include <utility>

#include "session/plugin.h"
#include "session/plugin_kernel.h"

namespace opforge::session {
namespace {

bool is_folder(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

bool exists(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0;
}

std::vector<std::string> split(const char* text) {
  std::vector<std::string> parts;
  std::string part;
  for (const char* p = text; p != nullptr; ++p) {
    if (*p != ':' && *p != '\0') {
      part += *p;
      continue;
    }
    if (!part.empty()) parts.push_back(part);
    part.clear();
    if (*p == '\0') break;
  }
  return parts;
}

// Opened once per process and never closed: kernels may hold threads and caches of their own.
const opforge_library* open_library(const std::string& path, std::string* why) {
  if (path.find('/') == std::string::npos) {  // dlopen would search the system's folders
    *why = "not a path";
    return nullptr;
  }
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    *why = ::dlerror();
    return nullptr;
  }
  const auto entry = reinterpret_cast<opforge_library_fn>(::dlsym(handle, "opforge_library_v1"));
  if (entry == nullptr) {
    *why = "it exports no opforge_library_v1, so it is no kernel library";
    return nullptr;
  }
  char reason[512] = "no reason given";
  opforge_host host = {};
  host.size = sizeof host;
  host.abi = OPFORGE_ABI;
  host.name = "opforge";
  host.version = OPFORGE_VERSION;
  host.reason = reason;
  host.reason_size = sizeof reason;
  const opforge_library* library = entry(&host);
  if (library == nullptr) {
    reason[sizeof reason - 1] = '\0';
    *why = reason;
    return nullptr;
  }
  if (library->abi != OPFORGE_ABI) {
    *why = "its ABI is " + std::to_string(library->abi) + ", this runtime has " + std::to_string(OPFORGE_ABI);
    return nullptr;
  }
  return library;
}

}  // namespace

Plugins::Plugins(const Program& program, const Options& options) : program_(program), options_(options) {}
Plugins::~Plugins() = default;

std::string Plugins::text(uint32_t id) const {
  const StringView view = program_.text(id);
  return std::string(view.data, static_cast<size_t>(view.size));
}

const format::Operator* Plugins::required(StringView domain, StringView name, int32_t version) const {
  for (uint32_t k = 0; k < program_.n_operators; ++k) {
    const format::Operator& op = program_.operators[k];
    if (op.version == version && same_text(program_.text(op.name), name) &&
        same_text(program_.text(op.domain), domain)) {
      return &op;
    }
  }
  return nullptr;
}

void Plugins::warn(const std::string& message) const {
  if (options_.log != nullptr)
    options_.log(options_.log_user, OPFORGE_LOG_WARNING, message.c_str());
  else
    std::fprintf(stderr, "opforge: warning: %s\n", message.c_str());
}

std::vector<std::string> Plugins::candidates(const std::string& library, std::string* looked) const {
  std::vector<std::pair<std::string, const char*>> places;
  for (const std::string& place : options_.libraries) places.emplace_back(place, "libraries=");
  for (const std::string& place : split(std::getenv("OPFORGE_LIBRARY_PATH")))
    places.emplace_back(place, "OPFORGE_LIBRARY_PATH");
  for (const std::string& place : options_.search) places.emplace_back(place, "installed package");
  std::vector<std::string> files;
  for (const auto& [place, origin] : places) {
    if (!is_folder(place)) {
      if (exists(place))
        files.push_back(place);
      else
        *looked += "\n    " + place + " (" + origin + "): there is no such file";
      continue;
    }
    bool found = false;
    // The id of a library is its package's name; its file has underscores for the dots.
    std::string stem = library;
    for (char& c : stem) c = c == '.' ? '_' : c;
    for (const std::string& name : {stem + ".so", "lib" + stem + ".so", library + ".so"}) {
      if (!exists(place + "/" + name)) continue;
      files.push_back(place + "/" + name);
      found = true;
      break;
    }
    if (!found) *looked += "\n    " + place + " (" + origin + "): it holds no " + stem + ".so";
  }
  if (places.empty())
    *looked += "\n    nowhere: no libraries=, no OPFORGE_LIBRARY_PATH, no installed operator package";
  return files;
}

const opforge_operator* Plugins::look_in(const std::string& path, const format::Operator& op,
                                         std::string* why) const {
  const opforge_library* library = open_library(path, why);
  if (library == nullptr) return nullptr;
  for (int32_t k = 0; k < library->n_operators; ++k) {
    const opforge_operator* row = library->operators[k];
    if (text(op.domain) != row->domain || text(op.name) != row->name || op.version != row->since_version)
      continue;
    if (text(op.schema_hash) != row->schema_hash) {
      *why = "its schema of the operator differs (" + std::string(row->schema_hash) + ", the file has " +
             text(op.schema_hash) + ")";
      return nullptr;
    }
    const std::string content = text(op.content_hash);
    if (!content.empty() && content != library->content_hash) {
      warn(path + " has another build of " + text(op.domain) + "::" + text(op.name) +
           " than the model was compiled with (content hash " + library->content_hash + ", the file has " +
           content + ")");
    }
    return row;
  }
  *why = "it does not hold the operator";
  return nullptr;
}

Status Plugins::find(const format::Operator& op, const opforge_operator** row, Error* error) {
  for (const Found& found : found_) {
    if (found.op == &op) {
      *row = found.row;
      return OPFORGE_STATUS_OK;
    }
  }
  const std::string name = text(op.domain) + "::" + text(op.name) + ":" + std::to_string(op.version);
  if (!options_.allow_native) {
    return error
        ->fail(OPFORGE_STATUS_NOT_FOUND, "the model needs a kernel library, and native code is refused")
        .at("operator %s", name.c_str())
        .wanted("library '%s'", text(op.library).c_str())
        .advise("open the session with allow_native=True if you trust the library");
  }
  std::string looked;
  for (const std::string& path : candidates(text(op.library), &looked)) {
    std::string why;
    *row = look_in(path, op, &why);
    if (*row != nullptr) {
      found_.push_back({&op, *row});
      return OPFORGE_STATUS_OK;
    }
    looked += "\n    " + path + ": " + why;
  }
  return error->fail(OPFORGE_STATUS_NOT_FOUND, "the kernel library of an operator is not found")
      .at("operator %s", name.c_str())
      .wanted("library '%s' with schema %s", text(op.library).c_str(), text(op.schema_hash).c_str())
      .found("looked in:%s", looked.c_str())
      .advise("install the operator's package, or pass its library (`libraries=`, OPFORGE_LIBRARY_PATH)");
}

Status Plugins::open(const format::Operator& op, const NodeInfo& node, const PluginKernel** kernel,
                     Error* error) {
  const opforge_operator* row = nullptr;
  if (find(op, &row, error)) return *error;
  auto made = std::make_unique<PluginKernel>();
  if (made->prepare(program_, *row, node, error)) return *error;
  *kernel = made.get();
  kernels_.push_back(std::move(made));
  return OPFORGE_STATUS_OK;
}

}  // namespace opforge::session
