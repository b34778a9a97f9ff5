// The other entry points that Foundry's driver table needs: they exist and refuse.
#define X(name, symbol, type, need) \
  __attribute__((visibility("default"), weak)) int symbol(void) { return 801; }
#include "csrc/driver/entry_points.h"
FOUNDRY_DRIVER_ENTRY_POINTS(X)
