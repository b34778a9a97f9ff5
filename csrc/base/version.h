// The version of this source tree; releases take it from here (foundry.__version__, the wheel, the hook).
#pragma once

#define FOUNDRY_VERSION "0.1.0"
