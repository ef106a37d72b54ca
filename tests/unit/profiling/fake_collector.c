/* fake_collector.c: a collector with __itt_api_init, built against ITT's own header: fills in two functions,
 * reads domains and names as records, and writes what it is told to stderr. */
#include <stdio.h>
#include <string.h>

#define INTEL_NO_MACRO_BODY
#define INTEL_ITTNOTIFY_API_PRIVATE
#include "ittnotify.h"
#include "ittnotify_config.h"

static __itt_global* program;

static void begin(const __itt_domain* domain, __itt_id task, __itt_id parent, __itt_string_handle* name) {
  (void)task, (void)parent;
  if (domain != program->domain_list || !domain->flags) fprintf(stderr, "another domain\n");
  fprintf(stderr, "push %s 0 %s\n", domain->nameA, name->strA);
}
static void end(const __itt_domain* domain) { fprintf(stderr, "pop %s\n", domain->nameA); }

void __itt_api_init(__itt_global* global, __itt_group_id groups) {
  const unsigned char magic[] = ITT_MAGIC;
  if (memcmp(global->magic, magic, sizeof magic) != 0 || global->lib == NULL || !global->mutex_initialized)
    return;
  if (pthread_mutex_lock(&global->mutex) != 0 || pthread_mutex_unlock(&global->mutex) != 0) return;
  program = global;
  for (__itt_api_info* api = global->api_list_ptr; api->name != NULL; ++api) {
    if ((api->group & groups & __itt_group_structure) == 0) continue;
    *api->func_ptr = api->null_func;
    if (strcmp(api->name, "__itt_task_begin") == 0) *api->func_ptr = (void*)begin;
    if (strcmp(api->name, "__itt_task_end") == 0) *api->func_ptr = (void*)end;
  }
}
