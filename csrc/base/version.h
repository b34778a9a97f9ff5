// The version of this source tree. The build gives it (//csrc/base:version), from git's tags; see tools/version.py.
#pragma once

#ifndef FOUNDRY_VERSION
#define FOUNDRY_VERSION "0.0.0+unknown"
#endif
