// library.h: a library such as cuSPARSE as a variant beside an operator's own kernels. It is opened when a
// call first asks for the variant, never linked: kernel libraries load, and their own kernels run, where it
// is not.
//
//   struct Cusolver {  // what the variant needs of it; opforge/cuda/cusparse.h and cublas.h are whole ones
//     static constexpr LibraryRow kRow = {...};  // its name, files, variable and package
//     static constexpr LibraryError kErrors[] = {{1, "CUSOLVER_STATUS_NOT_INITIALIZED", ...}};
//     int (*property)(int which, int* value);  // its version: may be left out
//     int (*create)(void** handle);
//     int (*set_stream)(void* handle, cudaStream_t stream);
//     int (*potrf)(void* handle, ...);
//     template <class Each>
//     void calls(Each each) {
//       each("cusolverGetProperty", property);
//       each("cusolverDnCreate", create);
//       ...
//     }
//     int bind(void* handle, cudaStream_t stream) const { return set_stream(handle, stream); }
//   };
//
//   auto launch = context.launch(out.size());
//   if (!launch) return launch.status();
//   const opforge_choice choice = context.tuned(x, out);
//   if (choice.variant == kByLibrary) {
//     opforge::cuda::Use<Cusolver> library(launch, choice);
//     if (library) library.ok("cusolverDnPotrf", library->potrf(library.handle(), ...));
//     if (!library.missed()) return launch.finish();
//   }
//   ... the operator's own kernels, which write every output
//
// Handles belong to a process and a device; a call borrows one, so that two threads never share it at a time.
// Making one allocates, and may wait: that happens in the first call outside a captured graph. Nothing else
// does: workspaces come from library.workspace.
#pragma once

#include <dirent.h>
#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "opforge/cuda/element.cuh"
#include "opforge/cuda/launch.h"
#include "opforge/cuda/tuning.h"

namespace opforge {
namespace cuda {

struct LibraryRow {
  const char* name;      // for people
  const char* files;     // by preference, blanks between them
  const char* variable;  // of the environment: the file to open instead
  const char* package;   // what pip installs
};

// A number that the library's calls return, its name, and what it is to the operator's caller. UNSUPPORTED:
// this call is not for the library, and the operator's own kernels serve it. Numbers without a row are
// INTERNAL.
struct LibraryError {
  int number;
  const char* name;
  opforge_status status;
};

// cudaDataType_t, which library_types.h has and the emulator has not.
template <class T>
struct DataType;
template <>
struct DataType<float> {
  static constexpr int value = 0;
};
template <>
struct DataType<double> {
  static constexpr int value = 1;
};
template <>
struct DataType<__half> {
  static constexpr int value = 2;
};
template <>
struct DataType<__nv_bfloat16> {
  static constexpr int value = 14;
};

namespace detail {

inline std::vector<std::string> split(const char* words) {
  std::vector<std::string> found;
  for (const char* at = words; *at != 0;) {
    const size_t length = std::strcspn(at, " ");
    found.emplace_back(at, length);
    at += length;
    while (*at == ' ') ++at;
  }
  return found;
}

// The folders of Python packages that something in this process was loaded from: NVIDIA's packages lie
// beside.
inline std::vector<std::string> package_folders() {
  std::vector<std::string> found;
  const auto look = [](dl_phdr_info* object, size_t, void* to) {
    auto* folders = static_cast<std::vector<std::string>*>(to);
    const std::string path = object->dlpi_name != nullptr ? object->dlpi_name : "";
    for (const char* name : {"/site-packages/", "/dist-packages/"}) {
      const size_t at = path.find(name);
      if (at == std::string::npos) continue;
      const std::string folder = path.substr(0, at + std::strlen(name));
      bool known = false;
      for (const std::string& one : *folders) known = known || one == folder;
      if (!known) folders->push_back(folder);
    }
    return 0;
  };
  dl_iterate_phdr(look, &found);
  return found;
}

// Where NVIDIA's packages put libraries: nvidia/cu13/lib, nvidia/cusparse/lib.
inline std::vector<std::string> library_folders() {
  std::vector<std::string> found;
  for (const std::string& packages : package_folders()) {
    DIR* folder = opendir((packages + "nvidia").c_str());
    if (folder == nullptr) continue;
    const auto before = static_cast<std::ptrdiff_t>(found.size());
    while (const dirent* entry = readdir(folder)) {
      if (entry->d_name[0] != '.') found.push_back(packages + "nvidia/" + entry->d_name + "/lib/");
    }
    closedir(folder);
    // As `opforge doctor` shows them. CUDA 12's and 13's cuSPARSE have the same name.
    std::sort(found.begin() + before, found.end());
  }
  for (const char* system : {"/usr/local/cuda/lib64/", "/opt/cuda/lib64/"}) found.emplace_back(system);
  return found;
}

// The library's version as one number, 0 where it has no call that tells.
template <class Calls>
auto version_of(const Calls& calls, int) -> decltype(calls.property(0, nullptr), int()) {
  int part[3] = {};  // MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL
  for (int which = 0; which < 3; ++which) {
    if (calls.property(which, &part[which]) != 0) return 0;
  }
  return 1000000 * part[0] + 1000 * part[1] + part[2];
}
template <class Calls>
int version_of(const Calls&, long) {
  return 0;
}
inline std::string version_text(int version) {
  return std::to_string(version / 1000000) + "." + std::to_string(version / 1000 % 1000) + "." +
         std::to_string(version % 1000);
}

// Opens the library: the file that the environment names; else what the process has already, the packages',
// the system's. Null where there is none that can be opened; `why` has the loader's words then.
inline void* open_library(const LibraryRow& row, std::string* why) {
  const auto opened = [why](const std::string& file, int more) {
    void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | more);
    const char* words = library == nullptr && more == 0 ? dlerror() : nullptr;
    if (words != nullptr) *why += (why->empty() ? "" : "; ") + std::string(words);
    return library;
  };
  const char* named = std::getenv(row.variable);
  if (named != nullptr && named[0] != 0) return opened(named, 0);
  const std::vector<std::string> files = split(row.files);
  for (const std::string& file : files) {
    if (void* library = opened(file, RTLD_NOLOAD)) return library;
  }
  for (const std::string& folder : library_folders()) {
    for (const std::string& file : files) {
      if (access((folder + file).c_str(), F_OK) != 0) continue;
      if (void* library = opened(folder + file, 0)) return library;
    }
  }
  for (const std::string& file : files) {
    if (void* library = opened(file, 0)) return library;
  }
  return nullptr;
}

}  // namespace detail

// The library in this process: its calls, why it is not here, and handles that nobody uses at the moment.
template <class Calls>
class __attribute__((visibility("hidden")))
Library {  // of this kernel library: others have handles of their own
 public:
  // Opened once; it stays open, and handles are not destroyed: at the end of the process the driver may be
  // gone first.
  static Library& get() {
    static Library* const made = new Library;
    return *made;
  }

  explicit operator bool() const { return open_; }
  const Calls& calls() const { return calls_; }
  const std::string& why() const { return why_; }
  int version() const { return version_; }

  void* take(int device) {
    const std::lock_guard<std::mutex> lock(guard_);
    for (size_t k = 0; k < free_.size(); ++k) {
      if (free_[k].device != device) continue;
      void* handle = free_[k].handle;
      free_[k] = free_.back();
      free_.pop_back();
      return handle;
    }
    return nullptr;
  }
  void give(int device, void* handle) {
    const std::lock_guard<std::mutex> lock(guard_);
    free_.push_back({device, handle});
  }
  // Whether this is the first time that it is asked.
  bool first_miss() { return !told_.exchange(true); }

 private:
  struct Handle {
    int device;
    void* handle;
  };

  Library() {
    void* library = detail::open_library(Calls::kRow, &why_);
    if (library == nullptr) return;
    open_ = true;
    calls_.calls([this, library](const char* name, auto& call) {
      void* const symbol = dlsym(library, name);
      std::memcpy(&call, &symbol, sizeof symbol);
      if (symbol != nullptr) return;
      open_ = false;
      if (why_.empty()) why_ = std::string("it has no ") + name + ": the library is too old, or another one";
    });
    if (open_) version_ = detail::version_of(calls_, 0);
  }

  bool open_ = false;
  int version_ = 0;
  Calls calls_ = {};
  std::string why_;
  std::mutex guard_;
  std::vector<Handle> free_;
  std::atomic<bool> told_{false};
};

// The library during one launch: a handle that is bound to the launch's stream. Calls that fail are the
// launch's error; but where the choice is optional (what `opforge tune` stored), what the library cannot do
// is `missed`, and left to the operator's own kernels. So is the first call of a device inside a captured
// graph, where no handle can be made.
template <class Calls>
class Use {
 public:
  Use(Launch& launch, const opforge_choice& choice) : launch_(launch), optional_(choice.optional != 0) {
    Library<Calls>& library = Library<Calls>::get();
    if (!library) {
      absent(library.why());
      return;
    }
    if (choice.optional > 1 && choice.optional != library.version()) {
      miss(std::string(Calls::kRow.name) + " is " + detail::version_text(library.version()) +
           " here, while the choice was measured with " + detail::version_text(choice.optional) +
           "\n  to do: run `opforge tune` again");
      return;
    }
    if (!optional_) tell(library.version());
    device_ = launch.context()->device.id;
    handle_ = library.take(device_);
    if (handle_ == nullptr && !made(library)) return;
    bound_ = ok("binding a handle to the stream", library.calls().bind(handle_, launch.stream()));
  }
  ~Use() {
    if (handle_ != nullptr) Library<Calls>::get().give(device_, handle_);
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  explicit operator bool() const { return bound_; }
  bool missed() const { return missed_; }
  void* handle() const { return handle_; }
  const Calls* operator->() const { return &Library<Calls>::get().calls(); }

  // Whether a call of the library's succeeded.
  bool ok(const char* call, int number) {
    if (number == 0) return true;
    LibraryError error = {number, "an error without a name", OPFORGE_STATUS_INTERNAL};
    for (const LibraryError& one : Calls::kErrors) {
      if (one.number == number) error = one;
    }
    return miss(error.status, std::string(Calls::kRow.name) + ": " + call + ": " + error.name + " (" +
                                  std::to_string(number) + ")");
  }
  // Memory of the device until the launched work has run; null where the host has none, which is told.
  void* workspace(size_t bytes) {
    opforge_context* context = launch_.context();
    void* memory =
        context->scratch != nullptr ? context->scratch(context, bytes > 0 ? bytes : 1, 256) : nullptr;
    if (memory == nullptr)
      miss(optional_ ? OPFORGE_STATUS_UNSUPPORTED : OPFORGE_STATUS_OUT_OF_MEMORY,
           std::string(Calls::kRow.name) + ": no memory on the GPU for a workspace of " +
               std::to_string(bytes) + " bytes");
    return memory;
  }
  // Says that the library cannot serve this call, for a reason of the operator's.
  bool miss(const std::string& text) { return miss(OPFORGE_STATUS_UNSUPPORTED, text); }

 private:
  bool miss(opforge_status status, const std::string& text) {
    if (optional_ && status == OPFORGE_STATUS_UNSUPPORTED) {
      missed_ = true;
      opforge_context* context = launch_.context();
      if (context->log != nullptr && Library<Calls>::get().first_miss())
        context->log(context, OPFORGE_LOG_WARNING,
                     (text + "\n  the operator's own kernels run instead").c_str());
    } else {
      launch_.refuse(status, text.c_str());
    }
    return false;
  }

  // Lets `opforge tune` know with which version it measures.
  void tell(int version) const {
    auto* tuning = static_cast<opforge_tuning*>(const_cast<void*>(launch_.context()->kernel_data));
    if (tuning != nullptr) __atomic_store_n(&tuning->library, version, __ATOMIC_RELAXED);
  }

  void absent(const std::string& why) {
    const LibraryRow& row = Calls::kRow;
    std::string files = row.files;
    for (size_t at = 0; (at = files.find(' ', at)) != std::string::npos; at += 4)
      files.replace(at, 1, " or ");
    const char* named = std::getenv(row.variable);
    if (named != nullptr && named[0] != 0) files = std::string(row.variable) + " that names " + files;
    miss(std::string(row.name) + " is not here\n  expected: " + files + "\n  got: " + why +
         "\n  to do: pip install " + row.package + ", or name the file in " + row.variable +
         "; `opforge doctor` shows what is found");
  }

  bool made(Library<Calls>& library) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(launch_.stream(), &capture) != cudaSuccess ||
        capture != cudaStreamCaptureStatusNone) {
      static_cast<void>(cudaGetLastError());
      return miss(std::string(Calls::kRow.name) +
                  " cannot be started while a graph is captured\n  to do: call the operator once before");
    }
    // It allocates, which CUDA forbids while another thread captures a graph, and breaks that capture;
    // relaxed, this thread's calls are its own matter.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    if (!launch_.ok(cudaThreadExchangeStreamCaptureMode(&mode))) return false;
    const int status = library.calls().create(&handle_);
    launch_.ok(cudaThreadExchangeStreamCaptureMode(&mode));
    return ok("making a handle", status);
  }

  Launch& launch_;
  const bool optional_;
  int device_ = 0;
  void* handle_ = nullptr;
  bool bound_ = false, missed_ = false;
};

// What a library describes a tensor by, destroyed with the scope.
class Descriptor {
 public:
  explicit Descriptor(int (*destroy)(void*)) : destroy_(destroy) {}
  ~Descriptor() {
    if (at_ != nullptr) destroy_(at_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  void** made() { return &at_; }
  void* get() const { return at_; }

 private:
  void* at_ = nullptr;
  int (*destroy_)(void*);
};

}  // namespace cuda
}  // namespace opforge
