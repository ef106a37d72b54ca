/* fake_itt.c: a collector as INTEL_LIBITTNOTIFY64 names it; writes what it is told to stderr. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  unsigned long long d1, d2, d3;
} id;

void* __itt_domain_create(const char* name) { return strdup(name); }
void* __itt_string_handle_create(const char* name) { return strdup(name); }
void __itt_task_begin(const void* domain, id task, id parent, void* name) {
  fprintf(stderr, "push %s %llu %s\n", (const char*)domain, task.d1 + parent.d3, (const char*)name);
}
void __itt_task_end(const void* domain) { fprintf(stderr, "pop %s\n", (const char*)domain); }
