/* fake_nvtx.c: a tool as NVTX_INJECTION64_PATH names it; writes what it is told to stderr. */
#include <stdint.h>
#include <stdio.h>

typedef void (*function)(void);
struct callbacks {
  size_t size;
  int (*module_table)(uint32_t module, function*** table, unsigned* size);
};

static int depth = 0;
static int push(const char* name) {
  fprintf(stderr, "push %d %s\n", depth, name);
  return depth++;
}
static int pop(void) {
  fprintf(stderr, "pop %d\n", --depth);
  return depth;
}

int InitializeInjectionNvtx2(const void* (*export_table)(uint32_t)) {
  const struct callbacks* found = export_table(1);
  function** table;
  unsigned size = 0;
  if (found == NULL || found->size < sizeof *found || !found->module_table(1, &table, &size) || size < 12)
    return 0;
  *table[9] = (function)push;
  *table[11] = (function)pop;
  return 1;
}
