// available.cpp: how many threads make sense here: the environment, the affinity mask, the cgroup's CPU
// quota.
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "threads/pool.h"

namespace opforge {
namespace {

constexpr int32_t kMost = 256;

// CPUs that a quota stands for, rounded up; kMost when there is none.
int32_t quota_cpus(double quota, double period) {
  if (quota <= 0 || period <= 0) return kMost;
  const double cpus = quota / period;
  return cpus >= kMost ? kMost : static_cast<int32_t>(cpus) + (cpus > static_cast<int32_t>(cpus) ? 1 : 0);
}

int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }

// cgroup v2: "max 100000" or "150000 100000" in cpu.max of the process's group and of those above it.
int32_t cgroup_v2_cpus() {
  std::FILE* file = std::fopen("/proc/self/cgroup", "re");
  if (file == nullptr) return kMost;
  char line[1024], path[1400] = "";
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::strncmp(line, "0::", 3) == 0) {
      line[std::strcspn(line, "\n")] = '\0';
      std::snprintf(path, sizeof path, "/sys/fs/cgroup%s", line + 3);
    }
  }
  std::fclose(file);
  int32_t cpus = kMost;
  for (size_t length = std::strlen(path); length >= std::strlen("/sys/fs/cgroup") && length > 0;) {
    char name[1500];
    std::snprintf(name, sizeof name, "%.*s/cpu.max", static_cast<int>(length), path);
    if (std::FILE* limit = std::fopen(name, "re")) {
      double quota = 0, period = 0;
      if (std::fscanf(limit, "%lf %lf", &quota, &period) == 2)
        cpus = smaller(cpus, quota_cpus(quota, period));
      std::fclose(limit);
    }
    path[length] = '\0';
    const char* slash = std::strrchr(path, '/');
    if (slash == nullptr) break;
    length = static_cast<size_t>(slash - path);
    path[length] = '\0';
  }
  return cpus;
}

int32_t cgroup_v1_cpus() {
  double quota = 0, period = 0;
  if (std::FILE* file = std::fopen("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "re")) {
    if (std::fscanf(file, "%lf", &quota) != 1) quota = 0;
    std::fclose(file);
  }
  if (std::FILE* file = std::fopen("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "re")) {
    if (std::fscanf(file, "%lf", &period) != 1) period = 0;
    std::fclose(file);
  }
  return quota_cpus(quota, period);
}

int32_t affinity_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  const long online = sysconf(_SC_NPROCESSORS_ONLN);  // more CPUs than the fixed mask holds
  return online > 0 ? smaller(static_cast<int32_t>(online), kMost) : 1;
}

}  // namespace

int32_t available_threads() {
  if (const char* text = std::getenv("OPFORGE_NUM_THREADS")) {
    char* end = nullptr;
    errno = 0;
    const long number = std::strtol(text, &end, 10);
    if (end != text && *end == '\0' && errno == 0 && number >= 1)
      return smaller(number > kMost ? kMost : static_cast<int32_t>(number), kMost);
  }
  return available_cpus();
}

int32_t available_cpus() {
  const int32_t cpus = smaller(affinity_cpus(), smaller(cgroup_v2_cpus(), cgroup_v1_cpus()));
  return cpus < 1 ? 1 : smaller(cpus, kMost);
}

}  // namespace opforge
