// ranges_itt.cpp: Intel's side of ranges.h. A collector is found through INTEL_LIBITTNOTIFY64. One with
// __itt_api_init is given a description of the program: a list of names with pointers, which it points at its
// functions; a simpler one exports the functions by name. Domains and names of tasks are records that the
// collector reads; where it has no function to make them, they are made here.
//
// The records are those of ITT's API 3, which is frozen; a test holds them against an installed header.
#include <dlfcn.h>
#include <pthread.h>

#include <cstdint>
#include <new>

#include "session/ranges.h"

namespace opforge::session {
namespace {

struct Domain {
  volatile int flags = 1;  // enabled
  const char* name = nullptr;
  void* wide = nullptr;
  int extra1 = 0;
  void* extra2 = nullptr;
  Domain* next = nullptr;
};
struct Name {
  const char* text = nullptr;
  void* wide = nullptr;
  int extra1 = 0;
  void* extra2 = nullptr;
  Name* next = nullptr;
};
struct Id {
  unsigned long long d1, d2, d3;
};
constexpr Id kNoId = {0, 0, 0};

struct {
  void* domain;  // void* (const char* name)
  void* string;  // void* (const char* text)
  void* begin;   // void (const void* domain, Id task, Id parent, void* name)
  void* end;     // void (const void* domain)
} functions;

void nothing() {}
void* const kNothing = reinterpret_cast<void*>(nothing);
bool present(void* function) { return function != nullptr && function != kNothing; }

struct Api {
  const char* name;
  void** function;
  void *initial, *none;
  int group;
};
enum : int { kAll = -1, kStructure = 1 << 12 };
Api apis[] = {
    {"__itt_domain_create", &functions.domain, nullptr, kNothing, kStructure},
    {"__itt_string_handle_create", &functions.string, nullptr, kNothing, kStructure},
    {"__itt_task_begin", &functions.begin, nullptr, kNothing, kStructure},
    {"__itt_task_end", &functions.end, nullptr, kNothing, kStructure},
    {nullptr, nullptr, nullptr, nullptr, 0},
};

struct Global {
  unsigned char magic[8] = {0xED, 0xAB, 0xAB, 0xEC, 0x0D, 0xEE, 0xDA, 0x30};
  unsigned long major = 3, minor = 24, build = 20230630;
  volatile long api_initialized = 0, mutex_initialized = 0, counter = 0;
  pthread_mutex_t mutex;
  void* library = nullptr;
  void* error_handler = nullptr;
  const char** library_path = nullptr;
  Api* apis = session::apis;
  Global* next = nullptr;
  void* threads = nullptr;
  Domain* domains = nullptr;
  Name* names = nullptr;
  int state = 0;
  void* counters = nullptr;
  unsigned collect = 0;
  void* histograms = nullptr;
  void* metadata = nullptr;
} global;

void* collector_domain = nullptr;

void start(void* library) {
  using Initialize = void (*)(Global*, int);
  const auto initialize = reinterpret_cast<Initialize>(::dlsym(library, "__itt_api_init"));
  if (initialize == nullptr) {
    for (Api* api = apis; api->name != nullptr; ++api) *api->function = ::dlsym(library, api->name);
    return;
  }
  pthread_mutexattr_t recursive;
  pthread_mutexattr_init(&recursive);
  pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&global.mutex, &recursive);
  pthread_mutexattr_destroy(&recursive);
  global.mutex_initialized = 1;
  global.library = library;
  initialize(&global, kAll);
  global.api_initialized = 1;
}

void* make_domain(const char* name) {
  if (present(functions.domain)) return reinterpret_cast<void* (*)(const char*)>(functions.domain)(name);
  auto* made = new (std::nothrow) Domain;
  if (made == nullptr) return nullptr;
  made->name = name;
  made->next = global.domains;
  return global.domains = made;
}

void* make_name(const char* text) {
  if (present(functions.string)) return reinterpret_cast<void* (*)(const char*)>(functions.string)(text);
  pthread_mutex_lock(&global.mutex);
  auto* made = new (std::nothrow) Name;
  if (made != nullptr) {
    made->text = text;
    made->next = global.names;
    global.names = made;
  }
  pthread_mutex_unlock(&global.mutex);
  return made;
}

}  // namespace

bool attach_itt(void* library, Ranges* ranges) {
  start(library);
  if (!present(functions.begin) || !present(functions.end)) return false;
  if (global.mutex_initialized == 0 && !present(functions.string)) return false;
  collector_domain = make_domain("opforge");
  if (collector_domain == nullptr) return false;
  ranges->handle = make_name;
  ranges->push = [](void* name) {
    reinterpret_cast<void (*)(const void*, Id, Id, void*)>(functions.begin)(collector_domain, kNoId, kNoId,
                                                                            name);
  };
  ranges->pop = [] { reinterpret_cast<void (*)(const void*)>(functions.end)(collector_domain); };
  return true;
}

}  // namespace opforge::session
